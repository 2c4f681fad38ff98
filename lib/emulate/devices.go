package emulate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"btools/lib/lazy"
	"btools/lib/spell"
)

// device is what a page takes its screen for.
type device struct {
	name          string
	width, height int // in CSS pixels
	scale         float64
	mobile        bool // with touch, and the viewport that pages ask for
	// system is what stands in the user agent and model, if it is Chrome's, in client hints;
	// "": the device says nothing of either.
	system, version, model string
}

// devices are those that people ask for most.
var devices = []device{
	{"iPhone SE", 375, 667, 2, true, "iPhone", "18_6", ""},
	{"iPhone 13", 390, 844, 3, true, "iPhone", "18_6", ""},
	{"iPhone 14", 390, 844, 3, true, "iPhone", "18_6", ""},
	{"iPhone 15", 393, 852, 3, true, "iPhone", "18_6", ""},
	{"iPhone 15 Pro Max", 430, 932, 3, true, "iPhone", "18_6", ""},
	{"iPhone 16", 393, 852, 3, true, "iPhone", "18_6", ""},
	{"iPhone 16 Pro", 402, 874, 3, true, "iPhone", "18_6", ""},
	{"iPad Mini", 768, 1024, 2, true, "iPad", "18_6", ""},
	{"iPad Air", 820, 1180, 2, true, "iPad", "18_6", ""},
	{"iPad Pro 11", 834, 1194, 2, true, "iPad", "18_6", ""},
	{"Pixel 5", 393, 851, 2.75, true, "Android", "14.0.0", "Pixel 5"},
	{"Pixel 7", 412, 915, 2.625, true, "Android", "16.0.0", "Pixel 7"},
	{"Pixel 8", 412, 915, 2.625, true, "Android", "16.0.0", "Pixel 8"},
	{"Pixel 9", 412, 923, 2.625, true, "Android", "16.0.0", "Pixel 9"},
	{"Galaxy S9+", 320, 658, 4.5, true, "Android", "10.0.0", "SM-G965F"},
	{"Galaxy S24", 360, 780, 3, true, "Android", "16.0.0", "SM-S921B"},
	{"Galaxy Tab S4", 712, 1138, 2.25, true, "Android", "10.0.0", "SM-T837A"},
	{"Desktop Windows", 1920, 1080, 1, false, "Windows", "15.0.0", ""},
	{"Desktop Mac", 1440, 900, 2, false, "macOS", "15.6.0", ""},
	{"Desktop Linux", 1920, 1080, 1, false, "Linux", "6.8.0", ""},
}

// Devices returns the names of the devices.
func Devices() (names []string) {
	for _, d := range devices {
		names = append(names, d.name)
	}
	return names
}

var sizeRule = lazy.Regexp(`^(\d{1,5})[x×](\d{1,5})(@\d{1,2}(?:\.\d{1,4})?)?(,mobile)?$`)

// find returns a device by its name, or a size.
func find(text string) (device, error) {
	plain := func(name string) string { return separators().ReplaceAllString(strings.ToLower(name), "") }
	for _, d := range devices {
		if plain(d.name) == plain(text) {
			return d, nil
		}
	}
	if m := sizeRule().FindStringSubmatch(text); m != nil {
		d := device{scale: 1, mobile: m[4] != ""}
		d.width, _ = strconv.Atoi(m[1])
		d.height, _ = strconv.Atoi(m[2])
		if m[3] != "" {
			d.scale, _ = strconv.ParseFloat(m[3][1:], 64)
		}
		if d.width > 0 && d.height > 0 && d.width <= maxSize && d.height <= maxSize && d.scale > 0 && d.scale <= 10 {
			return d, nil
		}
		return d, fmt.Errorf("is larger than %d pixels, or nothing", maxSize)
	}
	if strings.Trim(text, "-+0123456789x×@., ") == "" {
		return device{}, errors.New("is no size: one is such as 390x844, 390x844@3 or 390x844@3,mobile")
	}
	if near := nearest(plain(text), plain); len(near) > 0 {
		return device{}, fmt.Errorf("is no device: near are %s", strings.Join(near, ", "))
	}
	return device{}, fmt.Errorf("is no device: there are %s, and sizes such as 390x844@3,mobile",
		strings.Join(Devices(), ", "))
}

// nearest returns the names of the devices that are nearest to a word.
func nearest(word string, plain func(string) string) (near []string) {
	names := Devices()
	slices.SortStableFunc(names, func(a, b string) int {
		return spell.Distance(word, plain(a)) - spell.Distance(word, plain(b))
	})
	for _, name := range names[:5] {
		if spell.Distance(word, plain(name)) <= len(word)/2 {
			near = append(near, name)
		}
	}
	return near
}

const maxSize = 10000

var separators = lazy.Regexp(`[ _-]`)

// userAgent returns the user agent of the device in a browser of a major version, and its
// client hints; nil: the device is not Chrome's.
func (d device) userAgent(version string) (agent string, hints map[string]any) {
	const webkit = "AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1"
	system, mobile := "X11; Linux x86_64", ""
	switch d.system {
	case "iPhone":
		return "Mozilla/5.0 (iPhone; CPU iPhone OS " + d.version + " like Mac OS X) " + webkit, nil
	case "iPad":
		return "Mozilla/5.0 (iPad; CPU OS " + d.version + " like Mac OS X) " + webkit, nil
	case "Android":
		system, mobile = "Linux; Android 10; K", "Mobile "
	case "Windows":
		system = "Windows NT 10.0; Win64; x64"
	case "macOS":
		system = "Macintosh; Intel Mac OS X 10_15_7"
	}
	return fmt.Sprintf("Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%s.0.0.0 %sSafari/537.36",
		system, version, mobile), d.hints(version)
}

// hints returns the client hints of a Chrome of a major version on the device, of a Chromium if the device has no
// version.
func (d device) hints(version string) map[string]any {
	brand := func(name, version string) map[string]string {
		return map[string]string{"brand": name, "version": version}
	}
	brands := func(full string) []map[string]string {
		all := []map[string]string{brand("Chromium", version+full), brand("Not)A;Brand", "24"+full)}
		if d.version != "" { // it is another browser's
			all = slices.Insert(all, 1, brand("Google Chrome", version+full))
		}
		return all
	}
	architecture := "x86"
	if d.mobile {
		architecture = ""
	} else if d.system == "macOS" {
		architecture = "arm"
	}
	return map[string]any{"brands": brands(""), "fullVersionList": brands(".0.0.0"), "platform": d.system,
		"platformVersion": d.version, "architecture": architecture, "bitness": "64", "model": d.model,
		"mobile": d.mobile}
}

// majorOf returns the major version of the Chrome with a user agent.
func majorOf(agent string) string {
	if m := versionRule().FindStringSubmatch(agent); m != nil {
		return m[1]
	}
	return "140"
}

var versionRule = lazy.Regexp(`Chrome/(\d+)`)
