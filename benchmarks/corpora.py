"""Text larger than the memory it is allowed: what training on token shards, and writing them, takes of it.

The memory that counts is what a process cannot give back without swapping: anonymous resident memory, which the system counts
(``RssAnon`` in ``/proc/self/status``). Pages of mapped shards are not in it: the system takes them back when it needs memory. A
text is allowed ``ALLOWED`` bytes above what its process used before it was opened.

    reading    a whole epoch, in the order of training
    training   steps of a small model on rows from the middle of an epoch, in turn with the other text
    writing    documents into shards
"""

from __future__ import annotations

import atexit
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import torch
from benchmarks.harness import Step, ratio, show, table, time_in_turn
from benchmarks.table import paragraph

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.config import BackboneConfig
from warmstart.commands.settings import TokenizeConfig
from warmstart.commands.tokenize import tokenize
from warmstart.corpora.rows import PretrainingRows, ShardsToRead, pretraining_batches
from warmstart.corpora.store import TOKENIZER, ShardEntry, ShardIndex
from warmstart.heads.settings import LMHeadConfig
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.system.storage import FORMAT, file_sha256
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

ALLOWED = 64_000_000
"""bytes of anonymous memory that a text may take"""
SIZES = {"small": ALLOWED // 10, "large": 10 * ALLOWED}
"""bytes of tokens"""
WRITTEN = {"small": ALLOWED // 4, "large": 5 * ALLOWED // 2}
"""bytes of text to tokenize; ten times the memory would take longer than everything else"""
SHARD_BYTES, LENGTH, BATCH, STEPS = 64_000_000, 128, 16, 5
"""of a shard; tokens of a row; rows of a step; steps that are timed at once"""


def anonymous_memory() -> int:
    """Bytes of anonymous memory that this process holds."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])


@contextmanager
def anonymous_peak() -> Iterator[Callable[[], int]]:
    """A function that gives the most anonymous memory above that of the beginning, looked up every 5 ms."""
    before, found, done = anonymous_memory(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            found.append(anonymous_memory() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: max(*found, anonymous_memory() - before)
    finally:
        done.set()
        thread.join()


# ------------------------------------------------------------------------------------------------ synthetic text


def words(seed: int) -> Iterator[str]:
    """Documents of 20 to 99 words, whose frequencies fall as those of language do."""
    for part in count():
        chance = np.random.default_rng([seed, part])
        drawn = np.minimum(chance.zipf(1.3, 60_000), 30_000)
        ends = np.cumsum(chance.integers(20, 100, 1000))
        for document in np.split(drawn, ends[ends < len(drawn)])[:-1]:
            yield " ".join(f"w{number}" for number in document)


def write_text(file: Path, size: int) -> Path:
    """So many bytes of documents."""
    with file.open("w") as stream:
        for document in words(0):
            stream.write(f"{document}\n\n")
            if stream.tell() >= size:
                return file
    return file


def write_shards(folder: Path, size: int, tokenizer: Tokenizer) -> Path:
    """So many bytes of shards, of random tokens in documents of 300 on average."""
    eos, vocabulary, entries = tokenizer.specials.eos, tokenizer.vocab_size, list[ShardEntry]()
    (folder / "shards").mkdir(parents=True)
    tokenizer.save(folder / TOKENIZER)
    for number, start in enumerate(range(0, size, SHARD_BYTES)):
        chance = np.random.default_rng(number)
        tokens = chance.integers(50, vocabulary, min(SHARD_BYTES, size - start) // 2, dtype=np.uint16)
        tokens[chance.random(len(tokens), dtype=np.float32) < 1 / 300] = eos
        tokens[[0, -1]] = eos
        tokens[1:][(tokens[1:] == eos) & (tokens[:-1] == eos)] = 50
        tokens[-1] = eos
        name = f"shards/{number:05}.bin"
        tokens.tofile(folder / name)
        documents = int((tokens == eos).sum()) - 1
        counts = {"tokens": len(tokens), "documents": documents, "words": len(tokens), "bytes": 4 * len(tokens)}
        entries.append(ShardEntry(name=name, sha256=file_sha256(folder / name), unknown=0, **counts))
    index = ShardIndex(
        format=FORMAT, tokenizer=tokenizer.digest, dtype="uint16", document="paragraph", held_out=None, shards=tuple(entries)
    )
    index.write(folder)
    return folder


# ------------------------------------------------------------------------------------------------ what is measured


def rows_of(folder: Path) -> PretrainingRows:
    """The rows of some shards, for the default objective."""
    found = ShardsToRead((str(folder),), None, None, "paragraph", folder).open()
    assert found is not None
    tokenizer, (text, _) = found
    return PretrainingRows(text, tokenizer.vocabulary(), ObjectiveConfig(), LENGTH)


def read_epoch(folder: str) -> dict[str, float]:
    """Read every row of an epoch once; memory, and tokens per second."""
    with anonymous_peak() as peak:
        rows = rows_of(Path(folder))
        batches, started = pretraining_batches(rows, 8 * BATCH, 1, 0), time.perf_counter()
        steps = len(rows) // (8 * BATCH)
        for step in range(steps):
            batches(step)
        return {"memory": peak(), "rate": steps * 8 * BATCH * LENGTH / (time.perf_counter() - started)}


def write_corpus(file: str) -> dict[str, float]:
    """Tokenize a text; memory, and bytes of text per second."""
    out, tokenizer = f"{file}.shards", str(Path(file).with_name(TOKENIZER))
    with anonymous_peak() as peak:
        started = time.perf_counter()
        tokenize(TokenizeConfig(text=(file,), out=out, tokenizer_file=tokenizer))
        return {"memory": peak(), "rate": Path(file).stat().st_size / (time.perf_counter() - started)}


def build(folder: Path) -> Step:
    """Training steps of a small model, each on the next rows."""
    rows = rows_of(folder)
    backbone = Backbone(BackboneConfig(max_length=LENGTH, width=64, depth=1, heads=2), rows.vocabulary.size)
    model = Model(backbone, fresh_head(LMHeadConfig(), backbone, 0), causal=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    batches, numbers = pretraining_batches(rows, BATCH, 1, 0), count(len(rows) // BATCH // 2)

    def steps() -> None:
        for number in (next(numbers) for _ in range(STEPS)):
            for batch in batches(number):
                (model.loss(batch) / max(1, batch.count)).backward()
            optimizer.step()
            optimizer.zero_grad()

    return steps


def in_a_process(function: Callable[[str], dict[str, float]], place: Path) -> dict[str, float]:
    """What a function finds in a process of its own."""
    code = (
        f"import json; from benchmarks.corpora import {function.__name__} as measured; print(json.dumps(measured({str(place)!r})))"
    )
    printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    found: dict[str, float] = json.loads(printed.stdout)
    return found


def run(rounds: int = 7) -> str:
    """A table of both texts, and what it shows."""
    place = Path(tempfile.mkdtemp(prefix="benchmark"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    tokenizer = train_tokenizer((text for text, _ in zip(words(1), range(20_000), strict=False)), TokenizerConfig(vocab_size=8192))
    tokenizer.save(place / TOKENIZER)
    shards = {name: write_shards(place / name, size, tokenizer) for name, size in SIZES.items()}
    read = {name: in_a_process(read_epoch, folder) for name, folder in shards.items()}
    timed = dict(zip(shards, time_in_turn({name: partial(build, folder) for name, folder in shards.items()}, rounds), strict=True))
    rows = [
        (
            f"{name}: {SIZES[name] / 1e6:,.0f} MB of shards",
            f"{read[name]['memory'] / 1e6:,.0f}",
            f"{read[name]['rate'] / 1e6:,.1f} million",
            f"{STEPS * BATCH * LENGTH / np.median(timed[name].seconds):,.0f}",
        )
        for name in SIZES
    ]
    for one in shards.values():
        shutil.rmtree(one)
    texts = {name: in_a_process(write_corpus, write_text(place / f"{name}.txt", size)) for name, size in WRITTEN.items()}
    written = [
        (f"{name}: {WRITTEN[name] / 1e6:,.0f} MB of text", f"{one['memory'] / 1e6:,.0f}", f"{one['rate'] / 1e6:,.1f} MB")
        for name, one in texts.items()
    ]
    memory, speed = read["large"]["memory"] / 1e6, ratio(timed["small"], timed["large"])
    found = (
        f"Training on the large text runs at {speed:.1%} of the speed on the small one. An epoch of it takes {memory:,.0f} MB of "
        f"anonymous memory above that of the program, of the {ALLOWED / 1e6:,.0f} MB that are allowed."
    )
    parts = [
        table(("training", "anonymous memory, MB", "tokens/s, reading", "tokens/s, training"), rows),
        table(("`tokenize`", "anonymous memory, MB", "text per second"), written),
        paragraph(found),
    ]
    return "\n\n".join(parts)


if __name__ == "__main__":
    show(run)
