// Package logins keeps named logins: the cookies, localStorage and IndexedDB
// with which a session of a browser starts. Each is one file of this user's,
// which is replaced as a whole. No error of this package has a value of a
// cookie or of storage in it.
package logins

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"btools/lib/record"
)

// Version is the version of the files that this program writes and reads.
const Version = 1

// MaxOrigin is how many bytes of JSON the storage of one origin may have: it
// travels to Chrome in one message.
const MaxOrigin = 64 << 20

// State is what a session starts with. Its JSON is Playwright's storageState.
type State struct {
	Cookies []Cookie `json:"cookies"`
	Origins []Origin `json:"origins"`

	saved Info // when it was saved, and how large that is
}

// Cookie is a cookie.
type Cookie struct {
	Name     string  `json:"name"`
	Value    string  `json:"value"`
	URL      string  `json:"url,omitempty"` // in the place of the domain and the path
	Domain   string  `json:"domain,omitempty"`
	Path     string  `json:"path,omitempty"`
	Expires  float64 `json:"expires"` // seconds since 1970; -1: it ends with the browser
	HTTPOnly bool    `json:"httpOnly"`
	Secure   bool    `json:"secure"`
	SameSite string  `json:"sameSite,omitempty"` // "Strict", "Lax", "None"; "": none was set
	// PartitionKey is the site in whose pages alone a partitioned cookie is
	// sent.
	PartitionKey         string `json:"partitionKey,omitempty"`
	HasCrossSiteAncestor *bool  `json:"_crHasCrossSiteAncestor,omitempty"`
	// Members of CDP, which Playwright does not know: "High", "Medium" or "Low"; the
	// port of the server that has set it; and whether that was "Secure", "NonSecure" or
	// "Unset".
	Priority     string `json:"priority,omitempty"`
	SourcePort   int    `json:"sourcePort,omitempty"`
	SourceScheme string `json:"sourceScheme,omitempty"`
}

// Origin is the storage of an origin, as raw JSON because strings of JavaScript
// may hold halves of characters, which Go's cannot. LocalStorage is an array of
// objects with a name and a value; IndexedDB is an array of databases as
// Playwright writes it, nil if it was not saved.
type Origin struct {
	Origin       string          `json:"origin"`
	LocalStorage json.RawMessage `json:"localStorage"`
	IndexedDB    json.RawMessage `json:"indexedDB,omitempty"`
}

// items is localStorage. The values are only checked.
type items []struct {
	Name  string    `json:"name"`
	Value anyString `json:"value"`
}

// anyString is a string of JSON that is not kept.
type anyString struct{}

func (anyString) UnmarshalJSON(b []byte) error {
	if len(b) == 0 || b[0] != '"' {
		return errors.New("it is not a string")
	}
	return nil
}

// Parse reads a storageState. Members that this program cannot restore are left
// out; their names are returned.
func Parse(b []byte) (s *State, dropped []string, err error) {
	s = &State{}
	var also struct {
		Credentials json.RawMessage `json:"credentials"`
		Origins     []struct {
			OPFS json.RawMessage `json:"opfs"`
		} `json:"origins"`
	}
	if err := errors.Join(unmarshal(b, s), unmarshal(b, &also)); err != nil {
		return nil, nil, err
	}
	if isFull(also.Credentials) {
		dropped = append(dropped, "credentials")
	}
	for _, o := range also.Origins {
		if isFull(o.OPFS) {
			dropped = append(dropped, "opfs")
			break
		}
	}
	return s, dropped, s.check()
}

// isFull reports whether a member has elements.
func isFull(raw json.RawMessage) bool {
	return len(raw) > 0 && string(raw) != "null" && string(raw) != "[]"
}

// unmarshal is json.Unmarshal whose errors have no values in them.
func unmarshal(b []byte, to any) error {
	err := json.Unmarshal(b, to)
	var syntax *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return fmt.Errorf("it is not valid JSON at byte %d", syntax.Offset)
	case errors.As(err, &typ) && typ.Field != "":
		return fmt.Errorf("%s is not a %s", typ.Field, typ.Type)
	}
	return errors.New("it does not have the form of a storageState")
}

// check returns an error for a state that Chrome could not take, and gives
// members that may be missing their defaults.
func (s *State) check() error {
	if s.Cookies == nil {
		s.Cookies = []Cookie{}
	}
	if s.Origins == nil {
		s.Origins = []Origin{}
	}
	for i := range s.Cookies {
		if err := s.Cookies[i].check(); err != nil {
			return fmt.Errorf("cookies[%d]: %w", i, err)
		}
	}
	seen := map[string]bool{}
	for i := range s.Origins {
		o := &s.Origins[i]
		if err := o.check(); err != nil {
			return fmt.Errorf("origins[%d]: %w", i, err)
		}
		if seen[o.Origin] {
			return fmt.Errorf("origins[%d]: %s is listed twice", i, o.Origin)
		}
		seen[o.Origin] = true
	}
	return nil
}

func (c *Cookie) check() error {
	if u, err := url.Parse(c.URL); c.Domain == "" && (err != nil || u.Hostname() == "") {
		return errors.New("it has no domain")
	}
	switch c.SameSite {
	case "", "Strict", "Lax", "None":
	default:
		return errors.New(`sameSite is not "Strict", "Lax" or "None"`)
	}
	switch c.Priority {
	case "", "Low", "Medium", "High":
	default:
		return errors.New(`priority is not "Low", "Medium" or "High"`)
	}
	switch c.SourceScheme {
	case "", "Secure", "NonSecure", "Unset":
	default:
		return errors.New(`sourceScheme is not "Secure", "NonSecure" or "Unset"`)
	}
	if c.SourcePort < -1 || c.SourcePort > 65535 {
		return errors.New("sourcePort is not a port")
	}
	if c.Expires <= 0 && c.Expires != -1 { // Playwright need not write it
		c.Expires = -1
	}
	if c.Path == "" && c.URL == "" {
		c.Path = "/"
	}
	return nil
}

