package settings

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"btools/lib/downloads"
	"btools/lib/forward/upstream"
	"btools/lib/shellwords"
	"btools/lib/spell"
)

// Where is where a setting may be set; a row names several.
type Where int

// The keys of pools at their three levels, the flags of programs, and a request for a
// session, whose flags are those of bproxy session new.
const (
	Global   Where = 1 << iota
	Pool           // one pool
	Instance       // one instance of it
	Launches       // flags of all programs that launch browsers
	Proxy          // flags of bproxy
	Share          // flags of bproxy share
	Hub            // flags of bproxy hub
	Agent          // flags of bmcp
	Lease          // flags of bpool lease
	Request        // of a session
)

// Keys are all levels of keys, queueKeys those of what an instance cannot have for
// itself as the pool's queue uses it.
const (
	Keys      = Global | Pool | Instance
	queueKeys = Global | Pool
)

// String returns the name of a level of keys.
func (w Where) String() string {
	switch w {
	case Global:
		return "global"
	case Pool:
		return "pool"
	}
	return "instance"
}

// Of is what a setting is about, which groups flags in help texts.
type Of int

// What settings are about.
const (
	Leases   Of = iota // and pools
	Browsers           // how they are launched
	Lives              // of browsers: launch, idle time, health
	Sessions
)

// Row is a setting.
type Row struct {
	Name    string // of its flag: session-idle
	Key     string // of pools; "": as Name, SESSION_IDLE
	Where   Where
	Of      Of
	Default string // as it would be written; "": none
	// Field returns a pointer to its value: a *string, *bool, **bool, *int, *int64 for a
	// size, *time.Duration, or *[]string. Nil: another reads it.
	Field func(*Settings) any
	// Read reads a text in the place of what the type of Field does by itself.
	Read func(s *Settings, text string, files Files) error
	// Path says that a string is an absolute path, and Dirs that a list is of absolute
	// paths of directories. Those of flags are made absolute.
	Path, Dirs bool
	// Contents says that a list is of files, which are read at once: a word becomes the path, a
	// line's end and the content.
	Contents bool
	// Values are all that a string, or a word of a list, may be; empty: any.
	Values []string
	// Word returns an error for a string, or a word of a list, that there must not be; it
	// goes on from the word: "is no device". Nil: Values says it all.
	Word func(string) error
	// Low and High bound a number. Low bounds a duration; High is MaxDuration then.
	Low, High int
	// Secret says that its value is shown without a password.
	Secret bool
	// Kind says in a message of bpool what values are; "": what the type of Field is.
	Kind string
	// NotJoined is why it has no effect on a browser that joins by its extension; "": it has.
	NotJoined string
	// Context says that of the instances of pools it applies to those with
	// isolation = "context" alone.
	Context bool

	// Usage is what help says of its flag, with the placeholder in back quotes;
	// {session} is what the program calls one. At has what differs for a program.
	Usage    string
	At       map[Where]At
	Variable string // of the environment, which sets the flag as well
}

// At is what differs from a row for the flags of one program; "": nothing.
type At struct {
	Usage, Default string
	Shown          string // default in help texts
	Zero           bool   // 0 is allowed though Low is more: never, or no limit
}

// Files is what reading a value asks of the file system.
type Files struct {
	Real func(dir string) (string, error) // path of a directory without symbolic links
	Read func(path string) ([]byte, error)
}

// KeyName returns the key of the row: upper case, as in the environment.
func (r *Row) KeyName() string {
	return cmp.Or(r.Key, strings.ToUpper(strings.ReplaceAll(r.Name, "-", "_")))
}

// Member returns the JSON member of the row in requests.
func (r *Row) Member() string {
	m := strings.ToLower(r.KeyName())
	if _, is := r.field().(*time.Duration); is {
		m += "_ms"
	}
	return m
}

// field returns a pointer to a value of the row, for its type.
func (r *Row) field() any {
	if r.Field == nil {
		return nil
	}
	return r.Field(&Settings{})
}

// DefaultAt returns the default for a program, as a text; "": none, or it is for
// another to say, such as for the launcher of a browser.
func (r *Row) DefaultAt(at Where) string {
	if r.Where&at == 0 || at&(Launches|Lease|Request) != 0 {
		return ""
	}
	return cmp.Or(r.At[at].Default, r.Default)
}

