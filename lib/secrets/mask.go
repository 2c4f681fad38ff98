package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"btools/lib/jsonrpc"
)

// pattern is one of the texts by which a secret is found: its value, or what base64 makes of it.
type pattern struct {
	name   string
	units  []rune // white space is one ' '
	base64 bool
	digits bool // pages write it in groups
	// Of base64: the character before it, and that after it, have bits of the value.
	before, after bool
}

// minCut is how many characters a cut value has at least to be found.
const minCut = 4

// prepare makes the patterns.
func (s *Set) prepare() {
	add := func(p pattern) {
		if slices.ContainsFunc(s.patterns, func(q pattern) bool { return slices.Equal(p.units, q.units) }) {
			return
		}
		first := p.units[0]
		starts := []byte{string(first)[0]}
		if !p.base64 {
			starts = append(starts, string(fold(first))[0], string(unicode.ToUpper(first))[0])
		}
		for _, c := range starts {
			if at := &s.starts[c]; !slices.Contains(*at, len(s.patterns)) {
				*at = append(*at, len(s.patterns))
			}
		}
		s.patterns = append(s.patterns, p)
	}
	for _, x := range s.all {
		add(pattern{name: x.name, units: []rune(strings.Join(strings.Fields(x.value), " ")),
			digits: strings.Trim(x.value, "0123456789") == ""})
		forms := [][]byte{[]byte(x.value)}
		if latin := latin1(x.value); latin != nil { // as btoa has it
			forms = append(forms, latin)
		}
		for _, b := range forms {
			for shift := range 3 {
				text := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), b...))
				first, last := (shift*8+5)/6, (shift+len(b))*8/6 // those of the value alone
				p := pattern{name: x.name, base64: true, before: shift > 0, after: (shift+len(b))%3 != 0}
				for _, text := range []string{text, strings.NewReplacer("+", "-", "/", "_").Replace(text)} {
					p.units = []rune(text[first:last])
					add(p)
				}
			}
		}
	}
}

// latin1 returns a text in Latin-1 if that is not its UTF-8, nil if it is, or has other characters.
func latin1(text string) (b []byte) {
	for _, r := range text {
		if r > 0xff {
			return nil
		}
		b = append(b, byte(r))
	}
	if len(b) == len(text) {
		return nil
	}
	return b
}

// Mask returns a text with {{NAME}} in the place of each value, also if that is written in the way of URLs, JSON,
// HTML or base64, or is cut off by "…".
func (s *Set) Mask(text string) string {
	if s == nil {
		return text
	}
	var b strings.Builder
	done := 0 // of the text, which b has
	for i := 0; i < len(text); {
		if c := text[i]; s.starts[c] == nil && isPlain(c) && c != '{' {
			i++
			continue
		} else if c == '{' {
			if whole, name := placeholder(text[i:]); name != "" && s.find(name) != nil {
				i += len(whole)
				continue
			}
		}
		end, of := s.at(text[i:])
		if of == nil {
			i++
			continue
		}
		from, to := i, i+end
		if of.before && from > done && isBase64(text[from-1]) {
			from--
		}
		if of.after && to < len(text) && isBase64(text[to]) {
			to++
		}
		b.WriteString(text[done:from])
		b.WriteString("{{" + of.name + "}}")
		i, done = to, to
	}
	if done == 0 {
		return text
	}
	b.WriteString(text[done:])
	return b.String()
}

// at returns how much of a text, from its beginning, is a secret, and the pattern of that; nil: it is none.
func (s *Set) at(text string) (int, *pattern) {
	if isPlain(text[0]) {
		return s.longest(text[0], text)
	}
	var end int
	var of *pattern
	spelled(text, func(r rune, _ int) {
		if n, p := s.longest(string(r)[0], text); n > end {
			end, of = n, p
		}
	})
	return end, of
}

// longest is at for the patterns that begin with a byte.
func (s *Set) longest(first byte, text string) (end int, of *pattern) {
	for _, k := range s.starts[first] {
		if n := s.patterns[k].match(text); n > end {
			end, of = n, &s.patterns[k]
		}
	}
	return end, of
}

// Masked is Mask for bytes.
func (s *Set) Masked(text []byte) []byte {
	if s == nil {
		return text
	}
	return []byte(s.Mask(string(text)))
}

