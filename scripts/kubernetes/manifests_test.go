// Package kubernetes has the manifests of hosts on Kubernetes. Its test reads them as a server does that accepts no
// unknown field, and checks what no server tells: names that must be the same in two places.
package kubernetes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	strict "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of all files.
type manifests struct {
	t        *testing.T
	secrets  map[string]map[string]string // values by name and key; ConfigMaps as well
	services map[string]corev1.ServiceSpec
	pods     map[string]corev1.PodTemplateSpec // by KIND/NAME
	sets     map[string]appsv1.StatefulSetSpec
	budgets  map[string]policyv1.PodDisruptionBudgetSpec
	policies map[string]networkingv1.NetworkPolicySpec
	scaled   map[string]scaledObject
}

// scaledObject is the spec of KEDA's, whose module would bring Kubernetes as a whole.
type scaledObject struct {
	ScaleTargetRef struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Name       string `json:"name"`
	} `json:"scaleTargetRef"`
	PollingInterval int32 `json:"pollingInterval"`
	CooldownPeriod  int32 `json:"cooldownPeriod"`
	MinReplicaCount int32 `json:"minReplicaCount"`
	MaxReplicaCount int32 `json:"maxReplicaCount"`
	Advanced        struct {
		HorizontalPodAutoscalerConfig struct {
			Behavior autoscaling `json:"behavior"`
		} `json:"horizontalPodAutoscalerConfig"`
	} `json:"advanced"`
	Triggers []struct {
		Type     string            `json:"type"`
		Metadata map[string]string `json:"metadata"`
	} `json:"triggers"`
}

// autoscaling is how fast an autoscaler may be.
type autoscaling struct {
	ScaleUp   rules `json:"scaleUp"`
	ScaleDown rules `json:"scaleDown"`
}

type rules struct {
	StabilizationWindowSeconds int32 `json:"stabilizationWindowSeconds"`
	Policies                   []struct {
		Type          string `json:"type"`
		Value         int32  `json:"value"`
		PeriodSeconds int32  `json:"periodSeconds"`
	} `json:"policies"`
}

// object is an object of any kind.
type object[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

// decode reads an object, in which each field must be one of its kind, and must be there once.
func decode(t *testing.T, file string, doc []byte, into any) {
	t.Helper()
	j, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	unknown, err := strict.UnmarshalStrict(j, into)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, err := range unknown {
		t.Errorf("%s: %v", file, err)
	}
}

// spec reads an object that has nothing but a spec.
func spec[Spec any](t *testing.T, file string, doc []byte) (Spec, object[Spec]) {
	var o object[Spec]
	decode(t, file, doc, &o)
	return o.Spec, o
}

// read reads all files.
func read(t *testing.T) *manifests {
	m := &manifests{t: t, secrets: map[string]map[string]string{}, services: map[string]corev1.ServiceSpec{},
		pods: map[string]corev1.PodTemplateSpec{}, sets: map[string]appsv1.StatefulSetSpec{},
		budgets:  map[string]policyv1.PodDisruptionBudgetSpec{},
		policies: map[string]networkingv1.NetworkPolicySpec{}, scaled: map[string]scaledObject{}}
	files, _ := filepath.Glob("*.yaml")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(b, []byte("# ")) {
			t.Errorf("%s does not say what it is", file)
		}
		if file == "nats-values.yaml" {
			continue
		}
		for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
			m.add(file, doc)
		}
	}
	return m
}

