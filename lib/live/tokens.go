package live

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"sync"
	"time"
)

const (
	firstUse  = time.Minute    // within which a token of an address is used, once
	tokenLife = 12 * time.Hour // of the one that the page gets for it
)

// tokens are the tokens of those who may open the page. What is kept are their sums.
type tokens struct {
	mu  sync.Mutex
	all map[[sha256.Size]byte]grant
}

// grant is what a token allows.
type grant struct {
	control bool // and not only to look
	once    bool
	until   time.Time
}

// issue returns a new token.
func (t *tokens) issue(control, once bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.issueLocked(control, once, time.Now())
}

func (t *tokens) issueLocked(control, once bool, now time.Time) string {
	if t.all == nil {
		t.all = map[[sha256.Size]byte]grant{}
	}
	for sum, g := range t.all {
		if now.After(g.until) {
			delete(t.all, sum)
		}
	}
	life := tokenLife
	if once {
		life = firstUse
	}
	var random [32]byte
	rand.Read(random[:])
	token := base64.RawURLEncoding.EncodeToString(random[:])
	t.all[sha256.Sum256([]byte(token))] = grant{control, once, now.Add(life)}
	return token
}

// use returns what a token allows, and the token that takes the place of one that is used up, else "".
func (t *tokens) use(token string) (control bool, next string, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, now := sha256.Sum256([]byte(token)), time.Now()
	g, ok := t.all[sum]
	if !ok || now.After(g.until) {
		return false, "", false
	}
	if g.once {
		delete(t.all, sum)
		next = t.issueLocked(g.control, false, now)
	}
	return g.control, next, true
}
