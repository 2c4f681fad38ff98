# fish completion for bpool. It queries the service with bpool status and bpool state
# list, but only one that the state file says is running: at a socket of systemd's it
# would start one.
complete -c bpool -f

# [FILE]: the control socket of the service that runs, or of the one at FILE
function __bpool_socket
	set -l state $BTOOLS_STATE
	test -n "$state"; or set -q XDG_RUNTIME_DIR; and test -z "$state"; and set state $XDG_RUNTIME_DIR/btools/state.json
	test -n "$state"; or set state (test -n "$TMPDIR"; and echo $TMPDIR; or echo /tmp)/btools-(id -u)/state.json
	test -n "$argv"; and set -a state (dirname -- "$argv")/state.json (string replace -r '\.sock$' '' -- "$argv")/state.json
	set -l found
	for file in $state
		test -r "$file"; or continue
		for entry in (string match -ar '"process":\{"pid":[0-9]+[^{}]*\},"control":"[^"\\\\]+","names":' <$file)
			kill -0 (string match -r '"pid":\K[0-9]+' -- $entry) 2>/dev/null; or continue
			set -l control (string match -r '"control":"\K[^"]+' -- $entry)
			test -z "$argv"; or test "$control" -ef "$argv"; and set -a found $control
		end
	end
	# Of several bpool takes none but by --socket.
	test -n "$argv" -o (count $found) = 1; and echo $found[1]
end

# WORD…: the arguments among them
function __bpool_args
	set -l value
	for word in $argv[3..]
		if test -n "$value"
			set value
			continue
		end
		switch $word
			case --
				return
			case --socket --instance --config --env-file --http --token-file --drain-timeout --stop-timeout --timeout --ttl --bind-pid --bind-fd --output --field -f --log-level --log-format
				set value yes
			case '-*'
			case '*'
				echo $word
		end
	end
end

# what --socket names
function __bpool_named
	set -l words (commandline -opc)
	set -l file
	set -l i (contains -i -- --socket $words); and set file $words[(math $i + 1)]
	set -a file (string replace -f -- --socket= '' $words)
	string replace -r '^~/' "$HOME/" -- "$file[1]"
end

