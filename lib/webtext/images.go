package webtext

import (
	"net/url"
	"strconv"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Image is an image of a page.
type Image struct {
	URL    string `json:"url"`
	Alt    string `json:"alt,omitempty"`
	Width  int    `json:"width,omitempty"` // in CSS pixels; 0: not stated
	Height int    `json:"height,omitempty"`
}

// Images returns the images of a page in their order, each once: not those of
// one or two pixels, which count visitors, and not those inside the page's own
// text (data:).
func Images(source string, base *url.URL) []Image {
	doc, err := parse(source)
	if err != nil {
		return nil
	}
	var images []Image
	seen := map[string]bool{}
	add := func(i Image) {
		if i.URL != "" && !seen[i.URL] {
			seen[i.URL] = true
			images = append(images, i)
		}
	}
	for n := range doc.Descendants() {
		switch {
		case n.DataAtom == atom.Meta && attribute(n, "property") == "og:image":
			add(Image{URL: resolve(base, attribute(n, "content"))})
		case n.DataAtom == atom.Img:
			i := Image{URL: imageURL(n, base), Alt: strings.Join(strings.Fields(attribute(n, "alt")), " "),
				Width: pixels(n, "width"), Height: pixels(n, "height")}
			if !isTiny(n, "width") && !isTiny(n, "height") {
				add(i)
			}
		}
	}
	return images
}

// imageURL returns the address of an image, also of one that a script of the page
// loads when it comes into view.
func imageURL(n *html.Node, base *url.URL) string {
	for _, name := range []string{"data-src", "data-original", "data-lazy-src", "src"} {
		if u := resolve(base, attribute(n, name)); u != "" {
			return u
		}
	}
	for _, name := range []string{"data-srcset", "srcset"} {
		first, _, _ := strings.Cut(strings.TrimSpace(attribute(n, name)), " ")
		if u := resolve(base, strings.TrimSuffix(first, ",")); u != "" {
			return u
		}
	}
	return ""
}

// pixels returns a length of an image as HTML states it; 0: not in pixels.
func pixels(n *html.Node, name string) int {
	v, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(attribute(n, name)), "px"))
	if err != nil {
		return 0
	}
	return max(v, 0)
}

func isTiny(n *html.Node, name string) bool {
	switch strings.TrimSuffix(strings.TrimSpace(attribute(n, name)), "px") {
	case "0", "1", "2":
		return true
	}
	return false
}
