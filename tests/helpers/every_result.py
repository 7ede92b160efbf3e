"""A result of every command and study, from tiny runs or made up, and the report that each has written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import warmstart as ws
from helpers.bundles import unread_model
from helpers.curves import curve_of, race_with
from helpers.fits import fit_result, quickstart_result
from helpers.models import SENTENCES, make_language_model
from helpers.multitask import task_settings, write_inputs
from helpers.races import LADDER, full_race, race_result
from helpers.tasks import tune
from warmstart.commands import COMMANDS
from warmstart.commands.fit.page import write_fit_page
from warmstart.commands.quickstart.result import quickstart_view
from warmstart.commands.race.page import write_race_page
from warmstart.commands.runs import ModelMonths
from warmstart.config import Config
from warmstart.experiment.estimate import SweepEstimate
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.report import page
from warmstart.report.parts import Report, paragraphs_once
from warmstart.runs.state import RunState
from warmstart.runs.tally import Tally
from warmstart.tokenizer.tokenizer import Tokenizer

SMALL = {"backbone": {"width": 8, "heads": 2, "depth": 1, "feedforward": 8, "max_length": 32}, "tokenizer": {"type": "character"}}
TRAIN = {"steps": 3, "batch": 4}
PEOPLE = {"Ada Byron": "London", "Emil Post": "Riga", "Rosa Parks": "Paris", "Otto Loewi": "Vienna"}


@dataclass
class Everything:
    """What commands returned, and the reports that they wrote, by the name of the command."""

    place: Path
    results: dict[str, Any] = field(default_factory=dict)
    reports: dict[str, list[Report]] = field(default_factory=dict)


def every_result(place: Path, tokenizer: Tokenizer) -> Everything:
    """Run or make up one of each."""
    found = Everything(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        write_inputs(place, tokenizer)
        makers = commands_of(place, found.results) | studies_of(place, tokenizer) | made_up(place, found.results)
        for name, make in makers.items():
            reports = found.reports.setdefault(name, [])

            def render(report: Report, *_: object, reports: list[Report] = reports) -> str:
                reports.append(paragraphs_once(report))
                return ""

            patch.setattr(page, "render", render)
            found.results[name] = make()
    return found


def commands_of(place: Path, results: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    """Commands that are run."""

    def run(name: str, /, **settings: Any) -> object:
        config, function = COMMANDS[name].load()
        out = {"out": str(place / name)} if "out" in config.model_fields else {}
        return function(config.build(out | settings))

    text, lm, cats, adapted = (str(place / name) for name in ("text.txt", "lm", "cats", "adapt"))
    given = {"model": lm, "task": cats, "seeds": 2, "labels": 30, "selection": "holdout", "calibration_fraction": 0.3}
    return {
        "pretrain": lambda: run("pretrain", text=[text], train=TRAIN, **SMALL),
        "tokenize": lambda: run("tokenize", text=[text], tokenizer=SMALL["tokenizer"]),
        "adapt": lambda: run("adapt", **given, tune=tune("full", epochs=2)),
        "evaluate": lambda: run("evaluate", model=adapted, task=cats),
        "evaluate --gate": lambda: run("evaluate", model=adapted, task=cats, gate=0, out=None),
        "evaluate a text": lambda: run("evaluate", model=str(place / "pretrain"), task=text, out=None),
        "evaluate --against": lambda: run("evaluate", model=adapted, task=cats, against=adapted, out=str(place / "against")),
        "evaluate --pairs": lambda: run("evaluate", model=f"{place}/causal", pairs=f"{place}/pairs.tsv", out=f"{place}/pairs"),
        "continual": lambda: run("continual", **task_settings(place, out=str(place / "continual"), text=text)),
        "answers": lambda: run("adapt", **answers_settings(place)),
        "audit": lambda: run("audit", task=cats),
        "cost": lambda: run("cost", model=lm),
        "doctor": lambda: run("doctor", model=adapted),
        "import --list": lambda: run("import", out=None, list=True),
        "runs": lambda: run("runs", folder=str(place)),
        "runs --follow": lambda: RunState(place / "pretrain", "pretrain"),
        "runs of a model": lambda: ModelMonths(
            place, "m", (Tally("2025-07-01T00:00:00Z", "m", 60, {"tea": 60}, {"confidence": 40.0}),)
        ),
        "a task": lambda: ws.load_task(cats),
        "import": lambda: ws.load(str(place / "adapt" / "bundle")),
    }


def answers_settings(place: Path) -> dict[str, Any]:
    """Questions about four people in all splits, and a model that can spell the answers."""
    rows = "".join(f"Where was {name} born?\t{town}\n" for name, town in PEOPLE.items())
    for name in ("train", "validation", "test"):
        (place / f"{name}.txt").write_text(rows * (7 if name == "train" else 1))
    (place / "places.yaml").write_text(
        "name: places\ntype: answers\nsource: {pattern: '^(?P<text>[^\\t]+)\\t(?P<label>.+)$'}\n"
        "train: train.txt\nvalidation: validation.txt\ntest: test.txt\n"
    )
    (place / "people.txt").write_text("".join(f"{name} was born in {town}.\n" for name, town in PEOPLE.items()) * 4)
    shape, letters = SMALL["backbone"] | {"max_length": 64}, {"type": "character", "sentinels": 0}
    spelled = {"text": (str(place / "people.txt"),), "out": str(place / "speller"), "held_out": "none", "document": "line"}
    how = {"objective": {"name": "span", "form": "prefix-suffix"}, "tokenizer": letters, "backbone": shape, "train": TRAIN}
    ws.pretrain(ws.PretrainConfig.build(spelled | how))
    given = {"model": str(place / "speller"), "task": str(place / "places.yaml"), "out": str(place / "answers"), "seeds": 2}
    return given | {"scratch_epochs": 1, "tune": {"train": {"epochs": 2, "batch": 8, "precision": "float32"}}}


def studies_of(place: Path, tokenizer: Tokenizer) -> dict[str, Callable[[], object]]:
    """Every study, on tiny models."""
    causal = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_length=64), tokenizer)
    save(causal, place / "causal")
    rows = [
        f"{split}\t{label}\t{label.lower()} {SENTENCES[i % 4]}" for split in ("tr", "va", "te") for i in range(15) for label in "AB"
    ]
    (place / "first_word.txt").write_text("\n".join(rows))
    pairs = [f"{group}\tShe holds the cat{i}.\tShe hold the cat{i}." for group in ("one", "two") for i in range(6)]
    (place / "pairs.tsv").write_text("group\tgood\tbad\n" + "\n".join(pairs))

    def run(name: str, /, **settings: Any) -> object:
        config, function = COMMANDS[f"study {name}"].load()
        return function(config.build({"out": str(place / name)} | settings))

    text, lm, tasks = [str(place / "text.txt")], str(place / "causal"), [str(place / "first_word.txt")]
    adapted = str(place / "adapt")
    return {
        "study lab": lambda: run("lab", samples=100),
        "study probe": lambda: run("probe", models=[lm], tasks=tasks, seeds=1, mlp=False),
        "study explain": lambda: run("explain", model=adapted, text="She holds the cat in 1912.", random_orders=3),
        "study ablate": lambda: run("ablate", model=lm, text=text, limit=20),
        "study attention": lambda: run("attention", model=lm, sentence=SENTENCES[0], text=text, passages=20),
        "study neurons": lambda: run("neurons", model=lm, text=text, passages=30, shifts=3, control=False),
    }


def made_up(place: Path, results: Mapping[str, Any]) -> dict[str, Callable[[], object]]:
    """Results that take too long to be run."""

    def written(result: Any, write: Callable[[Any, Config, Path], Path]) -> Any:
        write(result, Config(), place / "made-up")
        return result

    def quickstart() -> object:
        result = quickstart_result()
        write_fit_page(result.fit, Config(), place / "made-up", quickstart_view(result))
        return result

    curve = curve_of((16, 0.1, 0.02), (64, 0.06, 0.02), (256, 0.01, 0.01), names=("", " small"))
    return {
        "quickstart": quickstart,
        "fit": lambda: written(fit_result(), write_fit_page),
        "race": lambda: written(full_race(), write_race_page),
        "race of one seed": lambda: written(race_result(LADDER, 1), write_race_page),
        "race --estimate": lambda: SweepEstimate({}, Counter(), 0.0, 1, "cats"),
        "race by number of labels": lambda: written(race_with(curve), write_race_page),
    }
