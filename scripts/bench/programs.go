//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "BTOOLS_STATE="+dir+"/state/state.json", "TMPDIR="+dir, "BTOOLS_LOG_LEVEL=warn")
	c.Stderr = os.Stderr
	return c
}

// output runs a program, and is what it prints.
func output(name string, args ...string) string {
	out, err := command(name, args...).Output()
	if err != nil {
		fail("%s: %v", filepath.Base(name), err)
	}
	return strings.TrimSpace(string(out))
}

// try is output of a program that may fail.
func try(name string, args ...string) (out string) {
	if err := attempt(func() { out = output(name, args...) }); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return out
}

// installed is a path of what is installed by a command.
func installed(path, by string) string {
	if _, err := os.Stat(path); err != nil {
		fail("%s is not installed: %s does so", path, by)
	}
	return path
}

// client is the path of a program of scripts/clients.
func client(path string) string { return installed(clients+path, "scripts/install-deps test") }

// node runs one of the scripts here, with the clients that are its peers.
func node(script string, args ...string) string {
	installed("node_modules", "npm ci")
	return output("node", append([]string{script}, args...)...)
}

// start starts a program, and reads words from the first line that it prints.
func (b *bench) start(c *exec.Cmd, words ...any) (pid int) {
	var out io.Reader
	if len(words) > 0 {
		out = must(c.StdoutPipe())
	}
	check(c.Start())
	b.atEnd(func() {
		c.Process.Signal(syscall.SIGTERM)
		c.Wait()
	})
	if len(words) > 0 {
		if n, err := fmt.Fscanln(out, words...); n == 0 {
			fail("%s says nothing: %v", filepath.Base(c.Path), err)
		}
	}
	return c.Process.Pid
}

// blaunch launches a browser and returns these fields of its record, and how to stop
// it.
func blaunch(fields string, args ...string) (values []string, stop func()) {
	args = append([]string{"--no-input", "-f", fields + ",instance.id"}, args...)
	values = strings.Split(output(bin+"blaunch", args...), "\t")
	id := values[len(values)-1]
	return values, func() { try(bin+"blaunch", "stop", id) }
}

// chrome launches a Chrome with a port, and returns its WebSocket.
func (b *bench) chrome() (url string) {
	f, stop := blaunch("instance.ws_url")
	b.atEnd(stop)
	return f[0]
}

// bproxy starts one and returns its address.
func (b *bench) bproxy(args ...string) (pid int, at string) {
	var port string
	pid = b.start(command(bin+"bproxy", append([]string{"--no-input", "-f", "proxy.port", "--log-level", "error"},
		args...)...), &port)
	return pid, "127.0.0.1:" + port
}

// bpool starts a service with these variables.
func (b *bench) bpool(vars []string, args ...string) (pid int, socket, url string) {
	c := command(bin+"bpool", append([]string{"serve", "-f", "service.socket,service.http_url", "--log-level", "error",
		"--drain-timeout", "0s"}, args...)...)
	for _, v := range vars {
		c.Env = append(c.Env, "PW_MCP_PROXY_"+v)
	}
	return b.start(c, &socket, &url), socket, url
}

// socat forwards a port to an address, and is the peer of bproxy.
func (b *bench) socat(to string) (at string) {
	port := freePort()
	b.start(command("socat", "TCP-LISTEN:"+port+",bind=127.0.0.1,fork,reuseaddr,nodelay", "TCP:"+to+",nodelay"))
	at = "127.0.0.1:" + port
	within(time.Minute, func() bool {
		conn, err := net.Dial("tcp", at)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return at
}

func freePort() string { return output(bin+"bport", "--no-input", "-f", "port") }

func portOf(at string) string { return at[strings.LastIndex(at, ":")+1:] }

// cpu is the CPU time that processes have had, in ms.
func cpu(pids ...int) (sum float64) {
	for _, pid := range pids {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		f := strings.Fields(string(b[strings.LastIndex(string(b), ")")+1:]))
		if len(f) < 13 {
			continue // it has ended
		}
		user, _ := strconv.Atoi(f[11])
		sys, _ := strconv.Atoi(f[12])
		sum += float64(user+sys) * 10 // ticks are 10 ms
	}
	return sum
}

// rss and pss are the memory of processes in MiB.
func rss(pids ...int) float64 { return memory("Rss", pids) }
func pss(pids ...int) float64 { return memory("Pss", pids) }

func memory(kind string, pids []int) (sum float64) {
	line := regexp.MustCompile(`(?m)^` + kind + `:\s+(\d+)`)
	for _, pid := range pids {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
		if kb := line.FindSubmatch(b); kb != nil {
			n, _ := strconv.ParseFloat(string(kb[1]), 64)
			sum += n / 1024
		}
	}
	return sum
}

// serve serves a site, up to the end of the case.
func (b *bench) serve(site http.HandlerFunc) (url string) {
	s := httptest.NewServer(site)
	b.atEnd(s.Close)
	return s.URL
}
