package book

// list is a doubly linked list. Its nodes are part of their values, so that
// nothing is allocated and any node can be removed in constant time.
type list[T any] struct{ first, last *node[T] }

type node[T any] struct {
	prev, next *node[T]
	value      T
}

func (l *list[T]) push(n *node[T]) {
	n.prev, n.next = l.last, nil
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
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
