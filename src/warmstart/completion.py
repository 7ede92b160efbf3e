"""Completion of commands, flags and their values in bash, zsh and fish: one script for each, which calls nothing of warmstart.

A script holds two tables, the flags of each command and what each flag takes, and looks at the words that are typed: one that
begins with a dash is a flag, one after a flag is its value, and all others are files. It imports nothing, so that it is quick.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from warmstart.flags import Flag
from warmstart.registry import Registry

TRUE_OR_FALSE = "yes or no, or left out"
_HELP = 72
"""characters of the help of a flag; zsh and fish show it"""
EVERYWHERE = (
    Flag("--help", "yes or no", "", "explain the basic flags", False),
    Flag("--help-all", "yes or no", "", "explain all flags", False),
    Flag("--json", "yes or no", "", "print the result as one JSON document", False),
    Flag("--config", "text", "", "read the settings from a YAML file", False),
    Flag("--print-config", "yes or no", "", "print all settings as such a file", False),
)
"""flags of all commands that are no setting"""
FIRST = {
    "--help": "list all commands",
    "--version": "print the version",
    "--explain": "what an error means, and what to do",
    "--print-completion": "completion for bash, zsh or fish",
}
"""instead of a command"""


@dataclass(frozen=True)
class Completed:
    """A command as completion knows it."""

    name: str
    help: str
    flags: tuple[Flag, ...]

    def words(self) -> dict[str, str]:
        """What can be typed for each flag, and its help: of a switch, what changes it."""
        known = {flag.name for flag in self.flags}
        flags = [*self.flags, *(flag for flag in EVERYWHERE if flag.name not in known)]
        return {_typed(flag): _short(flag.help) for flag in flags if flag.name.startswith("--")}


def completion_script(shell: str, commands: Sequence[Completed]) -> str:
    """The script of a shell."""
    return SHELLS[shell](commands)


def _typed(flag: Flag) -> str:
    return flag.name.replace("--", "--no-", 1) if flag.switch and flag.default == "yes" and "." not in flag.name else flag.name


def _short(text: str) -> str:
    """The beginning of a help, on one line, without what shells read."""
    plain = " ".join(text.translate(str.maketrans("'\"`$\\:;[]", "         ")).split())
    return plain if len(plain) <= _HELP else plain[: _HELP - 1].rsplit(" ", 1)[0] + "…"


def _values(commands: Iterable[Completed]) -> dict[tuple[str, str], list[str]]:
    """(kind, words) -> patterns of command and flag; what is in no pattern takes one file.

    Kinds: ``switch``, ``none`` (a number), ``words``, and ``many`` words or ``files``.
    """
    by_flag: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for command in commands:
        for flag in (*command.flags, *EVERYWHERE):
            words = "True False" if flag.values == TRUE_OR_FALSE else " ".join(flag.choices)
            kind = "switch" if flag.switch else "none" if flag.number else "words" if words else "file"
            kind = {"words": "many", "file": "files", "none": "numbers"}.get(kind, kind) if flag.many else kind
            by_flag[flag.name].setdefault(command.name, (kind, words))
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for flag_name, of_commands in by_flag.items():
        if len({*of_commands.values()}) == 1:
            found[next(iter(of_commands.values()))].append(f"* {flag_name}")
        else:
            for name, value in of_commands.items():
                found[value].append(f"{name} {flag_name}")
    return {value: patterns for value, patterns in found.items() if value != ("file", "")}


def _first_words(commands: Iterable[Completed]) -> dict[str, str]:
    """The first words of commands with their help."""
    found = {name.split()[0]: help for name, help in ((one.name, one.help) for one in commands) if " " not in name}
    groups = {one.name.split()[0] for one in commands if " " in one.name}
    return {word: _short(help) for word, help in found.items()} | dict.fromkeys(sorted(groups), "choose a second word") | FIRST


def _second_words(commands: Iterable[Completed]) -> dict[str, dict[str, str]]:
    """First word -> the second ones with their help."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for one in commands:
        first, _, second = one.name.partition(" ")
        if second:
            found[first][second] = _short(one.help)
    return found | {"--print-completion": {name: f"a script for {name}" for name in SHELLS}}


