"""Tagging: one tag per word, predicted at the word's first token. Words that do not fit into a row count as wrong.

Letters: N texts, C tags, W words of a text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from warmstart.data.batches import bucketed_batches
from warmstart.data.encode import Encoded, collate, encode_pieces, padded
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.errors import DataError
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.stats.resampling import resample_indices
from warmstart.stats.scores import Scores
from warmstart.tasks.task_type import Batches, Examples, HeadSettings, TaskType, label_names, label_numbers, predictions_of
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import IGNORE, Batch

if TYPE_CHECKING:
    from warmstart.data.tables import TextTable


class TaggingTask(TaskType):
    """Each word gets one of C tags. Predictions: (N,) objects, each (W, C) probabilities of the words that fit."""

    name: ClassVar = "tagging"
    head_config: ClassVar = TaggingHeadConfig
    metrics: ClassVar = ("accuracy", "span_f1")
    pooled: ClassVar = False
    constant_rule: ClassVar = "always the most frequent tag"

    def examples(self, table: TextTable, source: Source) -> Examples:
        """Tuples of words and tuples of tags, from lists in two columns."""
        words, tags = self.inputs(table, source), [tuple(map(str, cell)) for cell in table.lists(source.label, "label")]
        for number, (sentence, own) in enumerate(zip(words, tags, strict=True), 1):
            if len(sentence) != len(own) or not sentence:
                raise DataError(
                    f"row {number} of {table.file} must have one tag per word, but has {len(sentence)} words and {len(own)} tags"
                )
        return words, tags

    def lines(self, source: Source) -> Examples | None:
        """Words and tags from CoNLL files."""
        from warmstart.data.conllu import is_conll, tagged_sentences
        from warmstart.data.read import source_files

        if not any(is_conll(file) for file in source_files(source)):
            return None
        pairs = [pair for file in source_files(source) for pair in tagged_sentences(source, file)]
        return [words for words, _ in pairs], [tags for _, tags in pairs]

    def inputs(self, table: TextTable, source: Source) -> list[Any]:
        """Tuples of words, from lists in a column."""
        return [tuple(map(str, cell)) for cell in table.lists(source.text, "text")]

    def parse(self, text: str) -> Any:
        """The words, cut at white space."""
        return tuple(text.split())

    def label_names(self, targets: Sequence[Any], wanted: tuple[str, ...] | None) -> tuple[str, ...]:
        """The tags that occur, or those in the manifest."""
        return label_names([tag for tags in targets for tag in tags], wanted)

    def encode_targets(self, split: str, targets: Sequence[Any], labels: tuple[str, ...]) -> np.ndarray:
        """(N,) objects, each (W,) numbers of the tags."""
        numbers = label_numbers(split, (tag for tags in targets for tag in tags), labels)
        encoded = np.empty(len(targets), dtype=object)
        encoded[:] = [np.array([numbers[tag] for tag in tags]) for tags in targets]
        return encoded

    def head(self, task: Task, settings: HeadSettings) -> TaggingHeadConfig:
        """One class per tag."""
        return TaggingHeadConfig(classes=len(task.labels), dropout=settings.dropout)

    def encode(self, model: Model, tokenizer: Tokenizer, inputs: Sequence[Any]) -> Encoded:
        """Words joined by spaces, as in running text; ``piece_starts`` are their first tokens."""
        pieces = [[word if index == 0 else f" {word}" for index, word in enumerate(words)] for words in inputs]
        return encode_pieces(tokenizer, pieces, model.backbone.config.max_length)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """Targets (B, T): the tag at the first token of each word, ``IGNORE`` elsewhere."""
        rows = []
        for ids, marks, tags in zip(encoded.rows, encoded.piece_starts, split.labels, strict=True):
            row = np.full(len(ids), IGNORE, dtype=np.int64)
            row[marks] = tags[: len(marks)]
            rows.append(row)

        def make(indices: np.ndarray) -> Batch:
            batch = collate([encoded.rows[i] for i in indices], None, pad_id, causal=causal)
            targets = torch.from_numpy(padded([rows[i] for i in indices], IGNORE))
            # without a mask the batch is cut at its last target, and rows have tokens behind their last tag
            full = torch.ones_like(batch.ids, dtype=torch.bool)
            mask = full if batch.attention_mask is None else batch.attention_mask
            return Batch(batch.ids, targets, mask, causal, int((targets != IGNORE).sum()))

        return bucketed_batches(encoded, make, size, seed)

    def predict(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> Any:
        """(N,) objects, each (W, C) probabilities of the words that fit."""
        predictions = np.empty(len(encoded), dtype=object)
        for indices, logits in run_in_batches(model, encoded, pad_id, precision):
            for index, row in zip(indices, predictions_of(model, logits).numpy(), strict=True):
                predictions[index] = row[encoded.piece_starts[index]]  # a word has the tag of its first piece
        return predictions

    def scores(self, split: Split, predictions: Any, task: Task) -> Scores:
        """Accuracy over words, and F1 of whole spans if the tags are BIO tags."""
        counts = _counts(split, predictions, task)
        *_, total, cut = counts.sum(axis=0)
        return Scores(_metrics(counts), f"{cut} of {total} words did not fit" if cut else "")

    def constant(self, fitted: Split, inputs: Sequence[Any], task: Task) -> Any:
        """The most frequent tag."""
        (tag, _), *_ = Counter(int(tag) for tags in fitted.labels for tag in tags).most_common(1)
        return certain_tags([[tag] * len(words) for words in inputs], len(task.labels))

    def describe(self, predictions: Any, inputs: Sequence[Any], labels: tuple[str, ...], top: int) -> list[dict[str, Any]]:
        """``words`` and ``tags``; a word that did not fit has no tag."""
        rows = []
        for words, probabilities in zip(inputs, predictions, strict=True):
            tags = [labels[int(row.argmax())] for row in probabilities]
            rows.append({"words": list(words), "tags": [*tags, *[None] * (len(words) - len(tags))]})
        return rows

    def resampled_scores(self, split: Split, predictions: Any, task: Task) -> np.ndarray:
        """Scores of resamples from the counts of each text, which is fast."""
        counts = _counts(split, predictions, task)
        return np.array([_metrics(counts[drawn])[task.metric] for drawn in resample_indices(len(split), groups=split.units)])


def certain_tags(tags: Sequence[Sequence[int]], classes: int) -> Any:
    """(N,) objects, each (W, C): predictions that give probability 1 to these tags."""
    predictions = np.empty(len(tags), dtype=object)
    predictions[:] = [np.eye(classes)[row] for row in tags]
    return predictions


def _counts(split: Split, predictions: Any, task: Task) -> np.ndarray:
    """(N, 5) counts per text: spans found, true plus predicted spans, words right, words, words that did not fit."""
    rows = []
    for truth, probabilities in zip(split.labels, predictions, strict=True):
        predicted = probabilities.argmax(axis=1) if len(probabilities) else np.empty(0, dtype=np.int64)
        true, marked = (set(spans_of([task.labels[tag] for tag in tags])) for tags in (truth, predicted))
        right = int((predicted == truth[: len(predicted)]).sum())
        rows.append((len(true & marked), len(true) + len(marked), right, len(truth), len(truth) - len(predicted)))
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def _metrics(counts: np.ndarray) -> dict[str, float]:
    both, spans, right, total, _ = (int(count) for count in counts.sum(axis=0))
    return {"accuracy": right / max(1, total), "span_f1": 2 * both / max(1, spans)}


def spans_of(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """The spans that BIO tags name, as (first word, word after the last, type); ``I-`` of another type begins a span.

    ``["B-PER", "I-PER", "O", "B-LOC"]`` -> ``[(0, 2, "PER"), (3, 4, "LOC")]``; tags of another form name none.
    """
    spans, start, open_type = list[tuple[int, int, str]](), 0, ""
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, span_type = tag.partition("-")
        inside = prefix in ("B", "I") and bool(span_type)
        if open_type and (not inside or prefix == "B" or span_type != open_type):
            spans.append((start, index, open_type))
            open_type = ""
        if inside and not open_type:
            start, open_type = index, span_type
    return spans
