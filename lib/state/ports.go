package state

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A thousand reserved ports are 70 KB, and a program that wants one more waits
// until they are read and written, for which encoding/json needs some
// milliseconds. Ports in the form of encodePorts are read by cutPorts. Any other
// form, and whatever is wrong with it, is left to encoding/json.

// timeLayout is the form of a record.Time in UTC.
const timeLayout = "2006-01-02T15:04:05.000Z"

// encodePorts returns the ports in the form that encoding/json gives them.
func encodePorts(ports []Port) json.RawMessage {
	b := make([]byte, 0, 80*len(ports)+len("[]"))
	b = append(b, '[')
	for i, p := range ports {
		if (i == 0 || p.Host != ports[i-1].Host) && !plain(p.Host) {
			b, _ = json.Marshal(ports) // ports always marshal
			return b
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"host":"`...), p.Host...), `","port":`...)
		b = append(strconv.AppendInt(b, int64(p.Port), 10), `,"until":"`...)
		b = append(p.Until.UTC().AppendFormat(b, timeLayout), `"}`...)
	}
	return append(b, ']')
}

// plain reports whether a host is the same in JSON: as addresses and names are.
func plain(host string) bool {
	return !strings.ContainsFunc(host, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"\<>&`, c)
	})
}

// cut stands for the ports in a file that they were cut from.
const cut = `"cut"`

// cutPorts returns the first list of ports in the file, and the file with cut in
// its place, by which the caller sees whether that list is the file's own.
func cutPorts(file []byte) (rest []byte, ports []Port, ok bool) {
	const name = `,"ports":`
	at := bytes.Index(file, []byte(name+"[{"))
	if at < 0 || bytes.Contains(file, []byte(cut)) {
		return nil, nil, false
	}
	at += len(name)
	r := portReader{rest: file[at:]}
	ports = r.list()
	return slices.Concat(file[:at], []byte(cut), r.rest), ports, !r.failed
}

// portReader reads what encodePorts writes. It fails at anything else.
type portReader struct {
	rest   []byte
	failed bool
}

func (r *portReader) list() (ports []Port) {
	ports = make([]Port, 0, len(r.rest)/64)
	var host, until []byte // of the port before: most have the same
	var p Port
	r.literal("[")
	for !r.failed {
		r.literal(`{"host":"`)
		if h := r.before('"'); p.Host == "" || !bytes.Equal(h, host) {
			host, p.Host = h, string(h)
			r.failed = r.failed || !plain(p.Host)
		}
		r.literal(`","port":`)
		number := r.before(',')
		n, err := strconv.ParseUint(string(number), 10, 16)
		p.Port = int(n)
		r.failed = r.failed || err != nil || number[0] == '0'
		r.literal(`,"until":"`)
		if u := r.before('"'); err == nil && (until == nil || !bytes.Equal(u, until)) {
			until = u
			p.Until.Time, err = time.Parse(timeLayout, string(u))
		}
		r.literal(`"}`)
		r.failed = r.failed || err != nil
		ports = append(ports, p)
		if len(r.rest) > 0 && r.rest[0] == ']' {
			break
		}
		r.literal(",")
	}
	r.literal("]")
	return ports
}

func (r *portReader) literal(text string) {
	rest, ok := bytes.CutPrefix(r.rest, []byte(text))
	r.rest, r.failed = rest, r.failed || !ok
}

// before returns what stands before the next of the byte.
func (r *portReader) before(end byte) []byte {
	n := bytes.IndexByte(r.rest, end)
	if r.failed || n < 0 {
		r.failed = true
		return nil
	}
	part := r.rest[:n]
	r.rest = r.rest[n:]
	return part
}
