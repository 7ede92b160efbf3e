"""Writing text: ours against transformers' generate at the same size, one row and sixteen; cost against length."""

from __future__ import annotations

import itertools
import statistics
import time

import torch
from benchmarks.pairs import Step, in_turn, ratio, table
from benchmarks.peers import transformers_gpt2
from benchmarks.training import SMALL, Size

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.generation import GenerateConfig, write
from warmstart.heads import LanguageHeadConfig
from warmstart.model import Model, fresh_head
from warmstart.seeding import rng

PROMPT, NEW = 32, 128


def model_of(size: Size, length: int) -> Model:
    """Ours, untrained; what it writes does not matter."""
    config = BackboneConfig(width=size.width, depth=size.depth, heads=size.heads, feedforward=size.inner, max_tokens=length)
    backbone = Backbone(config, size.vocab)
    return Model(backbone, fresh_head(LanguageHeadConfig(), backbone, 0), causal=True).eval()


def contenders(size: Size, rows: int) -> dict[str, Step]:
    """Greedy writing of ``NEW`` tokens after each of ``rows`` prompts."""
    prompts = rng(0, "prompts").integers(5, size.vocab, (rows, PROMPT))
    ours, settings = model_of(size, size.length), GenerateConfig(tokens=NEW, greedy=True)
    theirs = transformers_gpt2(*size.shape).eval()
    ids = torch.from_numpy(prompts)
    mask = torch.ones_like(ids)
    rules = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
    return {
        "warmstart": lambda: write(ours, prompts.tolist(), settings, banned=torch.tensor([0]), stop=set()),
        "transformers generate": lambda: theirs.generate(ids, **rules),
    }


def run(rounds: int = 5) -> str:
    """One row and sixteen, then the cost of a token by its place."""
    lines = []
    for rows in (1, 16):
        first, second = in_turn(contenders(SMALL, rows), rounds, warm=1)
        lines.append((f"{rows} row{'s' if rows > 1 else ''}", str(first), str(second), f"{ratio(second, first):.2f}"))
    header = (f"greedy, {PROMPT} tokens read, {NEW} written", "warmstart, seconds", "transformers, seconds", "times ours")
    return "\n\n".join([table(header, lines), by_place()])


def by_place(length: int = 1024) -> str:
    """Milliseconds a token, by how many tokens stand before it."""
    model, marks = model_of(SMALL, length), list[float]()
    write(
        model,
        [[5]],
        GenerateConfig(tokens=length - 2, greedy=True),
        banned=torch.tensor([0]),
        stop=set(),
        watch=lambda *_: marks.append(time.perf_counter()),
    )
    gaps = [1000 * (after - before) for before, after in itertools.pairwise(marks)]
    places = (64, 128, 256, 512, 1000)
    cells = [f"{statistics.median(gaps[place - 32 : place]):.2f}" for place in places]
    return table(("tokens before", *(str(place) for place in places)), [("milliseconds a token", *cells)])


if __name__ == "__main__":
    print(run())
