"""Predictions of an exported stack or baseline, without warmstart: `export --to onnx` copies this file as ``predict.py``.

    python predict.py "a text" "another text"          one line of JSON for each
    from predict import probabilities                  (N, C), columns in the order of "labels" in config.json

Needs numpy and safetensors; for networks also onnxruntime and tokenizers. A text may be a pair: ``("one", "other")``.

Letters: N texts, D dimensions, C classes, V words.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
TOKEN = re.compile(r"(?u)\w+|[^\w\s]")
SHARED_LENGTHS = range(2, 6)
"""lengths of character n-grams"""
BATCH = 32
"""texts that a network reads at once"""


def probabilities(texts: Sequence[str | Sequence[str]], folder: Path = HERE) -> np.ndarray:
    """(N, C) the weighted mean of what the members predict, each with its temperature; then that of all. Numbers: (N, 1)."""
    config = settings_in(folder / "config.json")
    parts, several, places = [], config["type"] == "multilabel", {member["backbone"] for member in config["members"]} - {None}
    vectors = {number: run_network(folder / "backbones" / str(number), texts) for number in places}
    for number, member in enumerate(config["members"], 1):
        place, read = folder / "members" / str(number), vectors.get(member["backbone"])
        values = run_network(place, texts) if member["kind"] == "bundle" else run_baseline_files(place, texts, read)
        parts.append(with_temperature(values, member["temperature"], several))
    mean = np.average(parts, axis=0, weights=[member["weight"] for member in config["members"]])
    return with_temperature(mean, config["temperature"], several)


def settings_in(file: Path) -> Any:
    """The values of a JSON file."""
    return json.loads(file.read_text(encoding="utf-8"))


def with_temperature(values: np.ndarray, temperature: float, several: bool) -> np.ndarray:
    """(N, C) probabilities of which the logits are divided by a temperature; of several labels each by itself."""
    if temperature == 1:
        return values
    if several:
        with_it, without = (np.log(shares.clip(min=1e-30)) / temperature for shares in (values, 1 - values))
        return np.asarray(1 / (1 + np.exp(without - with_it)))
    return softmax_rows(np.log(values.clip(min=1e-30)) / temperature)


def softmax_rows(sums: np.ndarray) -> np.ndarray:
    """(N, C) -> (N, C), each row summing to 1."""
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def run_network(folder: Path, texts: Sequence[str | Sequence[str]]) -> np.ndarray:
    """(N, C) or (N, D): the last output of a graph, its predictions or vectors."""
    config, tokenizer, session = opened_network(folder)
    parts = []
    for start in range(0, len(texts), BATCH):
        rows = tokenizer.encode_batch([text if isinstance(text, str) else tuple(text) for text in texts[start : start + BATCH]])
        ids = {"input_ids": [row.ids for row in rows], "attention_mask": [row.attention_mask for row in rows]}
        ids["token_type_ids"] = [row.type_ids for row in rows]
        arrays = {name: np.array(ids[name], dtype=np.int64) for name in config["inputs"]}
        parts.append(session.run([config["outputs"][-1]], arrays)[0])
    return np.concatenate(parts).astype(np.float64)


@cache
def opened_network(folder: Path) -> tuple[Any, Any, Any]:
    """Settings, tokenizer and graph of a folder, read once."""
    import onnxruntime  # type: ignore[import-untyped]
    from tokenizers import Tokenizer

    config, tokenizer = settings_in(folder / "config.json"), Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True  # a text that spells [MASK] contains no mask token
    tokenizer.enable_truncation(config["max_length"])
    tokenizer.enable_padding(pad_id=config["pad_id"])
    return config, tokenizer, onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])


def run_baseline_files(folder: Path, texts: Sequence[str | Sequence[str]], vectors: np.ndarray | None) -> np.ndarray:
    """(N, C) what a baseline predicts from its settings and arrays, and the (N, D) vectors of its backbone if it reads them."""
    from safetensors.numpy import load_file

    settings, arrays = settings_in(folder / "baseline.json"), load_file(folder / "arrays.safetensors")
    if settings["rows"] == "vectors":
        rows: Any = (vectors - arrays["mean"]) / arrays["scale"]
    elif settings["rows"] == "words":
        rows = WordCounts(settings, arrays).rows(texts)
    else:
        rows = [(np.zeros(0, dtype=np.int64), np.zeros(0))] * len(texts)
    parts = [run_readout(readout, f"{number}.", arrays, rows) for number, readout in enumerate(settings["readouts"])]
    return np.stack([part[:, 1] for part in parts], axis=1) if settings["per_label"] else parts[0]


class WordCounts:
    """The words of texts, weighted."""

    def __init__(self, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        self.columns = {word: column for column, word in enumerate(settings["vocabulary"])}
        self.pairs, self.characters = settings["word_pairs"], settings["characters"]
        self.idf, self.directions = arrays.get("idf"), arrays.get("directions")

    def rows(self, texts: Sequence[str | Sequence[str]]) -> Any:
        """The columns of each text's words with their weights; or (N, D) along directions, each of length 1."""
        counts = [self._weights(text if isinstance(text, str) else " ".join(text)) for text in texts]
        if self.directions is None:
            return counts
        along = np.array([self.directions[:, columns] @ weights for columns, weights in counts])
        lengths = np.linalg.norm(along, axis=1, keepdims=True)
        return along / np.where(lengths > 0, lengths, 1)

    def _weights(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        words = TOKEN.findall(text.lower())
        terms = words + [f"{word} {following}" for word, following in pairwise(words)] * self.pairs
        if self.characters:
            terms = [term for word in text.lower().split() for term in character_ngrams(f" {word} ")]
        counts = Counter(self.columns[term] for term in terms if term in self.columns)
        columns, times = np.array([*counts], dtype=np.int64), np.array([*counts.values()], dtype=np.float64)
        if self.idf is None:
            return columns, np.ones(len(columns))
        weights = (1 + np.log(times)) * self.idf[columns]
        return columns, weights / (np.linalg.norm(weights) or 1)


def character_ngrams(word: str) -> list[str]:
    """The n-grams of a word with a space at either end. If it is no longer than some of them, it is one itself, once."""
    sizes = [size for size in SHARED_LENGTHS if size < len(word)]
    whole = [word] * (len(sizes) < len(SHARED_LENGTHS))
    return [word[start : start + size] for size in sizes for start in range(len(word) - size + 1)] + whole


def run_readout(settings: dict[str, Any], prefix: str, arrays: dict[str, np.ndarray], rows: Any) -> np.ndarray:
    """(N, C) from rows: dense ones, or columns with weights."""
    if settings["kind"] == "constant":
        return np.tile(arrays[f"{prefix}values"], (len(rows), 1))
    weights, bias = arrays[f"{prefix}weights"], arrays[f"{prefix}bias"]
    dense = isinstance(rows, np.ndarray)
    sums = rows @ weights if dense else np.array([values @ weights[columns] for columns, values in rows])
    if settings["unit_length"]:
        lengths = np.array([np.linalg.norm(row if dense else row[1]) for row in rows])[:, None]
        sums = sums / np.where(lengths > 0, lengths, 1)
    return softmax_rows(sums + bias) if settings["link"] == "softmax" else sums + bias


if __name__ == "__main__":
    settings = settings_in(HERE / "config.json")
    names, thresholds = settings["labels"], settings["thresholds"]
    for text, line in zip(sys.argv[1:], probabilities(sys.argv[1:]), strict=True):
        shown = dict(zip(names, line.tolist(), strict=True)) if names else {"number": float(line[0])}
        if thresholds:
            reached = [name for name, reaches in zip(names, line >= thresholds, strict=True) if reaches]
            shown = {"labels": reached if text.strip() else None, "probabilities": shown}
        print(json.dumps({"text": text, **shown}, ensure_ascii=False))  # noqa: T201