// MaskJSON returns JSON with the texts and numbers in it as Mask has them.
func (s *Set) MaskJSON(raw json.RawMessage) json.RawMessage {
	if s == nil {
		return raw
	}
	var b bytes.Buffer
	done := 0
	replace := func(from, to int, text string) {
		if masked := s.Mask(text); masked != text {
			b.Write(raw[done:from])
			b.Write(jsonrpc.Quote(masked))
			done = to
		}
	}
	for i := 0; i < len(raw); i++ {
		from := i
		switch {
		case raw[i] == '"':
			escaped := false
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					escaped = true
					i++
				}
			}
			if i >= len(raw) {
				break // no JSON
			}
			text := string(raw[from+1 : i])
			if escaped && json.Unmarshal(raw[from:i+1], &text) != nil {
				break
			}
			replace(from, i+1, text)
		case raw[i] == '-' || raw[i] >= '0' && raw[i] <= '9':
			for i+1 < len(raw) && strings.IndexByte("0123456789+-.eE", raw[i+1]) >= 0 {
				i++
			}
			replace(from, i+1, string(raw[from:i+1]))
		}
	}
	if done == 0 {
		return raw
	}
	b.Write(raw[done:])
	return b.Bytes()
}

func isBase64(c byte) bool { return isAlphanumeric(c) || strings.IndexByte("+/-_", c) >= 0 }

// match returns how much of a text, from its beginning, is a spelling of the pattern: 0, if none is.
func (p *pattern) match(text string) int {
	if len(text) > 1 && len(p.units) > 1 && !p.digits && isPlain(text[0]) && isPlain(text[1]) &&
		text[0] < utf8.RuneSelf && text[1] < utf8.RuneSelf && !p.is(p.units[1], rune(text[1])) {
		return 0 // as most are
	}
	return p.follow(text)
}

func (p *pattern) follow(text string) int {
	ways := []int{0} // where the text may go on: a character may be written in several ways
	for k, unit := range p.units {
		var next []int
		add := func(at int) {
			if !slices.Contains(next, at) {
				next = append(next, at)
			}
		}
		for _, at := range ways {
			spelled(text[at:], func(r rune, size int) {
				if !p.is(unit, r) {
					return
				}
				to := at + size
				if add(to); unit == ' ' {
					spaces(text[to:], func(more int) { add(to + more) })
				} else if p.digits && k < len(p.units)-1 && to < len(text) && (text[to] == ' ' || text[to] == '-') {
					add(to + 1)
				}
			})
		}
		if next == nil {
			if end := slices.Max(ways); k >= minCut && strings.HasPrefix(strings.TrimLeft(text[end:], " "), "…") {
				return end
			}
			return 0
		}
		ways = next
	}
	return slices.Max(ways)
}

// isPlain reports whether a byte stands for itself, whatever the spelling.
func isPlain(c byte) bool { return c != '%' && c != '\\' && c != '&' && c != '+' }

// spaces calls f with how much of a text, from its beginning, is white space in some spelling: some of it, as a + may
// be white space and may not, and all.
func spaces(text string, f func(size int)) {
	const some = 16
	for all, n := 0, 0; ; n++ {
		most := 0
		spelled(text[all:], func(r rune, size int) {
			if unicode.IsSpace(r) {
				most = max(most, size)
			}
		})
		if all += most; n < some || most == 0 {
			f(all)
		}
		if most == 0 {
			return
		}
	}
}

// is reports whether a character is that of a unit. Texts are of either case: pages change it.
func (p *pattern) is(unit, r rune) bool {
	return unit == r || !p.base64 && (fold(unit) == fold(r) || unit == ' ' && unicode.IsSpace(r) ||
		r == '_' && strings.ContainsRune(`\/:*?"<>|~`, unit)) // in names of files
}

// fold returns a character in lower case.
func fold(r rune) rune {
	if r < utf8.RuneSelf {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}
	return unicode.ToLower(r)
}

// maxSpelled bounds the spelling of one character, in bytes.
const maxSpelled = 48

// spelled calls f with each character for which the beginning of a text can stand, and with how long that is. A
// spelling may be in another one: %2526 is & in a URL in a URL.
func spelled(text string, f func(r rune, size int)) {
	if text == "" {
		return
	}
	r, size := utf8.DecodeRuneInString(text)
	f(r, size)
	text = text[:min(len(text), maxSpelled)]
	read := func(r rune, size int) {
		if f(r, size); r == '+' {
			f(' ', size)
		} else if r == '%' || r == '&' {
			spelled(string(r)+text[size:], func(r rune, more int) {
				if more > 1 {
					f(r, size-1+more)
				}
			})
		}
	}
	switch r {
	case '+':
		f(' ', 1)
	case '%':
		percent(text, read)
	case '\\':
		backslash(text, read)
	case '&':
		entity(text, read)
	}
}

