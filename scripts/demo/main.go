// Demo serves a small shop, in which a cookie says who has logged in, while
// scripts/demo/run shows the programs with it.
package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
)

const page = `<!doctype html><title>Shop</title><body style="font: 24px sans-serif; margin: 3em">
<h1>Hello, %s</h1><button onclick="this.replaceWith('Sold to %[1]s')">Buy</button>`

func main() {
	err := run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// run serves the shop until the script has ended.
func run() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, http.HandlerFunc(shop))
	c := exec.Command("scripts/demo/run", "http://"+l.Addr().String())
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	return c.Run()
}

// shop logs in whom ?login= names, and greets those that have logged in.
func shop(w http.ResponseWriter, r *http.Request) {
	if name := r.FormValue("login"); name != "" {
		http.SetCookie(w, &http.Cookie{Name: "user", Value: name, HttpOnly: true})
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	name := "stranger"
	if c, err := r.Cookie("user"); err == nil {
		name = c.Value
	}
	fmt.Fprintf(w, page, name)
}