// UsageAt returns what help says of the flag, and its default there.
func (r *Row) UsageAt(at Where, session string) (usage, shown string) {
	return strings.ReplaceAll(cmp.Or(r.At[at].Usage, r.Usage), "{session}", session), r.At[at].Shown
}

// KindOf says what values the row has.
func (r *Row) KindOf() string {
	if r.Kind != "" {
		return r.Kind
	}
	switch r.field().(type) {
	case *bool, **bool, nil:
		return "true or false"
	case *int:
		return fmt.Sprintf("a number, %d or more", r.Low)
	case *int64:
		return "a size, 0 for no limit"
	case *time.Duration:
		return "a duration"
	case *[]string:
		if r.Dirs {
			return "absolute paths"
		}
		return "words"
	}
	if r.Path {
		return "an absolute path"
	}
	if len(r.Values) > 0 {
		return strings.Join(r.Values, " or ")
	}
	return "a string"
}

// Shown returns a value as messages may show it.
func (r *Row) Shown(text string) string {
	if !r.Secret || text == "" || strings.HasPrefix(text, "@") {
		return text
	}
	u, err := upstream.Parse(text)
	if err != nil {
		return "…" // it may hold a password
	}
	return u.String()
}

// Set reads a text, as it is written at a place, into s. The error says what it must be.
func (r *Row) Set(s *Settings, at Where, text string, files Files) error {
	switch {
	case r.Read != nil:
		return r.Read(s, text, files)
	case r.Field == nil:
		return nil
	}
	switch p := r.Field(s).(type) {
	case *string:
		*p = text
	case *bool:
		v, err := ParseBool(text)
		if *p = v; err != nil {
			return err
		}
	case **bool:
		v, err := ParseBool(text)
		if *p = &v; err != nil {
			return err
		}
	case *int:
		n, err := strconv.Atoi(text)
		if *p = n; err != nil {
			*p = -1 // which Check refuses
		}
	case *int64:
		n, err := downloads.ParseSize(text)
		if *p = n; err != nil {
			return err
		}
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if n, bare := strconv.Atoi(text); bare == nil && n > 0 {
			return fmt.Errorf("must have a unit: %ds is seconds, %dms is milliseconds", n, n)
		}
		if *p = d; err != nil {
			return r.durationError()
		}
	case *[]string:
		if *p = filepath.SplitList(text); !r.Dirs {
			var err error
			if *p, err = shellwords.Split(text); err != nil {
				return err
			}
		}
	}
	return r.Check(s, at, files)
}

func (r *Row) durationError() error {
	least := "0 or more"
	if r.Low > 0 {
		least = fmt.Sprintf("at least %v", time.Duration(r.Low))
	}
	return fmt.Errorf("must be a duration such as 90s, 5m or 1h30m, %s, at most 876000h", least)
}

// Check returns an error if the row's value in s is not one that it may have, and
// completes it: directories lose their symbolic links. It is called for a value that
// came as a flag of its type, or in JSON.
func (r *Row) Check(s *Settings, at Where, files Files) error {
	switch p := r.Field(s).(type) {
	case *string:
		if r.Path && *p != "" {
			if !filepath.IsAbs(*p) {
				return errors.New("must be an absolute path")
			}
			*p = filepath.Clean(*p)
		}
		if len(r.Values) > 0 && !slices.Contains(r.Values, *p) {
			return fmt.Errorf("must be %s", strings.Join(r.Values, " or "))
		}
		if r.Word != nil && *p != "" {
			if err := r.Word(*p); err != nil {
				return fmt.Errorf("which %w", err)
			}
		}
	case *int:
		switch ok := *p >= r.Low || *p == 0 && r.At[at].Zero; {
		case ok && *p <= cmp.Or(r.High, maxCount):
		case r.High == 0 && !ok:
			return fmt.Errorf("must be a number, %d or more", r.Low)
		default:
			return fmt.Errorf("must be a number from %d to %d", r.Low, cmp.Or(r.High, maxCount))
		}
	case *int64:
		if *p < 0 {
			return errors.New("must be 0 or more")
		}
	case *time.Duration:
		if *p > MaxDuration || *p < time.Duration(r.Low) && !(*p == 0 && r.At[at].Zero) {
			return r.durationError()
		}
	case *[]string:
		list := *p
		if *p = nil; !r.Dirs {
			*p = list
			if r.Contents {
				return readContents(list, files)
			}
			return r.checkWords(list)
		}
		for _, dir := range list {
			if !filepath.IsAbs(dir) {
				return fmt.Errorf("must be absolute paths of directories, separated by %q: %s", os.PathListSeparator,
					dir)
			}
			if files.Real != nil {
				var err error
				if dir, err = files.Real(dir); err != nil {
					return err
				}
			}
			*p = append(*p, dir)
		}
	}
	return nil
}

