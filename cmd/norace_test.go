//go:build linux && !race

package cmd_test

const race = false