// site is the host or domain of the cookie.
func (c *Cookie) site() string {
	if c.Domain != "" {
		return strings.TrimPrefix(c.Domain, ".")
	}
	u, _ := url.Parse(c.URL) // it was checked
	return u.Hostname()
}

// HasCookieFor reports whether the host of an origin has a cookie, on any path,
// that has not expired.
func (s *State) HasCookieFor(origin string) bool {
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(s.Cookies, func(c Cookie) bool {
		at := c.expiry()
		return c.PartitionKey == "" && (at.IsZero() || at.After(time.Now())) &&
			(u.Hostname() == c.site() || strings.HasSuffix(u.Hostname(), "."+c.site()) && c.Domain != c.site())
	})
}

// expiry is when the cookie expires, the zero time if it ends with the browser.
func (c *Cookie) expiry() time.Time {
	if c.Expires < 0 || c.Expires > 1<<40 {
		return time.Time{}
	}
	whole, part := math.Modf(c.Expires)
	return time.Unix(int64(whole), int64(part*1e9))
}

func (o *Origin) check() error {
	u, err := url.Parse(o.Origin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" || len(o.Origin) > 2000 {
		return errors.New("origin is not an origin such as https://example.com")
	}
	if o.LocalStorage == nil || string(o.LocalStorage) == "null" {
		o.LocalStorage = json.RawMessage("[]")
	}
	if err := unmarshal(o.LocalStorage, &items{}); err != nil {
		return fmt.Errorf("localStorage of %s: %w", o.Origin, err)
	}
	if string(o.IndexedDB) == "null" {
		o.IndexedDB = nil
	}
	if o.IndexedDB != nil {
		if err := unmarshal(o.IndexedDB, &[]struct {
			Name    string            `json:"name"`
			Version int64             `json:"version"`
			Stores  []json.RawMessage `json:"stores"`
		}{}); err != nil {
			return fmt.Errorf("indexedDB of %s: %w", o.Origin, err)
		}
	}
	if n := len(o.LocalStorage) + len(o.IndexedDB); n > MaxOrigin {
		return fmt.Errorf("%s has more than %d MiB of storage", o.Origin, MaxOrigin>>20)
	}
	return nil
}

// Export returns the storageState as Playwright writes it.
func (s *State) Export() []byte {
	out := State{Cookies: make([]Cookie, len(s.Cookies)), Origins: s.Origins}
	for i, c := range s.Cookies {
		if c.SameSite == "" {
			c.SameSite = "Lax" // which is Chrome's default, too
		}
		out.Cookies[i] = c
	}
	b, _ := marshal(out)
	return b
}

// Info describes a state without its values.
type Info struct {
	Name        string   `json:"name"`
	CookieCount int      `json:"cookie_count"`
	Domains     []string `json:"domains"` // of the cookies
	Origins     []string `json:"origins"` // with localStorage or IndexedDB
	// EarliestExpiry is when the first of the cookies expires; nil: all of them
	// end with the browser.
	EarliestExpiry *record.Time `json:"earliest_expiry"`
	SavedAt        record.Time  `json:"saved_at"`
	Size           int64        `json:"size_bytes"`
	// Cookies and Storage are the contents.
	Cookies []CookieInfo `json:"cookies,omitempty"`
	Storage []OriginInfo `json:"storage,omitempty"`
}

// CookieInfo describes a cookie without its value.
type CookieInfo struct {
	Name      string       `json:"name"`
	Domain    string       `json:"domain"`
	Path      string       `json:"path"`
	ExpiresAt *record.Time `json:"expires_at"`
}

// OriginInfo describes the storage of an origin without its values.
type OriginInfo struct {
	Origin    string   `json:"origin"`
	ItemCount int      `json:"item_count"` // of localStorage
	Databases []string `json:"databases"`
}

// Describe describes a state that has just been saved.
func (s *State) Describe(name string) Info {
	i := s.saved
	i.Name = name
	s.describe(&i, false)
	return i
}

// describe fills in the members of an Info that come from a state.
func (s *State) describe(i *Info, contents bool) {
	i.CookieCount, i.Domains, i.Origins = len(s.Cookies), []string{}, []string{}
	seen := map[string]bool{}
	var first time.Time
	for _, c := range s.Cookies {
		if d := c.site(); !seen[d] {
			seen[d] = true
			i.Domains = append(i.Domains, d)
		}
		at := c.expiry()
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
		if contents {
			i.Cookies = append(i.Cookies, CookieInfo{c.Name, c.site(), c.Path, timeOf(at)})
		}
	}
	i.EarliestExpiry = timeOf(first)
	for _, o := range s.Origins {
		i.Origins = append(i.Origins, o.Origin)
		if contents {
			var all items
			json.Unmarshal(o.LocalStorage, &all) // it was checked
			i.Storage = append(i.Storage, OriginInfo{o.Origin, len(all), o.databases()})
		}
	}
}

func (o *Origin) databases() []string {
	all := []string{}
	var dbs []struct {
		Name string `json:"name"`
	}
	json.Unmarshal(o.IndexedDB, &dbs) // it was checked
	for _, d := range dbs {
		all = append(all, d.Name)
	}
	return all
}

func timeOf(t time.Time) *record.Time {
	if t.IsZero() {
		return nil
	}
	return &record.Time{Time: t}
}
