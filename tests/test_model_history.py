"""A model's history: counts of what it predicted, and what has changed by month."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warmstart as ws
from helpers.mutants import bases
from helpers.served import asked
from warmstart.app.models import open_models
from warmstart.app.routes import Server
from warmstart.cli import main
from warmstart.commands.runs import ModelMonths
from warmstart.model.bundle import Calibration
from warmstart.model.files import save
from warmstart.runs import tally as history
from warmstart.runs.state import RunState, find_runs
from warmstart.runs.tally import MONTH, NO_HISTORY, Recorder, Tally, history_of, read_tallies, shift_sentence, summed
from warmstart.seeding import rng
from warmstart.system.storage import HISTORY_FILE
from warmstart.tokenizer.tokenizer import Tokenizer

TEXTS = ("I want tea", "a glass of milk", "", "water for the cat")
Run = tuple[Path, Path]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, few_baselines: None) -> Iterator[Run]:
    """A table, and the run of a fit by words alone."""
    place = tmp_path_factory.mktemp("history")
    rows = [
        f"{verb} the {noun} number {i},{label}"
        for i in range(12)
        for verb, noun, label in (("drink", "tea", "cup"), ("eat", "rice", "bowl"))
    ]
    (place / "base.csv").write_text("\n".join(["text,label", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.interop.encoders.installed", lambda one: None)
        assert main(["fit", str(place / "base.csv"), "--out", str(place / "run"), "--schemes"]) == 0
        yield place / "base.csv", place / "run"


@pytest.fixture
def model(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A network by itself, which can tell unknown texts."""
    held_out = tuple((0.3 + i / 300, i > 80) for i in range(200))
    return save(replace(bases(tokenizer)["labels"], calibration=Calibration(temperature=1.5, held_out=held_out)), tmp_path / "cups")


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a history."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_counts_add_up_to_what_was_printed(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each call; blank texts are left out. The Python function writes nothing."""
    assert main(["predict", str(model), *TEXTS, "--json"]) == 0
    printed = [row for row in json.loads(capsys.readouterr().out)["result"] if row["label"] is not None]
    assert len(printed) == 3
    (line,) = lines(model.with_name("cups.history.ndjson"))
    assert (line["texts"], line["labels"]) == (3, Counter(row["label"] for row in printed))
    assert line["unknown"] == sum(row["unknown"] for row in printed)
    assert line["confidence"] == pytest.approx(np.mean([max(row["probabilities"].values()) for row in printed]), abs=1e-3)
    ws.predict(ws.load(model), list(TEXTS))
    assert main(["predict", str(model), "tea", "--target-error", "0.01"]) == 0
    assert [line["texts"] for line in lines(model.with_name("cups.history.ndjson"))] == [3, 1]


def test_no_text_is_in_the_file(model: Path) -> None:
    """Nor a word of one, nor a hash: a line has a date, the model, labels and numbers."""
    assert main(["predict", str(model), "zanzibar quetzal 4711"]) == 0
    (line,) = lines(model.with_name("cups.history.ndjson"))
    assert line.keys() == {"date", "model", "texts", "labels", "unknown", "drift", "confidence"}
    assert not any(word in json.dumps(line) for word in ("zanzibar", "quetzal", "4711"))


def test_a_place_that_cannot_be_written_changes_nothing(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code and output are the same where writing is refused; what a link names, and a file of the user's, is not written."""
    monkeypatch.setenv(NO_HISTORY, "1")
    assert main(["predict", str(model), "tea"]) == 0
    expected, file = capsys.readouterr(), model.with_name("cups.history.ndjson")
    assert not file.exists()
    monkeypatch.delenv(NO_HISTORY)
    file.symlink_to(tmp_path / "precious")
    (tmp_path / "precious").write_text("mine")
    assert main(["predict", str(model), "tea"]) == 0
    assert (capsys.readouterr(), (tmp_path / "precious").read_text()) == (expected, "mine")
    file.unlink()
    file.write_text("my own history")
    assert main(["predict", str(model), "tea"]) == 0
    assert (capsys.readouterr(), file.read_text()) == (expected, "my own history")
    file.unlink()
    opened = Path.open

    def refused(path: Path, *how: Any, **named: Any) -> Any:
        if path.name == file.name:
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **named)

    monkeypatch.setattr(Path, "open", refused)
    assert main(["predict", str(model), "tea"]) == 0
    assert capsys.readouterr() == expected


