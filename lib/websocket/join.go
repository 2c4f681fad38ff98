package websocket

import "errors"

// Join relays messages between two connections until one of them ends, and ends the other one alike.
func Join(a, b *Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		EndAs(b, Pass(b, a))
	}()
	EndAs(a, Pass(a, b))
	<-done
}

// Pass relays messages until one of the connections has ended, and returns why.
func Pass(to, from *Conn) error {
	for {
		m, err := from.Next()
		if err == nil {
			err = to.Relay(m)
		}
		if err != nil {
			return err
		}
	}
}

// EndAs ends a connection as the one ended that it was relayed from.
func EndAs(to *Conn, err error) {
	var closed *CloseError
	var wrong *ProtocolError
	switch {
	case errors.As(err, &closed):
		to.Close(closed.Code, closed.Reason)
	case errors.As(err, &wrong):
		to.Close(wrong.Code, wrong.Reason)
	default:
		to.Close(Abnormal, "")
	}
}
