"""Start-up: the interpreter, torch's own import, ``--help``, and ``predict`` on one text, each in a fresh process."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pairs import table

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.data.builtin import passages
from warmstart.heads import ClassifyHeadConfig
from warmstart.model import Bundle, Model, fresh_head, save
from warmstart.tokenizer import TokenizerConfig, train_tokenizer


def seconds(words: list[str], rounds: int) -> tuple[float, float, float]:
    """Median, least and most of so many fresh processes."""
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
        tokenizer = train_tokenizer([passage.text for passage in passages(None)][:5000], TokenizerConfig(vocab_size=8192))
        backbone = Backbone(BackboneConfig(), tokenizer.vocab_size)
        head = fresh_head(ClassifyHeadConfig(classes=2), backbone, 0)
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
