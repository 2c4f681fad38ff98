// Package book says who uses which browser or session until when: which sessions there are,
// who waits for an instance, what is made in advance, and what is due. It is pure: it has no
// lock, no clock and no I/O. Its keeper calls it under one lock, with the time, and does what
// it decides.
package book
