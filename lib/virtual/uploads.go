package virtual

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"btools/lib/jsonrpc"
	"btools/lib/virtual/policy"
)

// uploadRoots returns the directories whose files clients may name, without
// symbolic links.
func (s *Session) uploadRoots() []string {
	if s.options.DefaultContext {
		return []string{"/"} // it is the user's own
	}
	roots := slices.Clone(s.options.UploadRoots)
	if s.options.Files != nil {
		for _, dir := range s.options.Files.Roots() {
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				roots = append(roots, real)
			}
		}
	}
	return roots
}

// resolveFiles replaces the file names of a command by those without symbolic
// links, so that Chrome opens what was checked. It refuses a name that leads
// nowhere, too: whoever creates the file later would choose where it leads.
func (s *Session) resolveFiles(params json.RawMessage, roots []string) (json.RawMessage, *policy.Error) {
	var files []string
	if s.options.DefaultContext || json.Unmarshal(jsonrpc.Get(params, "files"), &files) != nil {
		return params, nil // the rules refuse what is not a list
	}
	for i, name := range files {
		real, err := filepath.EvalSymlinks(name)
		if err != nil || !filepath.IsAbs(name) || policy.Files([]string{real}, roots) != nil {
			return nil, policy.NoFile(name)
		}
		files[i] = real
	}
	raw, err := json.Marshal(files)
	if err != nil {
		return nil, policy.NotAllowed()
	}
	return jsonrpc.Set(params, "files", raw), nil
}
