# fish completion for bfind; it runs nothing.
complete -c bfind -f
complete -c bfind -l path -d 'an executable that comes first' -rF
complete -c bfind -l type -d 'only these types' -xa '(__fish_append , chrome edge chromium brave chrome-headless-shell firefox)'
complete -c bfind -l channel -d 'only this channel' -xa 'stable esr beta dev canary testing'
complete -c bfind -l first -d 'only the best one'
complete -c bfind -l all -d 'also those without a protocol'
complete -c bfind -l probe -d 'run each for its version'
complete -c bfind -l output -d 'json or table' -xa 'json table'
complete -c bfind -l field -s f -d 'bare values by name' -x
complete -c bfind -l no-input -d 'do not read standard input'
complete -c bfind -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bfind -l log-format -d 'how messages look' -xa 'text json'
complete -c bfind -l help -s h -d 'show a summary'
complete -c bfind -l version -d 'print the version'
