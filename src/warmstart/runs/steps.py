"""Next steps: commands that run as they are printed, each on a line of its own, with the user's own files and texts.

A step names no file that is not there, and none that is there as its output. Needs no torch.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.stats.formatting import model_name
from warmstart.system.storage import MANIFEST, json_or_none

if TYPE_CHECKING:
    from warmstart.data.task import Task

LONGEST_TEXT = 48
"""characters of a text that stands in a command"""
TRIED_TEXTS = 200
"""texts of which one is chosen"""
PROJECT_FILE = "project.sqlite"
"""in a folder in which texts are labelled"""
LABELLED_IN = "# labelled in "
"""beginning of a manifest that people's labels were written with; the path of their project from there follows"""
_LONGEST_PATH = 4096
NO_PAGE = ("regression", "multiple-choice", "span")
"""task types that no page can hold"""
NO_PAGE_TOKENIZER = b'"Precompiled"'
"""a step of tokenizers that no page can take, in the beginning of their file: that of SentencePiece"""
_TOKENIZER_STEPS = 1 << 14
"""bytes of a tokenizer's file that hold its first steps"""
RACE_FOLDER = "runs/race"
"""folder of a race that names none"""
_MANIFESTS = (".yaml", ".yml")


class NextStep(NamedTuple):
    """Something to do next."""

    name: str
    """``"try"``, ``"label"``, ``"serve"``, ``"save"``, ``"race"``, ``"fit"`` or ``"study"``: a page with a server makes it a button
    by this"""
    title: str
    """gain or purpose: ``"Label 50 more: about 3 more of 100 right"``"""
    command: str


class TaskPlace(NamedTuple):
    """The place of a command's labelled texts, as its user named it."""

    path: str
    """a table, a folder or a manifest"""
    flags: tuple[str, ...] | None = ()
    """flags that read the table in the same way; None: no flags say it"""

    @classmethod
    def of(cls, config: Any) -> TaskPlace | None:
        """The place that the settings of a command name; None without one."""
        path = getattr(config, "data", None) or getattr(config, "task", None)
        return cls(str(path), table_flags(config)) if path else None

    @property
    def is_manifest(self) -> bool:
        """True for a manifest, which says itself how its files are read."""
        return Path(self.path).suffix in _MANIFESTS or (Path(self.path) / "task.yaml").is_file()


def table_flags(config: Any) -> tuple[str, ...] | None:
    """The flags that say how a table is read; None if some of it stands in a file of settings alone."""
    from warmstart.data.source import LabelledTableFlags  # imports pydantic

    words = list[str]()
    for name, field in LabelledTableFlags.model_fields.items():
        value = getattr(config, name, field.default)
        if value == field.default:
            continue
        if name in ("delimiter", "header", "sqlite_table"):
            return None
        words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


def command(*words: str | Path) -> str:
    """A command of warmstart as a line of a terminal."""
    return shlex.join(["warmstart", *map(str, words)])


def terminal_lines(steps: Iterable[NextStep]) -> list[str]:
    """The lines of steps for a terminal: each command on its own line, so that it can be copied."""
    commands = [step.command for step in steps]
    return ["Next", *(f"  {line}" for line in commands)] if commands else []


def free_name(name: str) -> str:
    """A name that nothing in the current folder has: ``labels``, or ``labels-2``; an ending stays."""
    path = Path(name)
    names = chain([path], (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2)))
    return next(str(candidate) for candidate in names if not candidate.exists())


def out_words(usual: str) -> list[str]:
    """``--out`` and a free name, if a command would write into a folder that is there already."""
    free = free_name(usual)
    return ["--out", free] if free != usual else []


def own_text(texts: Iterable[Any]) -> str | None:
    """One of the user's texts that fits into a command, or the beginning of one; None if there is none.

    A flag, the name of a file, and what a shell must escape are passed over where there are others.
    """
    tried = [" ".join(text.split()) for text, _ in zip(texts, range(TRIED_TEXTS), strict=False) if isinstance(text, str)]
    short = [_beginning(text) for text in tried]
    plain = [text for text in short if len(text.split()) > 1 and not text.startswith("-") and text.isprintable()]
    return next(chain((text for text in plain if not {*text} & {*"'\"\\`$!%"}), plain), None)


def _beginning(text: str) -> str:
    """Its first words."""
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT].rpartition(" ")[0]


