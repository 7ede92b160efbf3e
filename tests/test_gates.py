"""``evaluate --gate``: a build stops unless a score is high enough beyond chance; and how often that is wrong, in simulation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import word_model
from helpers.pages import PAGES
from warmstart.cli import main
from warmstart.errors import ConfigError
from warmstart.stats.intervals import Estimate
from warmstart.stats.noise import texts_to_decide
from warmstart.stats.proportions import effective_cases, paired_proportions, proportion_in_units, wilson_interval
from warmstart.stats.resampling import resample_classification
from warmstart.stats.scores import classification_scores
from warmstart.tasks.gates import Gate, check_gate_metric

PAGE = PAGES["docs/how-to/gates.md"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models beside a table, on which the first is right on all of 400 texts and the other on 75 of 100."""
    monkeypatch.chdir(tmp_path)
    word_model(tmp_path / "new", ("cat", "dog"), "hound", "dog")
    word_model(tmp_path / "old", ("cat", "dog"), "dog")
    write_table(tmp_path / "held-out.csv", 100)
    return tmp_path


def write_table(file: Path, count: int, copies: int = 1) -> None:
    """Texts about four animals."""
    rows = [f"the {animal} {i},{'cat' if animal in ('cat', 'kitten') else 'dog'}\n"
            for i in range(count) for animal in ("cat", "kitten", "dog", "hound")]  # fmt: skip
    file.write_text("text,label\n" + "".join(rows * copies))


