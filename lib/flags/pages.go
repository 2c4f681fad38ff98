package flags

import "btools/lib/cli"

// Pages is where people find what they look for in the programs that launch browsers:
// what is in a page.
func Pages() cli.Elsewhere {
	tool := func(name string) string {
		return "bmcp call navigate URL opens a page in a browser, and then bmcp call " + name
	}
	picture, text, html := tool("take_screenshot saves a picture of it"), tool("get_markdown prints its text"),
		tool("get_dom prints its HTML")
	return cli.Elsewhere{
		Line: "A page's screenshot, PDF, text or HTML: bmcp call --help",
		Hints: map[string]string{
			"screenshot": picture, "take_screenshot": picture, "pdf": tool("pdf_save saves it as a PDF"),
			"text": text, "markdown": text, "html": html, "dom": html,
		},
	}
}
