package coordinator

// oldNames are names that tools had in the programs that bmcp takes the place of. A
// call by one of them is a call of today's tool, which is the only one that is listed.
var oldNames = map[string]string{
	"brave_search":               "browser_search",
	"brave_extract":              "browser_extract",
	"coordinator_navigate":       "browser_navigate",
	"coordinator_get_dom":        "browser_get_dom",
	"coordinator_screenshot":     "browser_take_screenshot",
	"coordinator_get_markdown":   "browser_get_markdown",
	"coordinator_fetch":          "browser_fetch",
	"coordinator_select_element": "browser_select_element",
}

const (
	records = "bproxy records, with --trace, har and cast"
	person  = "with browser_select_element a person chooses an element"
	box     = "browser_fill_form checks and clears boxes"
	key     = "browser_press_key presses a key"
	ofOne   = "it is there with one browser, without pools and --extension; browser tools start what they need"
)

// elsewhere says what takes the place of a tool that is not there.
var elsewhere = map[string]string{
	instanceTool:                  "bmcp --extension has it",
	"coordinator_launch_browser":  ofOne + ", and not with --http",
	"coordinator_stop_browser":    ofOne,
	"coordinator_restart_browser": ofOne + "; bpool restart restarts those of pools",
	"browser_pool_status":         "it is there with pools, see bmcp(1); coordinator_status shows the browser",
	"browser_run_code":            "browser_evaluate runs JavaScript in the page",
	"browser_run_code_unsafe":     "browser_evaluate runs JavaScript in the page",
	"browser_start_tracing":       records,
	"browser_stop_tracing":        records,
	"browser_start_video":         records,
	"browser_stop_video":          records,
	"browser_video_chapter":       records,
	"browser_start_recording":     person,
	"browser_annotate":            person,
	"browser_highlight":           person,
	"browser_hide_highlight":      person,
	"browser_resume":              "no test waits here: it is of @playwright/mcp",
	"browser_check":               box,
	"browser_uncheck":             box,
	"browser_keydown":             key,
	"browser_keyup":               key,
	"browser_press_sequentially":  "browser_type types key by key, with slowly",
	"browser_fill":                "browser_type fills a field, browser_fill_form several",
	"browser_open":                "browser_navigate opens a page",
	"browser_goto":                "browser_navigate opens a page",
	"browser_install":             "bmcp uses the browsers that are installed, which coordinator_list_browsers lists",
}