def run(capsys: pytest.CaptureFixture[str], words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and document of ``evaluate``."""
    code = main(["evaluate", *words.split(), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_exit_code_is_the_verdict(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0, 1 or 3; the document and the file have the gate beside the scores."""
    verdicts = {"new --gate 85": (0, "passed"), "old --gate 85": (1, "failed"), "old --gate 76": (3, "undecided")}
    for number, (words, (code, verdict)) in enumerate(verdicts.items()):
        model, *rest = words.split()
        ended, document = run(capsys, f"{model} held-out.csv {' '.join(rest)} --out {number}")
        gate = document["result"]["gate"]
        assert (ended, gate["verdict"], document.get("error", {}).get("exit_code", 0)) == (code, verdict, code)
        assert document["result"] == json.loads((place / str(number) / "scores.json").read_text())
        assert document["result"]["accuracy"] == pytest.approx(gate["score"] / 100)
    assert gate["interval"] == pytest.approx([100 * end for end in wilson_interval(0.75, 400)[1:]], abs=1e-3)
    assert gate["labels_needed"] > 1000
    assert gate["gate"] == 76


def test_a_new_model_may_be_a_little_worse(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paired over texts, in points; the page of the two has the sentence."""
    cases = {"new held-out.csv --against old --gate 1": 0, "old held-out.csv --against new --gate 1": 1,
             "old held-out.csv --against new --gate 24": 3, "old held-out.csv --against old --gate 1": 0,
             "old held-out.csv --against old --gate 0": 3}  # fmt: skip
    for number, (words, code) in enumerate(cases.items()):
        ended, document = run(capsys, f"{words} --out {number}")
        assert (ended, document["result"]["gate"]["gate"]) == (code, float(words.split()[-1])), words
        assert "difference in accuracy" in (place / str(number) / "report.html").read_text()
    assert document["result"]["gate"]["labels_needed"] is None


def test_copies_count_as_one_text(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Forty copies of eight right texts prove as little as the eight; nor do two models that agree on them."""
    write_table(place / "copies.csv", 2, 40)
    code, document = run(capsys, "new copies.csv --gate 85")
    gate = document["result"]["gate"]
    assert (code, gate["interval"][0]) == (3, pytest.approx(100 * wilson_interval(1, 8).low, abs=1e-3))
    assert run(capsys, "new copies.csv --against new --gate 5 --out agree")[0] == 3


def test_what_a_gate_says() -> None:
    """One sentence, the same that the page shows."""
    undecided = Gate(85, "accuracy", wilson_interval(0.87, 300), 300)
    assert f"\n{undecided.sentence()}\n" in PAGE
    assert json.dumps({"result": {"gate": undecided.to_dict() | {"gate": 85.0}}}) in PAGE
    assert Gate(85, "macro_f1", Estimate(0.9, 0.87, 0.93), 300).sentence() == (
        "Gate passed: macro f1 90.0% (87.0 to 93.0), so it is at least 85%."
    )
    assert Gate(85, "accuracy", Estimate(0.7, 0.66, 0.74), 300).sentence() == (
        "Gate failed: accuracy 70.0% (66.0 to 74.0), so it is under 85%."
    )
    assert Gate(1, "accuracy", Estimate(0.0, -0.008, 0.008), 300, ("b", "a")).sentence() == (
        "Gate passed: difference in accuracy +0.0 points (-0.8 to +0.8), so b is not worse than a by more than 1 point."
    )
    even = Gate(2.5, "accuracy", Estimate(-0.025, -0.05, 0.0), 300, ("b", "a"))
    assert (even.labels_needed, even.sentence()) == (None, (
        "Gate undecided: difference in accuracy -2.5 points (-5.0 to +0.0), so b may or may not be worse than a by more than 2.5 "
        "points. It is the gate itself, which no number of texts decides."
    ))  # fmt: skip


def test_gates_that_cannot_be_meant_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence, before anything is scored."""
    refused = {
        "new held-out.csv --gate 0.85": "--gate must be in percent, but is 0.85; for 85% write --gate 85",
        "new held-out.csv --gate 120": "--gate must be at most 100, but is 120",
        "new --pairs held-out.csv --gate 85": "--gate judges scores on a task, but --pairs has none; leave out one of the two",
    }
    for words, message in refused.items():
        assert main(["evaluate", *words.split()]) == 2
        assert capsys.readouterr().err == f"warmstart: {message}\n"
    for metric in ("pearson", "r2", None):
        check_gate_metric(None, metric)
        with pytest.raises(ConfigError, match="needs a score from 0 to 100%, which .* is not; leave out --gate"):
            check_gate_metric(85, metric)


def test_a_recipe_stops_at_its_gate(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also if it is run again; a gate that was passed is done."""
    step = {"command": "evaluate", "model": str(place / "old"), "task": str(place / "held-out.csv")}
    (place / "all.yaml").write_text(json.dumps({"title": "t", "steps": {"low": step | {"gate": 60}, "high": step | {"gate": 85}}}))
    assert main(["recipe", "all.yaml"]) == 1
    assert main(["recipe", "all.yaml"]) == 2
    assert "high exists and is not empty" in capsys.readouterr().err
    shutil.rmtree(place / "runs" / "all" / "high")
    assert main(["recipe", "all.yaml"]) == 1


@pytest.mark.journeys
@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell for the script of docs/how-to/gates.md")
def test_the_script_for_a_build_service_ends_as_the_gate_does(place: Path) -> None:
    """As it stands on the page, with the model that passes, the one that fails, and without a table."""
    (script,) = re.findall(r"```sh\n(set -u\n.*?)```", PAGE, flags=re.DOTALL)
    (place / "gate.sh").write_text(script)
    (place / "bin").mkdir()
    (place / "bin" / "warmstart").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m warmstart "$@"\n')
    (place / "bin" / "warmstart").chmod(0o755)
    environment = {**os.environ, "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    (place / "runs").mkdir()
    for model, code, line in (("new", 0, "is good enough"), ("old", 1, "is not good enough"), (None, 2, "Nothing was judged")):
        if model:
            shutil.copytree(place / model, place / "runs" / "fit", dirs_exist_ok=True)
        else:
            (place / "held-out.csv").unlink()
        ended = subprocess.run(["sh", "gate.sh"], cwd=place, env=environment, capture_output=True, text=True, check=False)
        assert (ended.returncode, line in ended.stdout) == (code, True), ended.stderr
        assert ("gate" in json.loads((place / "gate.json").read_text()).get("result", {})) == (model is not None)


@pytest.mark.proofs
def test_few_models_below_the_gate_pass() -> None:
    """A model a tenth of a point below its gate passes in at most 4% of builds, also where texts hang together; macro F1 in 6%."""
    chance, shares = np.random.default_rng(20261129), []
    for count, gate in ((100, 0.7), (100, 0.95), (300, 0.85), (1000, 0.95)):
        right = chance.random((2000, count)) < gate - 0.001
        passed = np.mean([proportion_in_units(row, np.arange(count)).low >= gate for row in right])
        print(f"gate {gate:.2f}, {count} texts: {passed:.3f} pass")
        shares.append(passed)
    units = np.repeat(np.arange(80), 5)  # texts of one customer are alike
    for gate in (0.7, 0.9):
        skill = chance.beta(4 * (gate - 0.001), 4 * (1.001 - gate), (2000, 80))
        right = chance.random((2000, 400)) < np.repeat(skill, 5, axis=1)
        passed = np.mean([proportion_in_units(row, units).low >= gate for row in right])
        print(f"gate {gate:.2f}, 80 customers of 5 texts: {passed:.3f} pass")
        shares.append(passed)
    assert max(shares) <= 0.04
    for accuracy in (0.8, 0.95):
        truth = macro_f1(*answers(chance, 1_000_000, accuracy))
        passed = np.mean([macro_f1_interval(*answers(chance, 300, accuracy)).low > truth for _ in range(300)])
        print(f"macro F1 at the gate, right on {accuracy:.2f}, 300 texts: {passed:.3f} pass")
        assert passed <= 0.06


def answers(chance: np.random.Generator, count: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """(N,) labels of four classes of unequal size, and predictions."""
    labels = chance.choice(4, count, p=(0.5, 0.3, 0.15, 0.05))
    return labels, np.where(chance.random(count) < accuracy, labels, (labels + chance.integers(1, 4, count)) % 4)


def macro_f1(labels: np.ndarray, predicted: np.ndarray) -> float:
    return classification_scores(labels, np.eye(4)[predicted], "abcd").macro_f1


def macro_f1_interval(labels: np.ndarray, predicted: np.ndarray) -> Estimate:
    """As ``evaluate`` has it."""
    score, draws = macro_f1(labels, predicted), resample_classification("macro_f1", labels, predicted, 4, 300)
    return wilson_interval(score, effective_cases(score * (1 - score), float(draws.var()), len(labels), len(labels)))


@pytest.mark.proofs
def test_few_models_that_are_too_bad_replace_the_old_one() -> None:
    """A model that is worse by a little more than the margin passes in at most 4% of builds, also where texts hang together."""
    chance, margin = np.random.default_rng(20261130), 0.01
    for count, size in ((300, 1), (1000, 1), (100, 5)):
        units, passed = np.repeat(np.arange(count), size), 0
        for _ in range(1500):
            hard = np.repeat(chance.random(count), size)  # the same for all texts of a customer
            old, new = (hard + 0.3 * chance.random(len(units)) < level for level in (1.0, 1.0 - margin - 0.001))
            found = paired_proportions([new.astype(float)], [old.astype(float)], units)
            passed += found.low >= -margin
        print(f"margin {margin:.2f}, {count} units of {size} texts: {passed / 1500:.3f} pass")
        assert passed / 1500 <= 0.04


@pytest.mark.proofs
def test_so_many_texts_decide_in_four_of_five_cases() -> None:
    """On as many texts as are named, a model as good as was measured is on the right side of its gate in about 80% of builds."""
    chance = np.random.default_rng(20261201)
    for share, gate in ((0.87, 0.85), (0.8, 0.85), (0.96, 0.93), (0.6, 0.65)):
        count = texts_to_decide(*wilson_interval(share, 300), gate, 300)
        assert count is not None
        ends = [wilson_interval(right / count, count) for right in chance.binomial(count, share, 4000)]
        decided = np.mean([end.low >= gate if share > gate else end.high < gate for end in ends])
        print(f"{share:.2f} at a gate of {gate:.2f}: {count} texts, {decided:.3f} decided")
        assert 0.72 <= decided <= 0.9
