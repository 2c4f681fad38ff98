//go:build linux

package main_test

import (
	"os"
	"testing"

	"btools/lib/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }
