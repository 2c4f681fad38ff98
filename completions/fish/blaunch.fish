# fish completion for blaunch; it runs nothing.
complete -c blaunch -f

function __blaunch_ids
	set state $BTOOLS_STATE
	test -n "$state"; or set -q XDG_RUNTIME_DIR; and test -z "$state"; and set state $XDG_RUNTIME_DIR/btools/state.json
	test -n "$state"; or set state (test -n "$TMPDIR"; and echo $TMPDIR; or echo /tmp)/btools-(id -u)/state.json
	test -r "$state"; or return
	string replace -r '"exits":.*' '' <$state | string match -ar 'inst_[0-9]+_[0-9a-z]{6}' | sort -u
end

complete -c blaunch -n __fish_use_subcommand -a list -d 'list the running browsers'
complete -c blaunch -n __fish_use_subcommand -a stop -d 'stop browsers'
complete -c blaunch -n __fish_use_subcommand -a gc -d 'clean up what dead processes left behind'
complete -c blaunch -n '__fish_seen_subcommand_from stop' -a '(__blaunch_ids)'
complete -c blaunch -n '__fish_seen_subcommand_from stop' -l all -d 'stop all'
complete -c blaunch -n '__fish_seen_subcommand_from stop' -l force -d 'stop those of bpool and bproxy too'
complete -c blaunch -n 'contains -- -- (commandline -opc)' -xa '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc))))'
complete -c blaunch -l browser -d 'type or path' -rFa 'chrome edge chromium brave chrome-headless-shell firefox'
complete -c blaunch -l headless -d 'without a window'
complete -c blaunch -l no-headless -d 'with a window'
complete -c blaunch -l profile -d 'use and keep this profile' -xa '(__fish_complete_directories)'
complete -c blaunch -l arg -d 'pass to the browser' -x
complete -c blaunch -l no-default-args -d 'only what is needed'
complete -c blaunch -l url -d 'open this' -x
function __blaunch_states
	set -l dir $XDG_STATE_HOME
	test -n "$dir"; or set dir $HOME/.local/state
	for f in $dir/btools/states/*.json
		string replace -r '^.*/(.*)\.json$' '$1' -- $f
	end
end
complete -c blaunch -l state-save -d 'save the logins of the window under this name' -xa '(__blaunch_states)'
complete -c blaunch -l extension -d 'load the extension, and join a hub by it'
complete -c blaunch -l hub -d 'port or URL of the hub' -x
complete -c blaunch -l window-size -d 'W,H in pixels' -x
complete -c blaunch -l port -d 'of the endpoint' -x
complete -c blaunch -l env -d 'K=V for the browser' -x
complete -c blaunch -l sandbox -d 'auto, on or off' -xa 'auto on off'
complete -c blaunch -l timeout -d 'until it answers' -x
complete -c blaunch -l stop-timeout -d 'until it is killed' -x
complete -c blaunch -l ttl -d 'stop the browser after this time' -x
complete -c blaunch -l bind-pid -d 'stop with this process' -x
complete -c blaunch -l pipe-fd -d 'hand the debugging pipe on, from this descriptor' -x
complete -c blaunch -l bind-fd -d 'stop at end of file' -x
complete -c blaunch -l owner -d 'the program that it belongs to' -x
complete -c blaunch -l wait -d 'stay in the foreground'
complete -c blaunch -l output -d 'json or table' -xa 'json table'
complete -c blaunch -l field -s f -d 'bare values by name' -x
complete -c blaunch -l no-input -d 'do not read standard input'
complete -c blaunch -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c blaunch -l log-format -d 'how messages look' -xa 'text json'
complete -c blaunch -l help -s h -d 'show a summary'
complete -c blaunch -l version -d 'print the version'
