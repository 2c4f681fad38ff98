package relay

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"
	"unicode/utf8"
	"unsafe"

	"btools/lib/place"
)

func init() {
	if len(os.Args) < 3 || os.Args[1] != "call" {
		return
	}
	if a := handOver(os.Args[2:]); a != nil {
		if err := a.Print(); err != nil {
			os.Stderr.WriteString("bmcp: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(a.Code)
	}
}

// quiet is how long a service may say nothing until main takes over, which can tell one that works from one that hangs.
const quiet = 2 // seconds

// handOver has a service run a command line. It returns nil if main is to do it, or what Take returns.
func handOver(args []string) *Answer {
	// The service saves files in the place of the caller, whose sandbox may allow less, and it has other descriptors.
	if isTerminal(1) || isConfined() || slices.ContainsFunc(args, isOfProcess) {
		return nil
	}
	state, line, ok := request(args)
	if !ok {
		return nil
	}
	fd := connect(state)
	if fd < 0 {
		return nil
	}
	p, answer := &Pending{}, (*Answer)(nil)
	err := send(fd, line)
	for err == nil && answer == nil {
		buffer := make([]byte, 4<<10+len(p.Read))
		var n int
		if n, err = syscall.Read(fd, buffer); err == syscall.EINTR {
			err = nil
			continue
		} else if n == 0 && err == nil {
			err = syscall.ECONNRESET
		}
		p.Read = append(p.Read, buffer[:max(n, 0)]...)
		for answer == nil {
			line, rest, whole := bytes.Cut(p.Read, []byte("\n"))
			if !whole {
				break
			}
			p.Read = rest
			if bytes.HasPrefix(line, []byte(`{"id":-1,`)) {
				p.Begun = true
			} else if answer = read(line); answer == nil { // nothing has been done
				syscall.Close(fd)
				return nil
			}
		}
	}
	switch {
	case answer == nil && (p.Begun || err == syscall.EAGAIN):
		p.Conn = os.NewFile(uintptr(fd), "")
		pending = p
	default:
		syscall.Close(fd)
	}
	return answer
}

// request returns the path of the state file and a request with the ping before it; false: main is to do it.
func request(args []string) (state string, line []byte, ok bool) {
	if tmp := os.Getenv("TMPDIR"); tmp != "" && tmp[0] != '/' {
		return "", nil, false
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", nil, false
	}
	line = append(make([]byte, 0, 8<<10), `{"id":-1,"method":"ping"}`+"\n"+
		`{"id":1,"method":"`+Method+`","params":{"program":`...)
	ok = true
	add := func(text string) {
		ok = ok && utf8.ValidString(text)
		line = quote(line, text)
	}
	list := func(words []string) {
		for i, word := range words {
			if i > 0 {
				line = append(line, ',')
			}
			add(word)
		}
	}
	add(Program())
	line = append(line, `,"args":[`...)
	list(args)
	line = append(line, `],"dir":`...)
	add(dir)
	line = append(line, `,"environ":[`...)
	list(os.Environ())
	return place.State(os.Getenv), append(line, "]}}\n"...), ok && len(line) < maxLine
}

// maxLine is the size in bytes of the longest request, as package control has it, with room for the end.
const maxLine = 1<<20 - 100

// quote appends a text as a JSON string.
func quote(line []byte, text string) []byte {
	line = append(line, '"')
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			line = append(line, '\\', c)
		case c < 0x20:
			const hex = "0123456789abcdef"
			line = append(line, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			line = append(line, c)
		}
	}
	return append(line, '"')
}

// read reads an answer, as package control writes it; nil: it is an error.
func read(line []byte) *Answer {
	code, ok := between(&line, `{"id":1,"result":{"code":`, ",")
	if !ok {
		return nil
	}
	a := &Answer{}
	var err error
	if a.Code, err = strconv.Atoi(string(code)); err != nil {
		return nil
	}
	for _, part := range []struct {
		begin, end string
		to         *[]byte
	}{{`"out":"`, `",`, &a.Out}, {`"err":"`, `"}`, &a.Err}} {
		text, ok := between(&line, part.begin, part.end)
		if !ok {
			return nil
		}
		if *part.to, ok = decode(text); !ok {
			return nil
		}
	}
	return a
}

// decode decodes Base64. Package encoding/base64 imports package reflect.
func decode(text []byte) (data []byte, ok bool) {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	var value [256]byte
	for i := range len(digits) {
		value[digits[i]] = byte(i)
	}
	if len(text)%4 != 0 {
		return nil, false
	}
	data = make([]byte, 0, len(text)/4*3)
	for i := 0; i < len(text); i += 4 {
		n := uint32(0)
		for _, digit := range text[i : i+4] {
			n = n<<6 | uint32(value[digit])
		}
		data = append(data, byte(n>>16), byte(n>>8), byte(n))
	}
	return data[:len(data)-bytes.Count(text[max(len(text)-2, 0):], []byte("="))], true
}

// between takes a value off the beginning of a line.
func between(line *[]byte, begin, end string) (value []byte, ok bool) {
	if !bytes.HasPrefix(*line, []byte(begin)) {
		return nil, false
	}
	value, *line, ok = bytes.Cut((*line)[len(begin):], []byte(end))
	return value, ok
}

// connect connects to the service of calls without programs of their own, if it is this user's; -1: it does not run.
func connect(state string) int {
	path := place.Socket(state, AroundCall(os.Environ(), "", false).Socket())
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	bound := syscall.Timeval{Sec: quiet}
	for _, option := range []int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} {
		if err == nil {
			err = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, option, &bound)
		}
	}
	if err == nil {
		err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: path})
	}
	if err == nil {
		var peer *syscall.Ucred
		if peer, err = syscall.GetsockoptUcred(fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil &&
			int(peer.Uid) != os.Geteuid() {
			err = syscall.EPERM
		}
	}
	if err != nil {
		syscall.Close(fd)
		return -1
	}
	return fd
}

// send sends all of a request.
func send(fd int, line []byte) error {
	for len(line) > 0 {
		n, err := syscall.SendmsgN(fd, line, nil, nil, syscall.MSG_NOSIGNAL)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return syscall.EPIPE // the service has not read the request
		}
		line = line[n:]
	}
	return nil
}

// isOfProcess reports whether an argument names something that each process sees in another way, such as /dev/stdout.
func isOfProcess(word string) bool {
	return bytes.Contains([]byte(word), []byte("/dev/")) || bytes.Contains([]byte(word), []byte("/proc/"))
}

// isTerminal reports whether a descriptor is a terminal.
func isTerminal(fd int) bool {
	var t syscall.Termios
	_, _, err := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TCGETS, uintptr(unsafe.Pointer(&t)))
	return err == 0
}

// Program returns what tells the executable of this process from all others; "": it is not known.
func Program() string {
	var st syscall.Stat_t
	if syscall.Stat("/proc/self/exe", &st) != nil {
		return ""
	}
	return strconv.FormatUint(uint64(st.Dev), 36) + "-" + strconv.FormatUint(st.Ino, 36) + "-" +
		strconv.FormatInt(int64(st.Mtim.Sec), 36) + "-" + strconv.FormatInt(int64(st.Mtim.Nsec), 36)
}