func (m *manifests) add(file string, doc []byte) {
	var head object[json.RawMessage]
	if err := yaml.Unmarshal(doc, &head); err != nil {
		m.t.Fatalf("%s: %v", file, err)
	}
	name := head.Name
	if head.Namespace != "btools" {
		m.t.Errorf("%s: %s is in the namespace %q", file, name, head.Namespace)
	}
	switch kind := head.APIVersion + " " + head.Kind; kind {
	case "v1 Secret":
		var s corev1.Secret
		decode(m.t, file, doc, &s)
		m.secrets["secret "+name] = s.StringData
	case "v1 ConfigMap":
		var c corev1.ConfigMap
		decode(m.t, file, doc, &c)
		m.secrets["configmap "+name] = c.Data
	case "v1 Service":
		m.services[name], _ = spec[corev1.ServiceSpec](m.t, file, doc)
	case "apps/v1 StatefulSet":
		m.sets[name], _ = spec[appsv1.StatefulSetSpec](m.t, file, doc)
		m.pods[kind+" "+name] = m.sets[name].Template
	case "apps/v1 Deployment":
		s, _ := spec[appsv1.DeploymentSpec](m.t, file, doc)
		m.pods[kind+" "+name] = s.Template
		if !m.selects(name, s.Selector, s.Template.Labels) {
			m.t.Errorf("Deployment %s does not select its own pods", name)
		}
	case "batch/v1 Job":
		s, _ := spec[batchv1.JobSpec](m.t, file, doc)
		m.pods[kind+" "+name] = s.Template
	case "policy/v1 PodDisruptionBudget":
		m.budgets[name], _ = spec[policyv1.PodDisruptionBudgetSpec](m.t, file, doc)
	case "networking.k8s.io/v1 NetworkPolicy":
		m.policies[name], _ = spec[networkingv1.NetworkPolicySpec](m.t, file, doc)
	case "keda.sh/v1alpha1 ScaledObject":
		m.scaled[name], _ = spec[scaledObject](m.t, file, doc)
	default:
		m.t.Errorf("%s: %s is of no known kind: %s", file, name, kind)
	}
}

// selects reports an error if a selector does not select labels.
func (m *manifests) selects(what string, s *metav1.LabelSelector, of map[string]string) bool {
	m.t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil || selector.Empty() && !strings.HasPrefix(what, "NetworkPolicy") {
		m.t.Errorf("%s: the selector %v: %v", what, s, err)
		return false
	}
	return selector.Matches(labels.Set(of))
}

// natsLabels are those of the chart's pods.
var natsLabels = map[string]string{"app.kubernetes.io/name": "nats", "app.kubernetes.io/component": "nats"}

// natsPorts are those of the chart.
var natsPorts = []int32{4222, 6222, 7777}

// selected returns the ports of the pods that a selector selects.
func (m *manifests) selected(what string, s *metav1.LabelSelector) (ports []corev1.ContainerPort, any bool) {
	for _, p := range m.pods {
		if m.selects(what, s, p.Labels) {
			any = true
			for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
				ports = append(ports, c.Ports...)
			}
		}
	}
	if m.selects(what, s, natsLabels) {
		any = true
		for _, n := range natsPorts {
			ports = append(ports, corev1.ContainerPort{ContainerPort: n})
		}
	}
	if !any {
		m.t.Errorf("%s: %v selects no pod", what, s)
	}
	return ports, any
}

// hasPort reports whether a port is one of pods, by its name or its number.
func hasPort(all []corev1.ContainerPort, port intstr.IntOrString) bool {
	return slices.ContainsFunc(all, func(p corev1.ContainerPort) bool {
		return port.StrVal != "" && p.Name == port.StrVal || port.StrVal == "" && p.ContainerPort == port.IntVal
	})
}

// file returns the content of a file of a container; ok is false if there is none.
func (m *manifests) file(p corev1.PodSpec, c corev1.Container, path string) (content string, ok bool) {
	for _, mount := range c.VolumeMounts {
		key := mount.SubPath + mount.SubPathExpr
		if in, below := strings.CutPrefix(path, mount.MountPath+"/"); below && key == "" {
			key = in
		} else if path != mount.MountPath {
			continue
		}
		for _, v := range p.Volumes {
			if v.Name != mount.Name {
				continue
			}
			var from map[string]string
			switch {
			case v.Secret != nil:
				from = m.secrets["secret "+v.Secret.SecretName]
			case v.ConfigMap != nil:
				from = m.secrets["configmap "+v.ConfigMap.Name]
			case v.EmptyDir != nil:
				return "", true
			}
			content, ok = from[key]
			return content, ok
		}
	}
	return "", false
}

// replicas returns the most pods of a set.
func (m *manifests) replicas(name string) int32 {
	n := *m.sets[name].Replicas
	for _, s := range m.scaled {
		if s.ScaleTargetRef.Name == name {
			n = max(n, s.MaxReplicaCount)
		}
	}
	return n
}

