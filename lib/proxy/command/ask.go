package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"btools/lib/cli"
	"btools/lib/control/api"
	"btools/lib/exit"
	"btools/lib/flags"
	"btools/lib/jsonrpc"
	"btools/lib/lifetime"
	"btools/lib/live/sources"
	"btools/lib/record"
	"btools/lib/virtual/takeover"
	"btools/lib/websocket"
)

// outcome is the record member that Ask prints.
type outcome struct {
	Outcome string `json:"outcome"` // done, declined, failed or timeout
	Note    string `json:"note"`    // of the person
	URL     string `json:"url"`     // of the page that the person looked at; "": not known
}

// Asks are the records that Ask prints.
var Asks = &cli.Records{Columns: []cli.Column{{Head: "OUTCOME", Field: "ask.outcome"}, {Head: "URL", Field: "ask.url"},
	{Head: "NOTE", Field: "ask.note"}}, Members: map[string]any{"ask": outcome{}}}

// Ask asks a person to do something in a session, and waits until that is done.
func Ask(c *cli.Context) error {
	args := c.Args()
	if len(args) != 2 {
		return c.UsageError("name the session and what to do: bproxy ask SESSION 'Log in to shop'")
	}
	if n := len(args[1]); n == 0 || n > takeover.MaxInstructions {
		return c.UsageError("what to do is a text of up to %d bytes for a person, not of %d", takeover.MaxInstructions,
			n)
	}
	if err := flags.CheckDurations(c, "timeout"); err != nil {
		return err
	}
	if err := takeover.CheckCondition(c.String("until")); err != nil {
		return c.UsageError("--until: %v", err)
	}
	ctx, stop, _ := lifetime.Context()
	defer stop(nil)
	all, err := sources.All(ctx, c.State(), nil)
	if err != nil {
		return err
	}
	s, err := sources.Find(all, args[0])
	if err != nil {
		return err
	}
	conn, at, err := s.Attach(ctx, api.AttachRequest{Who: "bproxy ask", Wake: true})
	if err != nil {
		return err
	}
	defer conn.Close(websocket.Normal, "")
	if !at.Lock {
		return exit.Errorf(exit.Unavailable, "nobody can be asked in %s: %s", s.Key, at.Why)
	}
	defer context.AfterFunc(ctx, func() { conn.Close(websocket.GoingAway, "") })()
	ask := map[string]any{"instructions": args[1], "until": c.String("until"), "private": !c.Bool("shared"),
		"timeoutMs": max(1, c.Duration("timeout").Milliseconds())}
	request, err := json.Marshal(map[string]any{"id": 1, "method": "Btools.requestHuman", "params": ask})
	if err == nil {
		err = conn.Write(request)
	}
	if err == nil { // which is answered after a refusal
		err = conn.Write([]byte(`{"id":2,"method":"Browser.getVersion"}`))
	}
	if err != nil {
		return err
	}
	message, err := answerOf(conn)
	if err == nil && string(jsonrpc.Get(message, "id")) == "2" {
		defer notify(ctx, c, s.Key, args[1], call(c, s.Key))()
		message, err = answerOf(conn)
	}
	got, err := outcomeOf(message, err)
	switch interrupted := (*lifetime.Interrupted)(nil); {
	case errors.As(context.Cause(ctx), &interrupted):
		return &exit.Error{Code: exit.Signalled + int(interrupted.Signal),
			Err: errors.New("interrupted: nobody is asked any more")}
	case err != nil:
		return err
	}
	switch why := strings.TrimSuffix(": "+got.Note, ": "); got.Outcome {
	case "done":
		return c.Out.Print(nil, record.Of("ask", got))
	case "timeout":
		return exit.Errorf(exit.TryAgain, "nobody has answered within %v", c.Duration("timeout"))
	case "declined":
		return exit.Errorf(exit.Failed, "the person declined%s", why)
	default:
		return exit.Errorf(exit.Failed, "the ask has failed%s", why)
	}
}

// answerOf waits for the next answer to a command on a connection.
func answerOf(conn *websocket.Conn) (message []byte, err error) {
	for jsonrpc.Get(message, "id") == nil {
		m, err := conn.Next()
		if err == nil {
			message, err = m.Bytes()
		}
		if err != nil {
			return nil, err
		}
	}
	return message, nil
}

// outcomeOf returns what has become of an ask: message is its answer, and err the end of its connection.
func outcomeOf(message []byte, err error) (got outcome, _ error) {
	if err != nil { // with its session
		return outcome{Outcome: "failed", Note: "the browser or its program has ended"}, nil
	}
	if text := jsonrpc.GetString(message, "error", "message"); text != "" {
		return got, exit.Errorf(exit.Failed, "%s", text)
	}
	return got, json.Unmarshal(jsonrpc.Get(message, "result"), &got)
}

// call opens the page of a session for the person, or says where it is, and returns its address; "": it is not known.
func call(c *cli.Context, key string) (address string) {
	address, isOpen, err := openPage(c, key)
	switch {
	case err != nil:
		c.Log.Warn("there is no page on which to answer: " + err.Error())
	case isOpen:
	case strings.HasPrefix(address, "http"):
		c.Log.Info("a person is asked at " + address + "; elsewhere bproxy view --control " + key + " leads there")
	default: // a file that leads there, once
		c.Log.Info("a person is asked: bproxy view --control " + key + " leads there")
	}
	return address
}

// notifyTime is how long what notifies a person may take.
const notifyTime = 30 * time.Second

// notify runs the command line of --notify. The function returned waits for its end, which comes with the answer.
func notify(ctx context.Context, c *cli.Context, key, instructions, address string) (wait func()) {
	line := c.String("notify")
	if line == "" {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, notifyTime)
	argv := shellArgv(line, nil)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(c.Environ(), "BTOOLS_ASK="+instructions, "BTOOLS_ASK_SESSION="+key, "BTOOLS_ASK_URL="+address)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = c.Stderr, c.Stderr, time.Second
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := cmd.Run(); err != nil && !errors.Is(ctx.Err(), context.Canceled) {
			c.Log.Warn(fmt.Sprintf("--notify: %v", cmp.Or(context.Cause(ctx), err)))
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
