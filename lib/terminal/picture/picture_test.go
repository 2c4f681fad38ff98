package picture

import (
	"encoding/binary"
	"strings"
	"testing"

	"btools/lib/terminal/screen"
)

// A picture is as large as there is room, and no larger than it is.
func TestPlace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		width, height uint32 // of the picture
		columns, rows int    // of the terminal, whose cells are 10 by 20
		want          string
	}{
		{1000, 500, 80, 40, "c=80,"}, {1000, 500, 80, 12, "r=10,"}, {100, 50, 80, 40, "c=11,"},
		{10, 5000, 80, 40, "r=38,"}, {1000, 500, 1, 1, "c=1,"},
	} {
		png := binary.BigEndian.AppendUint32(make([]byte, 16), c.width)
		png = append(binary.BigEndian.AppendUint32(png, c.height), make([]byte, 4000)...)
		got := Place(png, 7, screen.Size{Width: c.columns, Height: c.rows, CellWidth: 10, CellHeight: 20}, 1, 1)
		if want := "\x1b[2;1H\x1b_Ga=T,f=100,i=7,p=1,q=2,C=1," + c.want + "m=1;AAAA"; !strings.HasPrefix(got, want) ||
			strings.Count(got, "\x1b_G") != 2 || !strings.HasSuffix(got, "\x1b\\") {
			t.Errorf("%+v: %.100q, not %q", c, got, want)
		}
	}
	if got := Place([]byte("short"), 7, screen.Size{}, 1, 1); got != "" {
		t.Errorf("no picture is %q", got)
	}
}
