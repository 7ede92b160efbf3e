"""Do two versions of the package compute the same numbers? A fixed set of small runs, recorded with each and compared.

    python -m benchmarks.same_numbers record FOLDER      run everything with the package that is on the path
    python -m benchmarks.same_numbers compare OLD NEW    compare every number and tensor in the two folders

Compared are scores, predictions, losses and every other number in JSON and CSV, exported labels with their texts, numbers that
evaluations print, and the bytes of every tensor of saved models, ONNX graphs and pages. Seconds, measured memory, versions and
other words may differ. Pretrained encoders are passed over, even if they are installed. ``same_numbers.yaml`` holds the runs, and
where the new version keeps what the old one kept elsewhere; a run that is no longer there is not compared.
"""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import itertools
import json
import os
import random
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml

PLAN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
WHO, DOES, WHAT = ("She", "He", "I", "They"), ("holds", "rubs", "found", "can see"), ("cat", "dog", "river", "house")
WHERE = ("here", "there", "outside", "in town", "at home")
WRITES = ("--out", "--trace-json", "--export")
"""flags that name what a run writes"""

Number = float | str


def runs() -> Iterator[tuple[str, list[str]]]:
    """The name and the command line of each run, in a folder that holds the inputs under ``in``."""
    for name, line in PLAN["runs"].items():
        loops = [loop for loop in PLAN["each"] if f"{{{loop}}}" in name]
        for values in itertools.product(*(PLAN["each"][loop] for loop in loops)):
            filled = dict(zip(loops, values, strict=True))
            yield name.format(**filled), shlex.split(line.format(**PLAN["parts"], **filled))


def record(folder: Path) -> None:
    """Write the inputs and run everything in ``folder``, with one thread; runs that are done already are left out."""
    import torch

    from warmstart.cli import main

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    if not Path("in").exists():
        write_inputs(Path("in"))
        Path("printed").mkdir()
    for name, words in runs():
        printed = Path("printed") / f"{name}.txt"
        if printed.exists():
            continue
        heard = io.StringIO()
        errors = heard if "evaluate" in name else sys.stderr
        no_encoders = patch("warmstart.interop.encoders.installed", return_value=None)
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(errors), no_encoders:
            code = main(words)
        if code:
            sys.exit(f"{name}: warmstart {shlex.join(words)} ended with exit code {code}")
        printed.write_text(heard.getvalue())


def write_inputs(folder: Path) -> None:
    """A text, one task of every type, tables of labels, minimal pairs, a probing task: the same each time."""
    chance = random.Random(0)
    folder.mkdir()
    sentences = [f"{row('other', chance)['text']} {row('classification', chance)['text']}" for _ in range(240)]
    (folder / "text.txt").write_text("\n\n".join(sentences) + "\n")
    (folder / "plain.csv").write_text("text\n" + "".join(f"{row('other', chance)['text']}\n" for _ in range(6)))
    probes = [(split, row("other", chance)["text"]) for split, n in (("tr", 80), ("va", 30), ("te", 30)) for _ in range(n)]
    (folder / "length.txt").write_text("".join(f"{split}\t{len(text) // 3 % 3}\t{text}\n" for split, text in probes))
    pairs = [f"{does} the {what},the {what} {does}\n" for does in DOES for what in WHAT]
    (folder / "pairs.csv").write_text("good,bad\n" + "".join(pairs))
    for name, settings in PLAN["settings"].items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    for kind in ("classification", "other", *PLAN["each"]["type"], "answers"):
        place, chance = folder / kind, random.Random(kind)  # so that a type of task may go without a change of the others
        place.mkdir()
        for name, count in (("train", 64), ("validation", 24), ("test", 32)):
            (place / f"{name}.ndjson").write_text("".join(json.dumps(row(kind, chance)) + "\n" for _ in range(count)))
        manifest = {"name": kind} | {name: f"{name}.ndjson" for name in ("train", "validation", "test")}
        manifest |= {"type": kind} if kind not in ("classification", "other") else {}
        (place / "task.yaml").write_text(yaml.safe_dump(manifest))
        (place / "reads.yaml").write_text(yaml.safe_dump(manifest | {"unlabelled": "../text.txt"}))
    write_tables(folder)