// maxContent bounds the content of a file.
const maxContent = 1 << 20

// readContents adds the contents of files to their paths, where they are missing.
func readContents(list []string, files Files) error {
	for i, word := range list {
		if strings.Contains(word, "\n") {
			continue
		}
		if files.Read == nil || !filepath.IsAbs(word) {
			return fmt.Errorf("must be absolute paths of files, not %.100q", word)
		}
		b, err := files.Read(word)
		switch {
		case err != nil:
			return fmt.Errorf("cannot be read: %w", err)
		case len(b) > maxContent:
			return fmt.Errorf("has %s, which has %d bytes, and may have %d", word, len(b), maxContent)
		case !utf8.Valid(b):
			return fmt.Errorf("has %s, which is not a text in UTF-8", word)
		}
		list[i] = word + "\n" + string(b)
	}
	return nil
}

// checkWords returns an error if a list has a word that it must not have.
func (r *Row) checkWords(list []string) error {
	for _, word := range list {
		if len(r.Values) > 0 && !slices.Contains(r.Values, word) {
			if near := spell.Nearest(word, r.Values); near != "" {
				return fmt.Errorf("has %q: did you mean %s?", word, near)
			}
			return fmt.Errorf("has %q: there are %s", word, strings.Join(r.Values, ", "))
		}
		if r.Word == nil {
			continue
		}
		if err := r.Word(word); err != nil {
			return fmt.Errorf("has %q, which %w", word, err)
		}
	}
	return nil
}

// Args returns the flag with the row's value of s, as another program takes it; none for
// an empty text or list.
func (r *Row) Args(s *Settings) (args []string) {
	switch p := r.Field(s).(type) {
	case *[]string:
		for _, v := range *p {
			if r.Contents {
				v, _, _ = strings.Cut(v, "\n")
			}
			args = append(args, "--"+r.Name+"="+v)
		}
	case *string:
		if *p != "" {
			args = []string{"--" + r.Name + "=" + *p}
		}
	default:
		args = []string{fmt.Sprintf("--%s=%v", r.Name, reflect.ValueOf(p).Elem())}
	}
	return args
}

// Copy sets the row's value in s to that of another.
func (r *Row) Copy(s, from *Settings) {
	reflect.ValueOf(r.Field(s)).Elem().Set(reflect.ValueOf(r.Field(from)).Elem())
}

// ParseBool accepts the usual spellings of a boolean in the environment.
func ParseBool(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return false, errors.New("must be true or false")
}

// ParseCount returns a number within bounds.
func ParseCount(v string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("must be a number from %d to %d", low, high)
	}
	return n, nil
}

// Named returns the row with a key, or nil.
func Named(key string) *Row {
	key = cmp.Or(Formerly[key], key)
	i := slices.IndexFunc(Table(), func(r *Row) bool { return r.Where&Keys != 0 && r.KeyName() == key })
	if i < 0 {
		return nil
	}
	return Table()[i]
}

// KeyNames returns the names of all keys.
func KeyNames() (names []string) {
	for _, r := range Rows(Keys) {
		names = append(names, r.KeyName())
	}
	return names
}

// Rows returns the rows that may be set at one of these places.
func Rows(at Where) (rows []*Row) {
	for _, r := range Table() {
		if r.Where&at != 0 {
			rows = append(rows, r)
		}
	}
	return rows
}

// Flags returns the names of the flags of the settings that may be set at one of these
// places.
func Flags(at Where) (names []string) {
	for _, r := range Rows(at) {
		names = append(names, r.Name)
	}
	return names
}
