package pool

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/coder/websocket"

	"btools/lib/launcher"
	"btools/lib/record"
)

// ping asks a browser something that needs its main thread, past the queue
// and the proxy.
func ping(ctx context.Context, i record.Instance) error {
	url, method := i.WSURL, "Browser.getVersion"
	if i.Protocol == record.BiDi {
		method = "session.status"
	}
	if url == "" {
		return fmt.Errorf("%s has no WebSocket", launcher.Addr(i))
	}
	c, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"`+method+`","params":{}}`)); err != nil {
		return err
	}
	_, b, err := c.Read(ctx)
	if err == nil && !strings.Contains(string(b), `"id":1`) {
		err = fmt.Errorf("it answered %.100q", b)
	}
	return err
}

func protocol(browser string) string {
	if browser == record.Firefox {
		return record.BiDi
	}
	return record.CDP
}

// stable gives an instance the addresses that stay.
func (s *slot) stable(i *record.Instance) {
	host, port, _ := net.SplitHostPort(s.addr)
	i.Host = host
	i.Port, _ = strconv.Atoi(port)
	i.HTTPURL, i.WSURL = "http://"+s.addr, "ws://"+s.addr+"/devtools/browser"
	if i.Protocol == record.BiDi {
		i.WSURL = "ws://" + s.addr + "/session"
	}
}
