package find

import "path/filepath"

func (o *Options) cache(variable, name string) string {
	if v := o.Getenv(variable); filepath.IsAbs(v) {
		return v
	}
	if name == "ms-playwright" {
		return filepath.Join(o.Home, "Library/Caches", name)
	}
	return filepath.Join(o.Home, ".cache", name)
}

func systemPlaces(o *Options) []candidate {
	var list []candidate
	for _, apps := range []string{o.Root + "/Applications", filepath.Join(o.Home, "Applications")} {
		for _, a := range []struct{ app, exe string }{
			{"Google Chrome", ""}, {"Google Chrome Beta", ""}, {"Google Chrome Dev", ""}, {"Google Chrome Canary", ""},
			{"Google Chrome for Testing", ""},
			{"Microsoft Edge", ""}, {"Microsoft Edge Beta", ""}, {"Microsoft Edge Dev", ""},
			{"Microsoft Edge Canary", ""},
			{"Chromium", ""}, {"Brave Browser", ""}, {"Brave Browser Beta", ""}, {"Brave Browser Nightly", ""},
			{"Firefox", "firefox"}, {"Firefox Developer Edition", "firefox"}, {"Firefox Nightly", "firefox"},
		} {
			exe := a.exe
			if exe == "" {
				exe = a.app
			}
			list = append(list, candidate{path: filepath.Join(apps, a.app+".app/Contents/MacOS", exe),
				source: "well-known"})
		}
		if o.All {
			list = append(list, candidate{path: filepath.Join(apps, "Safari.app/Contents/MacOS/Safari"),
				source: "well-known",
				kind:   kind{"safari", "Safari", "stable"}})
		}
	}
	return list
}

func lastPlaces(*Options) []candidate { return nil }
