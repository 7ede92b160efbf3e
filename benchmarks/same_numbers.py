"""Do two versions of the package compute the same numbers? A fixed set of small runs, recorded with each and compared.

    python -m benchmarks.same_numbers record FOLDER             run everything with the package that is installed
    python -m benchmarks.same_numbers record FOLDER --before    the same with one from before the renaming (on PYTHONPATH)
    python -m benchmarks.same_numbers compare OLD NEW           compare every number and tensor in the two folders

Compared are scores, predictions, losses and every other number in JSON and CSV, numbers that evaluations print, and the bytes of
every tensor of saved models and ONNX graphs. Seconds, measured memory, versions and words may differ. ``same_numbers.yaml`` holds
the runs, and the old names of flags and keys beside the new ones.
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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

PLAN = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
KEYS = {old[2:].replace("-", "_"): new[2:].replace("-", "_") for old, new in PLAN["flags"].items()} | PLAN["keys"]
"""old key -> new key; settings are keys of saved models too"""
WHO, DOES, WHAT = ("She", "He", "I", "They"), ("holds", "rubs", "found", "can see"), ("cat", "dog", "river", "house")

Number = float | str


def runs() -> Iterator[tuple[str, list[str]]]:
    """The name and the command line of each run, in a folder that holds the inputs under ``in``."""
    for name, line in PLAN["runs"].items():
        loops = [loop for loop in PLAN["each"] if f"{{{loop}}}" in name]
        for values in itertools.product(*(PLAN["each"][loop] for loop in loops)):
            filled = dict(zip(loops, values, strict=True))
            yield name.format(**filled), shlex.split(line.format(**PLAN["parts"], **filled))


def record(folder: Path, *, before: bool) -> None:
    """Write the inputs and run everything in ``folder``, with one thread; runs that are done already are left out."""
    import torch

    from warmstart.cli import main

    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    if not Path("in").exists():
        write_inputs(Path("in"), before=before)
        Path("printed").mkdir()
    for name, words in runs():
        printed = Path("printed") / f"{name}.txt"
        if printed.exists():
            continue
        words = old_words(words) if before else words
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard if "evaluate" in name else sys.stderr):
            code = main(words)
        if code:
            sys.exit(f"{name}: warmstart {shlex.join(words)} ended with exit code {code}")
        printed.write_text(heard.getvalue())


def old_words(words: list[str]) -> list[str]:
    """A command line in the words from before the renaming."""
    length = 2 if words[0] == "study" else 1
    command = " ".join(words[:length])
    flags = {new: old for old, new in (PLAN["flags"] | PLAN["command_flags"].get(command, {})).items()}
    values, commands = ({new: old for old, new in PLAN[table].items()} for table in ("values", "commands"))
    rest = [flags.get(word, "+".join(values.get(part, part) for part in word.split("+"))) for word in words[length:]]
    return [*commands.get(command, command).split(), *rest]


def _old_keys(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings by their names from before the renaming."""
    keys = {new: old for old, new in KEYS.items()} | {"replay_texts": "memory_texts"}
    values = {new: old for old, new in PLAN["values"].items()}
    return {keys.get(key, key): _old_keys(one) if isinstance(one, dict) else values.get(one, one) for key, one in settings.items()}


def write_inputs(folder: Path, *, before: bool) -> None:
    """A text, one task of every type, minimal pairs, a probing task: the same each time."""
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
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(_old_keys(settings) if before else settings))
    for kind in ("classification", "other", *PLAN["each"]["type"], "answers"):
        place = folder / kind
        place.mkdir()
        for name, count in (("train", 64), ("validation", 24), ("test", 32)):
            (place / f"{name}.ndjson").write_text("".join(json.dumps(row(kind, chance)) + "\n" for _ in range(count)))
        manifest = {"name": kind} | {name: f"{name}.ndjson" for name in ("train", "validation", "test")}
        if kind in PLAN["each"]["type"]:
            types = {new: old for old, new in PLAN["task_types"].items()}
            manifest |= {"kind": types[kind]} if before else {"type": kind}
        manifest |= {"type": kind} if kind == "answers" and not before else {}
        (place / "task.yaml").write_text(yaml.safe_dump(manifest | ({"source": {"second": "second"}} if kind == "span" else {})))
        (place / "reads.yaml").write_text(yaml.safe_dump(manifest | {"unlabelled": "../text.txt"}))  # enough for dapt


