"""``fit`` where a text may have several labels, or none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars
import pytest

import warmstart as ws
from helpers.bundles import unread_model
from warmstart.cli import main
from warmstart.commands.fit.command import fit_data, read_labelled
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import FitConfig
from warmstart.experiment.fit_lines import fit_lines
from warmstart.experiment.fit_result import FitResult
from warmstart.experiment.stack import combine
from warmstart.experiment.store import TrialPredictions
from warmstart.runs.verdict import MOST_LINES
from warmstart.stats.calibration import apply_temperature, fit_temperature, loss_gain
from warmstart.stats.scores import given_and_found, without_label
from warmstart.tasks.thresholds import thresholds_of

pytestmark = pytest.mark.usefixtures("few_baselines")
NAMES = ("hot", "sweet", "cold")
WORDS = {"hot": ("steam", "boils"), "sweet": ("sugar", "honey"), "cold": ("ice", "snow")}


def table(folder: Path, texts: int = 48) -> Path:
    """A csv of texts with any number of three labels, each of which has two words of its own."""
    chance, rows = np.random.default_rng(0), []
    for number in range(texts):
        held = [name for name in NAMES if chance.random() < 0.4]
        words = [*chance.choice(["a", "cup", "of", "tea", "is", "here"], 4), *(str(chance.choice(WORDS[name])) for name in held)]
        rows.append({"text": f"{' '.join(words)} {number}", "labels": "|".join(held)})
    polars.DataFrame(rows).write_csv(folder / "drinks.csv")
    return folder / "drinks.csv"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, few_baselines: None) -> tuple[Path, FitResult]:
    """A fit of that table by its words."""
    place = tmp_path_factory.mktemp("several")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.commands.fit.command.encoders_at_hand", lambda: ())
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        found = fit_data(FitConfig(data=str(table(place)), minutes=30, out=str(place / "run")))
    return place, found


def test_it_compares_methods_and_a_stack_and_saves_thresholds(fitted: tuple[Path, FitResult]) -> None:
    """Each text left out in turn; the gain is calibrated; the model gives labels at its thresholds."""
    place, found = fitted
    gains = {one.name: one.gain for one in found.candidates}
    assert {"majority", "stack"} < gains.keys()
    assert gains["majority"] < 0.05 < max(gains.values())
    assert (found.task.metric, found.learned) == ("micro_f1", True)
    model = ws.load(place / "run")
    assert len(thresholds_of(model)) == 3  # type: ignore[arg-type]
    assert ws.predict(model, "a cup of tea with sugar and ice")["labels"] == ["cold", "sweet"]  # type: ignore[arg-type]


def test_it_says_how_many_labels_are_right_and_how_many_are_found(fitted: tuple[Path, FitResult]) -> None:
    """In plain English, and by every metric; on the terminal, in the report and in the file."""
    place, found = fitted
    lines = fit_lines(found, place, place, None)
    assert len(lines) <= MOST_LINES
    for part in ("Use ", "Of 100 labels given, ", "all labels are right in ", "always the same labels"):
        assert any(part in line for line in lines), part
    scores = next(line for line in lines if line.startswith("On your own texts, left out: "))
    truth, given = found.left_out.labels, found.best.predicted
    hits, both = (truth * given).sum(axis=0), truth.sum(axis=0) + given.sum(axis=0)
    for name, score in (("micro-F1", 2 * hits.sum() / both.sum()), ("macro-F1", (2 * hits / both).mean())):
        (said,) = re.findall(rf"{name} ([01]\.\d\d)[,;]", scores)
        assert float(said) == pytest.approx(score, abs=0.006), name
    page = (place / "run" / "report.html").read_text()
    assert "right of those given, %" in page
    assert "Of 100 labels given, " in page


def test_other_commands_serve_it(fitted: tuple[Path, FitResult], capsys: pytest.CaptureFixture[str]) -> None:
    """``predict`` counts texts without any label, ``evaluate`` scores at the thresholds."""
    place, _ = fitted
    assert main(["predict", str(place / "run"), "steam and ice", "tea"]) == 0
    out = capsys.readouterr()
    assert '"labels": ["cold", "hot"]' in out.out
    assert ('"labels": []' in out.out) == ("no label reached its threshold in 1 of 2 texts" in out.err)
    test = place / "others.csv"
    cells = {"honey here": "sweet", "snow is steam": "cold|hot", "ice": "cold", "a cup boils": "hot"}
    polars.DataFrame({"text": [*cells], "labels": [*cells.values()]}).write_csv(test)
    assert main(["evaluate", str(place / "run"), str(test)]) == 0
    assert "of 100 that hold, 100 are found." in capsys.readouterr().err


def test_rows_without_a_label_are_texts_for_which_none_holds(tmp_path: Path) -> None:
    """Unless most are: these were not labelled."""
    place = table(tmp_path)
    held = read_labelled(FitConfig(data=str(place)))
    assert (len(held.train), len(held.unlabelled_texts)) == (48, 0)
    assert not held.train.labels.any(axis=1).all()
    frame = polars.read_csv(place)
    more = polars.DataFrame({"text": [f"tea {i}" for i in range(90)], "labels": [None] * 90}, schema=frame.schema)
    polars.concat([frame, more]).write_csv(place)
    assert len(read_labelled(FitConfig(data=str(place))).unlabelled_texts) > 90


def test_what_cannot_be_learned_is_refused(tmp_path: Path) -> None:
    """A metric of other tasks; labels that nobody repeats."""
    with pytest.raises(ConfigError, match="--metric must be micro_f1 or macro_f1 or subset for a multilabel task, but is accuracy"):
        ws.fit(["a", "b"] * 4, [["x"], ["x", "y"]] * 4, metric="accuracy")
    with pytest.raises(DataError, match="a label that two texts have and two have not"):
        ws.fit(["a", "b", "c"], [["x"], ["x", "y"], ["x"]])


def test_sentences_of_labels() -> None:
    """Counted over all texts and labels."""
    labels, predicted = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 1], [1, 0], [0, 0]])
    assert given_and_found(labels, predicted) == "Of 100 labels given, 67 are right; of 100 that hold, 67 are found."
    assert without_label(1 / 3) == "No label reached its threshold in 33 of 100 texts."
    assert (without_label(0.001), given_and_found(labels, 0 * labels)) == ("", "No label is given.")


def test_each_label_is_calibrated_by_itself() -> None:
    """Overconfident by a factor of two: the temperature is found, the gain is that of the calibrated probabilities."""
    chance = np.random.default_rng(0)
    odds = chance.normal(0, 1.5, (2000, 3))
    labels = (chance.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)
    sure = 1 / (1 + np.exp(-2 * odds))
    temperature = fit_temperature(sure, labels)
    assert temperature == pytest.approx(2, abs=0.15)
    assert apply_temperature(sure, 2.0, several=True) == pytest.approx(1 / (1 + np.exp(-odds)))
    gain, error = loss_gain(sure, labels, labels)
    assert gain > 10 * error
    assert loss_gain(np.full(labels.shape, 0.5), labels, labels)[0] < 0.01


def test_a_stack_of_several_labels_is_a_mean_of_calibrated_probabilities() -> None:
    """Rows need not sum to one; the better method has the larger weight."""
    chance = np.random.default_rng(0)
    labels = (chance.random((200, 4)) < 0.3).astype(float)
    good, bad = (np.clip(labels * gap + 0.2 + chance.normal(0, 0.1, labels.shape), 0.01, 0.99) for gap in (0.6, 0.2))
    shares, mean = combine([TrialPredictions(one, one) for one in (good, bad)], labels)
    assert shares[0].member == 0
    assert mean.test.shape == labels.shape
    assert mean.test.sum(axis=1).std() > 0.1
