package child

import "slices"

// idSet is a set of the IDs of requests, as ranges in their order: those that
// were cancelled one after the other take no more than one does.
type idSet []idRange

type idRange struct{ from, to int64 } // both are in it

// maxRanges bounds a set. Beyond it the two oldest ranges are made one, with
// the IDs between them.
const maxRanges = 1024

// find is the index of the first range that ends at n or later.
func (s idSet) find(n int64) int {
	i, _ := slices.BinarySearchFunc(s, n, func(r idRange, n int64) int { return int(min(max(r.to-n, -1), 1)) })
	return i
}

func (s *idSet) add(n int64) {
	i := s.find(n)
	if i < len(*s) && (*s)[i].from <= n {
		return
	}
	*s = slices.Insert(*s, i, idRange{n, n})
	s.join(i)
	if i > 0 {
		s.join(i - 1)
	}
	if len(*s) > maxRanges {
		(*s)[1].from = (*s)[0].from
		*s = slices.Delete(*s, 0, 1)
	}
}

// join makes a range and the next one into one, if nothing is between them.
func (s *idSet) join(i int) {
	if i+1 < len(*s) && (*s)[i].to+1 == (*s)[i+1].from {
		(*s)[i].to = (*s)[i+1].to
		*s = slices.Delete(*s, i+1, i+2)
	}
}

// remove reports whether n was in the set.
func (s *idSet) remove(n int64) bool {
	i := s.find(n)
	if i == len(*s) || (*s)[i].from > n {
		return false
	}
	r := (*s)[i]
	*s = slices.Delete(*s, i, i+1)
	if n < r.to {
		*s = slices.Insert(*s, i, idRange{n + 1, r.to})
	}
	if r.from < n {
		*s = slices.Insert(*s, i, idRange{r.from, n - 1})
	}
	return true
}