def write_tables(folder: Path) -> None:
    """Tables for ``fit``, of which a sixth of the labels are wrong and some rows have none; answers of two people for ``label``."""
    for name, count, blank in (("two", 80, 40), ("several", 80, 0), ("twenty", 160, 60)):
        chance = random.Random(name)
        rows = [_noisy_row(name, chance, labelled=number >= blank) for number in range(count + blank)]
        _write_csv(folder / f"{name}.csv", ("text", "label"), rows)
        _write_csv(folder / f"{name}-new.csv", ("text", "label"), [_noisy_row(name, chance, labelled=True) for _ in range(30)])
    chance = random.Random("answers of people")
    answers = [(*_noisy_row("two", chance, labelled=True), person) for person in ("Ada", "Kim") for _ in range(60)]
    _write_csv(folder / "people.csv", ("text", "label", "person"), answers)


def _write_csv(file: Path, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out, lineterminator="\n").writerows([header, *rows])


def _noisy_row(name: str, chance: random.Random, *, labelled: bool) -> tuple[str, str]:
    """A sentence, and what it is about: whether somebody holds or rubs, who does what, or one of twenty."""
    who, does, what, where = (chance.choice(words) for words in (WHO, DOES, WHAT, WHERE))
    text = f"{who} {does} the {what} {where} in {chance.randint(1900, 1999)}."
    if chance.random() < 1 / 6:
        does, what, where = (chance.choice(words) for words in (DOES, WHAT, WHERE))
    labels = {"two": "touch" if does in DOES[:2] else "sense", "several": f"{what}; {where}", "twenty": f"{what} {where}"}
    return text, labels[name] if labelled else ""


def row(kind: str, chance: random.Random) -> dict[str, Any]:
    """A sentence of a few words, with a target for one type of task."""
    who, does, what, year = chance.choice(WHO), chance.choice(DOES), chance.choice(WHAT), chance.randint(1900, 1999)
    words = f"{who} {does} the {what}".split()
    text = " ".join(words)
    tags = ["B-WHO" if word == who else "B-WHAT" if word == what else "O" for word in words]
    rows: dict[str, dict[str, Any]] = {
        "classification": {"text": f"{text} in {year}.", "second": f"{who} {does}", "label": what},
        "other": {"text": f"{text}. {year}", "label": who},
        "multilabel": {"text": f"{text}. {year}", "label": [what, *(["she"] if who == "She" else [])]},
        "regression": {"text": f"{text}. {year}", "label": 100.0 + 10 * WHO.index(who) + DOES.index(does)},
        "tagging": {"text": [*words, "."], "label": [*tags, "O"]},
        "answers": {"text": f"Who {does} the {what}?", "label": who},
    }
    return rows[kind]


def numbers(folder: Path) -> dict[str, Number]:
    """Every number and tensor under a folder by its path; tensors as hashes."""
    found: dict[str, Number] = {}
    written = {place for name, words in runs() for place in written_by(name, words)}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        ours = any(name == place or name.startswith(f"{place}/") for place in written)
        if not file.is_file() or not ours or any(re.search(pattern, name) for pattern in PLAN["ignored_files"]):
            continue
        # named by a hash of the settings, of which some may go; ``trial_name`` tells trials apart
        name = re.sub(r"/trials/.*", "/trials", re.sub(r"/own/\w+/", "/own/", name))
        found.update({"/".join([name, *path]): value for path, value in values_of(file)})
    return {path: value for path, value in found.items() if not any(re.search(pattern, path) for pattern in PLAN["ignored"])}


def written_by(name: str, words: list[str]) -> list[str]:
    """The files and folders that a run writes."""
    return [f"printed/{name}.txt", *(place for flag, place in itertools.pairwise(words) if flag in WRITES)]


