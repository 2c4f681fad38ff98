package virtual

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"btools/lib/downloads"
	"btools/lib/emulate"
	"btools/lib/jsonrpc"
	"btools/lib/logins"
	"btools/lib/settings"
	"btools/lib/virtual/policy"
)

// Options are the properties of a session.
type Options struct {
	// Settings are those of sessions. With DefaultContext all files may be put into forms, and there is no proxy; a
	// client that is a process of this user may name its own directories besides DownloadRoots.
	settings.Settings
	// DefaultContext makes the browser's default context the base context of the session, with its profile, logins and
	// extensions. The context outlives the session. The session is the user's own: it may also open files and trace
	// its pages.
	DefaultContext bool
	// Files, if not nil, keep what the session downloads, wherever a client
	// wants it; whoever made them closes them after the session.
	Files *downloads.Files
	// Login, if not nil, has the cookies and the storage with which the session
	// starts: those of the state that the settings name.
	Login *logins.State
	// Keep has what the session stores reported to Look.
	Keep bool
	// Tabs are the pages that it starts with; none: a blank one. With DefaultContext they are those of the browser.
	Tabs []Tab
	// Emulated, if not nil, is what clients had changed the emulation of the settings to.
	Emulated *emulate.Emulation
}

// keepsDownloads reports whether the session's files are kept in a directory of its own.
func (o *Options) keepsDownloads() bool { return o.Files != nil }

// downloadParams returns the parameters of Browser.setDownloadBehavior for what a client wants: whatever its directory
// is, Chrome writes to the session's if there is one.
func (o *Options) downloadParams(context string, w wish) map[string]any {
	p := map[string]any{"behavior": w.behavior, "browserContextId": context, "eventsEnabled": true}
	switch {
	case w.behavior == "deny":
	case o.keepsDownloads():
		p["behavior"], p["downloadPath"] = "allowAndName", o.Files.Incoming()
	case w.dir != "":
		p["downloadPath"] = w.dir
	default: // where Chrome puts them
		p["behavior"] = "default"
	}
	return p
}

// downloadRoots returns the directories that the clients of any user may name.
func (o *Options) downloadRoots() []string {
	roots := slices.Clone(o.DownloadRoots)
	if o.keepsDownloads() {
		if real, err := filepath.EvalSymlinks(o.Files.Dir()); err == nil {
			roots = append(roots, real)
		}
	}
	return roots
}

// uploadRoots returns the directories whose files clients may name, without symbolic links.
func (o *Options) uploadRoots() []string {
	if o.DefaultContext {
		return []string{"/"} // it is the user's own
	}
	roots := slices.Clone(o.UploadRoots)
	if o.Files != nil {
		for _, dir := range o.Files.Roots() {
			if real, err := filepath.EvalSymlinks(dir); err == nil {
				roots = append(roots, real)
			}
		}
	}
	return roots
}

// resolveFiles replaces the file names of a command by those without symbolic links, so that Chrome opens what was
// checked. It refuses a name that leads nowhere, too: whoever creates the file later would choose where it leads.
func (o *Options) resolveFiles(params json.RawMessage, roots []string) (json.RawMessage, *policy.Error) {
	var files []string
	if o.DefaultContext || json.Unmarshal(jsonrpc.Get(params, "files"), &files) != nil {
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

// isLimited reports whether there are rules about what the pages of the session may reach.
func (o *Options) isLimited() bool { return o.Limits().Any() }

// initScripts returns the commands by which the scripts of the settings run in each document of a page.
func (o *Options) initScripts() (all []emulate.Command) {
	if len(o.InitScript) > 0 { // or Chrome runs none
		all = append(all, emulate.Command{Method: "Page.enable"})
	}
	for _, file := range o.InitScript {
		_, script, _ := strings.Cut(file, "\n")
		all = append(all, emulate.Command{Method: "Page.addScriptToEvaluateOnNewDocument",
			Params: map[string]any{"source": script, "runImmediately": true}})
	}
	return all
}
