"""Preparing a corpus, on one core and on all: our writing against the tokenizers library's own batch speed on the same text."""

from __future__ import annotations

import atexit
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path

import psutil
from benchmarks.harness import Step, ratio, show, table, time_in_turn

from warmstart.corpora.write import tokenized_text
from warmstart.data.docstrings import read_docstrings
from warmstart.data.read import documents_of
from warmstart.data.source import Source
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer


def build(name: str, cores: int | None) -> Step:
    """Documentation strings of the installed libraries, as one file; ``cores``: how many the process may use, None: all."""
    process = psutil.Process()
    process.cpu_affinity(process.cpu_affinity()[:cores])
    place = Path(tempfile.mkdtemp(prefix="benchmark"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    file, tokenizer = text_of(place)
    source, number = Source(path=str(file)), iter(range(1000))
    if name == "warmstart":
        return lambda: tokenized_text([source], tokenizer, place / f"store {next(number)}")
    documents = list(documents_of([source]))
    return lambda: tokenizer._backend.encode_batch_fast(documents)


def text_of(place: Path) -> tuple[Path, Tokenizer]:
    """The text in a file, and a tokenizer of it."""
    texts, file = [passage.text for passage in read_docstrings(None)], place / "text.txt"
    file.write_text("\n\n".join(" ".join(text.split()) for text in texts), encoding="utf-8")
    return file, train_tokenizer(texts[:20_000], TokenizerConfig(vocab_size=8192))


CONTENDERS = {"warmstart": "warmstart: read, encode, store", "tokenizers": "tokenizers: encode_batch_fast, all in memory"}


def run(rounds: int = 5) -> str:
    """Read, encode and store, against the library's encoding of texts that lie in memory."""
    names = {f"{name}, {cores}": partial(build, name, cores) for name in CONTENDERS for cores in (None, 1)}
    ours, ours_on_one, theirs, theirs_on_one = time_in_turn(names, rounds, warm=1)
    with tempfile.TemporaryDirectory() as folder:
        size = text_of(Path(folder))[0].stat().st_size / 1e6
    rows = [
        (
            title,
            str(every),
            f"{size / statistics.median(every.seconds):.1f}",
            str(one),
            f"{ratio(one, every):.2f}",
            f"{every.memory / 1e6:,.0f}",
        )
        for title, every, one in zip(CONTENDERS.values(), (ours, theirs), (ours_on_one, theirs_on_one), strict=True)
    ]
    header = (f"{size:.0f} MB of text", "seconds on all cores", "MB/s", "on one core", "one / all", "memory, MB")
    sentence = f"On all cores, ours runs at {ratio(theirs, ours):.0%} of the library's speed."
    return "\n\n".join([table(header, rows), sentence])


if __name__ == "__main__":
    show(run)
