# Completion of fdguard for bash: asks the program, which knows the running processes.
_fdguard() {
    local word=$2 value help joined='' i
    local -a words=() values=() lines=()
    # bash splits at `=`: put `--pid=41` together again.
    for ((i = 0; i < COMP_CWORD; i++)); do
        if [[ $i -gt 0 && (${COMP_WORDS[i]} == '=' || ${COMP_WORDS[i - 1]} == '=') ]]; then
            words[${#words[@]} - 1]+=${COMP_WORDS[i]}
        else
            words+=("${COMP_WORDS[i]}")
        fi
    done
    [[ $word == '=' ]] && word=''
    if [[ ${COMP_WORDS[COMP_CWORD]} == '=' || ${COMP_WORDS[COMP_CWORD - 1]} == '=' ]]; then
        joined=${words[${#words[@]} - 1]%=}=
        words[${#words[@]} - 1]=$joined$word
    else
        words+=("$word")
    fi
    while IFS=$'\t' read -r value help; do
        value=${value#"$joined"}
        values+=("$value")
        lines+=("$value${help:+  ($help)}")
    done < <("${COMP_WORDS[0]}" __complete "${words[@]}" 2>/dev/null)
    # A program to start.
    if [[ ${COMP_WORDS[COMP_CWORD - 1]} == '--' ]]; then
        mapfile -t values < <(compgen -c -- "$word" | sort -u)
    fi
    # A list of alternatives has room for what they are; the line that is typed has not.
    if [[ ${#lines[@]} -gt 1 && $COMP_TYPE -eq 63 ]]; then
        COMPREPLY=("${lines[@]}")
    else
        COMPREPLY=("${values[@]}")
    fi
    if [[ ${#values[@]} -gt 0 && -e ${values[0]} ]]; then
        compopt -o filenames 2>/dev/null
    fi
}
complete -o nosort -o bashdefault -o default -F _fdguard fdguard
