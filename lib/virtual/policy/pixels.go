package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"btools/lib/jsonrpc"
)

// maxPixels bounds a picture of a page: 64 megapixels. For one of 100, Chromium 156
// needs 1.5 GB of memory and answers nobody for seconds; larger ones crash it.
const maxPixels = 64 << 20

// maxSide bounds a side of it: for one of a million, Chromium 156 answers nobody for
// three seconds.
const maxSide = 100_000

// maxWindow bounds a side of a window, so that one has at most maxPixels. A window
// occupies the main thread of Chromium 156 for a time that grows with the square of its
// height: it answers nobody for 10 seconds if that is 50,000, for a minute if it is
// 100,000. Those of chrome-headless-shell and emulated sizes cost nothing like it.
const maxWindow = 8192

// The size of a page that does not emulate one: that of most screens.
const screenWidth, screenHeight = 1920, 1080

// checkWindow checks the size of a window. A side that is not given keeps its length,
// which no rule knows: so each side has a bound of its own.
func checkWindow(params json.RawMessage, _ []string) error {
	if max(math.Abs(number(params, "width")), math.Abs(number(params, "height"))) <= maxWindow {
		return nil
	}
	return fmt.Errorf("a window has at most %d pixels a side in a shared browser; "+
		"Emulation.setDeviceMetricsOverride gives a page a larger size", maxWindow)
}

// checkMetrics checks the size of a page, which is that of its pictures.
func checkMetrics(params json.RawMessage, _ []string) error {
	scale := max(EmulatedScale(params), 1)
	return checkArea(cmp.Or(number(params, "width"), screenWidth)*scale,
		cmp.Or(number(params, "height"), screenHeight)*scale)
}

// EmulatedScale returns the device scale factor in the parameters of
// Emulation.setDeviceMetricsOverride; 0: that of the screen.
func EmulatedScale(params json.RawMessage) float64 { return number(params, "deviceScaleFactor") }

// checkClip checks the part of a page that is to be in a picture.
func checkClip(clip json.RawMessage, _ []string) error { return checkScaledClip(clip, 1) }

// checkScaledClip does what checkClip does, for a page with a device scale factor.
func checkScaledClip(clip json.RawMessage, scale float64) error {
	scale *= number(clip, "scale")
	return checkArea(number(clip, "width")*scale, number(clip, "height")*scale)
}

// checkArea refuses a picture of too many pixels.
func checkArea(width, height float64) error {
	width, height = max(math.Abs(width), 1), max(math.Abs(height), 1)
	if max(width, height) <= maxSide && width*height <= maxPixels { // not if one is NaN
		return nil
	}
	return fmt.Errorf("a picture has at most %d megapixels, and %d pixels a side, in a shared browser",
		maxPixels>>20, maxSide)
}

// number returns a member of an object that is a number, 0 if there is none. It is
// infinite if it is out of range.
func number(object json.RawMessage, name string) float64 {
	n, _ := strconv.ParseFloat(string(jsonrpc.Get(object, name)), 64)
	return n
}
