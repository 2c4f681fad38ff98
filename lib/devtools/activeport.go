package devtools

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// ActivePort is the name of the file in which a Chrome says where it can be
// debugged. It lies in the directory of its profiles.
const ActivePort = "DevToolsActivePort"

// ReadActivePort returns the WebSocket address in such a file. Chrome writes it
// when debugging begins; what is left of an earlier Chrome looks the same.
func ReadActivePort(path string) (wsURL string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxBody))
	if err != nil {
		return "", err
	}
	port, socket, _ := strings.Cut(strings.TrimSpace(string(b)), "\n")
	port, socket = strings.TrimSpace(port), strings.TrimSpace(socket)
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case err != nil || n == 0:
		return "", fmt.Errorf("%s does not begin with a port", path)
	case !strings.HasPrefix(socket, "/devtools/browser"):
		return "", errors.New(path + " does not have the path of a WebSocket")
	}
	return "ws://127.0.0.1:" + port + socket, nil
}
