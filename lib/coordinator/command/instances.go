package command

import (
	"btools/lib/agent/instances"
	"btools/lib/cli"
	"btools/lib/extension/keep"
)

// launches are the browsers that agents launch with --extension, which join the
// hub; nil without a hub.
func launches(c *cli.Context, hubs *keep.Keeper) *instances.Set {
	if hubs == nil {
		return nil
	}
	return &instances.Set{Hubs: hubs, Detect: detect, Dir: project(c), Home: c.Home(), Getenv: c.Getenv,
		Stderr: c.Messages}
}
