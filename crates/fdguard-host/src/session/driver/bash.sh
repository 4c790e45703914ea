# Setup of an interactive bash before its first command. The loop itself is bash_loop.sh: bash runs
# it in place of a prompt, so that it is entered again whenever bash aborts a command (an interrupt,
# an unset variable under `set -u`). Descriptor 3 is the side channel. While it is closed for a
# moment, bash keeps a copy at 10 that its children do not inherit, and a copy of that copy is not
# inherited either: 19 is ours from here on.
{ \exec 19<&10; } 3<&-
\exec 3<&-
__fdguard_nonce=@READY@
__fdguard_status=$((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))
__fdguard_loop=$PROMPT_COMMAND
\builtin export -n PROMPT_COMMAND
\builtin unset HISTFILE __fdguard_start
\builtin set +o history +H
# A mistyped `exec` ends the command, not the session.
\builtin shopt -s execfail
PS1= PS2=

__fdguard_return() { \builtin return "$1"; }

# Reports the end of the last command and waits for the next.
__fdguard_next() {
  # An interrupt that comes late would end a read in the middle of a command. A trap of the user's
  # for INT lasts for one command only because of this.
  \builtin trap '' INT
  # Whatever options the commands have set: not here. What was set before is set again when this
  # returns.
  \builtin local -
  \builtin set +eux
  PROMPT_COMMAND=$__fdguard_loop
  # Ended jobs are forgotten, as they are before a prompt.
  \builtin jobs -n >/dev/null
  if [[ -n $__fdguard_nonce ]]; then
    if [[ $PWD == *$'\n'* ]]; then __fdguard_text=; else __fdguard_text=$PWD; fi
    \builtin printf '%s %s %s\n' "$__fdguard_nonce" "$__fdguard_status" "$__fdguard_text" >&19
    __fdguard_nonce=
  fi
  # `-N` makes bash read whole datagrams; without it each byte is a read, which throws away the
  # rest. TMOUT may end the wait.
  until IFS= \builtin read -r -N 40 -u 19 __fdguard_text; do
    (($? > 128)) || \builtin exit 1
  done
  __fdguard_nonce=${__fdguard_text:0:32}
  case ${__fdguard_text:32:1} in
    t) IFS= \builtin read -r -N "${__fdguard_text:33}" -u 19 __fdguard_text ;;
    u) IFS= LC_ALL=C \builtin read -r -N "${__fdguard_text:33}" -u 19 __fdguard_text ;;
    *)
      IFS= LC_ALL=C \builtin read -r -N "${__fdguard_text:33}" -u 19 __fdguard_text
      \builtin mapfile -d '' -t __fdguard_file <"$__fdguard_text"
      __fdguard_text=${__fdguard_file[0]}
      __fdguard_file=()
      ;;
  esac
  \builtin trap - INT
}
