#compdef fdguard
# Completion of fdguard for zsh: asks the program, which knows the running processes.
_fdguard() {
    local line
    local -a found
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[1,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    done
    if (( ${#found} )); then
        _describe -V fdguard found
    else
        _default
    fi
}
if [[ ${funcstack[1]} == _fdguard ]]; then
    _fdguard "$@"
else
    compdef _fdguard fdguard
fi
