# Completion of fdguard for fish: asks the program, which knows the running processes.
function __fdguard_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -l word (commandline --current-token --cut-at-cursor)
    $words[1] __complete $words "$word" 2>/dev/null
end
complete --keep-order --command fdguard --arguments '(__fdguard_complete)'
