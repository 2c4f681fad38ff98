package shell

import (
	"strings"

	"btools/lib/lazy"
	"btools/lib/mcp/child"
)

// secretInURL is what may be secret in an address: who logs in, the query and the fragment.
var secretInURL = lazy.Regexp(`(\w://)(?:[^/\s@]*@)?([^\s?#]*)\S*`)

// shown returns the options of a session as others see them: without what may be secret, the arguments of children and
// the values of variables and headers included.
func shown(options []string) (all []string) {
	for _, option := range options {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "--mcp":
			spec, err := child.Parse(value)
			if option = name; err == nil {
				option += "=" + spec.Shown()
			}
		case "--env":
			variable, _, _ := strings.Cut(value, "=")
			option = name + "=" + variable
		case "--header":
			header, _, _ := strings.Cut(value, ":")
			option = name + "=" + header
		}
		all = append(all, secretInURL().ReplaceAllString(option, "$1$2"))
	}
	return all
}