@pytest.mark.parametrize("kind", ["number", "causal"])
def test_numbers_have_a_mean_and_other_models_no_history(tokenizer: Tokenizer, tmp_path: Path, kind: str) -> None:
    """A model that writes texts has none."""
    folder = save(bases(tokenizer)[kind], tmp_path / kind)
    code = main(["predict", str(folder), "I want tea", "two cups of milk"])
    file, _ = history_of(folder)
    assert file
    assert file.exists() == (kind == "number" and code == 0)
    if kind == "number":
        (line,), (read,) = lines(file), read_tallies(file)
        assert line.keys() == {"date", "model", "texts", "mean", "deviation"}
        assert (read + read).to_dict()["deviation"] == pytest.approx(line["deviation"], rel=1e-3)
        assert main(["runs", str(folder)]) == 0


def test_a_run_with_a_history_is_sound_and_can_be_fitted_again(fitted: Run, tmp_path: Path) -> None:
    """The file is kept, the model's key tells both models apart, and a run that was used is not written later."""
    table, run = fitted
    (written,) = [state.changed for state in find_runs(run)]
    assert main(["predict", str(run), str(table)]) == 0
    assert main(["predict", str(run), str(table), "--shares"]) == 0
    assert main(["predict", str(run / "bundle"), "another text of tea"]) == 0
    assert main(["doctor", str(run)]) == 0
    first = lines(run / HISTORY_FILE)
    assert [line["texts"] for line in first] == [24, 1]  # of its own texts a model counts the labels, and predicts none
    assert RunState(run, "run").changed == written
    table.write_text(table.read_text() + "\ncook the soup,bowl\nsip the tea,cup")
    assert main(["fit", str(table), "--out", str(run), "--schemes"]) == 0
    assert main(["predict", str(run), "a text of rice"]) == 0
    after = lines(run / HISTORY_FILE)
    assert after[:-1] == first
    assert after[-1]["model"] != first[0]["model"]
    model = ModelMonths(run, after[-1]["model"], tuple(read_tallies(run / HISTORY_FILE)))
    assert "(earlier model)" in model.table()[0][0] + model.table()[1][0]
    assert model.findings == [
        "So far 1 text, and no earlier month to compare with.",
        "25 texts of earlier models here are not compared.",
    ]
    assert "no earlier month" in model._repr_html_()


@pytest.mark.usefixtures("socket_enabled")
def test_a_server_appends_at_its_end(model: Path) -> None:
    """One line for all requests, and one before a model is loaded again."""
    models = open_models([str(model)])
    server, file = Server(models, 1024, 0.0, 64), model.with_name("cups.history.ndjson")
    for texts in (["tea"], ["tea", "milk", " "]):
        asked(server, "/api/predict", {"inputs": texts})
    assert not file.exists()
    models.reload("cups")
    asked(server, "/api/predict", {"inputs": ["tea"]})
    server.close()
    assert [line["texts"] for line in lines(file)] == [3, 1]


def tallies(*months: tuple[str, float], days: int = 20, texts: int = 8, seed: int = 0, spread: float = 0.0) -> list[Tally]:
    """Days of months with these shares of unknown texts, which vary by ``spread``; a third of the texts have each label."""
    chance, found = rng(seed, "history"), list[Tally]()
    for month, share in months:
        for day in range(1, days + 1):
            labels = chance.multinomial(texts, chance.dirichlet(np.full(3, 1 / spread**2)) if spread else np.full(3, 1 / 3))
            unknown = int(chance.binomial(texts, min(1.0, share * chance.gamma(4) / 4) if spread else share))
            sums = {"unknown": unknown, "confidence": float(chance.uniform(0.6, 1, texts).sum())}
            counts = dict(zip("abc", map(int, labels), strict=True))
            found.append(Tally(f"{month}-{day:02}T08:00:00Z", "m", texts, counts, sums))
    return found