// named reports an error if a text names a file that a container does not have; a file's content is a text, too.
func (m *manifests) named(where string, p corev1.PodSpec, c corev1.Container, texts []string) {
	for _, text := range texts {
		for _, path := range inEtc.FindAllString(text, -1) {
			if content, ok := m.file(p, c, path); !ok {
				m.t.Errorf("%s: there is no file %s", where, path)
			} else if content != "" {
				m.named(where, p, c, []string{content})
			}
		}
	}
}

var inEtc = regexp.MustCompile(`/etc/btools/[^\s"',]+`)

// Each file that a command or its configuration names is there, for each pod of a set, and each volume is one.
func TestFilesOfPods(t *testing.T) {
	m := read(t)
	for name, p := range m.pods {
		set, isSet := strings.CutPrefix(name, "apps/v1 StatefulSet ")
		names := []string{"pod"}
		if isSet {
			names = nil
			for i := range m.replicas(set) {
				names = append(names, fmt.Sprint(set, "-", i))
			}
		}
		volumes := map[string]bool{}
		for _, v := range p.Spec.Volumes {
			volumes[v.Name] = false
		}
		for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
			env := map[string]bool{}
			texts := slices.Concat(c.Command, c.Args)
			if slices.Contains(texts, "bpool") && !strings.Contains(strings.Join(texts, " "), "--config") {
				texts = append(texts, "/etc/btools/pool.toml") // bpool's default
			}
			for _, e := range c.Env {
				texts = append(texts, e.Value)
				env["$("+e.Name+")"] = true
			}
			for _, v := range regexp.MustCompile(`\$\([^)]*\)`).FindAllString(strings.Join(texts, " "), -1) {
				if !env[v] {
					t.Errorf("%s, %s: there is no variable %s", name, c.Name, v)
				}
			}
			for _, mount := range c.VolumeMounts {
				if _, is := volumes[mount.Name]; !is {
					t.Errorf("%s, %s: there is no volume %s", name, c.Name, mount.Name)
				}
				volumes[mount.Name] = true
			}
			for _, pod := range names {
				c := c.DeepCopy()
				for i := range c.VolumeMounts {
					expr := &c.VolumeMounts[i].SubPathExpr
					*expr = strings.ReplaceAll(*expr, "$(POD_NAME)", pod)
				}
				m.named(name+" "+pod+", "+c.Name, p.Spec, *c, texts)
			}
		}
		for v, used := range volumes {
			if !used {
				t.Errorf("%s: the volume %s is not mounted", name, v)
			}
		}
	}
}

// Selectors select, and ports are those of who is selected.
func TestSelectorsAndPorts(t *testing.T) {
	m := read(t)
	for name, s := range m.services {
		ports, _ := m.selected("Service "+name, &metav1.LabelSelector{MatchLabels: s.Selector})
		for _, p := range s.Ports {
			if !hasPort(ports, p.TargetPort) {
				t.Errorf("Service %s: no pod has the port %v", name, p.TargetPort.String())
			}
		}
	}
	for name, b := range m.budgets {
		m.selected("PodDisruptionBudget "+name, b.Selector)
	}
	for name, s := range m.sets {
		if !m.selects("StatefulSet "+name, s.Selector, s.Template.Labels) {
			t.Errorf("StatefulSet %s does not select its own pods", name)
		}
		if svc, ok := m.services[s.ServiceName]; !ok || svc.ClusterIP != "None" || !svc.PublishNotReadyAddresses {
			t.Errorf("StatefulSet %s: the service %s gives its pods no names to their end", name, s.ServiceName)
		}
	}
	for name, p := range m.policies {
		at := "NetworkPolicy " + name
		own, _ := m.selected(at, &p.PodSelector)
		known := func(ports []networkingv1.NetworkPolicyPort, of []corev1.ContainerPort) {
			for _, port := range ports {
				if !hasPort(of, *port.Port) {
					t.Errorf("%s: nobody has the port %v", at, port.Port)
				}
			}
		}
		inside := func(peers []networkingv1.NetworkPolicyPeer) (ports []corev1.ContainerPort, all bool) {
			for _, peer := range peers {
				if peer.NamespaceSelector == nil && peer.PodSelector != nil {
					there, _ := m.selected(at, peer.PodSelector)
					ports, all = append(ports, there...), true
				}
			}
			return ports, all
		}
		for _, rule := range p.Ingress {
			inside(rule.From)
			known(rule.Ports, own)
		}
		for _, rule := range p.Egress {
			if ports, all := inside(rule.To); all {
				known(rule.Ports, ports)
			}
		}
	}
}

