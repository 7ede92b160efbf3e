"""``encoders``: which pretrained models a name brings without a download, and what they have read."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import torch

from warmstart.config import Config
from warmstart.errors import StorageError
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.interop.encoders import ENCODERS, how_to_install, installed
from warmstart.interop.load import load_model
from warmstart.model.already_read import read_by
from warmstart.model.bundle import Bundle
from warmstart.model.embed import embed
from warmstart.model.model import swap_head
from warmstart.notebook import Shown
from warmstart.report.headline import headline
from warmstart.report.page import Report, Section, Table
from warmstart.system.console import console, print_table
from warmstart.system.device import processor
from warmstart.system.storage import atomic_write, cache_folder, json_or_none

_HEADER = ("name", "model", "parameters", "languages", "licence", "installed")
_TEXTS, _REPEATS = 32, 2
_WORDS = (
    "days of rain had left the river so high that nobody could cross it on foot, and the ferry lay on the other side "
    "without anyone to row it"
)
"""with a number before them, a text of 30 words"""


class EncodersConfig(Config):
    """List the pretrained models that can be named wherever a model is, once their package is installed."""

    speed: bool = False
    """measure how many texts of 30 words each installed one reads in a second on this machine; the figures are kept"""


class EncodersResult(dict[str, dict[str, Any]], Shown, view="commands.encoders:encoders_view"):
    """What is known of each encoder, by name."""


def encoders_view(encoders: EncodersResult) -> Report:
    """One row for each."""
    table = Table(_HEADER, [_row(name, one) for name, one in encoders.items()])
    here = [name for name, one in encoders.items() if one["installed"]]
    sentence = f"Installed: {', '.join(here)}." if here else "No encoder is installed."
    return Report("Encoders", headline(sentence), (), (Section("Encoders by name", (), (table,)),))


def list_encoders(config: EncodersConfig) -> EncodersResult:
    """The ``encoders`` command; returns the settings of each by name."""
    found, speeds = EncodersResult(), _speeds(measure=config.speed)
    for name, encoder in ENCODERS.items():
        package, read = installed(encoder), read_by(encoder.model)
        found[name] = {
            "model": encoder.model,
            "parameters": encoder.parameters,
            "languages": encoder.languages,
            "licence": encoder.licence,
            "package": encoder.package,
            "installed": package.version if package else None,
            "install": how_to_install(name),
            "read": read.to_dict() if read else None,
            "texts_per_second": speeds.get(name),
        }
    print_table("encoders", [_row(name, one) for name, one in found.items()], _HEADER)
    if speeds:
        each = ", ".join(f"{name} {speed:,.0f}" for name, speed in speeds.items())
        console.print(f"texts of 30 words in a second: {each} (the better of {_REPEATS} readings of {_TEXTS}; {_machine()})")
    else:
        console.print("--speed measures how many texts each reads in a second on this machine")
    for name, one in found.items():
        if one["installed"] != ENCODERS[name].version:
            console.print(f"{name}: {one['install']}")
        read = read_by(one["model"])
        console.print(f"{name} has read {', '.join(read.names)} ({read.source})" if read else f"{name} has read: unknown")
    return found


def _row(name: str, one: dict[str, Any]) -> tuple[str, ...]:
    size, model = f"{one['parameters'] / 1e6:.0f} M", one["model"].partition("/")[2]
    return name, model, size, one["languages"], one["licence"], one["installed"] or "no"


def _machine() -> str:
    return f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"


def _speeds(*, measure: bool) -> dict[str, float]:
    """Texts per second by the name of the encoder, as measured before on this machine, or now."""
    folder = cache_folder()
    file = folder / "encoder_speeds.json" if folder else None
    known = (json_or_none(file) if file else None) or {}
    if not measure:
        found = known.get(_machine())
        return {name: float(one) for name, one in found.items() if isinstance(one, int | float)} if isinstance(found, dict) else {}
    speeds = {name: _texts_per_second(name) for name, one in ENCODERS.items() if installed(one)}
    with suppress(OSError, StorageError):
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, json.dumps(known | {_machine(): speeds}, indent=1).encode())
    return speeds


def _texts_per_second(name: str) -> float:
    bundle = load_model(name)
    reader = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="mean"), 0).eval(), bundle.tokenizer)
    texts, seconds = [f"{number} {_WORDS}" for number in range(_TEXTS)], list[float]()
    for _ in range(_REPEATS):
        started = time.perf_counter()
        embed(reader, texts)
        seconds.append(time.perf_counter() - started)
    return _TEXTS / min(seconds)
