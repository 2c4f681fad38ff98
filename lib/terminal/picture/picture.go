// Package picture shows pictures on terminals that have the graphics protocol of kitty.
package picture

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"btools/lib/terminal/screen"
)

// Query asks a terminal whether it shows pictures, which it does if IsShown. Others answer nothing.
const Query = "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"

// IsShown reports whether a key is the answer of a terminal that shows pictures.
func IsShown(key string) bool { return strings.HasPrefix(key, "\x1b_Gi=31;OK") }

// Draw shows a PNG at the cursor. keys are more keys of the protocol, each with a comma behind it.
func Draw(w io.Writer, png []byte, keys string) error {
	const most = 4096 // bytes of Base64 in one piece
	data := base64.StdEncoding.EncodeToString(png)
	for first := true; first || data != ""; first = false {
		piece := data[:min(most, len(data))]
		data = data[len(piece):]
		head, more := "", 0
		if first {
			head = "a=T,f=100," + keys
		}
		if data != "" {
			more = 1
		}
		if _, err := fmt.Fprintf(w, "\x1b_G%sm=%d;%s\x1b\\", head, more, piece); err != nil {
			return err
		}
	}
	return nil
}

// Place returns the sequences that show a PNG below a number of lines and above others, as large as it is or as there
// is room, in the place of the picture with the same number.
func Place(png []byte, number int, size screen.Size, above, below int) string {
	if len(png) < 24 { // its begin, with its size
		return ""
	}
	width, height := int(binary.BigEndian.Uint32(png[16:])), int(binary.BigEndian.Uint32(png[20:]))
	columns, rows := min(size.Width, 1+width/size.CellWidth), max(1, size.Height-above-below)
	fit := fmt.Sprintf("c=%d", columns) // the terminal keeps the ratio if it is told one of both
	if columns*size.CellWidth*height > rows*size.CellHeight*width {
		fit = fmt.Sprintf("r=%d", rows)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\x1b[%d;1H", above+1)
	Draw(&b, png, fmt.Sprintf("i=%d,p=1,q=2,C=1,%s,", number, fit))
	return b.String()
}

// Remove returns the sequence that removes the picture with a number.
func Remove(number int) string { return fmt.Sprintf("\x1b_Ga=d,d=I,i=%d,q=2\x1b\\", number) }
