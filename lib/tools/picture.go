package tools

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"strings"

	"btools/lib/browse"
)

type screenshotArguments struct {
	Target              browse.Target
	Type, Filename      string
	FullPage            bool
	Scale               string
	Annotate, IfChanged bool
	Threshold           *float64
}

// lastPicture is the picture that a result had last.
type lastPicture struct {
	of   string // the tab, and what of it
	data []byte
}

// maxPicture is how large a picture is that is kept to compare the next one with.
const maxPicture = 4 << 20

// check returns an error if no such picture can be taken.
func (a *screenshotArguments) check(r *reply) error {
	if a.Type == "" {
		a.Type = typeOf(a.Filename)
	}
	switch {
	case a.Filename == "" && r.server.NoImages && !r.form.Value:
		return errors.New("images are not sent here: with a filename, one is saved")
	case a.Target != "" && a.FullPage:
		return errors.New("fullPage is for the page, not for an element: leave out one of fullPage and target")
	case a.Annotate && (a.Type == "webp" || r.server.BiDi != ""):
		return errors.New("annotate draws in png and jpeg of a browser based on Chromium alone")
	case a.Threshold != nil && !a.IfChanged:
		return errors.New("threshold is for ifChanged")
	}
	return nil
}

// screenshot takes a picture, and saves it in a file, or sends it if that has no name.
func screenshot(ctx context.Context, r *reply, t browse.Page, a screenshotArguments) error {
	tab, _, _ := strings.Cut(t.Document(), " ")
	s, err := t.Screenshot(ctx, browse.ScreenshotOptions{Type: a.Type, Target: a.Target, FullPage: a.FullPage,
		Device: a.Scale == "device", Model: a.Filename == "" && !r.form.Value, Annotate: a.Annotate})
	if err != nil {
		return err
	}
	last, now := r.server.picture, lastPicture{fmt.Sprint(tab, " ", a.Target, " ", a.FullPage), s.Data}
	if len(now.data) > maxPicture {
		now.data = nil
	}
	if a.IfChanged && last.of == now.of {
		most := *cmp.Or(a.Threshold, new(float64))
		if part := differing(last.data, s.Data); part <= most { // the last one stays: small changes add up
			r.say("The screenshot of %s has not changed: %.3g %% of its pixels differ from the last one", s.What,
				100*part)
			return nil
		}
	}
	note := ""
	if s.Note != "" {
		note = " (" + s.Note + ")"
	}
	if a.Annotate {
		if s.Data, err = annotated(s.Data, a.Type, s.Marks); err != nil {
			return err
		}
	}
	if a.Filename != "" {
		path, err := r.server.save(ctx, a.Filename, s.Data)
		if err != nil {
			return err
		}
		r.say("Screenshot of %s saved as %s%s", s.What, path, note)
	} else {
		r.say("Screenshot of %s%s", s.What, note)
		r.image(s.Data, "image/"+a.Type)
	}
	var lines []string
	for _, m := range s.Marks {
		lines = append(lines, m.Line)
	}
	if first := beginning(lines); len(first) > 0 {
		if len(first) < len(lines) {
			first = append(first, fmt.Sprintf("# and %d more", len(lines)-len(first)))
		}
		r.say("%s", fenced("yaml", strings.Join(first, "\n")))
	}
	r.server.picture = now
	return nil
}

// maxShade is by how much of 65535 a pixel may differ that is taken for the same: text is smoothed anew.
const maxShade = 0x1000

// differing returns which part of the pixels differs, from 0 to 1; all do if one can't be decoded or has another size.
func differing(a, b []byte) float64 {
	if bytes.Equal(a, b) {
		return 0
	}
	x, _, err := image.Decode(bytes.NewReader(a))
	y, _, err2 := image.Decode(bytes.NewReader(b))
	if err != nil || err2 != nil || x.Bounds() != y.Bounds() || x.Bounds().Empty() {
		return 1
	}
	far := func(p, q uint32) bool { return max(p, q)-min(p, q) > maxShade }
	size, n := x.Bounds(), 0
	for j := size.Min.Y; j < size.Max.Y; j++ {
		for i := size.Min.X; i < size.Max.X; i++ {
			r, g, b, _ := x.At(i, j).RGBA()
			r2, g2, b2, _ := y.At(i, j).RGBA()
			if far(r, r2) || far(g, g2) || far(b, b2) {
				n++
			}
		}
	}
	return float64(n) / float64(size.Dx()*size.Dy())
}

// glyphs are the letters of refs, in 3 × 5 pixels: rows of three bits, from the top.
var glyphs = map[rune][5]byte{'0': {7, 5, 5, 5, 7}, '1': {2, 6, 2, 2, 7}, '2': {7, 1, 7, 4, 7}, '3': {7, 1, 7, 1, 7},
	'4': {5, 5, 7, 1, 1}, '5': {7, 4, 7, 1, 7}, '6': {7, 4, 7, 5, 7}, '7': {7, 1, 1, 2, 2}, '8': {7, 5, 7, 5, 7},
	'9': {7, 5, 7, 1, 7}, 'e': {0, 7, 7, 4, 7}, 'f': {3, 4, 6, 4, 4}}

// dot is the size of a pixel of a glyph.
const dot = 2

// annotated is a picture with a box around each element, and its ref.
func annotated(data []byte, kind string, marks []browse.Mark) ([]byte, error) {
	from, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("cannot draw in the picture: %w", err)
	}
	to := image.NewRGBA(from.Bounds())
	draw.Draw(to, to.Bounds(), from, from.Bounds().Min, draw.Src)
	fill := func(x, y, wide, high int, c color.Color) {
		at := image.Rect(x, y, x+wide, y+high).Intersect(to.Bounds())
		draw.Draw(to, at, image.NewUniform(c), image.Point{}, draw.Src)
	}
	ink, paper := color.RGBA{R: 200, B: 80, A: 255}, color.White
	for _, m := range marks {
		fill(m.X, m.Y, m.Wide, 2, ink)
		fill(m.X, m.Y+m.High-2, m.Wide, 2, ink)
		fill(m.X, m.Y, 2, m.High, ink)
		fill(m.X+m.Wide-2, m.Y, 2, m.High, ink)
	}
	for _, m := range marks { // above all boxes
		wide, high := (4*len(m.Ref)+1)*dot, 7*dot
		left := max(0, min(m.X, to.Bounds().Dx()-wide))
		top := max(0, m.Y-high)
		fill(left, top, wide, high, ink)
		for i, letter := range m.Ref {
			for row, bits := range glyphs[letter] {
				for column := range 3 {
					if bits&(4>>column) != 0 {
						fill(left+(4*i+1+column)*dot, top+(1+row)*dot, dot, dot, paper)
					}
				}
			}
		}
	}
	var b bytes.Buffer
	if kind == "jpeg" {
		err = jpeg.Encode(&b, to, &jpeg.Options{Quality: 90})
	} else {
		err = png.Encode(&b, to)
	}
	return b.Bytes(), err
}