def values_of(file: Path) -> Iterator[tuple[tuple[str, ...], Number]]:
    """The numbers in one file, with their paths inside it."""
    words = file.name.startswith("predict") or file.parent.name.startswith("labels")
    if file.suffix == ".json":
        values = json.loads(file.read_text(encoding="utf-8"))
        if file.parent.name == "trials":
            values = {trial_name(values): values}
        yield from leaves(values)
    elif file.suffix in (".jsonl", ".ndjson"):
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from leaves([json.loads(line) for line in lines], words=words)
    elif file.suffix == ".csv":
        rows = [*csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))]
        yield from leaves(rows, words=words)
    elif file.suffix == ".safetensors":
        yield from ((("tensors", name), value) for name, value in tensors(file))
    elif file.suffix == ".onnx":
        yield from ((("weights", str(rank)), value) for rank, value in enumerate(sorted(graph_weights(file))))
    elif file.suffix == ".html":
        yield ("weights",), page_weights(file)
    elif file.parent.name == "printed":
        text = file.read_text(encoding="utf-8")
        yield from leaves(json.loads(text) if text.lstrip().startswith("{") else sorted(re.findall(r"-?\d+\.\d+", text)))


def leaves(values: Any, path: tuple[str, ...] = (), *, words: bool = False) -> Iterator[tuple[tuple[str, ...], Number]]:
    """The numbers in nested lists and mappings, and the words if asked for; text that reads as a number counts as one."""
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else _entries(values):
            yield from leaves(value, (*path, str(key).replace("/", "|")), words=words)
    elif isinstance(values, int | float) or (isinstance(values, str) and re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", values)):
        yield path, float(values)
    elif isinstance(values, str) and words:
        yield path, values


def _entries(values: list[Any]) -> Iterator[tuple[str | int, Any]]:
    """The entries of a list by name, if each has its own, so that one can go without a change of the others; else by number."""
    for key in ("method", "name"):  # an id has the hash of a backbone, whose manifest has a date
        names = [str(entry[key]) for entry in values if isinstance(entry, dict) and isinstance(entry.get(key), str)]
        if len(names) == len(values) == len(set(names)):
            return zip(names, values, strict=True)
    return iter(enumerate(values))


def trial_name(values: dict[str, Any]) -> str:
    """Which trial of a sweep a file holds."""
    trial = values["trial"]
    return " ".join(str(part) for part in (trial["method"]["name"], *trial["learning_rates"], trial["labels"], trial["seed"]))


def tensors(file: Path) -> Iterator[tuple[str, str]]:
    """The name and the hash of each tensor."""
    from safetensors.torch import load_file

    for name, tensor in load_file(file).items():
        yield name, hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes()).hexdigest()


def graph_weights(file: Path) -> list[str]:
    """The hash of each weight of a graph."""
    import onnx

    weights = onnx.load(file).graph.initializer
    return [hashlib.sha256(onnx.numpy_helper.to_array(one).tobytes()).hexdigest() for one in weights]


def page_weights(file: Path) -> str:
    """The hash of the rounded weights in a page that holds a model, whichever version wrote it."""
    weights = re.search(r'id="weights">(.*?)</script>', file.read_text(encoding="utf-8"), re.DOTALL)
    return hashlib.sha256(weights[1].encode()).hexdigest() if weights else "none"


def renamed(path: str) -> str:
    """Where the new version keeps what the old one kept at ``path``."""
    path = "/".join(PLAN["keys"].get(part, part) for part in path.split("/"))
    for old, new in PLAN["paths"].items():
        path = re.sub(old, new, path)
    return path


def compare(old: Path, new: Path) -> int:
    """Print what differs; returns how many numbers do."""
    before = {renamed(path): value for path, value in numbers(old).items()}
    after = numbers(new)
    missing = [path for path in before if path not in after]
    different = [path for path in before if path in after and repr(before[path]) != repr(after[path])]
    for path in [*missing, *different]:
        print(f"{path}: {before[path]} -> {after.get(path, 'missing')}")
    equal = len(before) - len(missing) - len(different)
    print(f"{equal:,} of {len(before):,} numbers and tensors are equal, {len(different):,} different, {len(missing):,} missing")
    return len(missing) + len(different)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", folder]:
            record(Path(folder))
        case ["compare", old, new]:
            sys.exit(1 if compare(Path(old), Path(new)) else 0)
        case _:
            sys.exit(__doc__)
