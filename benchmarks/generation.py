"""Generation beside transformers' ``generate`` at the same size, with one row and sixteen; time per token by context length."""

from __future__ import annotations

import itertools
import statistics
import time
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Step, ratio, show, table, time_in_turn
from benchmarks.speed_peers import transformers_gpt2
from benchmarks.training import SMALL, Size

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.generation.decoding import decode
from warmstart.generation.settings import GenerateConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.convert import from_tensors, read_settings
from warmstart.interop.families import FAMILIES
from warmstart.model.model import Model, fresh_head
from warmstart.seeding import rng

PROMPT, NEW = 32, 128


def model_of(size: Size, length: int) -> Model:
    """Our model, untrained: the text does not matter."""
    config = BackboneConfig(width=size.width, depth=size.depth, heads=size.heads, feedforward=size.inner, max_length=length)
    backbone = Backbone(config, size.vocab)
    return Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=True).eval()


def as_ours(theirs: Any) -> Model:
    """Our model with the weights of a GPT-2 of transformers."""
    family = FAMILIES["gpt2"]
    shape, rows = read_settings(family, theirs.config.to_dict()), theirs.config.vocab_size
    return from_tensors(family, shape, LMHeadConfig(), theirs.state_dict(), rows)[0]


def build(name: str, size: Size, rows: int) -> Step:
    """Greedy generation of ``NEW`` tokens for each of ``rows`` prompts; all have the same weights."""
    prompts = rng(0, "prompts").integers(5, size.vocab, (rows, PROMPT))
    theirs = transformers_gpt2(*size.shape).eval()
    if name.startswith("transformers"):
        ids = torch.from_numpy(prompts)
        rules = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
        return lambda: theirs.generate(ids, attention_mask=torch.ones_like(ids), **rules)[:, PROMPT:].tolist()
    ours, none = as_ours(theirs), torch.tensor([], dtype=torch.int64)
    settings = GenerateConfig(max_new_tokens=NEW, greedy=True, precision="bfloat16" if name.endswith("bfloat16") else "float32")
    return lambda: [list(one.ids) for one in decode(ours, prompts.tolist(), settings, banned=none, stop=set())]


def run(rounds: int = 5) -> str:
    """One row and sixteen, then the time per token by context length."""
    lines = []
    for rows in (1, 16):
        assert _generated("warmstart", rows) == _generated("transformers", rows), "both must generate the same tokens"
        names = ("warmstart", "warmstart, bfloat16", "transformers generate")
        exact, half, theirs = time_in_turn({name: partial(build, name, SMALL, rows) for name in names}, rounds, warm=1)
        cells = (str(exact), str(half), str(theirs), f"{ratio(theirs, exact):.2f}", f"{ratio(theirs, half):.2f}")
        lines.append((f"{rows} row{'s' if rows > 1 else ''}", *cells))
    header = (
        f"greedy, prompt of {PROMPT} tokens, {NEW} generated",
        "float32, s",
        "bfloat16, s",
        "transformers, s",
        "times ours",
        "times bfloat16",
    )
    return "\n\n".join([table(header, lines), by_context_length()])


def _generated(name: str, rows: int) -> object:
    torch.manual_seed(0)
    return build(name, SMALL, rows)()


def by_context_length(length: int = 1024) -> str:
    """Milliseconds per token, by the number of tokens before it."""
    model, marks = model_of(SMALL, length), list[float]()
    decode(
        model,
        [[5]],
        GenerateConfig(max_new_tokens=length - 2, greedy=True),
        banned=torch.tensor([0]),
        stop=set(),
        on_token=lambda *_: marks.append(time.perf_counter()),
    )
    gaps = [1000 * (after - before) for before, after in itertools.pairwise(marks)]
    places = (64, 128, 256, 512, 1000)
    cells = [f"{statistics.median(gaps[place - 32 : place]):.2f}" for place in places]
    return table(("context length", *(str(place) for place in places)), [("milliseconds per token", *cells)])


if __name__ == "__main__":
    show(run)
