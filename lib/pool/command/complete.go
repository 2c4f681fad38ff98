package command

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/cli"
	"btools/lib/client"
	"btools/lib/control"
	"btools/lib/control/api"
	statecommand "btools/lib/logins/command"
	"btools/lib/pool"
	"btools/lib/state"
)

// listening returns the control socket of the service that a command would use, ""
// if none runs. A service is asked for completions only if a state file has it and
// its process lives: at a socket of systemd's a connection would start it.
func listening(c *cli.Completion) string {
	alive := func(s *state.Store) *state.File {
		f, err := s.Read()
		if err != nil {
			return &state.File{}
		}
		f.Pools = slices.DeleteFunc(f.Pools, func(p state.PoolService) bool {
			return !p.Process.Local() || !p.Process.Alive()
		})
		return f
	}
	socket := socketOf(c.Context)
	if socket == "" {
		if shared, _ := client.RunningPools(context.Background(), alive(c.State())); len(shared) == 1 {
			return shared[0].Control
		}
		return ""
	}
	named, err := os.Stat(socket)
	if err != nil {
		return ""
	}
	files := []*state.Store{c.State()}
	for _, dir := range []string{filepath.Dir(socket), strings.TrimSuffix(socket, ".sock")} {
		files = append(files, state.Open(func(string) string { return filepath.Join(dir, "state.json") }))
	}
	for _, s := range files {
		for _, p := range alive(s).Pools {
			if st, err := os.Stat(p.Control); err == nil && os.SameFile(st, named) {
				return p.Control
			}
		}
	}
	return ""
}

// pools returns the pools of the service that runs.
func pools(c *cli.Completion) []api.PoolStatus {
	st, _ := api.Pools.Ask(context.Background(), control.Path(listening(c)), api.Of{}) // one that fails offers none
	return st.Pools
}

// Pools offers the pools.
func Pools(c *cli.Completion) { offerPools(c, pools(c)) }

func offerPools(c *cli.Completion, all []api.PoolStatus) {
	for _, p := range all {
		c.Offer(p.Name, fmt.Sprintf("%d of %d instances leased", p.Leased, p.Total))
	}
}

// PoolsAndInstances offers the pools and POOL/ID.
func PoolsAndInstances(c *cli.Completion) {
	all := pools(c)
	offerPools(c, all)
	for _, p := range all {
		offerInstances(c, p, p.Name+"/")
	}
}

// Instances offers the instances of the pool that is named, else of the default one.
func Instances(c *cli.Completion) {
	for _, p := range pools(c) {
		if len(c.Args()) > 0 && p.Name == c.Args()[0] || len(c.Args()) == 0 && p.IsDefault {
			offerInstances(c, p, "")
		}
	}
}

func offerInstances(c *cli.Completion, p api.PoolStatus, head string) {
	for _, i := range p.Instances {
		about := strings.TrimSpace(i.Status + " " + pool.HolderOf(i))
		c.Offer(head+i.ID, about)
		if i.Alias != nil && *i.Alias != "" {
			c.Offer(head+*i.Alias, about)
		}
	}
}

// Leases offers the leases that are not named yet.
func Leases(c *cli.Completion) {
	for _, p := range pools(c) {
		for _, i := range p.Instances {
			if !slices.Contains(c.Args(), i.Lease) && !c.Bool("all") {
				c.Offer(i.Lease, fmt.Sprintf("%s/%s, %s", p.Name, i.ID, cmp.Or(pool.HolderOf(i), "no holder")))
			}
		}
	}
}

// StateNames offers the states that leases can start with.
func StateNames(c *cli.Completion) {
	if socket := listening(c); socket != "" || socketOf(c.Context) == "" {
		statecommand.Offer(c, socket)
	}
}
