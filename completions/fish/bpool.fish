# fish completion for bpool; it runs nothing.
complete -c bpool -f

function __bpool_names
	set state $BTOOLS_STATE
	test -n "$state"; or set -q XDG_RUNTIME_DIR; and test -z "$state"; and set state $XDG_RUNTIME_DIR/btools/state.json
	test -n "$state"; or set state (test -n "$TMPDIR"; and echo $TMPDIR; or echo /tmp)/btools-(id -u)/state.json
	test -r "$state"; or return
	string match -r '"pools":.*' <$state | string match -ar '"names":\[\K[A-Z0-9_",]+' | string match -ar '[A-Z0-9_]+'
end

complete -c bpool -n __fish_use_subcommand -a serve -d 'run the service'
complete -c bpool -n __fish_use_subcommand -a check -d 'print the effective configuration'
complete -c bpool -n __fish_use_subcommand -a status -d 'tell how the pools are'
complete -c bpool -n __fish_use_subcommand -a lease -d 'lease an instance'
complete -c bpool -n __fish_use_subcommand -a renew -d 'have a lease last from now on'
complete -c bpool -n __fish_use_subcommand -a release -d 'end leases'
complete -c bpool -n __fish_use_subcommand -a restart -d 'replace browsers'
complete -c bpool -n __fish_use_subcommand -a drain -d 'give no more leases'
complete -c bpool -n __fish_use_subcommand -a scale -d 'another number of instances'
complete -c bpool -n __fish_use_subcommand -a reload -d 'read the configuration again'
complete -c bpool -n __fish_use_subcommand -a watch -d 'print what happens'
complete -c bpool -n '__fish_seen_subcommand_from status lease restart drain scale' -a '(__bpool_names)'
complete -c bpool -n '__fish_seen_subcommand_from serve check' -l config -d 'read this file' -rF
complete -c bpool -n 'not __fish_use_subcommand; and not __fish_seen_subcommand_from check' -l socket -d 'the control socket' -rF
complete -c bpool -n '__fish_seen_subcommand_from serve' -l drain-timeout -d 'until leases are ended' -x
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l stop-timeout -d 'until it is killed' -x
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l bind-pid -d 'end with this process' -x
complete -c bpool -n '__fish_seen_subcommand_from serve lease' -l bind-fd -d 'end at end of file' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l instance -d 'ID or alias' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l timeout -d 'how long to wait' -x
complete -c bpool -n '__fish_seen_subcommand_from lease' -l wait -d 'hold it until told to stop'
complete -c bpool -n '__fish_seen_subcommand_from lease renew' -l ttl -d 'until it ends unless renewed' -x
complete -c bpool -n '__fish_seen_subcommand_from release' -l all -d 'end all leases'
complete -c bpool -n '__fish_seen_subcommand_from drain' -l off -d 'give leases again'
complete -c bpool -l output -d 'json or table' -xa 'json table'
complete -c bpool -l field -s f -d 'bare values by name' -x
complete -c bpool -l no-input -d 'do not read standard input'
complete -c bpool -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bpool -l log-format -d 'how messages look' -xa 'text json'
complete -c bpool -l help -s h -d 'show a summary'
complete -c bpool -l version -d 'print the version'
