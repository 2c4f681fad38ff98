package single

import (
	"bytes"
	"io"
	"os"

	"btools/lib/nowait"
)

// NewPipe serves the debugging pipe of a Chrome, whose messages end with a byte 0,
// until it ends, or until Close, which closes both files: Chrome ends then.
func NewPipe(in, out *os.File) *Mux { return newMux(newPipe(in, out, maxAnswer)) }

func newPipe(in, out *os.File, limit int) *pipe {
	p := &pipe{in: in, out: out, limit: limit, buf: make([]byte, firstBuffer), now: nowait.NewWriter(out)}
	nowait.Widen(in)
	p.from = in
	if r := nowait.NewReader(in); r != nil {
		p.from = r
	}
	return p
}

const (
	// firstBuffer is enough for most of Chrome's messages.
	firstBuffer = 64 << 10

	// keptBuffer is the largest buffer that is read into again: a longer message is
	// handed on in the buffer itself.
	keptBuffer = 32 << 10

	// longBuffer is the size from which on a buffer grows at once to that of the long
	// messages before. Until then it doubles: a message may be the only long one.
	longBuffer = 64 << 10

	// cutEnd is how much of the end of a message that is too long is kept: the
	// member sessionId, which has 48 bytes.
	cutEnd = 256
)

// pipe is the transport of a Chrome without a port.
type pipe struct {
	in, out *os.File
	from    io.Reader      // of in
	now     *nowait.Writer // to out; nil: there is none
	limit   int            // of a message, in bytes

	buf     []byte // buf[r:w] has been read
	r, w    int
	scanned int // no byte 0 is before it
	long    int // bytes that long messages have needed lately
}

func (p *pipe) read() (message []byte, cut bool, err error) {
	for {
		if i := bytes.IndexByte(p.buf[p.scanned:p.w], 0); i >= 0 {
			end := p.scanned + i
			cut = cut || end-p.r > p.limit
			return p.take(end), cut, nil
		}
		p.scanned = p.w
		if p.w-p.r > p.limit { // the last bytes take the place of those before them
			cut = true
			p.w = p.r + cutEnd + copy(p.buf[p.r+cutEnd:], p.buf[p.w-cutEnd:p.w])
			p.scanned = p.w
		}
		p.makeRoom()
		n, err := p.from.Read(p.buf[p.w:])
		p.w += n
		if err != nil {
			return nil, false, err
		}
	}
}

// take returns the message that ends before buf[end].
func (p *pipe) take(end int) []byte {
	message := p.buf[p.r:end:end]
	rest := p.buf[end+1 : p.w]
	if len(message) <= keptBuffer {
		message = bytes.Clone(message)
		if p.r = end + 1; p.r == p.w {
			p.r, p.w = 0, 0
		}
		p.scanned = p.r
		return message
	}
	p.long = max(p.long/2, len(message)+len(message)/4)
	if len(message) < len(p.buf)/2 {
		message = bytes.Clone(message)
	}
	p.buf = make([]byte, max(firstBuffer, 2*len(rest)))
	p.r, p.scanned, p.w = 0, 0, copy(p.buf, rest)
	return message
}

// makeRoom makes room for more of the message that has begun.
func (p *pipe) makeRoom() {
	if p.w < len(p.buf) {
		return
	}
	to := p.buf
	if p.w-p.r > len(p.buf)/2 {
		size := 2 * len(p.buf)
		if len(p.buf) >= longBuffer {
			size = max(size, min(p.long, p.limit))
		}
		to = make([]byte, size)
	}
	n := copy(to, p.buf[p.r:p.w])
	p.buf, p.r, p.scanned, p.w = to, 0, p.scanned-p.r, n
}

func (p *pipe) frame(message []byte) []byte { return append(message, 0) }

func (p *pipe) try(frame []byte) (rest []byte, err error) {
	if p.now == nil {
		return frame, nil
	}
	n, err := p.now.Write(frame)
	return frame[n:], err
}

func (p *pipe) write(rest []byte) error {
	_, err := p.out.Write(rest)
	return err
}

func (p *pipe) close() {
	p.out.Close()
	p.in.Close()
}
