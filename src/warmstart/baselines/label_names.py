"""A classifier from the names of labels alone: each text gets the label whose name is most like it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from warmstart.baselines.vectors import zero_shot
from warmstart.data.task import words_of_name
from warmstart.errors import ConfigError
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.history import Provenance, ZeroShotRecord
from warmstart.model.model import swap_head
from warmstart.stack.rows import BackboneVectors
from warmstart.stack.stack import Member, Stack
from warmstart.tasks.load import load_task

NAME = "label names"
"""the method, as a race calls it"""


def zero_shot_classifier(bundle: Bundle, meanings: Mapping[str, str], provenance: Provenance) -> Stack:
    """The vectors of a backbone, compared with those of what labels mean: label -> words."""
    reader = bundle
    if not isinstance(bundle.model.head, EmbeddingHead):
        reader = replace(bundle, model=swap_head(bundle.model, EmbeddingHeadConfig(normalize=False), 0), labels=())
    member = Member(NAME, zero_shot(BackboneVectors(reader), [*meanings.values()]))
    record = ZeroShotRecord(meanings=dict(meanings), provenance=provenance)
    return Stack((member,), "classification", tuple(meanings), (*bundle.history, record))


def label_meanings(names: Sequence[str], manifest: str | None = None) -> dict[str, str]:
    """Label -> its meaning in words, from ``name`` or ``name: meaning`` each, or from a manifest.

    Raises ``ConfigError`` for fewer than two labels, or for one that means nothing in words.
    """
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
