package emulate

import (
	"strings"
	"testing"
)

func TestChecks(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		check       func(string) error
		text, wrong string
	}{
		{CheckDevice, "iPhone 15", ""}, {CheckDevice, "galaxy_s9+", ""}, {CheckDevice, "390x844@3,mobile", ""},
		{CheckDevice, "iPhone 12", "near are iPhone 13, iPhone 14"}, {CheckDevice, "pixl7", "near are Pixel 7"},
		{CheckDevice, "a toaster for bread", "there are iPhone SE"}, {CheckDevice, "0x9", "larger than"},
		{CheckDevice, "99999x9", "larger than"},
		{CheckGeolocation, "52.52,13.405", ""}, {CheckGeolocation, "-90, 180, 5", ""},
		{CheckGeolocation, "91,0", "no place"}, {CheckGeolocation, "Berlin", "LATITUDE"},
		{CheckGeolocation, "1,x", `has "x"`}, {CheckGeolocation, "NaN,1", `has "NaN"`},
		{CheckLocale, "de", ""}, {CheckLocale, "pt-BR", ""}, {CheckLocale, "de DE", "no locale"},
		{CheckDevice, "-5x9", "no size"}, {CheckUserAgent, "Mozilla/5.0 (é)", ""},
		{CheckUserAgent, "a\r\nb", "control character"}, {CheckPermission, "midi", ""},
		{CheckPermission, "cameras", "mean camera"},
		{CheckHeader, "X-Test: a b", ""}, {CheckHeader, "X-Test", "no header"},
		{CheckHeader, "a: b\r\nc: d", "no header"},
		{CheckTimezone, "UTC", ""},
	} {
		if err := x.check(x.text); err == nil && x.wrong != "" ||
			err != nil && (x.wrong == "" || !strings.Contains(err.Error(), x.wrong)) {
			t.Errorf("%q: %v, want %q", x.text, err, x.wrong)
		}
	}
	for _, d := range Devices() {
		if all := (Emulation{Device: d}).Commands("Chrome/156.0.0.0", Emulation{}); len(all) != 3 {
			t.Errorf("%s is emulated by %v", d, all)
		}
	}
}
