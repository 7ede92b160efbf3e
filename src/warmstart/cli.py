"""The command line: what is typed becomes the settings of a command from the table.

A command's flags are the fields of its settings, their help is the fields' docstrings, and every flag can also be a key in the YAML
file given with ``--config``.
A mistake of the user ends with one message and exit code 2.
"""

from __future__ import annotations

import io
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from warmstart.commands import COMMANDS, with_preset
from warmstart.errors import ConfigError, UncheckedWarning, WarmstartError, suggest
from warmstart.json_output import JSON_FLAG, check_has_result, error_document, result_document, suggestions_document
from warmstart.next_steps import next_steps
from warmstart.system.cores import choose_waiting
from warmstart.system.processes import isolated_children, wanted_processes
from warmstart.system.stopping import Terminated, termination_raises
from warmstart.system.trouble import explain_trouble, on_one_line
from warmstart.version import __version__

PRINT_CONFIG = "--print-config"

if TYPE_CHECKING:
    from warmstart.training.distributed import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    0 done; 1 done but a saved model could not be checked, or a gate failed; 2 a mistake that the user can correct; 3 a gate that is
    undecided; 130 interrupted; 143 terminated.
    """
    words = _typed(sys.argv[1:] if arguments is None else arguments)
    if (code := _tell(words)) is not None:
        return code
    choose_waiting()
    settings, world = None, None
    _print_any_text()
    words, as_json = _takes_json(words)
    try:
        with _processes() as world, _unchecked_models() as unchecked, isolated_children(), termination_raises():
            if world is not None:
                _check_processes(world, _command(words)[0])
            with redirect_stdout(sys.stderr) if as_json else nullcontext():
                run, settings = read_command(words)
                if as_json:
                    check_has_result(_command(words)[0])
                result = run(settings)
        if as_json and (world is None or world.leads):
            sys.stdout.write(result_document(_command(words)[0], settings, result))
        return _finished(world, 1 if unchecked else 0)
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads our output any more
        return 0
    except BaseException as error:
        code, sentence = _ended_by(error, words, settings)
        if as_json:
            _print_error(words, error, sentence, code)
        if world is not None and not isinstance(error, SystemExit):
            world.leave(error, code, sentence, _complain)
        if sentence is None:
            raise
        _complain(sentence)
        return code


def _typed(words: Sequence[str]) -> list[str]:
    """The words of a command line; ``help fit`` stands for ``fit --help``."""
    return [*words[1:], "--help"] if words and words[0] == "help" else [*words]


def _finished(world: World | None, code: int) -> int:
    """The exit code, once all processes have it."""
    if world is not None:
        world.finish(code)
    return code


def _tell(words: list[str]) -> int | None:
    """Print what there is to say without a command; returns the exit code, None if a command is to run."""
    try:
        told = _told(words)
    except ConfigError as error:
        _complain(str(error))
        return 2
    if told is not None:
        print(told)  # noqa: T201
    return None if told is None else 0


def _told(words: list[str]) -> str | None:
    """Output of options that need no command; else None."""
    if not words:
        return suggestions(Path.cwd())
    if words == [JSON_FLAG]:
        return suggestions_document(next_steps(Path.cwd())).rstrip("\n")
    if words[0] in ("-h", "--help"):
        return overview()
    return f"warmstart {__version__}" if words[0] in ("-V", "--version") else None


def _print_error(words: list[str], error: BaseException, sentence: str | None, code: int) -> None:
    """The document of an error; none after ``--help``, which ends the process too."""
    if not isinstance(error, SystemExit):
        sys.stdout.write(error_document(_known_name(words), error, sentence or str(error), code))


def _known_name(words: list[str]) -> str:
    """The command that the words begin with, of one word or of two, or else the first word."""
    return " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else words[0]


def _takes_json(words: list[str]) -> tuple[list[str], bool]:
    """The words without ``--json``, and whether it was there."""
    return [word for word in words if word != JSON_FLAG], JSON_FLAG in words


def _ended_by(error: BaseException, words: list[str], settings: Any) -> tuple[int, str | None]:
    """The exit code, and what to say of an error; None: it is a fault of ours."""
    if isinstance(error, KeyboardInterrupt):
        terminated = isinstance(error, Terminated)
        advice = _how_to_go_on(words, settings)
        return 143 if terminated else 130, f"{'terminated' if terminated else 'interrupted'}{advice}"
    return (error.exit_code, str(error)) if isinstance(error, WarmstartError) else (2, explain_trouble(error))


@contextmanager
def _processes() -> Iterator[World | None]:
    """Connects the processes that a launcher such as ``torchrun`` started; None if this is the only one."""
    if wanted_processes() == 1:
        yield None
        return
    from warmstart.training.distributed import joined  # imports torch

    with joined() as world:
        yield world


def _check_processes(world: World, name: str) -> None:
    """Raise ``ConfigError`` if a command cannot be shared, or if there are fewer GPUs than processes."""
    if not COMMANDS[name].distributed:
        raise ConfigError(f"`warmstart {name}` runs in one process; start it without torchrun")
    world.take_gpus()


def _print_any_text() -> None:
    """Let names of files that are no Unicode, and characters that the terminal lacks, be printed with escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _how_to_go_on(words: list[str], settings: Any) -> str:
    """What to do after a command was stopped."""
    name = _command(words)[0] if settings else ""
    if name == "pretrain" and Path(folder := settings.resume or settings.out).is_dir():
        return f"; to go on, run `warmstart pretrain --resume {shlex.quote(folder)}`"
    if name and COMMANDS[name].goes_on:
        return "; the same command goes on where it stopped"
    return "; the same command starts again" if getattr(settings, "out", None) else ""