def test_a_change_is_said_with_its_month() -> None:
    """More unknown texts come before all; fewer need no labels; few texts, or one month, are not compared."""
    july, august, september, october = ((f"2025-{month:02}", 0.03) for month in (7, 8, 9, 10))
    sentence = shift_sentence(tallies(july, august, ("2025-09", 0.15), ("2025-10", 0.15)))
    assert sentence.startswith("Since September 2025 more texts are like none of the labels (")
    assert sentence.endswith(" of 100, before 2): label 50 of them, `warmstart label NEW --import LABELLED --out labels`.")
    fewer = shift_sentence(tallies(("2025-07", 0.2), ("2025-08", 0.2), september, october))
    assert fewer.startswith("Since September 2025 fewer texts")
    assert fewer.endswith(").")
    assert shift_sentence(tallies(july, august, september)) == "Nothing has changed beyond chance since July 2025."
    assert shift_sentence(tallies(july)) == "So far 160 texts, and no earlier month to compare with."
    assert shift_sentence([]) == "So far 0 texts, and no earlier month to compare with."
    other = [replace(one, labels={"a": one.texts}, sums={"confidence": 0.5 * one.texts}) for one in tallies(october)]
    sure = [replace(one, sums={"confidence": 0.9 * one.texts}) for one in tallies(july, august)]
    assert shift_sentence([*sure, *other]).startswith("Since October 2025 more texts are labelled 'a' (100 of 100, before 3")
    less = [replace(one, labels=like.labels) for one, like in zip(other, sure, strict=False)]
    assert shift_sentence([*sure, *less]).startswith(
        "Since October 2025 the model is less sure (50 of 100, before 90): label 50 new"
    )


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_what_has_not_changed_is_seldom_said_to_have(spread: float) -> None:
    """At most 5 of 100 histories of six equal months are said to have changed, also where texts of a day hang together."""
    months = [(f"2025-{month:02}", 0.05) for month in range(4, 10)]
    runs = [tallies(*months, days=10, texts=12, seed=seed, spread=spread) for seed in range(200)]
    false = sum(not shift_sentence(run).startswith("Nothing") for run in runs)
    print(f"{false} of {len(runs)} histories without a change are said to have one")
    assert false <= 10


def test_damaged_lines_are_skipped(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is left is shown, also as JSON; a model without a history says so."""
    assert main(["runs", str(model)]) == 0
    assert "So far 0 texts" in capsys.readouterr().err
    file = model.with_name("cups.history.ndjson")
    assert main(["predict", str(model), "tea", "milk"]) == 0
    wrong = [
        b"\xff",
        b"[]",
        b'{"date": 3}',
        b'{"date": "2025-01", "model": "m", "texts": 1, "labels": {"a": 2}}',
        b'{"date": "2025',
        b"null",
    ]
    file.write_bytes(b"\n".join(wrong) + b"\n" + file.read_bytes())
    capsys.readouterr()
    assert main(["runs", str(model), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)["result"]
    assert [month["texts"] for month in result["months"]] == [2]
    assert (result["changed"], result["findings"]) == (None, ["So far 2 texts, and no earlier month to compare with."])
    assert [run.name for run in find_runs(model.parent)] == ["cups"]


def test_a_long_history_is_summed_by_month(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its counts are there, in fewer lines."""
    file = model.with_name("cups.history.ndjson")
    before = tallies(("2025-07", 0.1), ("2025-08", 0.1))
    file.write_text("".join(f"{json.dumps(one.to_dict())}\n" for one in before))
    monkeypatch.setattr(history, "MOST_BYTES", file.stat().st_size)
    Recorder(model).count(["tea"], ws.predict(ws.load(model), ["tea"]))
    *sums, new = read_tallies(file)
    assert [one.to_dict() for one in sums] == [one.to_dict() for one in summed(before, MONTH)]
    assert (new.texts, len(lines(file))) == (1, 3)