def label_step(place: TaskPlace | None, task: Task, title: str) -> NextStep | None:
    """To label texts of a task that have no label yet; None if there are none, or no command reads them."""
    single = task.single_label and task.type == "classification" and isinstance(next(iter(task.train.texts), None), str)
    if place is None or not single or place.flags is None:
        return None
    if project := _project_of(Path(place.path)):
        return NextStep("label", title, command("label", "--out", project))
    pool = [] if place.is_manifest else [source.path for source in task.unlabelled]
    if not (pool or task.unlabelled_texts or task.unlabelled):
        return None
    words = ["label", *pool, "--task", place.path, *(() if place.is_manifest else place.flags), "--out", free_name("labels")]
    return NextStep("label", title, command(*words))


def _project_of(path: Path) -> Path | None:
    """The folder of the project that labels come from: of a task that it wrote, wherever that lies, or in that it lies."""
    folders = [*path.parents[:2]]
    manifest = path / "task.yaml" if path.is_dir() else path
    with suppress(OSError, UnicodeDecodeError), manifest.open(encoding="utf-8") as file:
        mark, _, named = file.readline(_LONGEST_PATH).rstrip("\n").partition(LABELLED_IN)
        if named and not mark:
            folders.insert(0, Path(os.path.normpath(manifest.parent / named)))
    return next((folder for folder in folders if (folder / PROJECT_FILE).is_file()), None)


def predict_step(model: str | Path, task: Task, place: TaskPlace | None) -> NextStep | None:
    """To try a model: on the file of texts without labels that was given, else on one of the labelled texts.

    A model that reads other columns of a table is tried on that table.
    """
    whole = bool((json_or_none(Path(model) / "bundle" / MANIFEST) or {}).get("beside"))
    files = [source.path for source in task.unlabelled if Path(source.path).is_file()]
    if not files and (task.unlabelled_texts or whole) and place and Path(place.path).is_file() and not place.is_manifest:
        files = [place.path]
    if files:
        return NextStep("try", "Your own file", command("predict", model, files[0], "--out", free_name("labelled.csv")))
    text = None if whole else own_text(task.train.texts)
    return NextStep("try", "One of your texts", command("predict", model, text)) if text else None


def steps_after(folder: Path | None, task: Task, place: TaskPlace | None, *first: NextStep | None) -> tuple[NextStep, ...]:
    """To try the model that a run saved in a folder, then ``first``, then to serve it and to save it; ``first`` alone without one.

    What labels texts or writes can be saved as one page, anything else for other programs.
    """
    if folder is None:
        return (*filter(None, first),)
    serve = NextStep("serve", "Use it in the browser", command("serve", folder))
    return (*filter(None, [predict_step(folder, task, place), *first, serve, _save_step(folder)]),)


def _save_step(folder: Path) -> NextStep:
    name = model_name(str(folder))
    if _fits_a_page(folder / "bundle"):
        return NextStep("save", "Save it as one file", command("export", folder, "--to", "page", *out_words(f"{name}.html")))
    words = ("export", folder, "--to", "onnx", "--out", free_name(f"{name}-onnx"))
    return NextStep("save", "Save it for other programs", command(*words))


def _fits_a_page(bundle: Path) -> bool:
    """True for a saved model that a page can hold, by its task and its tokenizers."""
    saved = json_or_none(bundle / MANIFEST) or {}
    if (saved.get("type") or saved.get("head", {}).get("kind")) in NO_PAGE:
        return False
    for file in bundle.rglob("tokenizer.json"):
        with file.open("rb") as opened:
            if NO_PAGE_TOKENIZER in opened.read(_TOKENIZER_STEPS):
                return False
    return True


def study_step(study: str, title: str, *words: str | Path) -> NextStep:
    """To look into a model with another study."""
    return NextStep("study", title, command("study", study, *words, *out_words(f"runs/{study}")))


def attention_step(model: str, texts: Iterable[Any]) -> NextStep | None:
    """To look at the attention of each head over one of some texts; None if none fits into a command."""
    text = own_text(texts)
    return study_step("attention", "What each head attends to", model, text) if text else None


def learning_step(task_type: str, manifest: str | Path) -> NextStep:
    """Learns from a manifest: ``fit`` from labels of single texts, else a race, on an encoder or a network of its own."""
    if task_type in ("classification", "multilabel"):
        return NextStep("fit", "Make the best model of your labels", command("fit", manifest))
    from warmstart.interop.encoders import ENCODERS, installed

    backbones = () if any(installed(encoder) and not encoder.slow for encoder in ENCODERS.values()) else ("--backbones", "pool")
    return NextStep(
        "race", "Compare ways to learn them", command("race", manifest, *backbones, "--budget", "30m", *out_words(RACE_FOLDER))
    )
