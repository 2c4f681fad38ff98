package browse

import (
	"fmt"
	"slices"
	"sync"
)

// TabList are the open tabs of a browser, whose lock guards them.
type TabList[T comparable] struct {
	All   []T          // in the order of their opening
	Front T            // that is acted on; zero: none is open
	Names map[T]string // by which an agent calls them

	mu *sync.Mutex
}

// NewTabList returns a list that a lock guards.
func NewTabList[T comparable](mu *sync.Mutex) TabList[T] {
	return TabList[T]{Names: map[T]string{}, mu: mu}
}

// Drop takes a tab from the list, with the lock held; one beside it becomes the current one if it was that. It reports
// whether the tab was there.
func (l *TabList[T]) Drop(t T) bool {
	i := slices.Index(l.All, t)
	if i < 0 {
		return false
	}
	l.All = slices.Delete(l.All, i, i+1)
	if delete(l.Names, t); l.Front == t {
		var none T
		if l.Front = none; len(l.All) > 0 {
			l.Front = l.All[max(0, min(i, len(l.All))-1)]
		}
	}
	return true
}

// Swap has two tabs change places.
func (l *TabList[T]) Swap(t, other T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i, j := slices.Index(l.All, t), slices.Index(l.All, other); i >= 0 && j >= 0 {
		l.All[i], l.All[j] = other, t
	}
}

// Count is the number of open tabs.
func (l *TabList[T]) Count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.All)
}

// At is the tab at an index; -1: the current one.
func (l *TabList[T]) At(index int) (t T, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch n := len(l.All); {
	case n == 0:
		return t, fmt.Errorf("there is no tab %d: none is open", index)
	case index == -1:
		return l.Front, nil
	case index < 0 || index >= n:
		return t, fmt.Errorf("there is no tab %d: there are 0 to %d", index, n-1)
	}
	return l.All[index], nil
}

// Label gives the tab at an index a label; -1: the current one.
func (l *TabList[T]) Label(index int, label string) error {
	t, err := l.At(index)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, name := range l.Names {
		if name == label {
			delete(l.Names, other)
		}
	}
	l.Names[t] = label
	return nil
}

// Labels are those of the tabs, by index; "": it has none.
func (l *TabList[T]) Labels() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.All {
		all = append(all, l.Names[t])
	}
	return all
}
