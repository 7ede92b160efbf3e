"""``init``: write the manifest of a task from a table, with guesses that questions or flags correct."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from warmstart.commands.settings import InitConfig
from warmstart.config import read_yaml
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError, nearest_path
from warmstart.runs.steps import NextStep, command, learning_step, terminal_lines
from warmstart.system.console import console, print_table
from warmstart.system.outputs import free_output, write_output
from warmstart.system.storage import make_folder
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.guess import Guess, guess_task, path_from
from warmstart.tasks.load import TaskSpec, build_task

SHOWN_ROWS, SHOWN_LABELS, SHOWN_CHARACTERS = 3, 20, 50


def write_manifest(config: InitConfig) -> Task:
    """The ``init`` command: the manifest is checked by reading the task before it is written.

    Raises ``ConfigError`` if the file exists, and ``DataError`` if no task can be read from the table.
    """
    out = Path(config.out)
    if out.exists() and not config.force:
        raise ConfigError(f"{out} must not exist yet, but does; name another with --out, or replace it with --force")
    named = (config.table, config.test, config.validation, config.unlabelled)
    free_output(out, [Path(one) for one in named if one], replaces=_is_manifest)
    if config.type is not None:
        TASK_TYPES.known(config.type)
    guess = guess_task(Path(config.table), config)
    if config.ask and sys.stdin.isatty() and sys.stderr.isatty():
        config = _asked(config, guess)
        guess = guess_task(Path(config.table), config)
    for sentence in guess.sentences():
        console.print(sentence)
    manifest = _manifest(config, guess, out.parent)
    make_folder(out.parent)  # its paths are read from there
    task = _task(manifest, out)
    _show(task)
    write_output(out, _commented(manifest, task).encode())
    console.print(f"manifest: {out}")
    pairs = any(not isinstance(text, str) for text in task.train.texts)
    audit = NextStep("audit", "Look for what is wrong with it", command("audit", out))
    for line in terminal_lines([audit, learning_step(task.type, out, pairs=pairs)]):
        console.print(line)
    return task


def _is_manifest(file: Path) -> bool:
    """Whether a file is the manifest of a task."""
    with suppress(ConfigError):
        return "train" in read_yaml(file)
    return False


def _task(manifest: dict[str, Any], out: Path) -> Task:
    try:
        return build_task(TaskSpec.build(manifest, str(out)), out.parent)
    except DataError as error:
        raise DataError(
            f"{error} (guessed: {json.dumps(manifest, ensure_ascii=False)}; correct it with flags, see --help)"
        ) from None


def _asked(config: InitConfig, guess: Guess) -> InitConfig:
    """Up to five questions; an empty answer takes what is guessed."""
    from rich.prompt import Prompt

    def ask(question: str, default: str, choices: list[str] | None = None) -> str:
        return Prompt.ask(question, console=console, default=default, choices=choices)

    changes: dict[str, Any] = {}
    if guess.columns:
        columns = list(guess.columns)
        for name in ("text", "label"):
            if getattr(config, f"{name}_column") is None:
                changes[f"{name}_column"] = ask(f"Which column holds the {name}?", guess.source.get(name, name), columns)
    if config.type is None:
        again = guess_task(Path(config.table), config.model_copy(update=changes))
        changes["type"] = ask("Which type is the task?", again.type, list(TASK_TYPES))
    if config.test is None and "test" not in guess.splits:
        changes["test"] = ask("Test texts (a file, a fraction or a number)?", "0.2")
    if config.unlabelled is None:
        more = ask("More text of the same kind without labels (a file or a folder)?", "none")
        changes["unlabelled"] = None if more == "none" else more
    return config.model_copy(update=changes)


def _manifest(config: InitConfig, guess: Guess, folder: Path) -> dict[str, Any]:
    """What is guessed, with the splits and the pool that flags name."""
    manifest = guess.manifest(folder)
    if config.test:
        manifest["test"] = _split(config.test, folder, "test")
    if config.validation:
        test = manifest.pop("test")  # the manifest has it behind the validation texts
        manifest["validation"] = _split(config.validation, folder, "validation")
        manifest = {key: value for key, value in manifest.items() if value is not None} | {"test": test}
    if config.unlabelled:
        place = Path(config.unlabelled)
        if not place.exists():
            raise DataError(f"no such file or folder: {place}; {nearest_path(place)}check --unlabelled")
        where = path_from(folder, place)
        manifest["unlabelled"] = [{"path": where, "document": "file" if place.is_dir() else "line"}]
    return manifest


def _split(given: str, folder: Path, name: str) -> float | int | str | None:
    """A file, a fraction or a number; None for ``none``."""
    if given == "none":
        return None
    try:
        number = float(given)
    except ValueError:
        if not Path(given).is_file():
            raise DataError(f"--{name} must be a file, a fraction or a number of texts, but is {given}") from None
        return path_from(folder, Path(given))
    return number if number < 1 else int(number)


def _show(task: Task) -> None:
    """Three rows as they were read, the splits, and how often each label occurs."""
    rows = [(_short(task.train.texts[i]), _short(_label(task, i))) for i in range(min(SHOWN_ROWS, len(task.train)))]
    print_table("as it is read", rows, ("text", "label"))
    sizes = ", ".join(f"{len(split):,} {name}" for name, split in task.splits().items() if len(split))
    console.print(f"{sizes} texts")
    if task.single_label:
        counts = Counter(task.labels[number] for number in task.train.labels.tolist()).most_common()
        more = f", and {len(counts) - SHOWN_LABELS} more" if len(counts) > SHOWN_LABELS else ""
        console.print("labels to learn: " + ", ".join(f"{name} {count:,}" for name, count in counts[:SHOWN_LABELS]) + more)


def _label(task: Task, i: int) -> Any:
    label = task.train.labels[i]
    if task.single_label:
        return task.labels[int(label)]
    if task.type == "multilabel":
        return ", ".join(name for name, has in zip(task.labels, label, strict=True) if has)
    return label


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _commented(manifest: dict[str, Any], task: Task) -> str:
    """The manifest with a comment for each key, and the keys that are often wanted as comments."""
    comments = {
        "name": "what reports call the task",
        "type": f"one of {', '.join(TASK_TYPES)}",
        "source": "how every file is read",
        "train": "labelled texts to learn from; paths start at this file's folder",
        "validation": "labelled texts to choose by: a file, a fraction or a number",
        "test": "labelled texts to report on: a file, a fraction or a number; scored once",
        "unlabelled": "more text of this kind, without labels",
    }
    lines = []
    for key, value in manifest.items():
        lines.append(f"# {comments[key]}\n{_yaml(key, value)}")
    if "validation" not in manifest:
        lines.append("# validation: 0.1    # without it, cross-validation on the training texts chooses\n")
    if "unlabelled" not in manifest:
        lines.append("# unlabelled: [texts/]    # more text of this kind, without labels, to pretrain on\n")
    others = TASK_TYPES[task.type].metrics
    lines.append(f"# metric: {task.metric}    # one of {', '.join(others)}\n")
    text = "".join(lines)
    assert yaml.safe_load(text) == manifest, "a manifest is what was checked"
    return text


def _yaml(key: str, value: Any) -> str:
    """One key; a mapping, and each entry of a list, on one line, as manifests are written by hand."""
    if isinstance(value, dict):
        return f"{key}: {_flow(value)}\n"
    if isinstance(value, list):
        return f"{key}:\n" + "".join(f"  - {_flow(one)}\n" for one in value)
    return yaml.safe_dump({key: value}, allow_unicode=True)


def _flow(value: Any) -> str:
    """On one line, and with escapes where characters such as other line ends would be lost."""
    how: dict[str, Any] = {"sort_keys": False, "default_flow_style": True, "width": 10**6}
    readable = yaml.safe_dump(value, **how, allow_unicode=True).strip()
    return readable if yaml.safe_load(readable) == value else yaml.safe_dump(value, **how).strip()