def _patterns(names: Iterable[str]) -> str:
    """Patterns of ``case`` in bash and zsh: a star outside of the quotes stands for every command."""
    return "|".join(f"*'{name[1:]}'" if name.startswith("*") else f"'{name}'" for name in names)


_READ = """  local command flag kind values given word
  command= flag= kind=files values= given=0
  for word in "${words_before[@]}"; do
    case "$word" in
      '=') continue ;;
      --?*=?*) flag="${word%%=*}"; given=1 ;;
      --?*) flag="$word"; given=0 ;;
      *) if [[ -z "$command" && -z "$flag" ]]; then command="$word"
         elif [[ $nested == *" $command "* ]]; then command="$command $word"
         else given=$((given + 1)); fi ;;
    esac
  done
"""
"""bash and zsh: the command, the last flag, and how many values it has"""


def _case(commands: Sequence[Completed]) -> str:
    """Bash and zsh: what the last flag takes."""
    rows = [f"    {_patterns(names)}) kind={kind} values='{words}' ;;" for (kind, words), names in _values(commands).items()]
    return "\n".join(['  case "$command ${flag/#--no-/--}" in', *rows, "    *) kind=file ;;", "  esac"])


def _nested(commands: Sequence[Completed]) -> str:
    return " ".join(["", *_second_words(commands), ""])


def _bash(commands: Sequence[Completed]) -> str:
    first, second = _first_words(commands), _second_words(commands)
    flags = "\n".join(f"    '{one.name}') values='{' '.join(one.words())}' ;;" for one in commands)
    seconds = "\n".join(f"    '{word}') values='{' '.join(words)}' ;;" for word, words in second.items())
    return f"""# completion of warmstart for bash: source this file
_warmstart() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" nested='{_nested(commands)}'
  local -a words_before=("${{COMP_WORDS[@]:1:COMP_CWORD-1}}")
  [[ "$current" == "=" ]] && current=
  COMPREPLY=()
  [[ "${{words_before[0]}}" == --print-completion ]] && words_before=("x" "--print-completion")
{_READ}  if [[ ${{#words_before[@]}} -eq 0 ]]; then
    COMPREPLY=($(compgen -W '{" ".join(first)}' -- "$current")); return
  fi
  if [[ "$flag" == --print-completion ]]; then
    COMPREPLY=($(compgen -W '{" ".join(SHELLS)}' -- "$current")); return
  fi
  if [[ -z "$flag" && "$nested" == *" $command "* ]]; then
    case "$command" in
{seconds}
    esac
    COMPREPLY=($(compgen -W "$values" -- "$current")); return
  fi
  if [[ "$current" == -* ]]; then
    case "$command" in
{flags}
    esac
    COMPREPLY=($(compgen -W "$values" -- "$current")); return
  fi
  [[ -z "$flag" ]] && return
{_case(commands)}
  case "$kind" in
    switch|file|files) ;;
    none) [[ $given -eq 0 ]] && compopt +o default 2> /dev/null ;;
    numbers) compopt +o default 2> /dev/null ;;
    many) COMPREPLY=($(compgen -W "$values" -- "$current")) ;;
    words) [[ $given -eq 0 ]] && COMPREPLY=($(compgen -W "$values" -- "$current")) ;;
  esac
}}
complete -o default -F _warmstart warmstart
"""


def _described(words: Mapping[str, str]) -> str:
    """Words with their help, for zsh."""
    return " ".join(f"'{word}:{help}'" for word, help in words.items())


