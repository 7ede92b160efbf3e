"""Texts per second of each installed encoder on this machine: measured on request, and kept."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import torch

from warmstart.errors import StorageError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.encoders import ENCODERS, installed
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.model import swap_head
from warmstart.system.device import processor
from warmstart.system.storage import atomic_write, cache_folder, json_or_none

_TEXTS, _REPEATS = 32, 2
_WORDS = (
    "days of rain had left the river so high that nobody could cross it on foot, and the ferry lay on the other side "
    "without anyone to row it"
)
"""29 words, which make a text of 30 with a number before them"""


def encoder_speeds(*, measure: bool) -> dict[str, float]:
    """Texts per second by the name of the encoder, as measured before on this machine, or now."""
    folder = cache_folder()
    file = folder / "encoder_speeds.json" if folder else None
    known = (json_or_none(file) if file else None) or {}
    if not measure:
        speeds = known.get(_machine())
        return {name: float(n) for name, n in speeds.items() if isinstance(n, int | float)} if isinstance(speeds, dict) else {}
    speeds = {name: _texts_per_second(name) for name, encoder in ENCODERS.items() if installed(encoder)}
    with suppress(OSError, StorageError):
        if file:
            atomic_write(file, json.dumps(known | {_machine(): speeds}, indent=1).encode())
    return speeds


def speeds_sentence(speeds: dict[str, float]) -> str:
    """The speeds of encoders, as a sentence."""
    each = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
    return f"texts of 30 words in a second: {each} (the better of {_REPEATS} readings of {_TEXTS}; {_machine()})"


def _machine() -> str:
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _texts_per_second(name: str) -> float:
    bundle = load_model(name)
    reader = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="mean"), 0).eval(), bundle.tokenizer)
    texts, seconds = [f"{number} {_WORDS}" for number in range(_TEXTS)], list[float]()
    for _ in range(_REPEATS):
        started = time.perf_counter()
        embed(reader, texts)
        seconds.append(time.perf_counter() - started)
    return _TEXTS / min(seconds)
