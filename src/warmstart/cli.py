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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from warmstart import __version__
from warmstart.commands import COMMANDS, with_preset
from warmstart.errors import ConfigError, UncheckedWarning, WarmstartError
from warmstart.processes import isolated_children, wanted_processes
from warmstart.stopping import Terminated, termination_raises
from warmstart.trouble import explain_trouble
from warmstart.waiting import choose_waiting

if TYPE_CHECKING:
    from warmstart.training.distributed import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code.

    0 done, 1 done but a saved model could not be checked, 2 a mistake that the user can correct, 130 interrupted, 143 terminated.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(overview())  # noqa: T201
        return 0
    if words[0] == "--version":
        print(f"warmstart {__version__}")  # noqa: T201
        return 0
    choose_waiting()
    settings, world = None, None
    _print_any_text()
    try:
        with _processes() as world, _unchecked_models() as unchecked, isolated_children(), termination_raises():
            if world is not None:
                _check_processes(world, _command(words)[0])
            run, settings = read_command(words)
            run(settings)
        code = 1 if unchecked else 0
        if world is not None:
            world.finish(code)
        return code
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads our output any more
        return 0
    except BaseException as error:
        code, sentence = _ended_by(error, words, settings)
        if world is not None and not isinstance(error, SystemExit):
            world.leave(error, code, sentence, _complain)
        if sentence is None:
            raise
        _complain(sentence)
        return code


def _ended_by(error: BaseException, words: list[str], settings: Any) -> tuple[int, str | None]:
    """The exit code, and what to say of an error; None: it is a fault of ours."""
    if isinstance(error, KeyboardInterrupt):
        terminated = isinstance(error, Terminated)
        advice = _how_to_go_on(words, settings)
        return 143 if terminated else 130, f"{'terminated' if terminated else 'interrupted'}{advice}"
    return 2, str(error) if isinstance(error, WarmstartError) else explain_trouble(error)


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
            "`warmstart COMMAND --help` explains the basic flags, --help-all explains all; --config FILE reads them from YAML.",
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
    settings, run = COMMANDS[name].load()
    return run, parse(settings, rest, f"warmstart {name}")


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
    from warmstart.flags import refuse_renamed_flags, refuse_wrong_values

    if "--help" in words or "-h" in words or "--help-all" in words:
        _print_help(settings, program, everything="--help-all" in words)
    refuse_renamed_flags(settings, words)
    refuse_wrong_values(settings, words)
    words, file = _take(words, "--config")
    given = read_yaml(file) if file else {}
    where = file or program
    if "backbone" in settings.model_fields:
        words, preset = _take(words, "--preset")
        given = with_preset(given, preset)
    return tyro.cli(settings, args=words, prog=program, default=_partial(settings, given, where))


def _print_help(settings: Any, program: str, *, everything: bool) -> NoReturn:
    """Print the basic flags, or all of them, and exit."""
    import tyro

    from warmstart.flags import count_flags, only_basic

    try:
        tyro.cli(settings if everything else only_basic(settings), args=["--help"], prog=program)
    finally:
        advanced = count_flags(settings)["advanced"]
        if advanced and not everything:
            print(f"{advanced} more flags: {program} --help-all")  # noqa: T201
    raise AssertionError("printing help exits")


def _partial(settings: Any, given: dict[str, Any], where: str) -> Any:
    """Settings whose given values are checked and whose missing required ones the command line must still name."""
    import tyro

    missing = {name: tyro.MISSING for name, field in settings.model_fields.items() if field.is_required() and name not in given}
    if not missing:
        return settings.build(given, where)
    if not given:
        return settings.model_construct(**missing)  # nothing but defaults: there is nothing to check yet
    return settings.build({**dict.fromkeys(missing, "-"), **given}, where).model_copy(update=missing)


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
    print(f"warmstart: {message}", file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