def _zsh(commands: Sequence[Completed]) -> str:
    first, second = _first_words(commands), _second_words(commands)
    flags = "\n".join(f"      '{one.name}') rows=({_described(one.words())}) ;;" for one in commands)
    seconds = "\n".join(f"      '{word}') rows=({_described(words)}) ;;" for word, words in second.items())
    return f"""#compdef warmstart
# completion of warmstart for zsh: a file named _warmstart in a folder of $fpath, or source it after compinit
_warmstart() {{
  local nested='{_nested(commands)}' current="${{words[CURRENT]}}"
  local -a words_before rows
  words_before=("${{(@)words[2,CURRENT-1]}}")
  if (( CURRENT == 2 )); then
    rows=({_described(first)})
    _describe command rows; return
  fi
  if [[ "${{words[2]}}" == --print-completion ]]; then
    compadd -- {" ".join(SHELLS)}; return
  fi
{_READ}  if [[ -z "$flag" && "$nested" == *" $command "* ]]; then
    case "$command" in
{seconds}
    esac
    _describe command rows; return
  fi
  if [[ "$current" == --*=* ]]; then
    flag="${{current%%=*}}"; given=0
    compset -P '*='
  elif [[ "$current" == -* ]]; then
    case "$command" in
{flags}
    esac
    _describe flag rows; return
  fi
  if [[ -z "$flag" ]]; then _files; return; fi
{_case(commands)}
  case "$kind" in
    none) (( given )) && _files ;;
    numbers) ;;
    many) compadd -- ${{=values}} ;;
    words) if (( given )); then _files; else compadd -- ${{=values}}; fi ;;
    *) _files ;;
  esac
}}
if [[ "$funcstack[1]" == _warmstart ]]; then _warmstart "$@"; else compdef _warmstart warmstart; fi
"""


_FISH = """# completion of warmstart for fish: ~/.config/fish/completions/warmstart.fish
function __warmstart_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -e before[1]
    set -l command ''
    set -l flag ''
    set -l given 0
    set -l rows
    set -l prefix ''
    if test (count $before) -eq 0
        printf '%s\\n' @first@
        return
    end
    for word in $before
        if string match -q -- '--*=*' $word
            set flag (string split -m 1 = -- $word)[1]
            set given 1
        else if string match -q -- '--?*' $word
            set flag $word
            set given 0
        else if test -z "$command" -a -z "$flag"
            set command $word
        else if contains -- $command @groups@
            set command "$command $word"
        else
            set given (math $given + 1)
        end
    end
    if test "$flag" = --print-completion
        printf '%s\\n' @shells@
        return
    end
    if test -z "$flag"; and contains -- $command @groups@
        switch $command
@seconds@
        end
        printf '%s\\n' $rows
        return
    end
    if string match -q -- '--*=*' $current
        set -l parts (string split -m 1 = -- $current)
        set flag $parts[1]
        set given 0
        set prefix "$flag="
        set current $parts[2]
    else if string match -q -- '-*' $current
        switch $command
@flags@
        end
        printf '%s\\n' $rows
        return
    end
    if test -z "$flag"
        __fish_complete_path $current
        return
    end
    set -l kind file
    set -l values
    switch "$command "(string replace -r '^--no-' -- -- $flag)
@values@
    end
    switch $kind
        case numbers
        case many
            printf '%s\\n' $prefix$values
        case none words
            if test $given -gt 0
                __fish_complete_path $current
            else if test (count $values) -gt 0
                printf '%s\\n' $prefix$values
            end
        case '*'
            __fish_complete_path $current
    end
end
complete -c warmstart -f -a '(__warmstart_complete)'
"""


def _fish(commands: Sequence[Completed]) -> str:
    def rows(words: Mapping[str, str]) -> str:
        return " ".join(f"'{word}\t{help}'" for word, help in words.items())

    first, second = _first_words(commands), _second_words(commands)
    flags = "\n".join(f"            case '{one.name}'\n                set rows {rows(one.words())}" for one in commands)
    seconds = "\n".join(f"            case '{word}'\n                set rows {rows(words)}" for word, words in second.items())
    values = "\n".join(
        f"        case {' '.join(repr(name) for name in names)}\n            set kind {kind}\n            set values {words}"
        for (kind, words), names in _values(commands).items()
    )
    filled = {
        "first": rows(first), "groups": " ".join(second), "shells": " ".join(SHELLS),
        "seconds": seconds, "flags": flags, "values": values,
    }  # fmt: skip
    return re.sub(r"@(\w+)@", lambda found: filled[found[1]], _FISH)


SHELLS: Registry[Callable[[Sequence[Completed]], str]] = Registry("shell", {"bash": _bash, "zsh": _zsh, "fish": _fish})
