# fish completion for bport; it runs nothing.
complete -c bport -f
complete -c bport -l count -s n -d 'how many' -x
complete -c bport -l range -d 'LOW-HIGH' -x
complete -c bport -l host -d 'free on this address' -x
complete -c bport -l reserve -d 'for how long' -x
complete -c bport -l output -d 'json or table' -xa 'json table'
complete -c bport -l field -s f -d 'bare values by name' -x
complete -c bport -l no-input -d 'do not read standard input'
complete -c bport -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bport -l log-format -d 'how messages look' -xa 'text json'
complete -c bport -l help -s h -d 'show a summary'
complete -c bport -l version -d 'print the version'
