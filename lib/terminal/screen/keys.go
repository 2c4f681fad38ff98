package screen

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// names are the keys that send a sequence.
var names = map[string]string{
	"\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down", "\x1b[5~": "pgup", "\x1b[6~": "pgdown",
	"\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
	"\r": "enter", "\n": "enter", "\x7f": "backspace", "\b": "backspace",
	"\x1b": "esc",
}

// maxSequence is how long a sequence may be, in bytes.
const maxSequence = 4 << 10

// keysOf returns the keys that a terminal sends, and the begin of another one.
func keysOf(b []byte) (keys []string, rest []byte) {
	for len(b) > 0 {
		n := lengthOf(b)
		if n == 0 && len(b) < maxSequence {
			return keys, b
		}
		n = max(n, 1)
		sequence := string(b[:n])
		r, _ := utf8.DecodeRuneInString(sequence)
		switch name := names[sequence]; {
		case name != "":
			keys = append(keys, name)
		case n > 2 && sequence[:2] == "\x1b_": // an answer
			keys = append(keys, sequence)
		case unicode.IsPrint(r):
			keys = append(keys, sequence)
		}
		b = b[n:]
	}
	return keys, nil
}

// lengthOf returns how many bytes the first key has; 0: there are more to come.
func lengthOf(b []byte) int {
	switch {
	case b[0] != '\x1b':
		if !utf8.FullRune(b) {
			return 0
		}
		_, n := utf8.DecodeRune(b)
		return n
	case len(b) == 1:
		return 0
	case b[1] == '_': // up to ESC \
		if end := bytes.Index(b, []byte("\x1b\\")); end > 0 {
			return end + 2
		}
		return 0
	case b[1] == 'O' && len(b) > 2:
		return 3
	case b[1] == 'O':
		return 0
	case b[1] != '[':
		return 1
	}
	end := bytes.IndexFunc(b[2:], func(r rune) bool { return r < 0x20 || r > 0x3f }) // what ends it
	if end < 0 {
		return 0
	}
	return 2 + end + 1
}
