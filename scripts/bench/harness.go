//go:build linux

package main

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// bench is a case that runs. What it has started is stopped at its end, the last
// first.
type bench struct{ ends []func() }

func (b *bench) atEnd(end func()) { b.ends = append(b.ends, end) }

func (b *bench) end() {
	for _, end := range slices.Backward(b.ends) {
		end()
	}
	b.ends = nil
}

// run prints the rows of a case. An error ends it, and is printed in their place.
func (c Case) run() (ok bool) {
	b := &bench{}
	defer b.end()
	err := attempt(func() { c.do(b) })
	if err != nil {
		row(c.about, "", "failed: %v", err)
	}
	return err == nil
}

// row prints a row of the table.
func row(what, goal, format string, figures ...any) {
	fmt.Printf("%-62s %14s   %s\n", what, fmt.Sprintf(format, figures...), goal)
}

// failure is an error that ends a case. It is panicked with, up to attempt.
type failure struct{ error }

func fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

// attempt calls a function and returns its failure.
func attempt(f func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case failure:
			err = e.error
		default:
			panic(e)
		}
	}()
	f()
	return nil
}

// together are functions that run at once. Wait fails as the first of them that
// failed.
type together struct {
	group sync.WaitGroup
	left  atomic.Int32
	first atomic.Pointer[error]
}

func (t *together) Go(f func()) {
	t.left.Add(1)
	t.group.Go(func() {
		defer t.left.Add(-1)
		if err := attempt(f); err != nil {
			t.first.CompareAndSwap(nil, &err)
		}
	})
}

func (t *together) running() bool { return t.left.Load() > 0 }

func (t *together) Wait() {
	t.group.Wait()
	if err := t.first.Load(); err != nil {
		check(*err)
	}
}

// within waits until something is so.
func within(d time.Duration, ok func() bool) {
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			fail("not within %v", d)
		}
	}
}

// ms is how long a function takes, in ms.
func ms(f func()) float64 {
	began := time.Now()
	f()
	return time.Since(began).Seconds() * 1000
}

// series are figures of one kind.
type series []float64

func (s *series) add(figure float64) { *s = append(*s, figure) }

// at is the figure that so many percent of all are below.
func (s series) at(percent int) float64 {
	slices.Sort(s)
	return s[min(len(s)*percent/100, len(s)-1)]
}

func (s series) median() float64 { return s.at(50) }

// medians measures n times, by turns, so that a noisy moment hits all.
func medians(n int, each ...func() float64) (m []float64) {
	all := make([]series, len(each))
	for range n {
		for i, measure := range each {
			all[i].add(measure())
		}
	}
	for _, s := range all {
		m = append(m, s.median())
	}
	return m
}
