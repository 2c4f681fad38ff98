# fish completion for bproxy; it runs nothing.
complete -c bproxy -f

function __bproxy_ports
	set state $BTOOLS_STATE
	test -n "$state"; or set -q XDG_RUNTIME_DIR; and test -z "$state"; and set state $XDG_RUNTIME_DIR/btools/state.json
	test -n "$state"; or set state (test -n "$TMPDIR"; and echo $TMPDIR; or echo /tmp)/btools-(id -u)/state.json
	test -r "$state"; or return
	string match -r '"proxies":.*' <$state | string match -ar '"proxy":\{"pid":[0-9]+,"host":"[^"]*","port":\K[0-9]+'
end

function __bproxy_states
	set -l dir $XDG_STATE_HOME
	test -n "$dir"; or set dir $HOME/.local/state
	for f in $dir/btools/states/*.json
		string replace -r '^.*/(.*)\.json$' '$1' -- $f
	end
end

complete -c bproxy -n __fish_use_subcommand -a list -d 'list the running proxies'
complete -c bproxy -n __fish_use_subcommand -a session -d 'list, create or end sessions'
complete -c bproxy -n __fish_use_subcommand -a state -d 'save, list or change saved logins'
complete -c bproxy -n __fish_use_subcommand -a status -d 'show the state of a proxy'
complete -c bproxy -n __fish_use_subcommand -a launch -d 'launch or replace its browser'
complete -c bproxy -n __fish_use_subcommand -a stop -d 'stop its browser'
complete -c bproxy -n __fish_use_subcommand -a restart -d 'replace its browser'
complete -c bproxy -n __fish_use_subcommand -a join -d 'hold a browser that has joined a hub'
complete -c bproxy -n '__fish_seen_subcommand_from join' -l session -d 'hold a session that ends with this command'
complete -c bproxy -n __fish_use_subcommand -a cast -d 'record a page as Motion JPEG'
complete -c bproxy -n '__fish_seen_subcommand_from cast' -F
complete -c bproxy -n '__fish_seen_subcommand_from cast' -l page -d 'target of the page' -x
complete -c bproxy -n '__fish_seen_subcommand_from cast' -l fps -d 'maximum frames a second' -x
complete -c bproxy -n '__fish_seen_subcommand_from cast' -l duration -d 'end after this time' -x
complete -c bproxy -n '__fish_seen_subcommand_from cast' -l port -d 'use the proxy on this port' -xa '(__bproxy_ports)'
complete -c bproxy -n __fish_use_subcommand -a downloads -d 'list or save downloads of a session'
complete -c bproxy -n '__fish_seen_subcommand_from downloads' -l wait -d 'wait until they are complete'
complete -c bproxy -n '__fish_seen_subcommand_from downloads' -l save -d 'copy to this directory' -xa '(__fish_complete_directories)'
complete -c bproxy -n __fish_use_subcommand -a watch -d 'print events of sessions'
complete -c bproxy -n '__fish_seen_subcommand_from downloads watch' -l port -d 'use the proxy on this port' -xa '(__bproxy_ports)'
complete -c bproxy -n __fish_use_subcommand -a har -d 'convert a trace to an HTTP Archive'
complete -c bproxy -n '__fish_seen_subcommand_from har' -F
complete -c bproxy -n '__fish_seen_subcommand_from status launch stop restart' -a '(__bproxy_ports)'
complete -c bproxy -n '__fish_seen_subcommand_from session' -a 'list new end'
complete -c bproxy -n '__fish_seen_subcommand_from session' -l all -d 'end all sessions'
complete -c bproxy -n '__fish_seen_subcommand_from session' -l port -d 'use the proxy on this port' -xa '(__bproxy_ports)'
complete -c bproxy -n '__fish_seen_subcommand_from session' -l throttle -d 'time until its pages are hidden' -x
complete -c bproxy -n '__fish_seen_subcommand_from state' -a 'list save show delete import export'
complete -c bproxy -n '__fish_seen_subcommand_from state' -a '(__bproxy_states)'
complete -c bproxy -n '__fish_seen_subcommand_from state' -F
complete -c bproxy -n '__fish_seen_subcommand_from state' -l from -d 'save the state of this session' -x
complete -c bproxy -n '__fish_seen_subcommand_from state' -l name -d 'name of the imported state' -x
complete -c bproxy -n '__fish_seen_subcommand_from state' -l port -d 'use the proxy on this port' -xa '(__bproxy_ports)'
complete -c bproxy -l state -d 'start with this state' -xa '(__bproxy_states)'
complete -c bproxy -l listen -d 'HOST:PORT' -x
complete -c bproxy -l direct -d 'show the browser\'s own address'
complete -c bproxy -l trace -d 'append every message to this file' -rF
complete -c bproxy -l launch -d 'launch with this command line' -x
complete -c bproxy -l target -d 'URL of a running browser, or its DevToolsActivePort' -rF
complete -c bproxy -l one-connection -d 'one WebSocket to that browser for all clients'
complete -c bproxy -l browser -d 'type or path' -rFa 'chrome edge chromium brave chrome-headless-shell firefox'
complete -c bproxy -l headless -d 'without a window'
complete -c bproxy -l no-headless -d 'with a window'
complete -c bproxy -l profile -d 'use and keep this profile' -xa '(__fish_complete_directories)'
complete -c bproxy -l arg -d 'pass to the browser' -x
complete -c bproxy -l no-default-args -d 'only what is needed'
complete -c bproxy -l window-size -d 'W,H in pixels' -x
complete -c bproxy -l env -d 'K=V for the browser' -x
complete -c bproxy -l sandbox -d 'auto, on or off' -xa 'auto on off'
complete -c bproxy -l isolate -d 'give each client a virtual browser'
complete -c bproxy -l extension -d 'serve browsers that join by the extension'
complete -c bproxy -l ports -d 'ports of the browsers that join' -x
complete -c bproxy -l all-tabs -d 'show clients all tabs of the browser'
complete -c bproxy -l pairing-file -d 'file with the pairing code' -rF
complete -c bproxy -l no-pairing -d 'let any extension join without the code'
complete -c bproxy -n '__fish_seen_subcommand_from extension' -l hub -d 'URL of the hub' -x
complete -c bproxy -n '__fish_seen_subcommand_from extension' -l paired -d 'write the pairing code into it'
complete -c bproxy -l session-grace -d 'time until an anonymous session ends' -x
complete -c bproxy -l session-idle -d 'time until an unused session ends' -x
complete -c bproxy -l hibernate -d 'time until a session without connections is hibernated' -x
complete -c bproxy -l throttle -d 'time until the pages of an unused session are hidden' -x
complete -c bproxy -l max-sessions -d 'maximum number of sessions' -x
complete -c bproxy -l tab-limit -d 'maximum pages in a session' -x
complete -c bproxy -l default-session -d 'session with the browser profile' -x
complete -c bproxy -l root-session -d 'session of the port address' -x
complete -c bproxy -l downloads -d 'keep downloads in this directory' -xa '(__fish_complete_directories)'
complete -c bproxy -l download-limit -d 'maximum size of the downloads of a session' -x
complete -c bproxy -l upload-root -d 'allow uploads of this directory' -xa '(__fish_complete_directories)'
complete -c bproxy -l download-root -d 'allow downloads into this directory' -xa '(__fish_complete_directories)'
complete -c bproxy -l proxy -d 'proxy of the sessions: a URL or @FILE' -x
complete -c bproxy -l proxy-bypass -d 'hosts without the proxy' -x
complete -c bproxy -l eager -d 'launch at once'
complete -c bproxy -l idle -d 'stop the browser when unused' -x
complete -c bproxy -l idle-by -d 'what counts as use' -xa 'traffic connections'
complete -c bproxy -l health-interval -d 'time between health checks' -x
complete -c bproxy -l health-timeout -d 'time limit of a health check' -x
complete -c bproxy -l timeout -d 'time limit of a launch' -x
complete -c bproxy -l stop-timeout -d 'time to end before it is killed' -x
complete -c bproxy -l bind-pid -d 'stop when this process ends' -x
complete -c bproxy -l bind-fd -d 'stop at end of file on this descriptor' -x
complete -c bproxy -l owner -d 'the program that it belongs to' -x
complete -c bproxy -l token-file -d 'require the token in this file' -rF
complete -c bproxy -l allow-origin -d 'allow web pages of this origin' -x
complete -c bproxy -l max-connections -d 'maximum number of connections' -x
complete -c bproxy -l output -d 'json or table' -xa 'json table'
complete -c bproxy -l field -s f -d 'bare values by name' -x
complete -c bproxy -l no-input -d 'do not read standard input'
complete -c bproxy -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bproxy -l log-format -d 'how messages look' -xa 'text json'
complete -c bproxy -l help -s h -d 'show a summary'
complete -c bproxy -l version -d 'print the version'
complete -c bproxy -n 'contains -- -- (commandline -opc)' -xa '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc))))'
