// Package emulate says what pages take their device, place and language for, as commands
// for a CDP session with a page. It sends none.
package emulate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"btools/lib/jsonrpc"
	"btools/lib/lazy"
	"btools/lib/spell"
)

// Emulation is what pages are told in the place of what is so. "" and nil: nothing.
type Emulation struct {
	Device      string   `json:"device,omitempty"` // the name of one of Devices, or a size: 390x844@3,mobile
	UserAgent   string   `json:"userAgent,omitempty"`
	Geolocation string   `json:"geolocation,omitempty"` // LATITUDE,LONGITUDE[,METRES]
	Timezone    string   `json:"timezone,omitempty"`    // of the IANA: Europe/Berlin
	Locale      string   `json:"locale,omitempty"`      // de-DE
	Header      []string `json:"headers,omitempty"`     // that requests have as well
	Grant       []string `json:"permissions,omitempty"` // that pages have without asking: some of Permissions
	Offline     bool     `json:"offline,omitempty"`
}

// With returns the emulation after a change, which is JSON: a member replaces what it names. With the
// member reset it is a change of what there was at the start.
func (e Emulation) With(change json.RawMessage, start Emulation) (Emulation, error) {
	c, err := e.with(change)
	if err == nil && c.Reset {
		c, err = start.with(change)
	}
	if err == nil {
		err = c.check()
	}
	return c.Emulation, err
}

type changed struct {
	Reset bool `json:"reset"`
	Emulation
}

func (e Emulation) with(change json.RawMessage) (c changed, err error) {
	e.Header, e.Grant = slices.Clone(e.Header), slices.Clone(e.Grant) // Decode writes into those that are there
	c.Emulation = e
	d := json.NewDecoder(bytes.NewReader(change))
	d.DisallowUnknownFields()
	return c, d.Decode(&c)
}

// check returns an error if something of the emulation is not what it must be.
func (e *Emulation) check() error {
	for _, part := range []struct {
		name   string
		check  func(string) error
		values []string
	}{
		{"device", CheckDevice, []string{e.Device}}, {"userAgent", CheckUserAgent, []string{e.UserAgent}},
		{"geolocation", CheckGeolocation, []string{e.Geolocation}}, {"timezone", CheckTimezone, []string{e.Timezone}},
		{"locale", CheckLocale, []string{e.Locale}}, {"headers", CheckHeader, e.Header},
		{"permissions", CheckPermission, e.Grant},
	} {
		for _, value := range part.values {
			if err := part.check(value); err != nil && value != "" {
				return fmt.Errorf("%s: %q %w", part.name, value, err)
			}
		}
	}
	return nil
}

// Grants returns the commands to the browser that give pages their permissions, and take away those of the emulation
// before.
func (e *Emulation) Grants(was Emulation) (all []Command) {
	granted := e.permissions()
	for _, name := range slices.Concat(was.permissions(), granted) {
		setting := "granted"
		if !slices.Contains(granted, name) {
			setting = "prompt"
		}
		all = append(all, Command{"Browser.setPermission", map[string]any{"setting": setting,
			"permission": map[string]string{"name": name}}})
	}
	return all
}

// permissions returns the permissions that pages have: those that are given, and that for the place.
func (e *Emulation) permissions() []string {
	if e.Geolocation == "" || slices.Contains(e.Grant, "geolocation") {
		return e.Grant
	}
	return append(slices.Clone(e.Grant), "geolocation")
}

// Command is a command for a page.
type Command struct {
	Method string
	Params map[string]any
}

// Fault returns what is wrong if a page answers the command with an error: neither that the page is gone
// nor that another page of its process, with the same emulation, has done the same.
func (c Command) Fault(err error) error {
	var answered *jsonrpc.Error
	if !errors.As(err, &answered) || IsInEffect(err) ||
		strings.Contains(err.Error(), "Session with given id not found") {
		return nil
	}
	_, what, _ := strings.Cut(c.Method, ".")
	return fmt.Errorf("the browser refuses %s: %w", what, err)
}

// IsOfProcess reports whether Chrome lets one target have it for all of a process.
func (c Command) IsOfProcess() bool {
	return c.Method == "Emulation.setLocaleOverride" || c.Method == "Emulation.setTimezoneOverride"
}

// IsInEffect reports whether an error says that another target of the process has a language or a time zone.
func IsInEffect(err error) bool {
	return err != nil && strings.Contains(err.Error(), "already in effect")
}

