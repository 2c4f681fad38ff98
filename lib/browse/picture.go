package browse

import (
	"context"
	"fmt"
	"maps"
	"math"
)

// maxSide is the longest side of a screenshot in pixels.
const maxSide = 8000

// maxPixels bounds a screenshot. What is larger is scaled down: Chrome needs seconds
// and hundreds of megabytes for it.
const maxPixels = 16 << 20

// Limits of models' picture inputs. Larger pictures cost as much, and are scaled down or
// refused.
const (
	maxModelSide   = 1568
	maxModelPixels = 1_150_000
)

// ScreenshotOptions say what a screenshot shows.
type ScreenshotOptions struct {
	Type     string // png, jpeg or webp
	Target   Target // "": the viewport
	FullPage bool
	Device   bool // in device pixels rather than in those of CSS
	Model    bool // a model is to see it
	Annotate bool // with the elements to act on
}

// Screenshot is an image. Note says what of it is not as it was asked for.
type Screenshot struct {
	Data []byte
	What string
	Note string

	Marks []Mark // if they are asked for
}

// area is a part of a page in CSS pixels, as the protocol has it.
type area struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Width  float64 `json:"width"`
	Height float64 `json:"height"`
	Scale  float64 `json:"scale"`
}

// pictures are what a page looks like, on the screen and printed.
type pictures struct {
	*elements
	media map[string]string // that is emulated
}

// Screenshot takes a picture of the page.
func (t *pictures) Screenshot(ctx context.Context, o ScreenshotOptions) (s Screenshot, err error) {
	if err := t.gone(); err != nil {
		return s, err
	}
	var clip area
	ratioOf, session := t.askRatio(ctx), t.main.session
	switch {
	case o.Target != "":
		clip, s.What, err = t.boxOf(ctx, o.Target)
	default:
		clip, err = t.viewport(ctx, o.FullPage)
		s.What = "viewport"
		if o.FullPage {
			s.What = "full page"
		}
	}
	if err != nil {
		return s, err
	}
	var got evaluated
	var ratio float64 = 1
	if _, err := t.answerOf(ctx, ScriptTimeout, session, ratioOf, &got); err == nil {
		fmt.Sscan(string(got.Result.Value), &ratio)
	}
	clip.Scale = 1
	if !o.Device && ratio > 0 {
		clip.Scale = 1 / ratio
	}
	w, h := clip.Width*clip.Scale*ratio, clip.Height*clip.Scale*ratio
	less, note := ScaleDown(w, h, o.Model)
	clip.Scale *= less
	s.Note = note
	if o.Annotate {
		if s.Marks, err = t.marks(ctx, clip, clip.Scale*ratio); err != nil {
			return s, err
		}
	}
	params := map[string]any{"format": o.Type, "clip": clip, "captureBeyondViewport": o.FullPage}
	if o.Type == "jpeg" {
		params["quality"] = 90
	}
	s.Data, err = t.printed(ctx, "Page.captureScreenshot", params)
	return s, err
}

// thumbnailQuality is that of JPEG.
const thumbnailQuality = 60

// Thumbnail takes a picture of the viewport of up to a width, without a script: one is also taken while a person has
// control.
func (t *pictures) Thumbnail(ctx context.Context, width float64) (jpeg []byte, err error) {
	if err := t.gone(); err != nil {
		return nil, err
	}
	clip, err := t.viewport(ctx, false)
	if err != nil {
		return nil, err
	}
	clip.Scale = min(1, width/max(clip.Width, 1))
	return t.printed(ctx, "Page.captureScreenshot", map[string]any{"format": "jpeg", "quality": thumbnailQuality,
		"clip": clip, "optimizeForSpeed": true})
}

// askRatio asks the page how many pixels it has in one of CSS: to do so beside other questions saves the time of an
// answer.
func (t *pictures) askRatio(ctx context.Context) <-chan answer {
	w, _ := t.mainFrame().empty(ctx) // else the answer is an error
	return t.begin(t.main.session, "Runtime.evaluate", map[string]any{"expression": "devicePixelRatio",
		"contextId": w.id})
}

// ScaleDown is by how much a picture of a width and a height in pixels is scaled down, 1: not
// at all, and what is said of that.
func ScaleDown(width, height float64, forModel bool) (scale float64, note string) {
	side, pixels := float64(maxSide), float64(maxPixels)
	if forModel {
		side, pixels = maxModelSide, maxModelPixels
	}
	scale = min(side/max(width, height), math.Sqrt(pixels/(width*height)))
	if !(scale < 1) {
		return 1, ""
	}
	return scale, fmt.Sprintf("it is scaled down from %.0f×%.0f pixels", width, height)
}

// viewport is the part of the document that is seen, or all of it.
func (t *frames) viewport(ctx context.Context, all bool) (area, error) {
	var got struct {
		CSSLayoutViewport struct{ PageX, PageY, ClientWidth, ClientHeight float64 }
		CSSContentSize    area
	}
	err := t.call(ctx, t.main.session, "Page.getLayoutMetrics", nil, &got)
	if all {
		return got.CSSContentSize, err
	}
	v := got.CSSLayoutViewport
	return area{X: v.PageX, Y: v.PageY, Width: v.ClientWidth, Height: v.ClientHeight}, err
}

// boxOf is where an element is in the document.
func (t *elements) boxOf(ctx context.Context, target Target) (area, string, error) {
	f, err := t.Ready(ctx, target, needs{})
	if err != nil {
		return area{}, "", err
	}
	var r struct{ X, Y, Width, Height float64 }
	if err := t.run(ctx, f.Frame, "box", map[string]any{"target": f.Find}, &r); err != nil {
		return area{}, "", err
	}
	if f.Frame.parent != nil {
		x, y, err := f.Frame.origin(ctx)
		if err != nil {
			return area{}, "", err
		}
		r.X, r.Y = r.X+x, r.Y+y
	}
	v, err := t.viewport(ctx, false)
	return area{X: r.X + v.X, Y: r.Y + v.Y, Width: max(r.Width, 1), Height: max(r.Height, 1)}, f.What, err
}

// PDF is the page as it is printed.
func (t *pictures) PDF(ctx context.Context) (data []byte, err error) {
	if err := t.gone(); err != nil {
		return nil, err
	}
	return t.printed(ctx, "Page.printToPDF", map[string]any{"printBackground": true})
}

// printed is what the browser makes of the page.
func (t *pictures) printed(ctx context.Context, method string, params any) ([]byte, error) {
	var got struct{ Data []byte }
	err := t.callFor(ctx, agentTimeout, t.main.session, method, params, &got)
	return got.Data, err
}

// Resize sets the size of the viewport in CSS pixels.
func (t *pictures) Resize(ctx context.Context, width, height int) error {
	return t.call(ctx, t.main.session, "Emulation.setDeviceMetricsOverride", map[string]any{"width": width,
		"height": height, "deviceScaleFactor": 0, "mobile": false}, nil)
}

// EmulateMedia has the page see values of CSS media features, by their names, and of the type, by media; "": it ends.
func (t *pictures) EmulateMedia(ctx context.Context, change map[string]string) error {
	t.b.mu.Lock()
	maps.Copy(t.media, change)
	list := []map[string]string{}
	for name, value := range t.media {
		if name != "media" {
			list = append(list, map[string]string{"name": name, "value": value})
		}
	}
	params := map[string]any{"media": t.media["media"], "features": list}
	t.b.mu.Unlock()
	return t.call(ctx, t.main.session, "Emulation.setEmulatedMedia", params, nil)
}