// hex returns the number that some digits at a place in a text are, -1 if there are not so many.
func hex(text string, at, digits int) int {
	if len(text) < at+digits {
		return -1
	}
	n, err := strconv.ParseUint(text[at:at+digits], 16, 32)
	if err != nil {
		return -1
	}
	return int(n)
}

// percent reads the spelling of URLs, more than once encoded or not, and that of escape.
func percent(text string, f func(rune, int)) {
	at := 0
	octet := func() int { // the next one
		i := at + 1
		if at >= len(text) || text[at] != '%' {
			return -1
		}
		for strings.HasPrefix(text[i:], "25") && hex(text, i+2, 2) >= 0 {
			i += 2
		}
		c := hex(text, i, 2)
		if c >= 0 {
			at = i + 2
		}
		return c
	}
	if strings.HasPrefix(text, "%u") || strings.HasPrefix(text, "%U") {
		if c := hex(text, 2, 4); c >= 0 {
			f(rune(c), 6)
		}
		return
	}
	if strings.HasPrefix(text, "%25") {
		f('%', 3)
	}
	c := octet()
	if c < 0 {
		return
	}
	f(rune(c), at) // of ASCII or Latin-1
	all := []byte{byte(c)}
	for c >= utf8.RuneSelf && len(all) < utf8.UTFMax {
		if c := octet(); c < 0 {
			return
		} else if all = append(all, byte(c)); utf8.FullRune(all) {
			if r, _ := utf8.DecodeRune(all); r != utf8.RuneError {
				f(r, at)
			}
			return
		}
	}
}

// backslash reads the spelling of JSON and scripts, in a text in such a text or not.
func backslash(text string, f func(rune, int)) {
	n := len(text) - len(strings.TrimLeft(text, `\`))
	for k := 2; k <= n; k *= 2 {
		f('\\', k)
	}
	if n == len(text) {
		return
	}
	switch c := text[n]; c {
	case 'n', 'r', 't', 'b', 'f':
		f(rune("\n\r\t\b\f"[strings.IndexByte("nrtbf", c)]), n+1)
	case 'x':
		if c := hex(text, n+1, 2); c >= 0 {
			f(rune(c), n+3)
		}
	case 'u':
		c := hex(text, n+1, 4)
		if low := strings.IndexByte(text[n:], 'u'); c >= 0 && utf16.IsSurrogate(rune(c)) && low >= 0 {
			rest := text[n+5:]
			skip := len(rest) - len(strings.TrimLeft(rest, `\`))
			if low := hex(rest, skip+1, 4); low >= 0 && strings.HasPrefix(rest[skip:], "u") {
				f(utf16.DecodeRune(rune(c), rune(low)), n+5+skip+5)
			}
		} else if c >= 0 {
			f(rune(c), n+5)
		}
	default:
		spelled(text[n:], func(r rune, size int) {
			if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
				f(r, n+size)
			}
		})
	}
}

// entities are the characters that HTML and XML write by their names.
var entities = [...]struct {
	name string
	r    rune
}{{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", ' '}}

// entity reads the spelling of HTML.
func entity(text string, f func(rune, int)) {
	for _, e := range entities {
		if strings.HasPrefix(text, e.name) {
			f(e.r, len(e.name))
		}
	}
	if end := strings.IndexByte(text, ';'); end > 2 && end < 12 && text[1] == '#' {
		digits, base := text[2:end], 10
		if digits[0] == 'x' || digits[0] == 'X' {
			digits, base = digits[1:], 16
		}
		if c, err := strconv.ParseUint(digits, base, 31); err == nil {
			f(rune(c), end+1)
		}
	}
}

// writer is a writer of text without secrets.
type writer struct {
	io.Writer
	*Set
}

// jsonWriter is a writer of JSON without secrets.
type jsonWriter struct {
	io.WriteCloser
	*Set
}

// JSONWriter returns a writer of JSON as MaskJSON has it: w itself if there are no secrets. A write has whole lines.
func (s *Set) JSONWriter(w io.WriteCloser) io.WriteCloser {
	if s == nil {
		return w
	}
	return jsonWriter{w, s}
}

func (w jsonWriter) Write(b []byte) (int, error) {
	if n, err := w.WriteCloser.Write(w.MaskJSON(b)); err != nil {
		return min(n, len(b)), err
	}
	return len(b), nil
}

// Writer returns a writer of texts as Mask has them. A write has whole lines.
func (s *Set) Writer(w io.Writer) io.Writer { return writer{w, s} }

func (w writer) Write(b []byte) (int, error) {
	_, err := io.WriteString(w.Writer, w.Mask(string(b)))
	return len(b), err
}
