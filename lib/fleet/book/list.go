package book

// list is a doubly linked list. Its nodes are part of their values, so that
// nothing is allocated and any node can be removed in constant time.
type list[T any] struct{ first, last *node[T] }

type node[T any] struct {
	prev, next *node[T]
	value      T
}

// push adds a node at the end.
func (l *list[T]) push(n *node[T]) { l.insert(n, l.last) }

// insert adds a node after another one; nil: at the begin.
func (l *list[T]) insert(n, after *node[T]) {
	next := l.first
	if after != nil {
		next = after.next
	}
	n.prev, n.next = after, next
	if after == nil {
		l.first = n
	} else {
		after.next = n
	}
	if next == nil {
		l.last = n
	} else {
		next.prev = n
	}
}

func (l *list[T]) remove(n *node[T]) {
	if n.prev == nil {
		l.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
}
