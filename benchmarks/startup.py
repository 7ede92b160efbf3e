"""Start-up: the interpreter, torch's own import, ``--help``, and ``predict`` on one text, each in a fresh process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.harness import table

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.data.docstrings import read_docstrings
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.train import train_tokenizer


def seconds(words: list[str], rounds: int) -> tuple[float, float, float]:
    """Median, minimum and maximum of several fresh processes."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        found.append(time.perf_counter() - started)
    return statistics.median(found), min(found), max(found)


def run(rounds: int = 7) -> str:
    """All four."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        tokenizer = train_tokenizer([passage.text for passage in read_docstrings(None)][:5000], TokenizerConfig(vocab_size=8192))
        backbone = Backbone(BackboneConfig(), tokenizer.vocab_size)
        head = fresh_head(ClassificationHeadConfig(classes=2), backbone, 0)
        save(Bundle(Model(backbone, head, causal=False), tokenizer, ("a", "b")), place)
        jobs = {
            "the interpreter": ["-c", "pass"],
            "import torch": ["-c", "import torch"],
            "warmstart --help": ["-m", "warmstart", "--help"],
            "warmstart predict, one text, width 256": ["-m", "warmstart", "predict", str(place), "a text"],
        }
        rows = []
        for name, words in jobs.items():
            middle, least, most = seconds(words, rounds)
            rows.append((name, f"{middle:.2f} ({least:.2f} to {most:.2f})"))
    return table(("a fresh process", "seconds"), rows)


if __name__ == "__main__":
    print(run())
