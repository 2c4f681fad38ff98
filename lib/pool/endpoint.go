package pool

import (
	"net"
	"strconv"

	"btools/lib/record"
)

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
