// Package picture shows pictures on terminals that have the graphics protocol of kitty.
package picture

import (
	"encoding/base64"
	"fmt"
	"io"
)

// Draw shows a PNG at the cursor.
func Draw(w io.Writer, png []byte) error {
	const most = 4096 // bytes of Base64 in one piece
	data := base64.StdEncoding.EncodeToString(png)
	for first := true; first || data != ""; first = false {
		piece := data[:min(most, len(data))]
		data = data[len(piece):]
		head, more := "", 0
		if first {
			head = "a=T,f=100,"
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
