# fish completion for bmcp; it runs nothing.
complete -c bmcp -f

complete -c bmcp -n __fish_use_subcommand -a config -d 'print the entry for a host'
complete -c bmcp -n '__fish_seen_subcommand_from config' -a 'claude-code claude-desktop vscode cursor codex cline gemini-cli goose lm-studio opencode windsurf zed'
complete -c bmcp -n '__fish_seen_subcommand_from config' -l link -d 'print a link'
complete -c bmcp -n '__fish_seen_subcommand_from config' -l write -d 'write the file of the host'
complete -c bmcp -n '__fish_seen_subcommand_from config' -l yes -d 'do not ask'
complete -c bmcp -l mcp -d 'run this MCP server' -xa 'builtin @playwright/mcp chrome-devtools-mcp'
complete -c bmcp -l image-responses -d 'of builtin, to models' -xa 'allow omit'
complete -c bmcp -l allow-unrestricted-file-access -d 'read and show any file with the tools of builtin'
complete -c bmcp -l tools -d 'of builtin, list these' -xa 'core default storage network vision testing all'
complete -c bmcp -l config -d 'run those of this file' -rF
complete -c bmcp -l eager -d 'start every child for every browser at once'
complete -c bmcp -l no-child -d 'run none'
complete -c bmcp -l no-bulk -d 'leave out browser_execute_bulk'
complete -c bmcp -l max-inline -d 'cut results that have more' -x
complete -c bmcp -l max-results -d 'how many of them are kept' -x
complete -c bmcp -l shared -d 'show all hosts the one browser whole'
complete -c bmcp -l session-idle -d 'until an unused virtual browser ends' -x
complete -c bmcp -l throttle -d 'until the pages of an unused one are hidden' -x
complete -c bmcp -l extension -d 'use a browser that joins by its extension'
complete -c bmcp -l idle -d 'until the unused browser is stopped' -x
complete -c bmcp -l hibernate -d 'until an unused virtual browser is hibernated' -x
complete -c bmcp -l max-sessions -d 'virtual browsers that have pages at a time' -x
complete -c bmcp -l tab-limit -d 'tabs of a virtual browser' -x
complete -c bmcp -l upload-root -d 'allow uploads of this directory' -xa '(__fish_complete_directories)'
complete -c bmcp -l download-root -d 'allow downloads into this directory' -xa '(__fish_complete_directories)'
function __bmcp_states
	set -l dir $XDG_STATE_HOME
	test -n "$dir"; or set dir $HOME/.local/state
	for f in $dir/btools/states/*.json
		string replace -r '^.*/(.*)\.json$' '$1' -- $f
	end
end
complete -c bmcp -l state -d 'start with this state' -xa '(__bmcp_states)'
complete -c bmcp -l pool-config -d 'run bpool with this file' -rF
complete -c bmcp -l env-file -d 'read variables from this file' -rF
complete -c bmcp -l pool -d 'use the bpool service that runs'
complete -c bmcp -l socket -d 'use the bpool service that listens there' -rF
complete -c bmcp -l http -d 'speak HTTP on HOST:PORT' -x
complete -c bmcp -l token-file -d 'ask hosts for its token' -rF
complete -c bmcp -l allow-origin -d 'let web pages of ORIGIN ask' -x
complete -c bmcp -l browser -d 'type or path' -rFa 'chrome edge chromium brave chrome-headless-shell firefox'
complete -c bmcp -l headless -d 'without a window'
complete -c bmcp -l no-headless -d 'with a window'
complete -c bmcp -l profile -d 'use and keep this profile' -xa '(__fish_complete_directories)'
complete -c bmcp -l arg -d 'pass to the browser' -x
complete -c bmcp -l no-default-args -d 'only what is needed'
complete -c bmcp -l window-size -d 'W,H in pixels' -x
complete -c bmcp -l env -d 'K=V for the browser' -x
complete -c bmcp -l sandbox -d 'of the browser' -xa 'auto on off'
complete -c bmcp -l bind-pid -d 'stop when this process has ended' -x
complete -c bmcp -l bind-fd -d 'stop at end of file on this descriptor' -x
complete -c bmcp -l output -d 'form of the result' -xa 'json table'
complete -c bmcp -s f -l field -d 'bare values by name' -x
complete -c bmcp -l no-input -d 'do not read standard input'
complete -c bmcp -l log-level -d 'which messages' -xa 'debug info warn error'
complete -c bmcp -l log-format -d 'how messages look' -xa 'text json'
complete -c bmcp -s h -l help -d 'show a summary'
complete -c bmcp -l version -d 'print the version'
complete -c bmcp -n 'not __fish_seen_subcommand_from config; and contains -- -- (commandline -opc)' -xa '(__fish_complete_subcommand --fcs-skip=(math (contains -i -- -- (commandline -opc))))'
