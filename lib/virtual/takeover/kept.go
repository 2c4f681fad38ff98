package takeover

import (
	"errors"
	"strings"
)

// MaxKept is how many bytes of events a client has to get when a person is not private any more.
const MaxKept = 4 << 20

// ErrKept is the error of more.
var ErrKept = errors.New("while a person was private, more happened than is kept")

// Kept are the events that a client gets when a person is not private any more, in their order. The zero value is none.
type Kept struct {
	all  []kept
	size int
	said map[string]bool // those that say the same when they come again
}

type kept struct {
	session, method string
	event           []byte
}

// Add keeps an event of a CDP session.
func (k *Kept) Add(session, method string, event []byte) error {
	switch method {
	case "Target.targetInfoChanged", "Page.navigatedWithinDocument": // pages do this without end
		if k.said[string(event)] {
			return nil
		}
		if k.said == nil {
			k.said = map[string]bool{}
		}
		k.said[string(event)] = true
	case "Page.javascriptDialogClosed":
		if k.dropDialog(session) {
			return nil
		}
	}
	if k.size+len(event) > MaxKept {
		return ErrKept
	}
	k.size += len(event)
	k.all = append(k.all, kept{session, method, event})
	return nil
}

// dropDialog forgets a dialog that was opened, and reports whether it was: a client would answer it.
func (k *Kept) dropDialog(session string) bool {
	for i := len(k.all) - 1; i >= 0; i-- {
		if e := &k.all[i]; e.session == session && strings.HasPrefix(e.method, "Page.javascriptDialog") {
			if e.method != "Page.javascriptDialogOpening" {
				return false
			}
			k.size -= len(e.event)
			k.all = append(k.all[:i], k.all[i+1:]...)
			return true
		}
	}
	return false
}

// Take takes all out.
func (k *Kept) Take() (events [][]byte) {
	for _, e := range k.all {
		events = append(events, e.event)
	}
	*k = Kept{}
	return events
}
