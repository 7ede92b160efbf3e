"""``zero-shot``: a classifier from the names of labels alone, before a single text is labelled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tyro.conf import Positional

from warmstart.baselines.vectors import zero_shot
from warmstart.config import Config, Effectless, FileInput, TaskInput
from warmstart.data.task import words_of_name
from warmstart.errors import ConfigError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.interop.folder import free_place
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.history import ZeroShotRecord
from warmstart.model.model import swap_head
from warmstart.runs.run import provenance
from warmstart.stack.files import save_stack
from warmstart.stack.rows import BackboneVectors
from warmstart.stack.stack import Member, Stack
from warmstart.system.console import console, print_table
from warmstart.tasks.load import load_task

NAME = "label names"
"""the method, as a race calls it"""


class ZeroShotConfig(Config):
    """Make a classifier from the names of labels alone: each text gets the label whose name is most like it."""

    model: Positional[FileInput[str]]
    """a backbone that compares texts, such as an imported sentence encoder (a bundle)"""
    label_names: tuple[str, ...] = ()
    """the labels; the words after a colon say what one means: "Sci/Tech: science and technology" """
    task: TaskInput[str | None] = None
    """in place of these: the manifest of a task, of which only the labels and their descriptions are read"""
    out: Effectless[str]
    """folder of the classifier"""


def zero_shot_classifier(config: ZeroShotConfig) -> Stack:
    """The ``zero-shot`` command."""
    target, meanings = free_place(config.out), label_meanings(config.label_names, config.task)
    bundle = load_model(config.model)
    baseline = zero_shot(BackboneVectors(_embedding(bundle)), [*meanings.values()])
    record = ZeroShotRecord(meanings=meanings, provenance=provenance())
    labels, history = tuple(meanings), (*bundle.history, record)
    stack = Stack((Member(NAME, baseline),), "classification", labels, history)
    save_stack(stack, target)
    print_table("what texts are compared with", [*meanings.items()], ("label", "meaning"))
    if not isinstance(bundle.model.head, EmbeddingHead):
        console.print(
            "note: this backbone was not trained to compare texts, so expect little; an imported sentence encoder is made for it",
        )
    console.print(
        "No label was read, so nothing says yet how good it is: label some texts, and `warmstart evaluate` scores it on them.\n"
        f"classifier: {target}",
    )
    return stack


def label_meanings(names: Sequence[str], manifest: str | None = None) -> dict[str, str]:
    """Label -> its meaning in words, from ``name`` or ``name: meaning`` each, or from a manifest.

    Raises ``ConfigError`` for both or neither, for fewer than two labels, or for one that means nothing in words.
    """
    if bool(names) == bool(manifest):
        raise ConfigError('give either --task or --label-names, such as `--label-names sport "politics: government and elections"`')
    if manifest:
        task = load_task(manifest)
        if not task.single_label:
            raise ConfigError(f"zero-shot needs a task with one label per text, but '{task.name}' is another ({task.type})")
        pairs = [*zip(task.labels, task.label_meanings, strict=True)]
    else:
        split = [(name.strip(), meaning.strip()) for name, _, meaning in (one.partition(": ") for one in names)]
        pairs = [(name, meaning or words_of_name(name)) for name, meaning in split]
    meanings = dict(pairs)
    if len(meanings) < max(2, len(pairs)):
        raise ConfigError(f"there must be at least two labels, each once, but there are {', '.join(name for name, _ in pairs)}")
    if empty := [name for name, meaning in pairs if not meaning]:
        where = "its entry of 'label_descriptions'" if manifest else f'--label-names "{empty[0]}: ..."'
        raise ConfigError(f"the name of each label must have words, but '{empty[0]}' has none; say what it means in {where}")
    return meanings


def _embedding(bundle: Bundle) -> Bundle:
    """The same backbone with an embedding head."""
    if isinstance(bundle.model.head, EmbeddingHead):
        return bundle
    return replace(bundle, model=swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), labels=())
