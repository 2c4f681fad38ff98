//go:build linux

package main_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"
	"go.yaml.in/yaml/v3"

	"btools/lib/cmdtest"
)

// manifest is what a test needs of an object of Kubernetes. That each field is one of its kind is a test of
// scripts/kubernetes.
type manifest struct {
	Kind       string
	Metadata   struct{ Name string }
	StringData map[string]string `yaml:"stringData"`
	Data       map[string]string
	Spec       struct {
		Template struct{ Spec podSpec }
		Triggers []struct{ Metadata struct{ Query string } }
	}
}

type podSpec struct {
	InitContainers []container `yaml:"initContainers"`
	Containers     []container
	Volumes        []struct {
		Name   string
		Secret struct {
			SecretName string `yaml:"secretName"`
		}
		ConfigMap struct{ Name string } `yaml:"configMap"`
	}
}

type container struct {
	Command, Args []string
	Env           []struct{ Name, Value string }
	VolumeMounts  []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
		SubPath   string `yaml:"subPath"`
		Expr      string `yaml:"subPathExpr"`
	} `yaml:"volumeMounts"`
	Lifecycle struct {
		PreStop struct{ Exec struct{ Command []string } } `yaml:"preStop"`
	}
}

// manifests returns the objects of scripts/kubernetes, by KIND/NAME.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	all := map[string]manifest{}
	files, _ := filepath.Glob("../../scripts/kubernetes/*.yaml")
	for _, file := range files {
		b, err := os.ReadFile(file)
		for d := yaml.NewDecoder(bytes.NewReader(b)); err == nil; {
			var m manifest
			if err = d.Decode(&m); err == nil {
				all[m.Kind+"/"+m.Metadata.Name] = m
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %v", file, err)
		}
	}
	return all
}

// Commands of the manifests use options that bpool has.
func TestKubernetesCommands(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	n := 0
	for name, m := range manifests(t) {
		spec := m.Spec.Template.Spec
		for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
			for _, command := range [][]string{slices.Concat(c.Command, c.Args), c.Lifecycle.PreStop.Exec.Command} {
				if len(command) < 2 || command[0] != "bpool" {
					continue
				}
				n++
				help := w.Run("bpool", command[1], "--help", "--all").Out
				for _, arg := range command[2:] {
					option, _, _ := strings.Cut(arg, "=")
					if option == "--" {
						break
					}
					if strings.HasPrefix(option, "--") && !regexp.MustCompile(option+`\b`).MatchString(help) {
						t.Errorf("%s: bpool %s has no %s", name, command[1], option)
					}
				}
			}
		}
	}
	if n < 3 {
		t.Errorf("there are %d commands", n)
	}
}

// pod is the first container of a pod, with its files in a directory of the test.
type pod struct {
	container
	w    *cmdtest.World
	spec podSpec
	name string
	dir  string // for /etc/btools
	nats string // for nats.btools.svc:4222
}

// files writes the files of the container, with values by NAME/KEY in place of those of the manifests.
func (p *pod) files(all map[string]manifest, values map[string]string) {
	p.w.T.Helper()
	for _, m := range p.VolumeMounts {
		one := m.SubPath + strings.ReplaceAll(m.Expr, "$(POD_NAME)", p.name)
		for _, v := range p.spec.Volumes {
			from := all["Secret/"+v.Secret.SecretName].StringData
			if v.ConfigMap.Name != "" {
				from = all["ConfigMap/"+v.ConfigMap.Name].Data
			}
			for key, value := range from {
				if v.Name != m.Name || one != "" && one != key {
					continue
				}
				path := strings.Replace(m.MountPath, "/etc/btools", p.dir, 1)
				if one == "" {
					path = filepath.Join(path, key)
				}
				if v, ok := values[cmp.Or(v.Secret.SecretName, v.ConfigMap.Name)+"/"+key]; ok {
					value = v
				}
				os.MkdirAll(filepath.Dir(path), 0o755)
				if err := os.WriteFile(path, []byte(p.here(value)), 0o600); err != nil {
					p.w.T.Fatal(err)
				}
			}
		}
	}
}

// here returns a text with the paths, the name and the servers of this pod.
func (p *pod) here(s string) string {
	return strings.NewReplacer("/etc/btools", p.dir, "$(POD_NAME)", p.name, "nats.btools.svc:4222", p.nats,
		"/run/btools", p.dir).Replace(s)
}

// command returns the arguments of the container's command, and the world with its variables.
func (p *pod) command(replace ...string) (w *cmdtest.World, args []string) {
	env := []string{"BTOOLS_STATE=" + p.dir + "/state.json", "XDG_CONFIG_HOME=" + filepath.Dir(p.dir)}
	for _, e := range p.Env {
		if e.Name != "HOME" {
			env = append(env, e.Name+"="+p.here(e.Value))
		}
	}
	for _, a := range slices.Concat(p.Command, p.Args)[1:] {
		args = append(args, strings.NewReplacer(replace...).Replace(p.here(a)))
	}
	return p.w.With(env...), args
}

