package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// Service is a host as the tools of NATS see it: the micro service bpool, with an endpoint for each pool.
type Service struct {
	Host, Region, Version, URL, Boot string
	Pools                            []string
	Load                             func(pool string) Load // of the host with this pool alone
	Want                             func(pool string, m *Message)
}

const serviceName = "bpool"

// Announce makes a host known, which answers wants from now on. Stop it with the function.
func (n *NATS) Announce(s Service) (stop func(), err error) {
	pools := map[string]string{} // by endpoint
	service, err := micro.AddService(n.conn, micro.Config{Name: serviceName, Version: s.Version,
		Description: "browsers to lease",
		Metadata:    map[string]string{"host": s.Host, "region": s.Region, "url": s.URL, "boot": s.Boot},
		StatsHandler: func(e *micro.Endpoint) any {
			return s.Load(pools[e.Name])
		},
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) { n.failed(nil, e) }})
	if err != nil {
		return nil, err
	}
	for _, pool := range s.Pools {
		name := endpointName(pool)
		pools[name] = pool
		handle := func(r micro.Request) {
			s.Want(pool, n.message(r.Subject(), r.Data(), func(b []byte) error { return r.Respond(b) }))
		}
		err = service.AddEndpoint(name, micro.HandlerFunc(handle), micro.WithEndpointQueueGroup(WantGroup),
			micro.WithEndpointSubject(WantSubject(s.Region, pool, All, All)))
		if err != nil {
			service.Stop()
			return nil, err
		}
	}
	return func() { service.Stop() }, nil
}

// endpointName returns the name of the endpoint of a pool: micro allows letters, digits, - and _.
func endpointName(pool string) string {
	b := []byte("want-" + Token(pool))
	for i, c := range b {
		if c == '=' {
			b[i] = '_'
		}
	}
	return string(b)
}

// Hosts asks all hosts, and returns the answers that came within a time, or until none came for a while.
func (n *NATS) Hosts(ctx context.Context, most, silence time.Duration) (all []Load, err error) {
	subject, err := micro.ControlSubject(micro.StatsVerb, serviceName, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	inbox := n.conn.NewRespInbox()
	answers, err := n.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer answers.Unsubscribe()
	if err := n.conn.PublishRequest(subject, inbox, nil); err != nil {
		return nil, err
	}
	for wait := most; ; wait = silence {
		next, stop := context.WithTimeout(ctx, wait)
		m, err := answers.NextMsgWithContext(next)
		stop()
		if err != nil {
			break
		}
		if load, ok := hostOf(m); ok {
			all = append(all, load)
		}
	}
	slices.SortFunc(all, func(a, b Load) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Host, b.Host))
	})
	return all, nil
}

// hostOf reads the load of a host from the answer of its service.
func hostOf(m *nats.Msg) (load Load, ok bool) {
	var stats micro.Stats
	if json.Unmarshal(m.Data, &stats) != nil || stats.Metadata["host"] == "" {
		return load, false
	}
	for _, e := range stats.Endpoints {
		var of Load
		if json.Unmarshal(e.Data, &of) == nil {
			pools := append(load.Pools, of.Pools...)
			load = of
			load.Pools = pools
		}
	}
	load.Host, load.Region, load.URL = stats.Metadata["host"], stats.Metadata["region"], stats.Metadata["url"]
	load.Boot, load.Version = stats.Metadata["boot"], stats.Version
	return load, true
}