// probed reports an error if a probe is not at a port of its container.
func probed(t *testing.T, c corev1.Container) {
	p := c.ReadinessProbe
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != "/healthz" || !hasPort(c.Ports, p.HTTPGet.Port) ||
		p.HTTPGet.Scheme != corev1.URISchemeHTTPS {
		t.Errorf("%s: readiness is %+v", c.Name, p)
	}
}

// The gateway: its name is in the certificate, and ports are the same everywhere.
func TestGateway(t *testing.T) {
	m := read(t)
	c := m.pods["apps/v1 Deployment gateway"].Spec.Containers[0]
	probed(t, c)
	port := m.services["gateway"].Ports[0].Port
	public := fmt.Sprint("--public-url=https://gateway.btools.svc:", port)
	for _, want := range []string{fmt.Sprint("--http=:", port), public} {
		if !slices.Contains(c.Args, want) || c.Ports[0].ContainerPort != port {
			t.Errorf("%v, not %s", c.Args, want)
		}
	}
}

// The hosts: their names are in the certificate, ports are the same everywhere, and there is time to drain.
func TestHosts(t *testing.T) {
	m := read(t)
	set := m.sets["browsers"]
	c := set.Template.Spec.Containers[0]
	probed(t, c)
	options := map[string]string{}
	for _, a := range c.Args {
		if name, value, ok := strings.Cut(strings.TrimPrefix(a, "--"), "="); ok {
			options[name] = value
		}
	}
	port := c.Ports[0].ContainerPort
	name := "$(POD_NAME)." + set.ServiceName + ".btools.svc"
	if want := fmt.Sprintf("https://%s:%d", name, port); options["public-url"] != want {
		t.Errorf("--public-url is %s, not %s", options["public-url"], want)
	}
	if want := fmt.Sprintf(":%d", port); options["http"] != want || m.services["browsers"].Ports[0].Port != port {
		t.Errorf("--http is %s, not %s, and that of the Service", options["http"], want)
	}
	how, _ := os.ReadFile("secrets.yaml")
	names := []string{strings.Replace(name, "$(POD_NAME)", "*", 1), "nats.btools.svc", "gateway.btools.svc"}
	for _, san := range names {
		if !regexp.MustCompile(`(?m)^# .*DNS:` + regexp.QuoteMeta(san) + `$`).Match(how) {
			t.Errorf("secrets.yaml makes no certificate for %s", san)
		}
	}
	files, _ := filepath.Glob("*.yaml")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, url := range regexp.MustCompile(`(tls|nats)://[^"]+`).FindAllString(string(b), -1) {
			if url != "tls://nats.btools.svc:4222" {
				t.Errorf("%s: no server has the address %s", f, url)
			}
		}
	}

	stop := c.Lifecycle.PreStop.Exec.Command
	i := slices.Index(stop, "--timeout")
	drain, err := time.ParseDuration(stop[i+1])
	grace := time.Duration(*set.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	after, bad := time.ParseDuration(options["drain-timeout"])
	// Leases that are in use move in 30 s after the drain's timeout, and browsers end in 5 s.
	if left := grace - drain - 30*time.Second - after - 5*time.Second; err != nil || bad != nil || left < 0 {
		t.Errorf("%v of %v are left after the drain, %v, %v", left, grace, err, bad)
	}
}

