# fish completion for the programs of btools, which know themselves what can stand
# at the end of a line: see lib/cli/complete.go.
functions -q __btools; and return # another program's file has done all this
function __btools
	set -l words (commandline -opc)
	set -l token (commandline -ct)
	set -l flag (string match -r -- '^--[a-z-]+=' $token)
	set -l value (string replace -- "$flag" '' $token)
	set -l program (string replace -r '^~' $HOME $words[1])
	set -l answer (command $program __complete (commandline -cp | string collect) 2>/dev/null </dev/null)
	set -q answer[2]; and printf '%s\n' $answer[2..]
	switch (string split -f 1 \t -- $answer[1])
		case files
			__fish_complete_path "$value" | string replace -r -- '^' "$flag"
		case directories
			__fish_complete_directories "$value" | string replace -r -- '^' "$flag"
		case command # the rest is the command's
			set -l at (math (contains -i -- -- $words) + 1)
			set -l rest
			set -q words[$at]; and set rest (string escape -- $words[$at..])
			complete -C (string join ' ' -- $rest $token)
	end
end
for program in bfind blaunch bmcp bpool bport bproxy
	complete -c $program -f -a '(__btools)'
end
