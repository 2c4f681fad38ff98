package history

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"btools/lib/record"
)

func add(l *Log[int64], n int) {
	for range n {
		l.Add(func(number int64, _ record.Time) int64 { return number })
	}
}

func after(t *testing.T, l *Log[int64], n int64) []int64 {
	t.Helper()
	got, err := l.After(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAfter(t *testing.T) {
	l := &Log[int64]{}
	add(l, 3)
	for from, want := range map[int64][]int64{0: {1, 2, 3}, 2: {3}, 99: {1, 2, 3}} {
		if got := after(t, l, from); !slices.Equal(got, want) {
			t.Errorf("the events after %d are %v, want %v", from, got, want)
		}
	}
	if e, ok := l.Latest(func(e int64) bool { return e < 3 }); e != 2 || !ok {
		t.Errorf("the latest event below 3 is %d, %v", e, ok)
	}
	if _, ok := l.Latest(func(e int64) bool { return e > 3 }); ok {
		t.Error("an event above 3 was found")
	}
	add(l, 5*most)
	got := after(t, l, 0)
	if len(got) < most || len(got) > 2*most || got[len(got)-1] != 3+5*most {
		t.Errorf("%d events are kept, the last is %d", len(got), got[len(got)-1])
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log[int64]{}
		add(l, 1)
		time.AfterFunc(time.Second, func() { add(l, 1) })
		if got := after(t, l, -1); !slices.Equal(got, []int64{2}) {
			t.Errorf("the new events are %v, want [2]", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := l.After(ctx, 2); !errors.Is(err, context.Canceled) {
			t.Errorf("waiting ended with %v, want that it was canceled", err)
		}
	})
}
