package webtext

import (
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var address = &url.URL{Scheme: "https", Host: "harbour.example", Path: "/news/2025/ferries.html"}

func read(t testing.TB, name string) string {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, html, want string }{
		{"headings and paragraphs", "<h1>One</h1><p>Two <b>bold</b>\n words.</p><h2>Three</h2>",
			"# One\n\nTwo **bold** words.\n\n## Three"},
		{"links have whole addresses", `<a href="../ice.html?a=1#b">Ice</a>`,
			"[Ice](https://harbour.example/news/ice.html?a=1#b)"},
		{"scripts are no links", `<a href="javascript:alert(1)">Run</a>`, "Run"},
		{"lists", "<ul><li>a<ul><li>b</li></ul></li></ul><ol start=3><li>c</li></ol>",
			"- a\n  \n  - b\n\n<!--THE END-->\n\n3. c"},
		{"code", `<pre><code class="language-go">a := 1 // *</code></pre><p><code>b_c</code></p>`,
			"```go\na := 1 // *\n```\n\n`b_c`"},
		{"a table", "<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2 | 3</td></tr></table>",
			"| a | b |\n|---|---|\n| 1 | 2 \\| 3 |"},
		{"tables for layout",
			"<table><tr><td>menu</td><td><table><tr><td>x</td><td>y</td></tr></table></td></tr></table>",
			"menu\n\n|  |  |\n|---|---|\n| x | y |"},
		{"images", `<img src="a.png" alt="A boat"><img src="b.png"><img src="data:image/png;base64,AAAA" alt="drawn">`,
			"![A boat](https://harbour.example/news/2025/a.png)drawn"},
		{"what is not shown", "<p>a</p><script>b</script><style>c</style><template>d</template><p hidden>e</p>" +
			"<svg><text>f</text></svg><noscript>g</noscript>", "a"},
		{"characters are not escaped", "<p>snake_case *and* 2 * 3</p>", "snake_case *and* 2 * 3"},
		{"no page at all", "", ""},
		{"only text", "one &lt; two", "one < two"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Markdown(c.html, address); got != c.want {
				t.Errorf("%q\nrather than\n%q", got, c.want)
			}
		})
	}
	if got := Markdown(`<a href="/x">y</a>`, nil); got != "[y](/x)" {
		t.Errorf("without an address: %q", got)
	}
}

func TestMain(t *testing.T) {
	t.Parallel()
	a := Main(read(t, "article.html"), address)
	if a.Title != "How ferries keep their timetable in winter" || a.Byline != "Ada Lindqvist" ||
		a.Site != "The Harbour Post" || !a.Published.Equal(time.Date(2025, 1, 14, 8, 30, 0, 0, time.UTC)) || a.Whole {
		t.Errorf("the article is %+v", a)
	}
	for _, want := range []string{"**two spare minutes**", "## What the dispatcher looks at", "- the wind,",
		"| 2024 | 4,288 | 37 |", "```sh\ntimetable", "(https://harbour.example/news/2024/ice-report.html)",
		"![A ferry between ice floes](https://harbour.example/img/ferry.jpg)"} {
		if !strings.Contains(a.Text, want) {
			t.Errorf("the text has no %q:\n%s", want, a.Text)
		}
	}
	for _, other := range []string{"Front page", "812 partners", "herring", "Copyright", "dataLayer", "pixel.gif"} {
		if strings.Contains(a.Text, other) {
			t.Errorf("the text has %q:\n%s", other, a.Text)
		}
	}
}

