"""The command line: one table, command -> (module, settings, function, help).

Nothing heavy is imported before a command is chosen, so that ``--help`` is quick. A command's flags are the fields of its settings,
their help is the fields' docstrings, and every flag can also stand in a YAML file given with ``--config``.
A user's mistake ends with one message and exit code 2.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from warmstart import __version__
from warmstart.errors import ConfigError, WarmstartError, suggest


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    settings: str
    function: str
    help: str


COMMANDS = {
    "quickstart": Command("quickstart", "QuickstartConfig", "quickstart", "see it all work: no data, no network, six minutes"),
    "pretrain": Command("pretrain", "PretrainConfig", "pretrain", "train a backbone on unlabelled text"),
    "adapt": Command("adapt", "AdaptConfig", "adapt", "swap the head, fine-tune on labels, compare honestly, report"),
    "evaluate": Command("use", "EvaluateConfig", "evaluate", "score a model on a task's test split, or on a text"),
    "predict": Command("use", "PredictConfig", "predict", "label texts"),
    "generate": Command("use", "GenerateCommand", "generate", "write text"),
    "audit": Command("use", "AuditConfig", "audit_task", "look for leakage, duplicates and conflicts in a task's data"),
    "doctor": Command("use", "DoctorConfig", "doctor", "check that a saved model is whole and reproduces itself"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 2 a mistake that the user can mend, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print(overview())  # noqa: T201
        return 0
    if words[0] == "--version":
        print(f"warmstart {__version__}")  # noqa: T201
        return 0
    try:
        return _run(words[0], words[1:])
    except WarmstartError as error:
        _complain(str(error))
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; there is nobody to tell
        return 0
    except OSError as error:
        _complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 2
    except KeyboardInterrupt:
        _complain("interrupted; a pretraining run goes on from its last checkpoint with `warmstart pretrain --resume FOLDER`")
        return 130


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
            "`warmstart COMMAND --help` explains a command's settings; --config FILE reads them from YAML.",
        ]
    )


def _run(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise ConfigError(f"unknown command '{name}'; {suggest(name, COMMANDS)}")
    command = COMMANDS[name]
    module = importlib.import_module(f"warmstart.workflows.{command.module}")
    config = parse(getattr(module, command.settings), words, f"warmstart {name}")
    getattr(module, command.function)(config)
    return 0


def parse(settings: Any, words: list[str], program: str) -> Any:
    """The settings that the flags give, on top of ``--config FILE`` and ``--preset NAME`` where they stand."""
    import pydantic
    import tyro

    from warmstart.config import read_yaml

    words, file = _take(words, "--config")
    given = read_yaml(file) if file else {}
    where = file or program
    if "backbone" in settings.model_fields:
        from warmstart.backbone import PRESETS

        words, preset = _take(words, "--preset")
        if preset := preset or given.pop("preset", None):
            given["backbone"] = {**PRESETS[preset], **given.get("backbone", {})}
    try:
        default = _partial(settings, given, where)
        return tyro.cli(settings, args=words, prog=program, default=default)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{'.'.join(map(str, first['loc']))} {first['msg'].removeprefix('Value error, ')}") from None


def _partial(settings: Any, given: dict[str, Any], where: str) -> Any:
    """Settings whose given values are checked and whose missing required ones the command line must still name."""
    import tyro

    missing = {name: tyro.MISSING for name, field in settings.model_fields.items() if field.is_required() and name not in given}
    if not missing:
        return settings.build(given, where)
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