// Commands returns the commands that make a page so which has been otherwise. The browser's own user
// agent completes what the emulation leaves open.
func (e Emulation) Commands(own string, was Emulation) (all []Command) {
	add := func(method string, params map[string]any) { all = append(all, Command{method, params}) }
	d, _ := find(e.Device)
	if e.Device != was.Device {
		add("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": d.mobile, "maxTouchPoints": 5})
		if e.Device == "" {
			add("Emulation.clearDeviceMetricsOverride", nil)
		} else {
			add("Emulation.setDeviceMetricsOverride", map[string]any{"width": d.width, "height": d.height,
				"screenWidth": d.width, "screenHeight": d.height, "deviceScaleFactor": d.scale, "mobile": d.mobile})
		}
	}
	if agent := e.agent(own); !reflect.DeepEqual(agent, was.agent(own)) {
		add("Emulation.setUserAgentOverride", agent)
	}
	if e.Locale != was.Locale {
		add("Emulation.setLocaleOverride", map[string]any{"locale": e.Locale})
	}
	if e.Timezone != was.Timezone {
		if was.Timezone != "" && e.Timezone != "" { // Chrome 156 takes any text for another one
			add("Emulation.setTimezoneOverride", map[string]any{"timezoneId": ""})
		}
		add("Emulation.setTimezoneOverride", map[string]any{"timezoneId": e.Timezone})
	}
	if e.Geolocation != was.Geolocation {
		if at, err := place(e.Geolocation); err == nil {
			add("Emulation.setGeolocationOverride", map[string]any{"latitude": at[0], "longitude": at[1],
				"accuracy": at[2]})
		} else {
			add("Emulation.clearGeolocationOverride", nil)
		}
	}
	sends := !slices.Equal(e.Header, was.Header)
	if sends || e.Offline != was.Offline { // which Chrome does for those alone who are told of requests
		add("Network.enable", map[string]any{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
	}
	if sends {
		headers := map[string]any{}
		for _, h := range e.Header {
			name, value, _ := strings.Cut(h, ":")
			value = strings.TrimSpace(value)
			if before, ok := headers[name]; ok { // as a server reads two of one name
				value = fmt.Sprint(before, ", ", value)
			}
			headers[name] = value
		}
		add("Network.setExtraHTTPHeaders", map[string]any{"headers": headers})
	}
	if e.Offline != was.Offline {
		add("Network.emulateNetworkConditions", map[string]any{"offline": e.Offline, "latency": 0,
			"downloadThroughput": -1, "uploadThroughput": -1})
	}
	return all
}

// BiDi returns the commands that make the pages of a Firefox so which have been otherwise.
func (e Emulation) BiDi(was Emulation) (all []Command, err error) {
	if len(e.Grant) > 0 {
		return nil, errors.New("permissions: Firefox asks a person, and WebDriver BiDi cannot answer for all sites")
	}
	add := func(isNew bool, method, member string, value any, isSet bool) {
		if !isSet {
			value = nil
		}
		if isNew {
			all = append(all, Command{method, map[string]any{member: value, "userContexts": []string{"default"}}})
		}
	}
	d, _ := find(e.Device)
	add(e.Device != was.Device, "browsingContext.setViewport", "viewport",
		map[string]int{"width": d.width, "height": d.height}, e.Device != "")
	if e.Device != was.Device {
		all[0].Params["devicePixelRatio"] = nil
		if e.Device != "" {
			all[0].Params["devicePixelRatio"] = d.scale
		}
	}
	old, _ := find(was.Device)
	add(d.mobile != old.mobile, "emulation.setTouchOverride", "maxTouchPoints", 5, d.mobile)
	agent, before := e.agent("")["userAgent"], was.agent("")["userAgent"]
	add(agent != before, "emulation.setUserAgentOverride", "userAgent", agent, agent != "")
	add(e.Locale != was.Locale, "emulation.setLocaleOverride", "locale", e.Locale, e.Locale != "")
	add(e.Timezone != was.Timezone, "emulation.setTimezoneOverride", "timezone", e.Timezone, e.Timezone != "")
	at, err := place(e.Geolocation)
	add(e.Geolocation != was.Geolocation, "emulation.setGeolocationOverride", "coordinates",
		map[string]float64{"latitude": at[0], "longitude": at[1], "accuracy": at[2]}, err == nil)
	headers := []any{}
	for _, h := range e.Header {
		name, value, _ := strings.Cut(h, ":")
		headers = append(headers, map[string]any{"name": name,
			"value": map[string]string{"type": "string", "value": strings.TrimSpace(value)}})
	}
	add(!slices.Equal(e.Header, was.Header), "network.setExtraHeaders", "headers", headers, true)
	add(e.Offline != was.Offline, "emulation.setNetworkConditions", "networkConditions",
		map[string]string{"type": "offline"}, e.Offline)
	return all, nil
}

// agent returns the parameters of Emulation.setUserAgentOverride. An agent that is given
// has no client hints but those of the device.
func (e Emulation) agent(own string) map[string]any {
	d, _ := find(e.Device)
	params := map[string]any{"userAgent": e.UserAgent}
	if e.Locale != "" {
		params["acceptLanguage"] = e.Locale
	}
	switch {
	case d.system != "":
		agent, hints := d.userAgent(majorOf(own))
		if e.UserAgent == "" {
			params["userAgent"] = agent
		}
		if hints != nil {
			params["userAgentMetadata"] = hints
		}
	case e.UserAgent == "" && (e.Locale != "" || d.mobile):
		system := map[string]string{"darwin": "macOS", "windows": "Windows"}[runtime.GOOS]
		if system == "" {
			system = "Linux"
		}
		params["userAgent"] = own
		hints := device{system: system, mobile: d.mobile}.hints(majorOf(own))
		if runtime.GOARCH == "arm64" && !d.mobile {
			hints["architecture"] = "arm"
		}
		params["userAgentMetadata"] = hints
	}
	return params
}

// place returns the latitude, the longitude and the accuracy in metres of a geolocation.
func place(text string) (at [3]float64, err error) {
	parts := strings.Split(text, ",")
	at[2] = 10
	if len(parts) != 2 && len(parts) != 3 {
		return at, errors.New("is not LATITUDE,LONGITUDE, such as 52.52,13.405")
	}
	for i, part := range parts {
		if at[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil || math.IsNaN(at[i]) {
			return at, fmt.Errorf("has %q, which is not a number: it is LATITUDE,LONGITUDE, such as 52.52,13.405", part)
		}
	}
	if math.Abs(at[0]) > 90 || math.Abs(at[1]) > 180 || at[2] < 0 || math.IsInf(at[2], 0) {
		return at, errors.New("is no place: a latitude is -90 to 90, a longitude -180 to 180")
	}
	return at, nil
}

var (
	localeRule = lazy.Regexp(`^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$`)
	headerRule = lazy.Regexp("^[A-Za-z0-9!#$%&'*+.^_`|~-]+:[^\r\n\x00]*$")
)

// Checks of what is given: each returns an error that goes on from the value, "… is not".

// CheckDevice returns an error if there is no such device.
func CheckDevice(text string) error {
	_, err := find(text)
	return err
}

// CheckUserAgent returns an error if no browser can send a text as its user agent.
func CheckUserAgent(text string) error {
	if i := strings.IndexFunc(text, unicode.IsControl); i >= 0 {
		return fmt.Errorf("has the control character %q, which no user agent has", text[i])
	}
	return nil
}

// Permissions returns the permissions that can be given, by the names of the W3C.
func Permissions() []string {
	return []string{"accelerometer", "ambient-light-sensor", "background-sync", "camera", "clipboard-read",
		"clipboard-write", "display-capture", "geolocation", "gyroscope", "idle-detection", "local-fonts",
		"magnetometer", "microphone", "midi", "notifications", "payment-handler", "persistent-storage",
		"screen-wake-lock", "storage-access", "window-management"}
}

// CheckPermission returns an error if there is no such permission.
func CheckPermission(name string) error {
	switch near := spell.Nearest(name, Permissions()); {
	case slices.Contains(Permissions(), name):
		return nil
	case near != "":
		return fmt.Errorf("is no permission: did you mean %s?", near)
	}
	return fmt.Errorf("is no permission: there are %s", strings.Join(Permissions(), ", "))
}

// CheckGeolocation returns an error if a text is not a place.
func CheckGeolocation(text string) error {
	_, err := place(text)
	return err
}

// CheckTimezone returns an error if there is no such time zone. Where the machine has no
// list of them, the browser decides.
func CheckTimezone(text string) error {
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil {
		return nil
	}
	if _, err := time.LoadLocation(text); err != nil || text == "Local" {
		return errors.New("is no time zone: one is such as Europe/Berlin or UTC")
	}
	return nil
}

// CheckLocale returns an error if a text is not a locale.
func CheckLocale(text string) error {
	if !localeRule().MatchString(text) {
		return errors.New("is no locale: one is such as de-DE")
	}
	return nil
}

// CheckHeader returns an error if a text is not a header.
func CheckHeader(text string) error {
	if !headerRule().MatchString(text) {
		return errors.New("is no header: one is such as X-Test: 1")
	}
	name, _, _ := strings.Cut(text, ":")
	if slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te",
		"trailer", "upgrade"}, strings.ToLower(name)) {
		return errors.New("is a header that a connection sets: with another value no page would load")
	}
	return nil
}
