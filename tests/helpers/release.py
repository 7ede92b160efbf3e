"""Makes the models and the labelling project that later versions must read.

Run it once for a release, with the wheel of that release, and never again; an archive holds what the users of a release have:
``python tests/helpers/release.py tests/saved/0.3.0.tar.xz``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import warmstart as ws

WHO = ("She", "He", "I", "Ada", "Otto")
DOES = ("holds", "rubs", "sees", "finds", "draws")
TEXTS = [f"{who} {does} the {what}." for who in WHO for does in DOES for what in ("cat", "river", "dog", "hill")]
ANIMAL = ["animal" if text[-5:] in (" cat.", " dog.") else "place" for text in TEXTS]
NEW = ["They draw the cat.", "He finds a quiet river", "Nothing of all this!", "Ada and the dog, and a hill."]
"""inputs of the stored answers"""
PEOPLE = {"Ada Byron": "London", "Emil Post": "Riga", "Rosa Parks": "Paris", "Otto Loewi": "Vienna"}
NETWORK = {"width": 8, "heads": 2, "depth": 1, "feedforward": 8, "max_length": 32}
TUNE = {"train": {"epochs": 2, "batch": 8, "precision": "float32"}}


def main(archive: Path) -> None:
    """Write each kind, and what it answers, into an archive."""
    with TemporaryDirectory() as temporary:
        place, folder = Path(temporary, "made"), Path(temporary, "kept")
        place.mkdir()
        models = made(place)
        for name, bundle in models.items():
            shutil.copytree(bundle, folder / name)
        (place / "labels.csv").write_text(table(text=TEXTS[:30], label=ANIMAL[:30]))
        labels = str(place / "labels.csv")
        label = (sys.executable, "-m", "warmstart", "label", labels, "--import", labels, "--out", str(folder / "project"))
        subprocess.run(label, check=True)
        answers = {name: answers_of(folder / name) for name in models}
        (folder / "answers.json").write_text(json.dumps(answers, indent=1))
        shutil.make_archive(str(archive).removesuffix(".tar.xz"), "xztar", folder)


def made(place: Path) -> dict[str, Path]:
    """Every kind of saved model; returns the folder of each by name."""
    price = [float(number % 7 + 20 * (kind == "place")) for number, kind in enumerate(ANIMAL)]
    same = [f"{text[:-5]} it." for text in TEXTS]  # so that the price alone tells
    rows: dict[str, tuple[list[str], Any]] = {
        "words": (TEXTS, ANIMAL),
        "several": (TEXTS, [[kind, "short"] if len(text) < 17 else [kind] for text, kind in zip(TEXTS, ANIMAL, strict=True)]),
    }
    found = {}
    for name, (texts, labels) in rows.items():
        found[name] = ws.fit(texts, labels, minutes=0.5).save(place / name)
    frame = {"text": same, "price": price, "label": ANIMAL}
    found["columns"] = ws.fit(frame, text="text", label="label", columns=["price"], minutes=0.5).save(place / "columns")
    found |= networks(place)
    found["vectors"] = ws.save(vectors(ws.load(found["contrastive"])), place / "vectors")
    return found


def vectors(encoder: Any) -> Any:
    """A baseline on the frozen vectors of an encoder, which ``fit`` and ``race`` save where it is best."""
    from warmstart.baselines import BASELINES
    from warmstart.baselines.choice import fitted_baseline, run_baseline
    from warmstart.data.budget import label_budget
    from warmstart.model.stack import Member

    data = ws.Task.from_lists(TEXTS, ANIMAL, test=0.2)
    budget = label_budget(data, 60, "cross-validation", 0)
    encoder = encoder_of(encoder)
    run = run_baseline(BASELINES["frozen vectors"], budget, (), lambda inputs: ws.embed(encoder, inputs).numpy())
    return ws.Stack((Member("frozen vectors", fitted_baseline(run, encoder)),), "classification", data.labels)


def networks(place: Path) -> dict[str, Path]:
    """Language models of each objective, and what was adapted from them."""
    (place / "text.txt").write_text("\n".join(TEXTS * 5))
    (place / "people.txt").write_text("".join(f"{name} was born in {town}.\n" for name, town in PEOPLE.items()) * 10)
    pieces, letters = {"type": "bytes", "vocab_size": 300}, {"type": "character", "sentinels": 0}
    for name, text, tokenizer, objective in (
        ("causal", "text.txt", pieces, {"name": "causal"}),
        ("masked", "text.txt", pieces, {"name": "masked"}),
        ("contrastive", "text.txt", pieces, {"name": "contrastive"}),
        ("span", "people.txt", letters, {"name": "span", "form": "prefix-suffix"}),
    ):
        how = {"tokenizer": tokenizer, "objective": objective, "backbone": NETWORK, "train": {"steps": 30, "batch": 8}}
        given = {"text": (str(place / text),), "document": "line", "held_out": "none", "out": str(place / name)}
        ws.pretrain(ws.PretrainConfig.build(given | how))
    for name, model, more in (
        ("network", "masked", {"scheme": "full"}),
        ("adapters", "causal", {"scheme": "lora"}),
        ("tags", "masked", {}),
        ("pairs", "masked", {}),
        ("numbers", "masked", {}),
        ("answering", "span", {}),
    ):
        chosen: dict[str, Any] = {
            "model": str(place / model),
            "task": task(place, name),
            "out": str(place / name),
            "seeds": 1,
            "scratch": False,
        }
        ws.adapt(ws.AdaptConfig.build(chosen | {"baselines": False, "tune": TUNE | more}))
    return {name.name: name / "bundle" for name in place.iterdir() if (name / "bundle" / "weights.safetensors").exists()}


def encoder_of(model: Any) -> Any:
    """A language model whose head gives the vector of a text."""
    from warmstart.heads.embedding import EmbeddingHeadConfig
    from warmstart.model.model import swap_head

    return ws.Bundle(swap_head(model.model, EmbeddingHeadConfig(normalize=False), 0), model.tokenizer)


def task(place: Path, name: str) -> str:
    """A task for the network of this name, as a file."""
    if name == "answering":
        rows = "".join(f"Where was {name} born?\t{town}\n" for name, town in PEOPLE.items())
        (place / "answering.txt").write_text(rows * 7)
        source = "type: answers\nsource: {pattern: '^(?P<text>[^\\t]+)\\t(?P<label>.+)$'}"
        file = "answering.txt"
    elif name == "tags":
        words = [[*text[:-1].split(), "."] for text in TEXTS]
        tagged = [{"text": row, "label": ["WHO", "DOES", "THE", "WHAT", "END"]} for row in words]
        (place / "tags.ndjson").write_text("\n".join(map(json.dumps, tagged)))
        source, file = "type: tagging\nsource: {text: text, label: label}", "tags.ndjson"
    elif name == "pairs":
        (place / "pairs.csv").write_text(table(text=TEXTS, second=[*TEXTS[1:], TEXTS[0]], label=ANIMAL))
        source, file = "source: {text: text, second: second, label: label}", "pairs.csv"
    else:
        (place / "cats.csv").write_text(table(text=TEXTS, label=ANIMAL, length=[len(text) for text in TEXTS]))
        kind, column = ("regression", "length") if name == "numbers" else ("classification", "label")
        source, file = f"type: {kind}\nsource: {{text: text, label: {column}}}", "cats.csv"
    manifest, part = place / f"{name}.yaml", file if name == "answering" else 0.2
    manifest.write_text(f"name: {name}\n{source}\ntrain: {file}\nvalidation: {part}\ntest: {part}\n")
    return str(manifest)


def table(**columns: list[Any]) -> str:
    """Columns of plain cells as csv."""
    return "\n".join([",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))])


def answers_of(folder: Path) -> Any:
    """What a saved model answers, as JSON has it: a vector of a text of language models, else its predictions."""
    model = ws.load(folder)
    if folder.name in ("causal", "masked", "contrastive", "span"):
        return [[round(float(value), 5) for value in row] for row in ws.embed(encoder_of(model), NEW)]
    inputs: Any = {
        "columns": {"text": ["She holds it."] * 4, "price": [1.0, 5.0, 21.0, 26.0]},
        "tags": [tuple(text.split()) for text in NEW],
        "pairs": [*pairwise(NEW)],
        "answering": [f"Where was {name} born?" for name in PEOPLE],
    }
    return json.loads(json.dumps([*ws.predict(model, inputs.get(folder.name, NEW))]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