// There are as many keys as hosts, with the permissions of scripts/nats.
func TestKeys(t *testing.T) {
	m := read(t)
	n := int(m.replicas("browsers"))
	conf := m.secrets["secret nats-users"]["users.conf"]
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	block := func(text, name string) string {
		found := regexp.MustCompile(`(?ms)^` + name + `: \{\n(.*?)^\}`).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("there are no permissions %s", name)
		}
		return flat(found[1])
	}
	var model string
	files, _ := filepath.Glob("../nats/*.conf")
	for _, f := range files {
		b, _ := os.ReadFile(f)
		model += string(b)
	}
	for i := range n {
		name := fmt.Sprint("browsers-", i)
		want := strings.ReplaceAll(block(model, "host_vm1"), "vm1", name)
		if got := block(conf, fmt.Sprint("host_", i)); got != want {
			t.Errorf("%s:\n%s, want\n%s", name, got, want)
		}
		if _, ok := m.secrets["secret hosts-nats"][name+".nk"]; !ok ||
			!strings.Contains(conf, fmt.Sprintf("{ nkey: REPLACE, permissions: $host_%d }", i)) {
			t.Errorf("%s has no key", name)
		}
	}
	want := strings.ReplaceAll(block(model, "gateway_ci"), ".ci.", ".gateways.")
	if got := block(conf, "gateway_all"); got != want {
		t.Errorf("gateways:\n%s, want\n%s", got, want)
	}
	for name, s := range m.secrets {
		for key, value := range s {
			if strings.HasPrefix(name, "secret ") && !strings.Contains(value, "REPLACE") {
				t.Errorf("%s has a value of %s that is no placeholder", name, key)
			}
		}
	}
}

// The hosts are scaled: by a target that there is, and by fewer leases a host than it has instances.
func TestScaledObject(t *testing.T) {
	m := read(t)
	s := m.scaled["browsers"]
	to := s.ScaleTargetRef
	if to.APIVersion != "apps/v1" || to.Kind != "StatefulSet" || m.sets[to.Name].Replicas == nil {
		t.Errorf("the target is %+v", to)
	}
	if s.MinReplicaCount < 1 || s.MaxReplicaCount < s.MinReplicaCount || len(s.Triggers) != 1 {
		t.Errorf("%+v", s)
	}
	of := s.Triggers[0]
	found := regexp.MustCompile(`(?m)^instances = (\d+)`).FindStringSubmatch(m.secrets["configmap hosts"]["pool.toml"])
	instances, _ := strconv.Atoi(found[1])
	threshold, err := strconv.Atoi(of.Metadata["threshold"])
	if err != nil || threshold < 1 || threshold > instances {
		t.Errorf("the threshold is %s, a host has %d instances", of.Metadata["threshold"], instances)
	}
	if of.Type != "prometheus" || of.Metadata["query"] == "" || of.Metadata["ignoreNullValues"] != "false" {
		t.Errorf("the trigger is %+v", of)
	}
}

// The values of the chart are some that it has: its values.yaml is in testdata, as keys.
func TestChart(t *testing.T) {
	b, err := os.ReadFile("nats-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	j, err := yaml.YAMLToJSONStrict(b)
	var values map[string]any
	if err == nil {
		err = json.Unmarshal(j, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	chart, err := os.ReadFile("testdata/nats-chart-2.14.2.keys")
	if err != nil {
		t.Fatal(err)
	}
	keys := strings.Fields(string(chart))
	var walk func(at string, v any)
	walk = func(at string, v any) {
		if slices.Contains(keys, at) || slices.Contains(keys, at+".*") {
			return
		}
		in, ok := v.(map[string]any)
		if !ok {
			t.Errorf("the chart has no value %s", at)
		}
		for k, v := range in {
			walk(strings.TrimPrefix(at+"."+k, "."), v)
		}
	}
	walk("", values)
	m := read(t)
	for _, name := range regexp.MustCompile(`secretName: ([\w-]+)`).FindAllStringSubmatch(string(b), -1) {
		if m.secrets["secret "+name[1]] == nil {
			t.Errorf("there is no Secret %s", name[1])
		}
	}
	if !strings.Contains(string(b), "$include: ../nats-users/users.conf") ||
		m.secrets["secret nats-users"]["users.conf"] == "" {
		t.Error("the servers do not read the users")
	}
}