def suggestions(folder: Path) -> str:
    """What ``warmstart`` alone prints: the next commands for what lies in a folder."""
    lines = [f"  {command}\n      {purpose}" for purpose, command in next_steps(folder)]
    return "\n".join(
        [
            "Pretrain on your text, adapt to your labels, and know what transfer bought you.",
            "",
            "Next in this folder:",
            *lines,
            "",
            "`warmstart --help` lists all commands.",
        ]
    )


def overview() -> str:
    """What ``warmstart --help`` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: warmstart COMMAND [--help] ...",
            "",
            "Pretrain on your text, adapt to your labels, and know what transfer bought you.",
            "",
            *rows,
            "",
            "`warmstart COMMAND --help` explains the basic flags, --help-all all; --config FILE reads settings from YAML,",
            "and --json prints the result of any command as one JSON document.",
        ]
    )


def _command(words: list[str]) -> tuple[str, list[str]]:
    """The name of the command, one word or two (``study lab``), and the words after it."""
    known = [name for name in COMMANDS if name.startswith(f"{words[0]} ")]
    if not known:
        return words[0], words[1:]
    if len(words) == 1 or words[1].startswith("-"):
        raise ConfigError(f"'{words[0]}' needs a second word; known: {', '.join(known)}")
    return " ".join(words[:2]), words[2:]


def read_command(words: list[str]) -> tuple[Callable[[Any], Any], Any]:
    """The function of a command and its settings, from the words after ``warmstart``. Raises ``ConfigError`` if they are wrong."""
    name, rest = _command(words)
    if name not in COMMANDS:
        near = suggest(name, COMMANDS).partition("known: ")[0]
        raise ConfigError(f"unknown command '{name}'; {near}`warmstart --help` lists all")
    command = COMMANDS[name]
    config = parse(command.load_settings(), rest, f"warmstart {name}")
    return command.load()[1], config


@contextmanager
def _unchecked_models() -> Iterator[list[str]]:
    """Collects and prints the warnings about models that were saved but could not be checked, without ending the command."""
    unchecked: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", UncheckedWarning)
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
            if issubclass(category, UncheckedWarning):
                unchecked.append(str(message))
                _complain(str(message))
            else:
                usual(message, category, *rest, **named)

        warnings.showwarning = show
        yield unchecked


def parse(settings: Any, words: list[str], program: str) -> Any:
    """The settings that the flags give, on top of ``--config FILE`` and ``--preset NAME`` if given."""
    import tyro

    from warmstart.config import read_yaml
    from warmstart.flags import complaint, name_arguments, refuse_wrong_values, settings_file

    name_arguments(settings)
    if PRINT_CONFIG in words:
        print(settings_file(settings))  # noqa: T201
        raise SystemExit(0)
    if "--help" in words or "-h" in words or "--help-all" in words:
        _print_help(settings, program, everything="--help-all" in words)
    refuse_wrong_values(settings, words, ("--config", "--preset"))
    words, file = _take(words, "--config")
    given = read_yaml(file) if file else {}
    where = file or program
    if "backbone" in settings.model_fields:
        words, preset = _take(words, "--preset")
        given = with_preset(given, preset)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return tyro.cli(settings, args=words, prog=program, default=_partial(settings, given, where))
    except SystemExit:
        raise ConfigError(complaint(settings, program, said.getvalue())) from None


def _print_help(settings: Any, program: str, *, everything: bool) -> NoReturn:
    """Print the basic flags, or all of them, and exit."""
    from warmstart.flags import command_help, count_flags, file_settings

    lines = [command_help(settings, program, everything=everything), ""]
    if "backbone" in settings.model_fields:
        from warmstart.backbone.config import PRESETS

        lines.append(f"--preset gives the backbone a shape: {', '.join(PRESETS)}")
    advanced = count_flags(settings)["advanced"]
    if advanced and not everything:
        lines.append(f"{advanced} more flags: {program} --help-all")
    if everything and (others := len([*file_settings(settings)])):
        lines.append(f"{others} more settings, for a file that --config reads: {program} {PRINT_CONFIG}")
    print("\n".join(lines).rstrip())  # noqa: T201
    raise SystemExit(0)


def _partial(settings: Any, given: dict[str, Any], where: str) -> Any:
    """Settings whose given values are checked and whose missing required ones the command line must still name."""
    import tyro

    missing = {name: tyro.MISSING for name, field in settings.model_fields.items() if field.is_required() and name not in given}
    if not missing:
        return settings.build(given, where)
    if not given:
        return settings.model_construct(**missing)  # nothing but defaults: there is nothing to check yet
    placeholders = {name: ["-", "_"] if "tuple" in str(settings.model_fields[name].annotation) else "-" for name in missing}
    return settings.build({**placeholders, **given}, where).model_copy(update=missing)


def _take(words: list[str], flag: str) -> tuple[list[str], str | None]:
    """Remove ``flag VALUE`` or ``flag=VALUE`` from the words; returns the rest and the value."""
    for i, word in enumerate(words):
        if word == flag:
            if i + 1 == len(words):
                raise ConfigError(f"{flag} needs a value after it")
            return words[:i] + words[i + 2 :], words[i + 1]
        if word.startswith(flag + "="):
            return words[:i] + words[i + 1 :], word.split("=", 1)[1]
    return words, None


def _complain(message: str) -> None:
    """Print an error on one line."""
    print(f"warmstart: {on_one_line(message)}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
