//go:build linux

// Bench measures the programs against peers, in one run, and prints a table.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Case is a part of the table, whose rows it prints.
type Case struct {
	names string // arguments of bench that choose it
	about string
	do    func(*bench)
}

var cases = []Case{
	{"blaunch", "chromium: launches", launches("chromium", "≤ 1.08")},
	{"blaunch", "chrome-headless-shell: launches", launches("chrome-headless-shell", "≤ 1.15")},
	{"blaunch", "supervisor memory", supervisor},
	{"killed", "servers killed by SIGKILL", killedServers},
	{"bfind", "bfind", finder},
	{"bport", "bport", ports},
	{"state", "64 processes that update the state", writers},
	{"kills", "100 launches with a SIGKILL", kills},
	{"kills chain", "random kills over the chain", chainKills},
	{"bproxy", "bproxy waiting without a browser", waiting},
	{"bproxy", "first connection through bproxy", firstConnection},
	{"bproxy", "Browser.getVersion", roundTrips},
	{"bproxy", "with --direct", direct},
	{"bproxy", "200 messages of 4 MiB from the browser", throughput},
	{"bproxy", "500 connections, 100 busy", many},
	{"bpool", "queue alone", queueAlone},
	{"bpool", "lease + release over the socket", leases},
	{"bpool http", "POST /lease + /release with keep-alive", leasesByHTTP},
	{"bpool http", "/connect to the first answer", connects},
	{"bpool", "bpool lease -- true", commands},
	{"bpool", "8 browsers killed at once", eight},
	{"bpool shared", "shared Chrome: lease with a spare", spares},
	{"bpool shared", "lease → connectOverCDP → goto → release", cycles},
	{"bpool shared", "Chrome killed under 50 sessions", killed},
	{"bpool", "bpool serve with 10 slots, idle", idleSlots},
	{"bpool upgrade", "bpool upgrade", upgrades},
	{"bmcp", "bmcp: calls", calls},
	{"bmcp", "bmcp: tools/list", lists},
	{"bmcp", "bmcp: first browser call", firstCall},
	{"bmcp", "bmcp: 64 calls at once", burst},
	{"bmcp", "bmcp and bproxy, idle", idleCoordinator},
	{"virtual", "small page command", pageCommands},
	{"virtual", "200 messages of 4 MiB from a page", pageMessages},
	{"virtual screenshots", "20 screenshots: round trip of another session", screenshots},
	{"virtual screenshots", "20 screenshots: round trip of another page of it", screenshotsOfOne},
	{"virtual", "50 sessions with a blank page", manySessions},
	{"virtual", "1,000 sessions created and ended", churn},
	{"virtual idle", "20 idle sessions with an animated page", idleSessions},
	{"view presses", "a press on the page of bproxy view", pressesOnPages},
	{"view bursts", "the page of bproxy view after a burst", bursts},
	{"view input", "kinds of input on the page of bproxy view", kindsOfInput},
	{"view tiles", "the tiles of bproxy view", tiles},
	{"view beside", "a session beside the page of bproxy view", besideViews},
	{"ask shown", "asks on the page of bproxy view", asksOnPage},
	{"ask many", "50 asks at once", manyAsks},
	{"ask secrets", "secrets typed in private", typedSecrets},
	{"ask app", "the MCP App of browser_view", viewApp},
	{"view top", "bproxy top with 50 sessions", tops},
	{"session", "a 1 GiB download", bigDownload},
	{"session", "a lease with a saved login", leaseWithState},
	{"session proxied", "page load through a proxy with a password", proxied},
	{"session hibernated", "200 hibernated sessions", hibernated},
	{"builtin", "builtin: tools/list after the start", firstList},
	{"builtin", "builtin: first loaded page", firstPage},
	{"builtin", "builtin: rounds of calls", rounds},
	{"builtin fifty", "builtin: 50 agents", fifty},
	{"builtin", "@playwright/mcp with 50 sessions", fiftyOfPeer},
	{"builtin", "builtin: a page of 5,000 elements", bigSnapshot},
	{"builtin page", "builtin: a page's tool", pageTool},
	{"shell", "shell: bmcp call", shells},
	{"tasks", "tasks", solveTasks},
	{"nats hosts", "leases of real hosts", leasesOfHosts},
	{"nats", "hosts with room", manyHosts},
	{"nats server", "one of three servers is killed", killedServer},
	{"nats full", "full hosts", fullHosts(2000, 500, 0)},
	{"nats full burst", "full hosts, a burst and busy cores", fullHosts(5000, 2000, 2)},
	{"extension", "extension: launch", joinedLaunches},
	{"extension", "extension: Runtime.evaluate", joinedEvaluations},
	{"extension", "hub: 10,000 browsers", hubChurn},
	{"extension", "hub: 99 browsers", hubIdle},
}

var (
	bin     = must(filepath.Abs("../../bin")) + "/"
	clients = must(filepath.Abs("../clients/node_modules")) + "/"
	// dir is a directory of this run, where everything that is started has its
	// state and temporary files.
	dir string
)

func main() {
	if first := os.Getenv(writer); first != "" {
		write(first)
		return
	}
	chosen := slices.Clone(cases)
	if len(os.Args) > 1 {
		chosen = slices.DeleteFunc(chosen, func(c Case) bool {
			return !slices.Contains(strings.Fields(c.names), os.Args[1])
		})
	}
	if len(chosen) == 0 {
		var names []string
		for _, c := range cases {
			names = append(names, strings.Fields(c.names)...)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "bench: nothing is named %s, only %s\n", os.Args[1],
			strings.Join(slices.Compact(names), ", "))
		os.Exit(64)
	}
	if !measure(chosen) {
		os.Exit(1)
	}
}

func measure(chosen []Case) (ok bool) {
	dir = must(os.MkdirTemp("/tmp", "bt-"))
	defer os.RemoveAll(dir)
	row("what", "goal", "measured")
	ok = true
	for _, c := range chosen {
		ok = c.run() && ok
	}
	return ok
}
