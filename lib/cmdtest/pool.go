//go:build linux

package cmdtest

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// Pool is a bpool service that runs.
type Pool struct {
	T      *testing.T
	W      *World
	Cmd    *exec.Cmd
	Errs   SyncBuffer
	Socket string
	HTTP   string
}

// Pool starts a service with these variables, without their prefix; its
// browsers are fake unless one says otherwise.
func (w *World) Pool(vars ...string) *Pool { return w.pool(nil, vars) }

// WebPool is Pool for clients by HTTP, with these options.
func (w *World) WebPool(args []string, vars ...string) *Pool {
	return w.pool(append([]string{"--http", "0"}, args...), vars)
}

// ServePool is Pool with these options.
func (w *World) ServePool(args []string, vars ...string) *Pool { return w.pool(args, vars) }

func (w *World) pool(args, vars []string) *Pool {
	w.T.Helper()
	p := &Pool{T: w.T, W: w, Cmd: w.Cmd("bpool", append([]string{"serve", "--stop-timeout", "300ms", "--drain-timeout",
		"0s"},
		args...)...)}
	p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_BROWSER="+Bin+"/fakebrowser", "PW_MCP_PROXY_HEALTH_INTERVAL=1h",
		fmt.Sprintf("PW_MCP_PROXY_TIMEOUT=%d", Patience.Milliseconds()))
	for _, v := range vars {
		p.Cmd.Env = append(p.Cmd.Env, "PW_MCP_PROXY_"+v)
	}
	p.Start()
	return p
}

// Start starts what Cmd is, and reads its record.
func (p *Pool) Start() {
	p.T.Helper()
	var x struct {
		Service struct {
			Socket string
			HTTP   string `json:"http_url"`
		}
	}
	startRecord(p.T, p.Cmd, &p.Errs, p.Stop, &x)
	p.Socket, p.HTTP = x.Service.Socket, x.Service.HTTP
}

// Stop has it end, and asserts that it does so well.
func (p *Pool) Stop() {
	p.T.Helper()
	if err := Terminate(p.Cmd); err != nil {
		p.T.Errorf("bpool ended with %v", err)
	}
}

// PoolStatus is what bpool status prints.
type PoolStatus struct {
	Pools []struct {
		Name      string
		Waiting   int
		Instances []struct {
			ID, Status, Lease string
			LeaseExpires      time.Time `json:"lease_expires_at"`
			KeptAt            time.Time `json:"kept_at"`
			Browser           string
			Leased            bool
			Uses, Restarts    int
			PID               int    `json:"process_id"`
			HTTPURL           string `json:"http_url"`
			Control           *struct{ By string }
			Health            struct{ Error string } `json:"health_check"`
		}
	}
	Summary struct {
		Total     int `json:"total_instances"`
		Healthy   int `json:"healthy_instances"`
		Failed    int `json:"failed_instances"`
		Leased    int `json:"leased_instances"`
		Available int `json:"available_instances"`
		Waiting   int
	}
}

// Status asks the service for its status.
func (p *Pool) Status() (s PoolStatus) {
	p.T.Helper()
	r := p.W.Run("bpool", "status")
	if err := json.Unmarshal([]byte(r.Out), &s); err != nil || r.Code != 0 {
		p.T.Fatalf("status: %+v", r)
	}
	return s
}

// AwaitKept waits until leases would come back as they were after a time, which were used
// since.
func (p *Pool) AwaitKept(after time.Time, leases ...Leased) {
	p.T.Helper()
	Until(p.T, "the sessions are kept", func() bool {
		kept := 0
		for _, i := range p.Status().Pools[0].Instances {
			isOne := func(l Leased) bool { return l.Lease.ID == i.Lease }
			if i.KeptAt.After(after) && slices.ContainsFunc(leases, isOne) {
				kept++
			}
		}
		return kept == len(leases)
	})
}

// Leased is the record of a lease.
type Leased struct {
	Instance struct {
		ID      string
		PID     int
		HTTPURL string `json:"http_url"`
		WSURL   string `json:"ws_url"`
	}
	Lease struct{ ID, Pool, Instance, Alias, Host string }
}

// Lease leases, and asserts that there is one.
func (p *Pool) Lease(args ...string) (l Leased) {
	p.T.Helper()
	r := p.W.Run("bpool", append([]string{"lease"}, args...)...)
	if err := json.Unmarshal([]byte(r.Out), &l); err != nil || r.Code != 0 {
		p.T.Fatalf("lease %v: %+v", args, r)
	}
	return l
}

// WSLPool configures a pool whose browser is one of Windows.
var WSLPool = []string{"WSL_WINDOWS=true", "_A_INSTANCES=1", "_A_IS_DEFAULT=1", "_A_TIMEOUT=60000",
	"BROWSER=chrome-headless-shell"}

// Shared starts a service whose pool A shares Chromiums.
func (w *World) Shared(vars ...string) *Pool {
	return w.Pool(append([]string{"BROWSER=chrome-headless-shell", "_A_IS_DEFAULT=1", "_A_ISOLATION=context"},
		vars...)...)
}

// PID is that of the browser of an instance of A.
func (p *Pool) PID(instance int) int { return p.Status().Pools[0].Instances[instance].PID }

// Targets are what the holder of a lease sees.
func (l Leased) Targets(t *testing.T) string {
	t.Helper()
	return AskOnce(t, l.Instance.WSURL, "Target.getTargets", "{}")
}

// NewPage is the command that opens a page.
const NewPage = "Target.createTarget"

// AwaitSpares waits until this many sessions of A are ready for leases to come.
func (p *Pool) AwaitSpares(n int) {
	p.T.Helper()
	Until(p.T, fmt.Sprintf("%d sessions are ready", n), func() bool {
		_, metrics := Get(p.T, "GET", p.HTTP+"/metrics")
		return strings.Contains(metrics, fmt.Sprintf("bpool_sessions{pool=\"A\",state=\"spare\"} %d\n", n))
	})
}
