// Package cmdtest drives the built programs in tests, with real browsers and
// with a fake one for what a real one can't be made to do.
//
// A World is one test's own state file, temporary directory and environment:
// tests that have one each can run side by side. What more than one package of
// tests uses is here; what is asserted is in the tests.
package cmdtest
