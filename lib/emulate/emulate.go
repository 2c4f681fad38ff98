// Package emulate says what pages take their device, place and language for, as commands
// for a CDP session with a page. It sends none.
package emulate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"time"

	"btools/lib/lazy"
)

// Emulation is what pages are told in the place of what is so. "" and nil: nothing.
type Emulation struct {
	Device      string // the name of one of Devices, or a size: 390x844@3,mobile
	UserAgent   string
	Geolocation string // LATITUDE,LONGITUDE[,METRES]
	Timezone    string // of the IANA: Europe/Berlin
	Locale      string // de-DE
	Headers     []string
	Offline     bool
}

// Command is a command for a page.
type Command struct {
	Method string
	Params map[string]any
}

// Commands returns the commands that make a page so. The browser's own user agent completes
// what the emulation leaves open.
func (e Emulation) Commands(own string) (all []Command) {
	add := func(method string, params map[string]any) { all = append(all, Command{method, params}) }
	d := device{}
	if e.Device != "" {
		d, _ = find(e.Device)
		add("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": d.mobile, "maxTouchPoints": 5})
		add("Emulation.setDeviceMetricsOverride", map[string]any{"width": d.width, "height": d.height,
			"screenWidth": d.width, "screenHeight": d.height, "deviceScaleFactor": d.scale, "mobile": d.mobile})
	}
	if e.Device != "" || e.UserAgent != "" || e.Locale != "" {
		add("Emulation.setUserAgentOverride", e.agent(d, own))
	}
	if e.Locale != "" {
		add("Emulation.setLocaleOverride", map[string]any{"locale": e.Locale})
	}
	if e.Timezone != "" {
		add("Emulation.setTimezoneOverride", map[string]any{"timezoneId": e.Timezone})
	}
	if at, err := place(e.Geolocation); err == nil {
		add("Emulation.setGeolocationOverride", map[string]any{"latitude": at[0], "longitude": at[1],
			"accuracy": at[2]})
	}
	if len(e.Headers) > 0 || e.Offline { // which Chrome does for those alone who are told of requests
		add("Network.enable", map[string]any{"maxTotalBufferSize": 0, "maxResourceBufferSize": 0})
	}
	if len(e.Headers) > 0 {
		headers := map[string]any{}
		for _, h := range e.Headers {
			name, value, _ := strings.Cut(h, ":")
			headers[name] = strings.TrimSpace(value)
		}
		add("Network.setExtraHTTPHeaders", map[string]any{"headers": headers})
	}
	if e.Offline {
		add("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0,
			"downloadThroughput": -1, "uploadThroughput": -1})
	}
	return all
}

// agent returns the parameters of Emulation.setUserAgentOverride. An agent that is given
// has no client hints but those of the device.
func (e Emulation) agent(d device, own string) map[string]any {
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
	return nil
}
