package command

import (
	"errors"
	"time"

	"btools/lib/cli"
	"btools/lib/exit"
	"btools/lib/jsonrpc"
)

// hostPatience is how long a host may take to send its first request.
const hostPatience = 2 * time.Second

// tellHost answers the first request of a host with the reason why bmcp cannot run: most
// hosts show only that the connection was closed, and not what a server prints.
func tellHost(c *cli.Context, why error) {
	if c.IsSet("http") || c.AtTerminal() {
		return
	}
	asked := make(chan *jsonrpc.Message, 1)
	go func() { // it ends with the program
		m := &jsonrpc.Message{}
		if line, err := jsonrpc.NewReader(c.Stdin).Line(); err == nil {
			if m, err = jsonrpc.Parse(line); err != nil {
				m = &jsonrpc.Message{}
			}
		}
		asked <- m
	}()
	select {
	case m := <-asked:
		if !m.IsRequest() {
			return
		}
		text := why.Error()
		var e *exit.Error
		if errors.As(why, &e) && e.Hint != "" {
			text += " (" + e.Hint + ")"
		}
		answer := jsonrpc.Failure(m.ID, jsonrpc.Errorf(jsonrpc.InternalError, "bmcp cannot run: %s", text))
		c.Stdout.Write(append(answer, '\n'))
	case <-time.After(hostPatience):
	}
}
