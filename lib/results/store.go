// Package results makes a result of a tool small enough for an agent and keeps the
// rest: text in memory, for as long as the agent reads on in it, and data by lib/blobs.
// It shows parts of a text: a page, the lines that match a pattern, what a JMESPath
// query finds, the nodes of a snapshot as a flat list. It also records which blobs and
// downloads a host has been handed. It does not know requests, children or browsers:
// which results are too large is decided by its callers.
package results

import (
	"container/list"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Limits bound a Store. Zero values are the defaults.
type Limits struct {
	// Entries is the number of results: 1 to 10,000, by default 1,000.
	Entries int
	// Bytes is the size of all results together, by default 64 MiB: a result may
	// have a quarter of them. They are kept compressed, which takes less of memory.
	Bytes int64
	// TTL is how long a result is kept after its last use, by default 300 s.
	TTL time.Duration
}

// Bounds of Limits.Entries, and the defaults.
const (
	MaxEntries     = 10_000
	DefaultEntries = 1_000
	defaultBytes   = 64 << 20
	defaultTTL     = 300 * time.Second
)

// Scope says who may read a result. The keys are short enough to be guessed: an
// agent can read only the results of its own scope.
type Scope struct {
	Host string // the session of a host
	Part string // tells those apart who share it
}

// Store keeps results. If there are too many, the scope that has the most loses
// the one that it has not used for the longest time: an agent that floods the
// store harms only itself.
type Store struct {
	limits Limits

	mu     sync.Mutex
	all    map[string]*entry // by key
	scopes map[Scope]*shelf
	bytes  int64
	timer  *time.Timer // of the next expiry; nil: there are no results
}

// shelf has the results of one scope.
type shelf struct {
	used  *list.List // of *entry, the last used one first
	bytes int64
}

type entry struct {
	key     string
	scope   Scope
	packed  []byte // the text
	size    int    // of the text, in bytes
	expires time.Time
	place   *list.Element
}

// New makes a store.
func New(l Limits) *Store {
	if l.Entries == 0 {
		l.Entries = DefaultEntries
	}
	if l.Bytes == 0 {
		l.Bytes = defaultBytes
	}
	if l.TTL == 0 {
		l.TTL = defaultTTL
	}
	return &Store{limits: l, all: map[string]*entry{}, scopes: map[Scope]*shelf{}}
}

// TTL is how long a result is kept after its last use.
func (s *Store) TTL() time.Duration { return s.limits.TTL }

// Put keeps a text, in which it replaces bytes that are not UTF-8, and returns
// its key. The error is for the agent: the text is too large.
func (s *Store) Put(scope Scope, text string) (key string, err error) {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if int64(len(text)) > s.limits.Bytes/4 {
		return "", fmt.Errorf("the result is too large to be kept in memory: it has %d bytes, and at most %d are kept",
			len(text), s.limits.Bytes/4)
	}
	packed := pack(text)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	for len(s.all) > 0 && (len(s.all) >= s.limits.Entries || s.bytes+int64(len(text)) > s.limits.Bytes) {
		s.dropLocked(s.victimLocked(len(s.all) >= s.limits.Entries))
	}
	for key = newKey(); s.all[key] != nil; key = newKey() {
	}
	sh := s.scopes[scope]
	if sh == nil {
		sh = &shelf{used: list.New()}
		s.scopes[scope] = sh
	}
	e := &entry{key: key, scope: scope, packed: packed, size: len(text), expires: time.Now().Add(s.limits.TTL)}
	e.place = sh.used.PushFront(e)
	s.all[key] = e
	sh.bytes += int64(len(text))
	s.bytes += int64(len(text))
	s.armLocked()
	return key, nil
}

// Get returns a text and extends the time for which it is kept. It reports false
// if there is none with the key in the scope.
func (s *Store) Get(scope Scope, key string) (text string, ok bool) {
	packed := s.use(scope, key)
	if packed == nil {
		return "", false
	}
	return unpack(packed), true
}

// use returns a packed text and extends the time for which it is kept; nil: there is
// none.
func (s *Store) use(scope Scope, key string) (packed []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	e := s.all[key]
	if e == nil || e.scope != scope {
		return nil
	}
	e.expires = time.Now().Add(s.limits.TTL)
	s.scopes[scope].used.MoveToFront(e.place)
	return e.packed
}

// Drop forgets all results of a host.
func (s *Store) Drop(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		if e.scope.Host == host {
			s.dropLocked(e)
		}
	}
}

// victimLocked is the least recently used result of the scope with the most
// results or the most bytes.
func (s *Store) victimLocked(byNumber bool) *entry {
	var most *shelf
	for _, sh := range s.scopes {
		if most == nil || byNumber && sh.used.Len() > most.used.Len() || !byNumber && sh.bytes > most.bytes {
			most = sh
		}
	}
	return most.used.Back().Value.(*entry)
}

// expireLocked forgets what is not kept any longer. Of each scope, the result that
// was used last also expires last.
func (s *Store) expireLocked() {
	now := time.Now()
	for _, sh := range s.scopes {
		for e := sh.used.Back(); e != nil && !e.Value.(*entry).expires.After(now); e = sh.used.Back() {
			s.dropLocked(e.Value.(*entry))
		}
	}
}

func (s *Store) dropLocked(e *entry) {
	sh := s.scopes[e.scope]
	sh.used.Remove(e.place)
	sh.bytes -= int64(e.size)
	s.bytes -= int64(e.size)
	delete(s.all, e.key)
	if sh.used.Len() == 0 {
		delete(s.scopes, e.scope)
	}
	if len(s.all) == 0 && s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// armLocked makes sure that results whose time is over are forgotten, even if
// nobody uses the store.
func (s *Store) armLocked() {
	if s.timer != nil || len(s.all) == 0 {
		return
	}
	first := time.Now().Add(s.limits.TTL)
	for _, sh := range s.scopes {
		if e := sh.used.Back().Value.(*entry); e.expires.Before(first) {
			first = e.expires
		}
	}
	var t *time.Timer
	t = time.AfterFunc(time.Until(first), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.timer == t { // not one that was stopped too late
			s.expireLocked()
			s.timer = nil
			s.armLocked()
		}
	})
	s.timer = t
}

func newKey() string {
	var b [4]byte
	rand.Read(b[:]) // which never fails
	return "nav_" + hex.EncodeToString(b[:])
}