// A page without an article is read as a whole.
func TestMainOfOtherPages(t *testing.T) {
	t.Parallel()
	list := "<title>Boats</title><ul>" + strings.Repeat(`<li><a href="/b">A boat</a></li>`, 300) + "</ul>"
	for _, c := range []struct{ name, html, title, text string }{
		{"a list of links", list, "Boats", "[A boat](https://harbour.example/b)"},
		{"a short page", "<title>Short</title><h1>Hello</h1><p>A line.</p>", "Short", "A line."},
		{"a drawing with a title", "<svg><title>Logo</title></svg><p>text</p>", "", "text"},
		{"nothing", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if a := Main(c.html, address); a.Title != c.title || !strings.Contains(a.Text, c.text) {
				t.Errorf("%+v", a)
			}
		})
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	got := Images(`<meta property="og:image" content="https://cdn.example/big.jpg">
		<img src="/a.png" alt=" A
		boat " width="640" height="480px"><img src="/a.png"><img src="/pixel.gif" width=1 height=1>
		<img src="data:image/png;base64,AAAA" data-src="late.jpg" width="100%"><img srcset="s.jpg 1x, m.jpg 2x"><img>`,
		address)
	want := []Image{{URL: "https://cdn.example/big.jpg"},
		{URL: "https://harbour.example/a.png", Alt: "A boat", Width: 640, Height: 480},
		{URL: "https://harbour.example/news/2025/late.jpg"}, {URL: "https://harbour.example/news/2025/s.jpg"}}
	if len(got) != len(want) {
		t.Fatalf("%+v\nrather than\n%+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v rather than %+v", got[i], want[i])
		}
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		max  int
		want string
		cut  bool
	}{
		{"short", 5, "short", false},
		{"äöü", 3, "äöü", false},
		{"one two three", 9, "one two", true},
		{"one\ntwo three four five", 19, "one\ntwo three four", true},
		{"ääääää", 4, "ääää", true},
		{"word", 0, "", true},
	} {
		if got, cut := Cut(c.text, c.max); got != c.want || cut != c.cut {
			t.Errorf("Cut(%q, %d) = %q, %v", c.text, c.max, got, cut)
		}
	}
}

// Pages that would keep a converter busy for hours, or fill the memory. Each takes
// a fraction of a second; with a minute a machine that is slow and busy passes, too.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("x<p>", 2_000)
	for _, c := range []struct{ name, html string }{
		{"quotes in quotes", strings.Repeat("<blockquote>", 400) + many},
		{"lists in lists", strings.Repeat("<ul><li>", 200) + many},
		{"tables in tables", strings.Repeat("<table><tr><td>x<td>", 80) + many},
		{"too deep for a tree", strings.Repeat("<div>", 5000) + "text" + strings.Repeat("</div>", 5000)},
		{"a wide table", "<table>" + strings.Repeat("<tr><td>a", 300) + "<tr>" + strings.Repeat("<td>b", 3000)},
		{"a cell over all", "<table><tr><td colspan=100000000 rowspan=100000000>a</table>"},
		{"stars", "<p>" + strings.Repeat("*_[`", 50_000)},
		{"breaks", strings.Repeat("<br>", 20_000)},
		{"links in links", strings.Repeat("<a href=x>", 5_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			text := Markdown(c.html, address)
			Main(c.html, address)
			Images(c.html, address)
			if d := time.Since(start); d > time.Minute {
				t.Errorf("it took %v", d)
			}
			if len(text) > 20*len(c.html)+1000 {
				t.Errorf("%d bytes of HTML are %d of text", len(c.html), len(text))
			}
		})
	}
	if got := Markdown(strings.Repeat("<div>", 5000)+"<script>no</script> some\ntext", address); got != "some text" {
		t.Errorf("a page too deep for a tree is %q", got)
	}
}

func FuzzPage(f *testing.F) {
	f.Add(read(f, "article.html"))
	f.Add("<table><tr><td><table><tr><td>a<img src=data:,x alt=b><a href='javascript:x'>c")
	f.Add("<blockquote><ul><li><pre>\n```\n</pre><dialog open>x</dialog><p hidden>")
	f.Fuzz(func(t *testing.T, source string) {
		Images(source, address)
		text := Markdown(source, nil) + Main(source, address).Text
		if utf8.ValidString(source) && !utf8.ValidString(text) {
			t.Errorf("%q became %q", source, text)
		}
	})
}
