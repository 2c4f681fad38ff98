package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"btools/lib/exit"
	"btools/lib/private"
	"btools/lib/proc"
	"btools/lib/state"
)

// profileLock is our lock in a persistent profile. It lies in the profile, as
// containers that share the profile share no other directory.
const profileLock = ".btools.lock"

// holder is what the lock file says of who holds it.
type holder struct {
	ID   string `json:"id"`
	PID  int    `json:"pid"`
	Host string `json:"host"`
	// Owner is the program that the browser belongs to, if it has one.
	Owner string `json:"owner,omitempty"`
}

// maxTemp is the longest TMPDIR, in bytes, that leaves room for the sockets
// that a browser makes in it: their path is limited to 104 bytes (macOS) or
// 108, of which org.chromium.Chromium.XXXXXX/SingletonSocket takes 47.
const maxTemp = 104 - 1 - 47

// instanceDirs returns the directories of an instance: its own in $TMPDIR,
// and, where that is too long for sockets, a second one in /tmp.
func instanceDirs(id string) (dirs []string, temp string) {
	dir := filepath.Join(os.TempDir(), state.DirPrefix+id)
	temp = filepath.Join(dir, "tmp")
	if len(temp) <= maxTemp || runtime.GOOS == "windows" {
		return []string{dir}, temp
	}
	short := filepath.Join("/tmp", state.DirPrefix+id)
	return []string{dir, short}, short
}

// makeDirs makes an instance's directories and locks them, which tells
// whoever sweeps that we live. Unlock gives the locks back; with an error too
// it is to be called.
func makeDirs(ctx context.Context, dirs []string, temp string) (unlock func(), err error) {
	var locks []*os.File
	unlock = func() {
		for _, l := range locks {
			l.Close()
		}
	}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o700); err != nil {
			return unlock, makeError(err)
		}
		lock, err := state.LockDir(ctx, d)
		if err != nil {
			return unlock, makeError(err)
		}
		locks = append(locks, lock)
	}
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return unlock, makeError(err)
	}
	return unlock, nil
}

func makeError(err error) error {
	return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("cannot make the browser's directory: %w", err),
		Hint: "set TMPDIR to a directory that is there and can be written"}
}

// lockProfile makes sure that a persistent profile exists, can be written and
// is nobody else's now. The lock ends with this process.
func lockProfile(dir, id, owner string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot make the profile directory: %w", err)
	}
	path := filepath.Join(dir, profileLock)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		// Chrome would start with another profile, silently.
		return nil, fmt.Errorf("cannot write to the profile %s: %w", dir, err)
	}
	host, _ := os.Hostname()
	if err := private.TryLock(f); err != nil {
		var h holder
		if b, rerr := os.ReadFile(path); rerr == nil && json.Unmarshal(b, &h) == nil {
			err = profileInUse(dir, h)
		} else {
			err = profileInUse(dir, holder{})
		}
		f.Close()
		return nil, err
	}
	b, _ := json.Marshal(holder{id, os.Getpid(), host, owner})
	f.Truncate(0)
	if _, err := f.WriteAt(b, 0); err != nil {
		f.Close()
		return nil, fmt.Errorf("cannot write to the profile %s: %w", dir, err)
	}
	if err := freeSingleton(dir, host); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func profileInUse(dir string, h holder) error {
	who := ""
	if h.PID > 0 {
		who = fmt.Sprintf(" by pid %d on host %s", h.PID, h.Host)
	}
	hint := "stop that browser, or use another --profile"
	switch {
	case h.Owner != "": // whose user would lose it
		who += " for " + h.Owner
		hint = "use another --profile, or for several browsers with one login a saved one: blaunch --no-headless " +
			"--state-save NAME saves it, and --state NAME starts sessions with it"
	case h.ID != "":
		hint = "blaunch stop " + h.ID + ", or use another --profile"
	}
	return &exit.Error{Code: exit.TryAgain, Err: fmt.Errorf("the profile %s is in use%s", dir, who), Hint: hint}
}

// freeSingleton removes Chrome's own lock, a dangling link to "HOST-PID", if
// its holder is gone: a process of this host that has ended or is not a browser with
// this profile, or another host's while we hold our lock, which a container that has ended
// leaves behind and Chrome itself would never remove. It returns an error if the holder lives.
func freeSingleton(dir, host string) error {
	link := filepath.Join(dir, "SingletonLock")
	to, err := os.Readlink(link)
	if err != nil {
		return nil // none, or another kind of lock: the browser decides
	}
	i := strings.LastIndexByte(to, '-')
	if i < 0 {
		return nil
	}
	pid, err := strconv.Atoi(to[i+1:])
	if err != nil {
		return nil
	}
	if to[:i] == host {
		id, err := proc.Of(pid)
		if err == nil && (singletonAnswers(dir) || !startedAfter(id, link) && hasProfile(pid, dir)) {
			return profileInUse(dir, holder{PID: pid, Host: host})
		}
	}
	for _, name := range []string{"SingletonLock", "SingletonSocket", "SingletonCookie"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("cannot remove the dead browser's lock: %w", err)
		}
	}
	return nil
}

// singletonAnswers reports whether a browser listens on the profile's socket.
func singletonAnswers(dir string) bool {
	c, err := net.DialTimeout("unix", filepath.Join(dir, "SingletonSocket"), time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// hasProfile reports whether a process was started with the profile, or may have been where
// its command line cannot be read. Containers that have the same host name use the
// same low numbers, and so does the same machine after a restart.
func hasProfile(pid int, dir string) bool {
	proc := fmt.Sprintf("/proc/%d/", pid)
	line, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		return true
	}
	own, err := os.Stat(dir)
	if err != nil {
		return true
	}
	for arg := range strings.SplitSeq(string(line), "\x00") {
		if path, ok := strings.CutPrefix(arg, "--user-data-dir="); ok {
			if !filepath.IsAbs(path) {
				path = proc + "cwd/" + path
			}
			its, err := os.Stat(path)
			return err == nil && os.SameFile(own, its)
		}
	}
	return false
}

// startedAfter reports whether the process began after the link was made, so
// that it is a stranger with a recycled number.
func startedAfter(id proc.Identity, link string) bool {
	st, err := os.Lstat(link)
	if err != nil {
		return false
	}
	began, ok := proc.StartTime(id)
	return ok && began.After(st.ModTime().Add(2*time.Second))
}
