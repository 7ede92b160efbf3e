"""Preparing a corpus: our token store against the tokenizers library's own batch speed on the same text; and its memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.pairs import in_turn, ratio, table

from warmstart.data import Source, documents_of, prepare
from warmstart.data.builtin import passages
from warmstart.engine.highwater import high_water, lower
from warmstart.tokenizer import TokenizerConfig, train_tokenizer

REPEATS = 1


def run(rounds: int = 5) -> str:
    """Documentation strings of the installed libraries, several times over."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        texts = [passage.text for passage in passages(None)]
        tokenizer = train_tokenizer(texts[:20_000], TokenizerConfig(vocab_size=8192))
        file = place / "text.txt"
        file.write_text("\n\n".join(" ".join(text.split()) for _ in range(REPEATS) for text in texts), encoding="utf-8")
        source, number = Source(path=str(file)), iter(range(1000))
        documents = list(documents_of([source]))
        size = file.stat().st_size / 1e6
        contenders = {
            "warmstart: read, encode, store": lambda: prepare([source], tokenizer, place / f"store {next(number)}"),
            "tokenizers, encode_batch_fast of all texts in memory": lambda: tokenizer._backend.encode_batch_fast(documents),
        }
        first, second = in_turn(contenders, rounds, warm=1)
        lower()
        before = high_water()
        prepare([source], tokenizer, place / "last")
        taken = (high_water() - before) / 1e6
    rows = [(t.name, str(t), f"{size / sorted(t.seconds)[len(t.seconds) // 2]:.1f}") for t in (first, second)]
    said = f"Ours runs at {100 * ratio(second, first):.0f} % of the library's speed; memory of ours: {taken:.0f} MB on top."
    return "\n\n".join([table((f"{size:.0f} MB of text", "seconds", "MB/s"), rows), said])


if __name__ == "__main__":
    print(run())
