"""Scoring minimal pairs of BLiMP: ours against loops over transformers' classes with the same weights and the same tokens.

The loops score one sentence at a time (a masked model: the copies of one sentence, each with a token hidden), or 32 rows as they
come, padded. All hold their pairs' scores against ours.
"""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.harness import Step, ratio, show, table, time_in_turn
from benchmarks.speed_peers import transformers_bert, transformers_gpt2
from benchmarks.training import SMALL
from torch import Tensor

from warmstart.heads.settings import LMHeadConfig
from warmstart.inspection.minimal_pairs import read_minimal_pairs
from warmstart.inspection.sentence_scores import score_sentences
from warmstart.interop.convert import from_tensors, read_settings
from warmstart.interop.families import FAMILIES
from warmstart.model.bundle import Bundle
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

DATA = Path(os.environ.get("WARMSTART_DATA", Path(__file__).parents[1] / ".." / "shared" / "data"))
EVERY = 6
"""of BLiMP's 67 paradigms, every sixth"""
PAIRS = {"gpt2": 20, "bert": 5}
"""of each paradigm"""
NAMES = ("warmstart", "transformers, one sentence at a time", "transformers, 32 rows at a time")
Row = tuple[int, list[int], list[int]]
"""whose, the tokens, and what is to be predicted at each place; -1: nothing"""


@cache
def tokenizer() -> Tokenizer:
    """Of WikiText-2's small parts."""
    texts = [gzip.decompress((DATA / "wikitext-2" / f"{part}.txt.gz").read_bytes()).decode() for part in ("valid", "test")]
    return train_tokenizer("\n".join(texts).split("\n"), TokenizerConfig(vocab_size=SMALL.vocab))


def sentences(family: str) -> list[str]:
    """Right and wrong in turn, as they stand in the files."""
    pairs = read_minimal_pairs(DATA / "blimp", PAIRS[family])
    chosen = list(dict.fromkeys(pair.group for pair in pairs))[::EVERY]
    return [one for pair in pairs if pair.group in chosen for one in (pair.good, pair.bad)]


def build(name: str, family: str) -> Step:
    """One way to score all sentences."""
    given = sentences(family)
    torch.manual_seed(0)
    theirs: Any = {"gpt2": transformers_gpt2, "bert": transformers_bert}[family](*SMALL.shape).eval()
    if name == "warmstart":
        ours = as_ours(theirs, family)
        return lambda: score_sentences(ours, given).log_probabilities
    rows = left_to_right if family == "gpt2" else hidden
    return lambda: _loop(theirs, rows(given), len(given), 32 if "32" in name else None)


def as_ours(theirs: Any, family: str) -> Bundle:
    """Our model with their weights."""
    known, shape = FAMILIES[family], read_settings(FAMILIES[family], theirs.config.to_dict())
    head = LMHeadConfig(norm_eps=shape.norm_eps, **{"bias": False, **known.transform})
    return Bundle(from_tensors(known, shape, head, theirs.state_dict(), theirs.config.vocab_size)[0], tokenizer())


def left_to_right(given: list[str]) -> list[Row]:
    """Each sentence once; every token predicts the next."""
    spelled = tokenizer().encode(given)
    return [(i, [tokenizer().specials.begin, *ids[:-1]], ids) for i, ids in enumerate(spelled)]


def hidden(given: list[str]) -> list[Row]:
    """A copy of the sentence for each token, with it and the rest of its word hidden."""
    specials, starts, rows = tokenizer().specials, tokenizer().vocabulary().word_starts, list[Row]()
    for i, ids in enumerate(tokenizer().encode(given)):
        for at, token in enumerate(ids):
            end = next((j for j in range(at + 1, len(ids)) if starts[ids[j]]), len(ids))
            copy = [specials.begin, *ids[:at], *[specials.mask] * (end - at), *ids[end:], specials.eos]
            rows.append((i, copy, [token if place == at + 1 else -1 for place in range(len(copy))]))
    return rows


def _batches(rows: list[Row], size: int | None) -> Iterator[list[Row]]:
    """So many rows as they come, or those of one sentence."""
    start = 0
    while start < len(rows):
        end = start + 1
        while end < len(rows) and (end - start < size if size else rows[end][0] == rows[start][0]):
            end += 1
        yield rows[start:end]
        start = end


@torch.no_grad()
def _loop(model: Any, rows: list[Row], count: int, size: int | None) -> np.ndarray:
    out = np.zeros(count)
    for batch in _batches(rows, size):
        ids, targets = (_filled([row[part] for row in batch], fill) for part, fill in ((1, 0), (2, -1)))
        real = _filled([[1] * len(row[1]) for row in batch], 0)
        scores = model(ids, attention_mask=real).logits.log_softmax(dim=-1)
        scores = scores.gather(-1, targets.clamp(min=0)[..., None])[..., 0] * (targets >= 0)
        np.add.at(out, [row[0] for row in batch], scores.sum(dim=1).numpy())
    return out


def _filled(rows: list[list[int]], fill: int) -> Tensor:
    wide = max(map(len, rows))
    return torch.tensor([[*row, *[fill] * (wide - len(row))] for row in rows])


def run(rounds: int = 3) -> str:
    """A causal model, and a masked one; nothing where there is no data."""
    for needed in ("blimp", "wikitext-2"):
        if not (DATA / needed).is_dir():
            print(f"scoring skipped: there is no {DATA / needed}; set WARMSTART_DATA to the folder of data sets", file=sys.stderr)
            return ""
    return "\n\n".join(_one(family, rounds) for family in ("gpt2", "bert"))


def _one(family: str, rounds: int) -> str:
    found = [build(name, family)() for name in NAMES]
    assert all(np.allclose(found[0], one, rtol=0, atol=1e-3) for one in found), "all must give the same scores"
    count = len(found[0])  # type: ignore[arg-type]
    timed = time_in_turn({name: partial(build, name, family) for name in NAMES}, rounds, warm=1)
    rows = [(t.name, str(t), f"{count / sorted(t.seconds)[len(t.seconds) // 2]:,.0f}", f"{ratio(t, timed[0]):.2f}") for t in timed]
    way = {"gpt2": "log-probability, GPT-2", "bert": "pseudo-log-likelihood, BERT"}[family]
    title = f"{way} of width {SMALL.width} and {SMALL.depth} layers: {count:,} sentences of BLiMP"
    return table((title, "seconds", "sentences/s", "times ours"), rows)


if __name__ == "__main__":
    show(run)
