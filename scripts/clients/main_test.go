//go:build linux

package clients_test

import (
	"os"
	"testing"

	"btools/lib/cmdtest"
)

func TestMain(m *testing.M) { os.Exit(cmdtest.Main(m)) }
