package api

import (
	"encoding/json"
	"testing"
	"time"

	"btools/lib/record"
	"btools/lib/settings"
)

// What clients of other versions read and write stays as it is, the order of the
// members too.
func TestWire(t *testing.T) {
	t.Parallel()
	at := &record.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)}
	const on = `"2026-01-02T03:04:05.006Z"`
	s := Session{Name: "n", Anonymous: true, KeptAt: at,
		Hibernation: Hibernation{true, at, &Crash{*at, *at}, []string{"l"}, []string{"u"}},
		Stats: Stats{1, 2, 3.5, *at, &Control{"anna", *at, true}, nil, 4, 5,
			&UpstreamStatus{URL: "http://p", Error: "e"}, &StateStatus{"s", "x"},
			&LimitsStatus{[]string{"a"}, []string{"b"}, true, 6, "r"}, nil}}
	const listed = `"anonymous":true,"hibernated":true,"restored_at":` + on + `,"crash":{"kept_at":` + on +
		`,"ended_at":` + on + `},"lost":["l"],"unkept":["u"],"kept_at":` + on +
		`,"tab_count":1,"clients":2,"idle_seconds":3.5,"started_at":` + on + `,"control":{"by":"anna","since":` + on +
		`,"private":true},"bytes_in":4,"bytes_out":5,"proxy":{"url":"http://p","error":"e"},` +
		`"state":{"name":"s","error":"x"},` +
		`"limits":{"allow_origins":["a"],"block_origins":["b"],"block_private":true,"refused":6,"last_refused":"r"}}`
	full := s
	full.HTTPURL, full.WSURL = "http://h", "ws://w"
	i := InstanceStatus{ID: "0", Alias: new("a"), Status: "healthy", Leased: true, LeaseDuration: new(int64(1)),
		LeaseStarted: at, LeaseIdle: new(int64(9)), LeaseExpires: at, Browser: "chrome", Headless: true,
		UserDataDir: "d", WSLWindows: true,
		Isolated: true, Timeout: 2, ProcessID: new(3), Health: HealthStatus{at, true, new("e")}, NextTry: at,
		Isolation: "context", Uses: 4, Restarts: 5, Memory: 6, Lease: "l", Holder: "h", By: "uid:70001", User: "u",
		Endpoint: "http://e", Host: "o", Proxy: &UpstreamStatus{URL: "http://p"}, Login: &StateStatus{Name: "s"},
		HibernateAfter: 6, Hibernation: Hibernation{Hibernated: true, RestoredAt: at}, KeptAt: at, Tabs: new(7)}
	for _, c := range []struct {
		value any
		want  string
	}{
		{full, `{"name":"n","http_url":"http://h","ws_url":"ws://w",` + listed},
		{ProxyStatus{State: "ready", Owned: true, Connections: 1, WebSockets: 2, Launches: 3, IdleSeconds: new(1.5),
			ActiveSessions: new(1), Sessions: []Session{s}, LastExit: "x", LastError: "y", LastCheck: at},
			`{"state":"ready","owned":true,"connections":1,"websockets":2,"launches":3,"options":{},` +
				`"idle_seconds":1.5,"active_sessions":1,"sessions":[{"name":"n",` + listed +
				`],"last_exit":"x","last_error":"y","last_check":` + on + `}`},
		{ProxyStatus{}, `{"state":"","owned":false,"connections":0,"websockets":0,"launches":0,"options":{}}`},
		{PoolsStatus{[]PoolStatus{{"A", "d", true, 1, 2, 3, 4, 5, "call", 6, 7, 8, []InstanceStatus{i, {}}, "e"}},
			PoolsSummary{1, 2, 3, 4, 5, 6, 7}, []HostStatus{{"h", "u", 1, true}}},
			`{"pools":[{"name":"A","description":"d","is_default":true,"total_instances":1,"healthy_instances":2,` +
				`"leased_instances":3,"available_instances":4,"waiting":5,"affinity":"call","lease_ttl_ms":6,` +
				`"health_interval_ms":7,"health_timeout_ms":8,"instances":[{"id":"0","alias":"a","status":"healthy",` +
				`"leased":true,"lease_duration_ms":1,"lease_started_at":` + on + `,"lease_idle_ms":9,` +
				`"lease_expires_at":` + on + `,"browser":"chrome","headless":true,"user_data_dir":"d",` +
				`"wsl_windows":true,"isolated":true,` +
				`"timeout_ms":2,"process_id":3,"health_check":{"last_check":` + on + `,"responsive":true,` +
				`"error":"e"},"next_try_at":` + on + `,"isolation":"context","uses":4,"restarts":5,"memory_bytes":6,` +
				`"lease":"l","holder":"h","by":"uid:70001","user":"u","http_url":"http://e","host":"o",` +
				`"proxy":{"url":"http://p"},` +
				`"login":{"name":"s"},"hibernate_ms":6,"hibernated":true,"restored_at":` + on +
				`,"kept_at":` + on + `,"tab_count":7},` +
				`{"id":"","alias":null,"status":"","leased":false,"lease_duration_ms":null,` +
				`"lease_started_at":null,"lease_expires_at":null,"browser":"","headless":false,"timeout_ms":0,` +
				`"process_id":null,"health_check":{"last_check":null,"responsive":false,"error":null},` +
				`"isolation":"","uses":0,"restarts":0}],"elsewhere":"e"}],"summary":` +
				`{"total_pools":1,"total_instances":2,"healthy_instances":3,"failed_instances":4,` +
				`"leased_instances":5,"available_instances":6,"waiting":7},` +
				`"hosts":[{"name":"h","http_url":"u","leases":1,"suspect":true}]}`},
		{Notices{"e", true, []string{"l"}, 1}, `{"ended":"e","yielded":true,"lines":["l"],"last":1}`},
		{Notices{}, `{"last":0}`},
		{EventList[int]{}, `{"events":null}`},
		{HoldRequest{}, `{}`},
		{HoldRequest{Of{"A", "0", "l", "n", true}, settings.WithState("s"), new(int64(0)), 1, true, true, "h", "k", nil,
			"r", "o", nil, true, "a", "b", true, true, "m"},
			`{"pool":"A","instance":"0","lease":"l","session":"n","all":true,"settings":{"state":"s"},` +
				`"timeout_ms":0,"ttl_ms":1,` +
				`"bound":true,"confirm":true,"holder":"h","keep":"k","region":"r","offer":"o","as":"a","by":"b",` +
				`"now":true,"own":true,"launch":"m"}`},
		{RenewRequest{TTL: 1, Confirm: true}, `{"ttl_ms":1,"confirm":true}`},
		{DrainRequest{}, `{}`},
		{ScaleRequest{Of{Pool: "A"}, 2}, `{"pool":"A","instances":2}`},
		{DownloadsRequest{Of{Session: "n"}, true, 5}, `{"session":"n","wait":true,"timeout_ms":5}`},
		{WatchRequest{}, `{}`},
		{WatchRequest{After: -1}, `{"after":-1}`},
		{StateRequest{Of{Lease: "l"}, "s", true, []byte("d"), true, true, true},
			`{"lease":"l","name":"s","create":true,"data":"ZA==","more":true,"export":true,"next":true}`},
		{States{}, `{}`},
	} {
		if b, err := json.Marshal(c.value); err != nil || string(b) != c.want {
			t.Errorf("%T is\n%s, %v\nrather than\n%s", c.value, b, err, c.want)
		}
	}
}
