"""A tag for each word, read at its first token. Words that did not fit count as wrong.

Letters: N texts, C tags, W words of a text.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from warmstart.data import Split, Task
from warmstart.data.batch import Encoded, chosen_batches, collate, encode_pieces, padded
from warmstart.engine import read
from warmstart.evaluate.resample import draw
from warmstart.heads import TagHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.kinds.kind import Baseline, Batches, Kind, Reading, said_by
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch


class Tags(Kind):
    """A name for each word."""

    name: ClassVar = "tags"
    head_kind: ClassVar = "tag"
    pooled: ClassVar = False

    def head(self, task: Task, reading: Reading) -> TagHeadConfig:
        """A class a tag."""
        return TagHeadConfig(classes=len(task.labels), dropout=reading.dropout)

    def encode(self, model: Model, tokenizer: Tokenizer, texts: Sequence[Any]) -> Encoded:
        """Words stand apart by spaces, as in running text; ``marks`` are their first tokens."""
        pieces = [[word if place == 0 else f" {word}" for place, word in enumerate(words)] for words in texts]
        return encode_pieces(tokenizer, pieces, model.backbone.config.max_tokens)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """Targets (B, T): the tag at each word's first token."""
        rows = []
        for ids, marks, tags in zip(encoded.rows, encoded.marks, split.labels, strict=True):
            row = np.full(len(ids), IGNORE, dtype=np.int64)
            row[marks] = tags[: len(marks)]
            rows.append(row)

        def made(places: np.ndarray) -> Batch:
            batch = collate([encoded.rows[i] for i in places], None, pad_id, causal=causal)
            targets = torch.from_numpy(padded([rows[i] for i in places], IGNORE))
            mask = torch.ones_like(batch.ids, dtype=torch.bool) if batch.mask is None else batch.mask  # targets end before rows do
            return Batch(batch.ids, targets, mask, causal, int((targets != IGNORE).sum()))

        return chosen_batches(encoded, made, size, seed)

    def said(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> Any:
        """(N,) objects: for each text (W, C) probabilities, of the words that fit."""
        out = np.empty(len(encoded), dtype=object)
        for places, scores in read(model, encoded, pad_id, precision):
            for place, row in zip(places, said_by(model, scores).numpy(), strict=True):
                out[place] = row[encoded.marks[place]]
        return out

    def scores(self, split: Split, said: Any, task: Task) -> Figures:
        """Accuracy over words; and, where tags are BIO, F1 of whole spans."""
        counts = _counts(split, said, task)
        *_, total, lost = counts.sum(axis=0)
        return Figures(_figures(counts), f"{lost} of {total} words did not fit" if lost else "")

    def resampled(self, split: Split, said: Any, task: Task) -> np.ndarray:
        """By the counts of each text, which is quick."""
        counts = _counts(split, said, task)
        return np.array([_figures(counts[places])[task.metric] for places in draw(len(split))])

    def baselines(self) -> dict[str, Baseline]:
        """The commonest tag of all, and the commonest of each word."""
        return {"majority": _commonest, "commonest tag of each word": _by_word}

    def answers(self, bundle: Bundle, texts: Sequence[Any], said: Any, top: int) -> list[dict[str, Any]]:
        """Words with their tags; a word that did not fit has none."""
        rows = []
        for words, shares in zip(texts, said, strict=True):
            tags = [bundle.labels[int(row.argmax())] for row in shares]
            rows.append({"words": list(words), "tags": [*tags, *[None] * (len(words) - len(tags))]})
        return rows


def _counts(split: Split, said: Any, task: Task) -> np.ndarray:
    """(N, 5) of each text: spans found rightly, spans true and given together, words right, words, words that did not fit."""
    rows = []
    for truth, shares in zip(split.labels, said, strict=True):
        given = shares.argmax(axis=1) if len(shares) else np.empty(0, dtype=np.int64)
        one, other = (set(spans_of([task.labels[tag] for tag in tags])) for tags in (truth, given))
        right = int((given == truth[: len(given)]).sum())
        rows.append((len(one & other), len(one) + len(other), right, len(truth), len(truth) - len(given)))
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def _figures(counts: np.ndarray) -> dict[str, float]:
    both, spans, right, total, _ = (int(count) for count in counts.sum(axis=0))
    return {"accuracy": right / max(1, total), "span_f1": 2 * both / max(1, spans)}


def spans_of(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """The spans that BIO tags name, as (first word, word after the last, type); ``I-`` after another type begins a span.

    ``["B-PER", "I-PER", "O", "B-LOC"]`` -> ``[(0, 2, "PER"), (3, 4, "LOC")]``; tags of another form name none.
    """
    spans, start, kind = list[tuple[int, int, str]](), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        head, _, name = tag.partition("-")
        inside = head in ("B", "I") and bool(name)
        if kind and (not inside or head == "B" or name != kind):
            spans.append((start, place, kind))
            kind = ""
        if inside and not kind:
            start, kind = place, name
    return spans


def _said(task: Task, tag: Any) -> Any:
    out = np.empty(len(task.test), dtype=object)
    out[:] = [np.eye(len(task.labels))[[tag(word) for word in words]] for words in task.test.texts]
    return out


def _commonest(task: Task) -> tuple[Any, str]:
    (tag, _), *_ = Counter(int(tag) for tags in task.train.labels for tag in tags).most_common(1)
    return _said(task, lambda _: tag), "always the commonest tag"


def _by_word(task: Task) -> tuple[Any, str]:
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for words, tags in zip(task.train.texts, task.train.labels, strict=True):
        for word, tag in zip(words, tags, strict=True):
            counts[word][int(tag)] += 1
    (other, _), *_ = sum(counts.values(), Counter()).most_common(1)
    known = {word: found.most_common(1)[0][0] for word, found in counts.items()}
    said = _said(task, lambda word: known.get(word, other))
    return said, "unknown words get the commonest tag of all"