def row(kind: str, chance: random.Random) -> dict[str, Any]:
    """A sentence of a few words, with a target for one type of task."""
    who, does, what, year = chance.choice(WHO), chance.choice(DOES), chance.choice(WHAT), chance.randint(1900, 1999)
    words = f"{who} {does} the {what}".split()
    text, later = " ".join(words), WHAT[(WHAT.index(what) + 1) % len(WHAT)]
    tags = ["B-WHO" if word == who else "B-WHAT" if word == what else "O" for word in words]
    rows: dict[str, dict[str, Any]] = {
        "classification": {"text": f"{text} in {year}.", "second": f"{who} {does}", "label": what},
        "other": {"text": f"{text}. {year}", "label": who},
        "multilabel": {"text": f"{text}. {year}", "label": [what, *(["she"] if who == "She" else [])]},
        "regression": {"text": f"{text}. {year}", "label": 100.0 + 10 * WHO.index(who) + DOES.index(does)},
        "multiple-choice": {"text": f"{who} {does}", "alternatives": [f"the {what}", f"the {later}"], "label": year % 2},
        "tagging": {"text": [*words, "."], "label": [*tags, "O"]},
        "span": {"text": "what?", "second": f"{text}. It was {year}.", "label": what},
        "answers": {"text": f"Who {does} the {what}?", "label": who},
    }
    return rows[kind]


def numbers(folder: Path) -> dict[str, Number]:
    """Every number and tensor under a folder by its path; tensors as hashes."""
    found: dict[str, Number] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if not file.is_file() or name.startswith("in/") or any(re.search(pattern, name) for pattern in PLAN["ignored_files"]):
            continue
        if "/dapt/" in name:  # named by a hash of the settings, which change their names
            manifest = json.loads((file.parent / "bundle.json").read_text(encoding="utf-8"))
            name = name.replace(file.parent.name, "causal" if manifest["causal"] else "bidirectional")
        name = re.sub(r"/(cells|trials)/.*", "/trials", name)  # likewise; ``trial_name`` tells them apart
        found.update({"/".join([name, *path]): value for path, value in values_of(file)})
    return {path: value for path, value in found.items() if not any(re.search(pattern, path) for pattern in PLAN["ignored"])}


def values_of(file: Path) -> Iterator[tuple[tuple[str, ...], Number]]:
    """The numbers in one file, with their paths inside it."""
    if file.suffix == ".json":
        values = json.loads(file.read_text(encoding="utf-8"))
        if file.parent.name in ("cells", "trials"):
            values = {trial_name(values): values}
        if file.name == "curve.json" and "methods" in values:  # once three tables by name, now one list
            values["methods"] = {method["method"]: method for method in values["methods"]}
        yield from leaves(values)
    elif file.suffix in (".jsonl", ".ndjson"):
        lines = file.read_text(encoding="utf-8").splitlines()
        yield from leaves([json.loads(line) for line in lines], words=file.name.startswith("predict"))
    elif file.suffix == ".csv":
        yield from leaves([*csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))])
    elif file.suffix == ".safetensors":
        yield from ((("tensors", name), value) for name, value in tensors(file))
    elif file.suffix == ".onnx":
        yield from ((("weights", str(rank)), value) for rank, value in enumerate(sorted(graph_weights(file))))
    elif file.parent.name == "printed":
        text = file.read_text(encoding="utf-8")
        yield from leaves(json.loads(text) if text.lstrip().startswith("{") else sorted(re.findall(r"-?\d+\.\d+", text)))


def leaves(values: Any, path: tuple[str, ...] = (), *, words: bool = False) -> Iterator[tuple[tuple[str, ...], Number]]:
    """The numbers in nested lists and mappings, and the words if asked for; text that reads as a number counts as one."""
    if isinstance(values, dict | list):
        items = values.items() if isinstance(values, dict) else enumerate(values)
        for key, value in items:
            yield from leaves(value, (*path, str(key).replace("/", "|")), words=words)
    elif isinstance(values, int | float) or (isinstance(values, str) and re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", values)):
        yield path, float(values)
    elif isinstance(values, str) and words:
        yield path, values


def trial_name(values: dict[str, Any]) -> str:
    """Which trial of a sweep a file holds."""
    trial = values.get("cell") or values["trial"]
    method = trial.get("entrant") or trial["method"]
    return f"{method['name']} {trial.get('rate', trial.get('learning_rate'))} {trial['labels']} {trial['seed']}"


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


def renamed(path: str) -> str:
    """Where the new version keeps what the old one kept at ``path``."""
    path = "/".join(KEYS.get(part, part) for part in path.split("/"))
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
        case ["record", folder, *rest] if rest in ([], ["--before"]):
            record(Path(folder), before=bool(rest))
        case ["compare", old, new]:
            sys.exit(1 if compare(Path(old), Path(new)) else 0)
        case _:
            sys.exit(__doc__)
