"""Word perplexity of a causal model as papers measure it: ``python -m benchmarks.word_perplexity MODEL TEXT ...``.

``warmstart evaluate`` reads rows that do not overlap, so that the first words of each row are predicted from almost nothing.
Here each token is also predicted from at least half a row, by a window that moves on by half of its length (Baevski and Auli 2019),
and by a model that goes on learning: after each half window it takes one step on what it has just predicted (Krause et al. 2018).
No token is predicted by weights that have seen it. The first text chooses the learning rate.
"""

from __future__ import annotations

import argparse
import copy
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from benchmarks.harness import table
from torch import Tensor

from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.heads.language_modeling import LMHead
from warmstart.interop.load import load_model
from warmstart.model.inference import inference_weights
from warmstart.model.model import Model
from warmstart.objectives.loss import language_loss
from warmstart.system.device import autocast
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import IGNORE

RATES = (1e-4, 3e-4)
"""learning rates of the model that goes on learning, of which the first text chooses one"""
READ = 16
"""windows that are read together, if nothing is learned between them"""


def tokens_and_words(path: Path, tokenizer: Tokenizer) -> tuple[Tensor, int]:
    """The tokens (N,) of a text, and its number of words, line ends included."""
    with TemporaryDirectory() as folder:
        text = tokenized_text([Source(path=str(path))], tokenizer, Path(folder))
        shards = [torch.from_numpy(text.tokens(shard).astype("int64")) for shard in range(len(text.shards))]
    return torch.cat(shards), text.counts.words


def windows(tokens: Tensor, length: int, stride: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs (T,) and targets (T,) of each window of the ``tokens`` (N,); the last ``stride`` targets count, in the first all."""
    for start in range(0, max(1, len(tokens) - 1 - length + stride), stride):
        row = tokens[start : start + length + 1]
        targets = row[1:].clone()
        targets[: length - stride if start else 0] = IGNORE
        yield row[:-1], targets


def nats(model: Model, ids: Tensor, targets: Tensor) -> Tensor:
    """The summed loss of the targets (B, T)."""
    head = model.head
    assert isinstance(head, LMHead)
    states = model.backbone(ids, causal=True).last_hidden_state
    return language_loss(states, head.weight, head.bias, targets, head.transform)


@torch.inference_mode()
def read(model: Model, tokens: Tensor, stride: int) -> float:
    """Nats of the whole text."""
    found, total = [*windows(tokens, model.backbone.config.max_length, stride)], 0.0
    whole = [pair for pair in found if len(pair[0]) == len(found[0][0])]
    with inference_weights(model):
        for start in range(0, len(whole), READ):
            ids, targets = (torch.stack(part) for part in zip(*whole[start : start + READ], strict=True))
            total += float(nats(model, ids, targets))
        return total + sum(float(nats(model, *(part[None] for part in pair))) for pair in found[len(whole) :])


def read_and_learn(model: Model, tokens: Tensor, stride: int, rate: float) -> float:
    """Nats of the whole text for a copy of the model that learns from each window behind it."""
    model, total = copy.deepcopy(model), 0.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0)
    for ids, targets in windows(tokens, model.backbone.config.max_length, stride):
        with autocast("auto", ids.device):
            loss = nats(model, ids[None], targets[None])
        total += float(loss.detach())
        (loss / max(1, int((targets != IGNORE).sum()))).backward()
        optimizer.step()
        optimizer.zero_grad()
    return total


def main() -> None:
    """Print a row for each way of reading."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.word_perplexity", description=__doc__)
    parser.add_argument("model", help="saved causal language model")
    parser.add_argument("text", nargs="+", type=Path, help="held-out text; the first chooses the learning rate")
    given = parser.parse_args()
    bundle = load_model(given.model)
    model, rows = bundle.model.eval(), list[tuple[str, ...]]()
    length = model.backbone.config.max_length
    texts = [tokens_and_words(path, bundle.tokenizer) for path in given.text]

    def add_row(name: str, found: Sequence[float]) -> None:
        shown = [f"{math.exp(one / words):.1f}" for one, (_, words) in zip(found, texts, strict=False)]
        rows.append((name, *shown, *[""] * (len(texts) - len(shown))))
        print(*rows[-1], sep="  ", flush=True)

    for name, stride in (("rows that do not overlap", length), ("at least half a row before each word", length // 2)):
        add_row(name, [read(model, tokens, stride) for tokens, _ in texts])
    chosen = {rate: read_and_learn(model, texts[0][0], length // 2, rate) for rate in RATES}
    best = min(chosen, key=chosen.__getitem__)
    others = [read_and_learn(model, tokens, length // 2, best) for tokens, _ in texts[1:]]
    for rate, first in chosen.items():
        add_row(f"the model goes on learning, at a rate of {rate:g}", [first, *(others if rate == best else [])])
    print(table(("word perplexity", *(path.name for path in given.text)), rows))


if __name__ == "__main__":
    main()
