package settings

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// Each row is written once, can be found, and has a default that it accepts itself.
func TestTable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, r := range Table() {
		if names[r.Name] {
			t.Errorf("%s is there twice", r.Name)
		}
		names[r.Name] = true
		if r.Where == 0 {
			t.Errorf("%s can be set nowhere", r.Name)
		}
		if r.Where&^Keys != 0 && r.Usage == "" {
			t.Errorf("--%s has no line for help", r.Name)
		}
		if r.Where&Keys != 0 && Named(r.KeyName()) != r {
			t.Errorf("%s is another key", r.KeyName())
		}
		for at := Global; at <= Request; at <<= 1 {
			if d := r.DefaultAt(at); r.Field != nil && d != "" {
				if err := r.Set(&Settings{}, at, d, Files{}); err != nil {
					t.Errorf("the default of %s, %q: %v", r.Name, d, err)
				}
			}
		}
	}
	if Named("IDLE_TIMEOUT") != Named("IDLE") || Named("NONE") != nil {
		t.Error("a former name is not found, or one that never was")
	}
}

// The URL of a proxy may be in a file, whose content no error shows.
func TestProxyInAFile(t *testing.T) {
	t.Parallel()
	text := "http://u:p@h:1\n"
	files := Files{Read: func(name string) ([]byte, error) {
		if name != "/proxy" {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}}
	row, s := Named("PROXY"), Settings{}
	if err := row.Set(&s, Global, "@/proxy", files); err != nil || s.Proxy != "http://u:p@h:1" {
		t.Error(s.Proxy, err)
	}
	text = "s3cret"
	if err := row.Set(&s, Global, "@/proxy", files); err == nil || !strings.Contains(err.Error(), "/proxy") ||
		strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
	if err := row.Set(&s, Global, "@/none", files); err == nil {
		t.Error("it has read a file that does not exist")
	}
}

// The files of a list are read as it is set; a program that it starts gets their names.
func TestContents(t *testing.T) {
	t.Parallel()
	files := Files{Read: func(name string) ([]byte, error) {
		content, is := map[string]string{"/a": "one\ntwo", "/large": strings.Repeat("x", 10<<20), "/bad": "\xff"}[name]
		if !is {
			return nil, os.ErrNotExist
		}
		return []byte(content), nil
	}}
	row := Named("INIT_SCRIPT")
	for given, want := range map[string]string{"/a": "", "/none": "cannot be read", "/large": "may have 1048576",
		"/bad": "not a text", "a": "absolute"} {
		s := Settings{}
		err := row.Set(&s, Global, given, files)
		if err == nil != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", given, err, want)
		}
		if args := row.Args(&s); err == nil && (s.InitScript[0] != "/a\none\ntwo" || args[0] != "--init-script=/a") {
			t.Errorf("%q, %q", s.InitScript, args)
		}
	}
}

// What a request carries is what was set, and nothing else of the other end's settings.
func TestValues(t *testing.T) {
	t.Parallel()
	set := Settings{TabLimit: 3, Throttle: 1500 * time.Microsecond, UploadRoots: []string{"/a", "/b"},
		Proxy: "http://u:p@proxy:1", DownloadLimit: 5 << 20, State: "shop", Trace: "/t"}
	v := Values{}
	for _, name := range []string{"tab-limit", "throttle", "upload-root", "proxy", "download-limit", "state", "trace"} {
		for _, r := range Rows(Request) {
			if r.Name == name {
				v.Put(r, &set)
			}
		}
	}
	b, err := json.Marshal(v)
	const want = `{"download_limit":5242880,"proxy":"http://u:p@proxy:1","state":"shop","tab_limit":3,` +
		`"throttle_ms":2,"trace":"/t","upload_roots":["/a","/b"]}`
	if err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
	defaults := []string{"/x", "/y"}
	got := Settings{ProxyBypass: "b", UploadRoots: defaults}
	if err := v.Apply(&got, Request); err != nil {
		t.Fatal(err)
	}
	set.ProxyBypass, set.Throttle = "b", 2*time.Millisecond
	if !reflect.DeepEqual(got, set) || defaults[0] != "/x" {
		t.Errorf("%+v, want %+v; the defaults became %v", got, set, defaults)
	}
	for params, want := range map[string]string{
		`{"x":1}`:                         `there is no setting "x": they are allow_origins, block_origins,`,
		`{"max_uses":1}`:                  `there is no setting "max_uses"`,
		`{"tab_limit":-1}`:                "tab_limit must be a number, 0 or more",
		`{"tab_limit":"3"}`:               "tab_limit is not",
		`{"tab_limit":null}`:              "tab_limit is not",
		`{"throttle_ms":-1}`:              "throttle_ms must be a duration",
		`{"throttle_ms":9e18}`:            "throttle_ms is not a duration",
		`{"download_limit":-5}`:           "download_limit must be 0 or more",
		`{"upload_roots":["a"]}`:          "must be absolute paths",
		`{"init_script":["/etc/passwd"]}`: "must be absolute paths of files",
		`{"trace":"t"}`:                   "must be an absolute path",
		`{"state":"../x"}`:                "is not the name of a state",
		`{"proxy":"@/etc/passwd"}`:        "must be the URL of a proxy, not a file",
		`{"proxy":"http://u:p@x:y"}`:      "proxy ",
	} {
		v := Values{}
		if err := json.Unmarshal([]byte(params), &v); err != nil {
			t.Fatal(err)
		}
		if err := v.Apply(&Settings{}, Request); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v; want %q", params, err, want)
		}
	}
}
