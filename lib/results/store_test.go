package results

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var host = Scope{Host: "a"}

func put(t *testing.T, s *Store, scope Scope, text string) string {
	t.Helper()
	key, err := s.Put(scope, text)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// size is the number of results, and of their bytes.
func size(s *Store) (entries int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all), s.bytes
}

func TestKeys(t *testing.T) {
	t.Parallel()
	s := New(Limits{})
	seen := map[string]bool{}
	for range 500 {
		key := put(t, s, host, "x")
		if !regexp.MustCompile(`^nav_[0-9a-f]{8}$`).MatchString(key) || seen[key] {
			t.Fatalf("key %q, and there are %d others", key, len(seen))
		}
		seen[key] = true
	}
	s.Drop(host.Host)
}

// A result is kept for its time after its last use, and its memory is given back
// even if nobody uses the store any more.
func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Limits{})
		used, unused := put(t, s, host, "used"), put(t, s, host, "unused")
		for range 3 {
			time.Sleep(defaultTTL - time.Second)
			if text, ok := s.Get(host, used); !ok || text != "used" {
				t.Fatalf("a result that is used: %q, %v", text, ok)
			}
		}
		if _, ok := s.Get(host, unused); ok {
			t.Error("a result is there after its time")
		}
		time.Sleep(defaultTTL + time.Second)
		synctest.Wait()
		if n, bytes := size(s); n != 0 || bytes != 0 {
			t.Errorf("after the time of all results, there are %d with %d bytes", n, bytes)
		}
		again := put(t, s, host, "again")
		time.Sleep(defaultTTL + time.Second)
		synctest.Wait()
		if n, _ := size(s); n != 0 {
			t.Errorf("%s is kept in a store that was empty before", again)
		}
	})
}

// Nobody reads the results of another host, or of another part of a host.
func TestScopes(t *testing.T) {
	t.Parallel()
	s := New(Limits{})
	key := put(t, s, Scope{"a", "1"}, "secret")
	for _, other := range []Scope{{"b", "1"}, {"a", "2"}, {"a", ""}, {}} {
		if text, ok := s.Get(other, key); ok {
			t.Errorf("%v reads %q", other, text)
		}
	}
	s.Drop("b")
	if _, ok := s.Get(Scope{"a", "1"}, key); !ok {
		t.Error("the end of another host's session took a result")
	}
	s.Drop("a")
	if n, bytes := size(s); n != 0 || bytes != 0 {
		t.Errorf("after the end of the host's session, there are %d with %d bytes", n, bytes)
	}
}

// The least recently used result goes, and that of the host with the most.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := New(Limits{Entries: 3})
	other := put(t, s, Scope{Host: "quiet"}, "x")
	first, second := put(t, s, host, "1"), put(t, s, host, "2")
	s.Get(host, first)
	third := put(t, s, host, "3")
	if _, ok := s.Get(host, second); ok {
		t.Error("the result that was not used for the longest time is there")
	}
	for range 100 {
		third = put(t, s, host, "more")
	}
	if _, ok := s.Get(host, third); !ok {
		t.Error("the newest result is not there")
	}
	if _, ok := s.Get(Scope{Host: "quiet"}, other); !ok {
		t.Error("a host that floods the store took another host's result")
	}

	s = New(Limits{Bytes: 4000})
	for i := range 20 {
		put(t, s, host, strings.Repeat(fmt.Sprint(i%10), 900))
		if n, bytes := size(s); bytes > 4000 {
			t.Fatalf("%d results with %d bytes", n, bytes)
		}
	}
	if n, _ := size(s); n != 4 {
		t.Errorf("%d results of 900 bytes in 4,000", n)
	}
	if _, err := s.Put(host, strings.Repeat("x", 1001)); err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a result of a fourth of all and one byte: %v", err)
	}
}

// A text comes back as it was, whatever it is, and the store counts its own bytes.
func TestPacked(t *testing.T) {
	t.Parallel()
	s := New(Limits{})
	for _, text := range []string{"", "x", strings.Repeat("- link \"a\" [ref=e1]\n", 10_000), "ä\x00\n€"} {
		_, before := size(s)
		if got, ok := s.Get(host, put(t, s, host, text)); !ok || got != text {
			t.Errorf("%.20q with %d bytes comes back as %.20q with %d, %v", text, len(text), got, len(got), ok)
		}
		if _, after := size(s); after-before != int64(len(text)) {
			t.Errorf("%d bytes count as %d", len(text), after-before)
		}
	}
	s.Drop(host.Host)
}