# pools|targets|instances|leases
function __bpool_names
	set -l words (commandline -opc)
	set -l args (__bpool_args $words)
	contains -- -- $words; and return
	contains $argv instances; or contains release $words; or test -z "$args"; or return
	set -l socket (__bpool_socket (__bpool_named))
	test -n "$socket"; and command -q bpool; or return
	for found in (command bpool status --socket $socket -f pools 2>/dev/null </dev/null |
		grep -oE '"(name|id|alias|lease)":"[^"\\\\]*"|"is_default":true' |
		awk -F '"' -v what=$argv -v pool="$args[1]" '
			$2 == "name" { name = $4; mine = name == pool }
			$2 == "is_default" && pool == "" { mine = 1 }
			$2 == "name" && what ~ /pools|targets/ { print name }
			$2 ~ /id|alias/ && what == "targets" && $4 != "" { print name "/" $4 }
			$2 ~ /id|alias/ && what == "instances" && mine { print $4 }
			$2 == "lease" && what == "leases" { print $4 }')
		contains leases $argv; and contains $found $args; or echo $found # not twice
	end
end

complete -c bpool -n 'contains -- -- (commandline -opc)' -xa '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc))))'
complete -c bpool -n __fish_use_subcommand -a serve -d 'run the service'
complete -c bpool -n __fish_use_subcommand -a check -d 'print the configuration that is set'
complete -c bpool -n __fish_use_subcommand -a status -d 'show the state of the pools'
complete -c bpool -n __fish_use_subcommand -a lease -d 'lease an instance'
complete -c bpool -n __fish_use_subcommand -a renew -d 'extend a lease'
complete -c bpool -n __fish_use_subcommand -a release -d 'end leases'
complete -c bpool -n __fish_use_subcommand -a restart -d 'replace browsers'
complete -c bpool -n __fish_use_subcommand -a drain -d 'stop granting leases'
complete -c bpool -n __fish_use_subcommand -a scale -d 'change the number of instances'
complete -c bpool -n __fish_use_subcommand -a reload -d 'read the configuration again'
complete -c bpool -n __fish_use_subcommand -a watch -d 'print events as they happen'
function __bpool_states
	set -l socket (__bpool_socket (__bpool_named))
	if test -n "$socket"
		command bpool state list --socket $socket -f state.name 2>/dev/null </dev/null
		return
	end
	test -z (__bpool_named); or return # else by their files
	set -l dir $XDG_STATE_HOME
	test -n "$dir"; or set dir $HOME/.local/state
	for f in $dir/btools/states/*.json
		string replace -r '^.*/(.*)\.json$' '$1' -- $f
	end
end
complete -c bpool -n __fish_use_subcommand -a state -d 'save, list or change saved logins'
complete -c bpool -n '__fish_seen_subcommand_from state' -a 'list save show delete import export'
complete -c bpool -n '__fish_seen_subcommand_from state' -a '(__bpool_states)'
complete -c bpool -n '__fish_seen_subcommand_from state' -F
complete -c bpool -n '__fish_seen_subcommand_from state' -l from -d 'save the state of this lease' -xa '(__bpool_names leases)'
complete -c bpool -n '__fish_seen_subcommand_from state' -l name -d 'name of the imported state' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l state -d 'start with this state' -xa '(__bpool_states)'
complete -c bpool -n __fish_use_subcommand -a downloads -d 'list or save downloads of a lease'
complete -c bpool -n '__fish_seen_subcommand_from downloads' -a '(__bpool_names leases)'
complete -c bpool -n '__fish_seen_subcommand_from downloads' -l wait -d 'wait until they are complete'
complete -c bpool -n '__fish_seen_subcommand_from downloads' -l timeout -d 'how long to wait' -x
complete -c bpool -n '__fish_seen_subcommand_from downloads' -l save -d 'copy to this directory' -xa '(__fish_complete_directories)'
complete -c bpool -n '__fish_seen_subcommand_from status lease drain scale' -a '(__bpool_names pools)'
complete -c bpool -n '__fish_seen_subcommand_from restart' -a '(__bpool_names targets)'
complete -c bpool -n '__fish_seen_subcommand_from renew release' -a '(__bpool_names leases)'
complete -c bpool -n '__fish_seen_subcommand_from serve check' -l config -d 'read this file' -rF
complete -c bpool -n '__fish_seen_subcommand_from serve check' -l env-file -d 'read variables from this file' -rF
complete -c bpool -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from check' -l socket -d 'the control socket' -rF
complete -c bpool -n '__fish_seen_subcommand_from serve' -l drain-timeout -d 'until leases must end' -x
complete -c bpool -n '__fish_seen_subcommand_from serve' -l http -d 'serve status and metrics there' -x
complete -c bpool -n '__fish_seen_subcommand_from serve' -l token-file -d 'require the token in this file' -rF
complete -c bpool -n '__fish_seen_subcommand_from status' -l watch -d 'update the table every second'
complete -c bpool -n '__fish_seen_subcommand_from status' -l wide -d 'show all columns'
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l stop-timeout -d 'until it is killed' -x
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l bind-pid -d 'end with this process' -x
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l bind-fd -d 'end at end of file' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l instance -d 'ID or alias' -xa '(__bpool_names instances)'
complete -c bpool -n '__fish_seen_subcommand_from lease' -l timeout -d 'how long to wait' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l wait -d 'hold it until told to stop'
complete -c bpool -n '__fish_seen_subcommand_from lease renew' -l ttl -d 'until it ends unless renewed' -x
complete -c bpool -n '__fish_seen_subcommand_from release' -l all -d 'end all leases'
complete -c bpool -n '__fish_seen_subcommand_from check' -l all -d 'include defaults'
complete -c bpool -n '__fish_seen_subcommand_from drain' -l off -d 'grant leases again'
complete -c bpool -l output -d 'json or table' -xa 'json table'
complete -c bpool -l field -s f -d 'bare values by name' -x
complete -c bpool -l no-input -d 'do not read standard input'
complete -c bpool -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bpool -l log-format -d 'how messages look' -xa 'text json'
complete -c bpool -l help -s h -d 'show a summary'
complete -c bpool -l version -d 'print the version'
