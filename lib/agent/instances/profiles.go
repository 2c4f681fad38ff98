package instances

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"btools/lib/record"
)

// Profile is a profile of a browser that the user has installed.
type Profile struct {
	Browser   string `json:"browser"` // its type
	Directory string `json:"profile"` // by which it is named, such as Default
	Name      string `json:"name"`    // that its user sees
	InUse     bool   `json:"inUse"`   // a browser has the profile, or another one beside it, open

	userData string // the directory of all profiles
	last     bool   // it was used last
}

// userData are the directories of the profiles of browsers, below the directory
// where the system keeps them.
var userData = []struct{ browser, linux, darwin, windows string }{
	{record.Chrome, "google-chrome", "Google/Chrome", "Google/Chrome/User Data"},
	{record.Edge, "microsoft-edge", "Microsoft Edge", "Microsoft/Edge/User Data"},
	{record.Brave, "BraveSoftware/Brave-Browser", "BraveSoftware/Brave-Browser",
		"BraveSoftware/Brave-Browser/User Data"},
	{record.Chromium, "chromium", "Chromium", "Chromium/User Data"},
}

// Profiles lists the profiles of the user's browsers, those of Chrome first, as
// the files Local State have them.
func (s *Set) Profiles() ([]Profile, error) {
	all := []Profile{}
	var errs []error
	for _, d := range userData {
		found, err := readLocalState(d.browser, s.userDataDir(d.linux, d.darwin, d.windows))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		return all, errors.Join(errs...)
	}
	return all, nil
}

func (s *Set) userDataDir(linux, darwin, windows string) string {
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(s.Home, "Library", "Application Support", filepath.FromSlash(darwin))
	case "windows":
		return filepath.Join(s.Getenv("LOCALAPPDATA"), filepath.FromSlash(windows))
	}
	base := s.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		base = filepath.Join(s.Home, ".config")
	}
	return filepath.Join(base, filepath.FromSlash(linux))
}

// readLocalState lists the profiles of a browser, by their directories.
func readLocalState(browser, dir string) (all []Profile, err error) {
	path := filepath.Join(dir, "Local State")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var content struct {
		Profile struct {
			Info map[string]struct{ Name string } `json:"info_cache"`
			Last string                           `json:"last_used"`
		}
	}
	if err := json.Unmarshal(b, &content); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	inUse := isInUse(dir)
	for name, info := range content.Profile.Info {
		if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) {
			continue // which no browser has written
		}
		all = append(all, Profile{Browser: browser, Directory: name, Name: info.Name, InUse: inUse, userData: dir,
			last: name == content.Profile.Last})
	}
	slices.SortFunc(all, func(a, b Profile) int { return strings.Compare(a.Directory, b.Directory) })
	return all, nil
}

// isInUse reports whether a browser has a directory of profiles open. One browser
// opens them all.
func isInUse(dir string) bool {
	if runtime.GOOS == "windows" {
		f, err := os.OpenFile(filepath.Join(dir, "lockfile"), os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err != nil && !errors.Is(err, fs.ErrNotExist)
	}
	to, err := os.Readlink(filepath.Join(dir, "SingletonLock"))
	if err != nil {
		return false
	}
	host, _ := os.Hostname()
	if i := strings.LastIndexByte(to, '-'); i < 0 || to[:i] != host {
		return true // of another machine that has the directory, too
	}
	c, err := net.DialTimeout("unix", filepath.Join(dir, "SingletonSocket"), time.Second)
	if err != nil {
		return false // it was killed
	}
	c.Close()
	return true
}

// removeLock removes the lock that a browser leaves behind when TERM ends it, and
// its socket in the temporary directory.
func removeLock(dir string, pid int) {
	host, _ := os.Hostname()
	lock := filepath.Join(dir, "SingletonLock")
	if to, err := os.Readlink(lock); err != nil || to != fmt.Sprintf("%s-%d", host, pid) {
		return
	}
	if socket, err := os.Readlink(filepath.Join(dir, "SingletonSocket")); err == nil && filepath.IsAbs(socket) {
		os.Remove(socket)
		os.Remove(filepath.Join(filepath.Dir(socket), "SingletonCookie"))
		os.Remove(filepath.Dir(socket)) // unless there is anything else in it
	}
	for _, name := range []string{"SingletonSocket", "SingletonCookie", "SingletonLock"} {
		os.Remove(filepath.Join(dir, name))
	}
}

// profile returns the profile that a name means: BROWSER/PROFILE, a directory or
// the name that its user sees; the one that was used last if it is "".
func (s *Set) profile(name string) (Profile, error) {
	all, err := s.Profiles()
	if err != nil {
		return Profile{}, err
	}
	matches := []func(Profile) bool{
		func(p Profile) bool { return p.Browser+"/"+p.Directory == name },
		func(p Profile) bool { return p.Directory == name },
		func(p Profile) bool { return p.Name == name },
	}
	if name == "" {
		matches = []func(Profile) bool{func(p Profile) bool { return p.last }, func(Profile) bool { return true }}
	}
	for _, match := range matches {
		if i := slices.IndexFunc(all, match); i >= 0 {
			return all[i], nil
		}
	}
	if name == "" {
		return Profile{}, errors.New("no browser of this user has a profile")
	}
	return Profile{}, fmt.Errorf("there is no profile %q: the action profiles lists them", name)
}
