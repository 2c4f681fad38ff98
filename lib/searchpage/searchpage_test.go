package searchpage

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
)

func read(t testing.TB, name string) string {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func parse(t testing.TB, address string) *url.URL {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var pages = []struct {
	name, address string
	want          []Result
}{
	{"brave", "https://search.brave.com/search?q=go+generics", []Result{
		{"Tutorial: Getting started with generics - The Go Programming Language",
			"https://go.dev/doc/tutorial/generics",
			"March 15, 2022 - This tutorial introduces the basics of generics in Go. With generics, you can declare " +
				"and use functions or types that are written to work with any of a set of types."},
		{"r/golang on Reddit: When to use generics?",
			"https://www.reddit.com/r/golang/comments/abc123/when_to_use_generics/",
			"174 votes, 93 comments. I <3 interfaces & still wonder when type parameters are the better choice."},
		{"An Introduction To Generics - The Go Programming Language", "https://go.dev/blog/intro-generics",
			"An introduction to type parameters, type sets and type inference, the three big features of Go 1.18."},
	}},
	{"duckduckgo", "https://html.duckduckgo.com/html/?q=go+generics", []Result{
		{"Tutorial: Getting started with generics - The Go Programming Language",
			"https://go.dev/doc/tutorial/generics",
			"This tutorial introduces the basics of generics in Go. With generics, you can write functions for any " +
				"of a set of types."},
		{"Go by Example: Generics", "https://gobyexample.com/generics?a=1&b=2",
			"Starting with version 1.18, Go has added support for generics, also known as type parameters."},
	}},
	{"duckduckgo-lite", "https://lite.duckduckgo.com/lite/?q=go+generics", []Result{
		{"Why Generics? - The Go Blog", "https://go.dev/blog/why-generics",
			"A proposal to add generics to Go, what they bring and what they cost."},
		{"Generic programming - Wikipedia", "https://en.wikipedia.org/wiki/Generic_programming",
			"Generic programming is a style of programming in which algorithms are written in terms of types to be " +
				"specified later."},
	}},
	{"bing", "https://www.bing.com/search?q=go+generics", []Result{
		{"Tutorial: Getting started with generics", "https://go.dev/doc/tutorial/generics",
			"Mar 15, 2022 · This tutorial introduces the basics of generics in Go. You declare a simple generic " +
				"function."},
		{"Go with generics: type parameter T is not used - Stack Overflow",
			"https://stackoverflow.com/questions/68053957/go-with-generics",
			"Jun 20, 2021 · I am trying generics in Go and the compiler says that my type parameter is not used."},
	}},
	{"google", "https://www.google.com/search?q=go+generics", []Result{
		{"Tutorial: Getting started with generics", "https://go.dev/doc/tutorial/generics",
			"Mar 15, 2022 — This tutorial introduces the basics of generics in Go. With generics, you can declare " +
				"functions for any of a set of types."},
		{"Generic programming", "https://en.wikipedia.org/wiki/Generic_programming",
			"Generic programming is a style of computer programming in which algorithms are written in terms of data " +
				"types to-be-specified-later."},
	}},
	{"google-basic", "https://www.google.com/search?q=go+generics", []Result{
		{"An Introduction To Generics", "https://go.dev/blog/intro-generics",
			"Mar 22, 2022 · An introduction to type parameters, type sets and type inference."},
		{"Go by Example: Generics", "https://gobyexample.com/generics",
			"Starting with version 1.18, Go has added support for generics."},
	}},
	{"searxng", "https://searx.example/search?q=go+generics", []Result{
		{"Tutorial: Getting started with generics", "https://go.dev/doc/tutorial/generics",
			"This tutorial introduces the basics of generics in Go."},
		{"slices package - Go Packages", "https://pkg.go.dev/slices",
			"This result has no description but this line of the engine."},
		{"A page without a snippet", "https://example.org/", ""},
	}},
	{"captcha", "https://search.brave.com/search?q=go+generics", nil},
}

func TestResults(t *testing.T) {
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			compare(t, Results(read(t, p.name+".html"), parse(t, p.address)), p.want)
		})
	}
}

// Engines change the names of classes at will.
func TestResultsWithoutClasses(t *testing.T) {
	for _, p := range pages {
		t.Run(p.name, func(t *testing.T) {
			page := strings.NewReplacer("class=", "data-was=", "id=", "data-had=", "data-type=", "data-kind=").
				Replace(read(t, p.name+".html"))
			compare(t, Results(page, parse(t, p.address)), p.want)
		})
	}
}

func compare(t *testing.T, got, want []Result) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("the results are")
		for _, r := range got {
			t.Errorf("%q\n%s\n%q", r.Title, r.URL, r.Snippet)
		}
	}
}

// One result is not the whole page.
func TestOneResult(t *testing.T) {
	page := read(t, "brave.html")
	from, to := strings.Index(page, `data-pos="2"`), strings.Index(page, `<div id="pagination">`)
	page = page[:from] + "></div></div><p>Too few results? Search without the word that you typed last.</p>" + page[to:]
	found := Results(page, parse(t, pages[0].address))
	if len(found) != 1 || found[0] != pages[0].want[0] {
		t.Errorf("the results are %+v", found)
	}
}

func TestAddress(t *testing.T) {
	for _, c := range []struct {
		template, query string
		page            int
		want            string
	}{
		{Default, "go generics & more", 1,
			"https://search.brave.com/search?q=go+generics+%26+more&source=web&offset=0"},
		{Default, "ü", 3, "https://search.brave.com/search?q=%C3%BC&source=web&offset=2"},
		{"http://localhost:8080/?q={query}&p={page}&s={start}", "{page}", 2,
			"http://localhost:8080/?q=%7Bpage%7D&p=2&s=10"},
		{"https://search.example/{query}", "a", 1, "https://search.example/a"},
		{"https://search.example/{query}", "a", 2, "error: has no {page}, {page0} or {start}: it leads to page 1 only"},
		{"https://search.example/", "a", 1, "error: has no {query}: https://search.example/?q={query}"},
		{"search.example/{query}", "a", 1, "error: is not the address of a web page"},
		{"file:///{query}", "a", 1, "error: is not the address of a web page"},
	} {
		got, err := Address(c.template, c.query, c.page)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("Address(%q, %q, %d) = %s rather than %s", c.template, c.query, c.page, got, c.want)
		}
	}
}

func FuzzResults(f *testing.F) {
	for _, p := range pages {
		f.Add(read(f, p.name+".html"), p.address)
	}
	f.Fuzz(func(t *testing.T, source, address string) {
		base, err := url.Parse(address)
		if err != nil {
			base = nil
		}
		for _, r := range Results(source, base) {
			if u, err := url.Parse(r.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				t.Errorf("a result leads to %q", r.URL)
			}
		}
	})
}