// The manifests work: each placeholder is refused by the program that reads it, and with keys in their places a host
// leases to the job, found by a server with its users.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	w := cmdtest.New(t)
	all := manifests(t)
	newPod := func(kind, name string) *pod {
		spec := all[kind].Spec.Template.Spec
		p := &pod{w: w, spec: spec, name: name, dir: w.Dir + "/" + name + "/btools",
			container: slices.Concat(spec.InitContainers, spec.Containers)[0]}
		os.MkdirAll(p.dir, 0o755)
		return p
	}
	host, job := newPod("StatefulSet/browsers", "browsers-0"), newPod("Job/tests", "tests")
	sidecar, gateway := newPod("Job/suite", "suite"), newPod("Deployment/gateway", "gateway")
	values := map[string]string{} // by NAME/KEY
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	write := func() {
		t.Helper()
		for _, p := range []*pod{host, job, sidecar, gateway} {
			p.files(all, values)
		}
	}

	// The server, with nkeys of a host and of gateways.
	users := all["Secret/nats-users"].StringData["users.conf"]
	conf, natsCert, natsKey := w.Dir+"/users.conf", w.Dir+"/nats.crt", w.Dir+"/nats.key"
	cmdtest.WriteFile(t, conf, users)
	if out, _ := exec.Command("nats-server", "-c", conf, "-t").CombinedOutput(); !bytes.Contains(out, []byte("nkey")) {
		t.Errorf("the server takes the placeholders of its users: %s", out)
	}
	for _, key := range []string{"hosts-nats/browsers-0.nk", "", "", "gateway/nats.nk"} {
		pair, err := nkeys.CreateUser()
		if err != nil {
			t.Fatal(err)
		}
		public, _ := pair.PublicKey()
		seed, _ := pair.Seed()
		values[key], users = string(seed), strings.Replace(users, "REPLACE", public, 1)
	}
	cmdtest.WriteFile(t, conf, users)
	writeCertificate(t, natsCert, natsKey)
	s := startNATS(t, "-c", conf, "--tls", "--tlscert", natsCert, "--tlskey", natsKey)
	host.nats, job.nats, sidecar.nats, gateway.nats = s.addr, s.addr, s.addr, s.addr

	// The host, which is given its keys one after the other.
	address := cmdtest.Address(t)
	on, args := host.command("http=:7420", "http="+address, "browsers-0.browsers.btools.svc:7420", address)
	on = on.With("PW_MCP_PROXY_BROWSER=chrome-headless-shell", "PW_MCP_PROXY_START=lazy", "PW_MCP_PROXY_SPARES=0")
	refused := func(want string) {
		t.Helper()
		write()
		on.Run("bpool", args...).Exits(t, 78, want)
	}
	seed := values["hosts-nats/browsers-0.nk"]
	delete(values, "hosts-nats/browsers-0.nk")
	delete(values, "")
	refused("less than 16 characters")
	values["hosts-tokens/tokens"] = "gateways " + ciToken + " pools=CHROME"
	refused("tls.crt")
	cert, key := w.Dir+"/host.crt", w.Dir+"/host.key"
	writeCertificate(t, cert, key)
	values["hosts-tls/tls.crt"], values["hosts-tls/tls.key"] = read(cert), read(key)
	refused("btools/nats.nk")
	values["hosts-nats/browsers-0.nk"] = seed
	refused("ca.crt")
	values["btools-ca/ca.crt"] = read(cert) + read(natsCert)
	write()
	start := func() *cmdtest.Pool {
		p := &cmdtest.Pool{T: t, W: on, Cmd: on.Cmd("bpool", args...)}
		p.Start()
		return p
	}
	start()

	// The jobs.
	on, args = job.command("npx", "test", "playwright", "-n", "test", "{ws_endpoint}")
	on.Run("bpool", slices.Insert(slices.Clone(args), 1, "--timeout=2s")...).Exits(t, 75, "no valid token")
	values["gateway/token"] = ciToken
	write()
	on.Run("bpool", args...).Exits(t, 0, "")
	on, args = sidecar.command()
	w.Run("bpool", "lease", "--socket", start().Socket, "CHROME", "--", "test", "-n", "{ws_endpoint}").Exits(t, 0, "")

	// The gateway for programs without bpool.
	values["gateway-tls/tls.crt"], values["gateway-tls/tls.key"] = read(cert), read(key)
	values["gateway-tokens/tokens"] = "agents " + otherToken + " pools=CHROME max=20"
	write()
	address = cmdtest.Address(t)
	on, args = gateway.command("http=:7430", "http="+address, "gateway.btools.svc:7430", address)
	start()
	r := w.Run("curl", "-sSk", "-H", "Authorization: Bearer "+otherToken, "-d", `{"ttl":"500ms"}`,
		"https://"+address+"/lease")
	if !strings.Contains(r.Out, `"https://`+address+`/lease/lease_`) {
		t.Errorf("the gateway: %+v", r)
	}
}
