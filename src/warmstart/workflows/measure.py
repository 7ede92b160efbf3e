"""Memory and speed of a real step, measured in a process of its own: the high-water mark of a process never falls again."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from warmstart.backbone import Backbone, BackboneConfig, Cache
from warmstart.engine import Group, TrainConfig, pick_device
from warmstart.engine.device import arithmetic
from warmstart.engine.optim import Optimizer
from warmstart.errors import ModelError
from warmstart.heads import LanguageHead, head_config
from warmstart.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.schemes import apply_scheme, make_scheme
from warmstart.seeding import rng
from warmstart.types import Batch, Specials, Vocabulary

STEPS = 3
"""training steps that are timed, after one that warms up"""


def measure(work: dict[str, Any], kind: str) -> dict[str, float]:
    """Bytes above what the empty process took, and seconds a step, of ``kind`` training or inference."""
    code = "import json, sys; from warmstart.workflows.measure import run; print(json.dumps(run(*map(json.loads, sys.argv[1:]))))"
    words = [sys.executable, "-c", code, json.dumps(work), json.dumps(kind)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ModelError(f"the {kind} step could not be measured: {done.stderr.strip().splitlines()[-1]}; ask for a smaller batch")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run(work: dict[str, Any], kind: str) -> dict[str, float]:
    """What ``measure`` runs in its own process."""
    tokens = work["tokens"]
    small = work | {"vocab_size": 64}
    if kind == "inference":
        _write(_model(small), 1, 2)  # the libraries' own memory is none of the model's
        before = _fresh_peak()
        return {"bytes": _write(_model(work), 1, tokens) - before, "seconds": 0.0}
    _step(_model(small), small, 8)
    before = _fresh_peak()
    model = _model(work)
    step = _step(model, work, tokens)
    step()
    started = time.perf_counter()
    for _ in range(STEPS):
        step()
    return {"bytes": _peak() - before, "seconds": (time.perf_counter() - started) / STEPS}


def _model(work: dict[str, Any]) -> Model:
    backbone = Backbone(BackboneConfig.build(work["backbone"]), work["vocab_size"])
    return Model(backbone, fresh_head(head_config(work["head"]), backbone, 0), causal=work["objective"] == "causal").to(
        pick_device()
    )


def _step(model: Model, work: dict[str, Any], tokens: int) -> Any:
    """One training step of the model on random tokens, as a function without arguments."""
    config = TrainConfig.build(work["train"])
    groups = apply_scheme(model, make_scheme(work["scheme"])) if work["scheme"] else [Group(dict(model.named_parameters()))]
    optimizer = Optimizer(groups, config)
    ids = rng(0, "measure").integers(5, work["vocab_size"], (work["rows"], tokens + 1))
    if isinstance(model.head, LanguageHead):
        objective = ObjectiveConfig(name=work["objective"])
        vocabulary = Vocabulary(
            work["vocab_size"], Specials(pad=0, unk=1, eos=2, mask=3, cls=4), np.ones(work["vocab_size"], dtype=bool)
        )
        lengths = np.full(work["rows"], tokens + 1)
        batch = OBJECTIVES[objective.name].make(ids, lengths, rng(0, "hide"), vocabulary, objective)
    else:
        batch = Batch(torch.from_numpy(ids[:, :-1].copy()), torch.zeros(work["rows"], dtype=torch.int64), count=work["rows"])
    device = next(model.parameters()).device
    model.train()

    def step() -> None:
        with arithmetic(config.precision, device):
            loss = model.loss(batch.to(device))
        (loss / batch.count).backward()
        optimizer.step(1.0)

    step()
    return step


@torch.inference_mode()
def _write(model: Model, rows: int, tokens: int) -> int:
    """Read and write until the cache is full."""
    model.eval()
    device = next(model.parameters()).device
    cache = Cache.empty(model.backbone.config.depth, tokens)
    unread = torch.zeros(rows, 1, dtype=torch.int64, device=device)
    for _ in range(tokens):
        model.head(model.backbone(unread, causal=True, cache=cache).last)
    return _peak()


def _fresh_peak() -> int:
    """What this process holds now, with its high-water mark forgotten where the system can (Linux): importing took more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak()


def _peak() -> int:
    """The most memory this process has held, in bytes. Linux's ``getrusage`` counts in the process that started this one."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
