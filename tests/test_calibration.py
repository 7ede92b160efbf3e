"""Confidence: temperature and calibration error against independent sums, and promises that hold on simulated texts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from helpers.bundles import language_bundle
from helpers.figures import most, repeats
from helpers.tasks import cats
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data.task import Split
from warmstart.errors import ModelError
from warmstart.experiment.adaptation_result import AdaptResult
from warmstart.experiment.config import AdaptConfig
from warmstart.finetuning.calibration import split_calibration_texts, threshold_for
from warmstart.inspection.confidence import ConfidenceResult
from warmstart.model.bundle import Calibration
from warmstart.model.files import load_bundle, save
from warmstart.stats.calibration import (
    apply_temperature,
    calibration_error_change,
    expected_calibration_error,
    fit_temperature,
    log_losses,
    perfect_calibration_error,
    reliability_bins,
    temperature_interval,
    towards_one,
)
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer


def drawn(count: int, temperature: float, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from true probabilities, and what a model says that is off by a temperature."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0, 2, (count, classes))
    truth = softmax(logits, axis=1)
    labels = (truth.cumsum(axis=1) > chance.random(count)[:, None]).argmax(axis=1)
    return softmax(logits * temperature, axis=1), labels


def test_it_is_scikit_learns_temperature() -> None:
    """Parity with CalibratedClassifierCV(method="temperature") on the same held-out logits."""
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator
    from sklearn.linear_model import LogisticRegression

    chance = np.random.default_rng(1)
    features, labels = chance.normal(0, 1, (600, 5)), chance.integers(0, 3, 600)
    labels[features[:, 0] > 0.5] = 0
    model = LogisticRegression(C=1e3).fit(features[:40], labels[:40])  # too sure: it has seen little
    wrapped = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(features[40:], labels[40:])
    probabilities = model.predict_proba(features[40:])
    ours = apply_temperature(probabilities, fit_temperature(probabilities, labels[40:]))
    np.testing.assert_allclose(ours, wrapped.predict_proba(features[40:]), atol=2e-3)


MISTAKES = {"exact": 0.0, "noisy labels": 0.1}
"""fraction of labels that are drawn at random: a temperature alone cannot mend these"""


@pytest.mark.proofs
@pytest.mark.parametrize(("count", "draws"), [(50, 1000), (300, 1000), (2000, 400)])
@pytest.mark.parametrize("world", MISTAKES)
def test_the_interval_of_the_temperature_holds_the_truth(count: int, draws: int, world: str) -> None:
    """In 93 to 97% of draws and two Monte-Carlo errors, for two and for six classes, also if no temperature is right."""
    draws = repeats(draws, draws // 3)
    for classes, spread in ((2, 2.0), (6, 3.0)):

        def texts(count: int, chance: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
            said = softmax(chance.normal(0, spread, (count, classes)), axis=1)  # noqa: B023
            truth = said * (1 - MISTAKES[world]) + MISTAKES[world] / classes  # noqa: B023
            return said, (truth.cumsum(axis=1) > chance.random(count)[:, None]).argmax(axis=1)

        endless = fit_temperature(*texts(100_000, np.random.default_rng(0)))
        held, known = 0, 0
        for seed in range(draws):
            said, labels = texts(count, np.random.default_rng(1 + seed))
            interval = temperature_interval(said, labels, fit_temperature(said, labels))
            known += interval is not None
            held += interval is not None and interval[0] <= endless <= interval[1]
        print(f"{count} texts, {classes} classes, {world}: {held / known:.1%} of {known} intervals hold {endless:.3f}")
        assert 1 - held / known <= most(0.05, known) + 0.02
        assert held / known <= most(0.95, known) + 0.02


@pytest.mark.parametrize("temperature", [0.8, 1.0, 1.2])
def test_a_temperature_of_few_texts_is_better_moved_towards_one(temperature: float) -> None:
    """In the mean over 200 models that are off by a little, each with 40 texts: a lower loss on new texts, by more than noise."""
    gains = []
    for seed in range(200):
        found = fit_temperature(*drawn(40, temperature, seed=seed))
        said, labels = drawn(4000, temperature, seed=1000 + seed)
        losses = [log_losses(apply_temperature(said, one), labels).mean() for one in (found, towards_one(found, 40))]
        gains.append(losses[0] - losses[1])
    assert np.mean(gains) > 2 * np.std(gains) / np.sqrt(len(gains))


def test_the_ends_of_the_interval_lose_the_same_likelihood() -> None:
    """Where the model assumes more noise than there is, both ends cost t^2 / 2 nats; copies in groups say nothing new."""
    said, labels = drawn(500, 1.5, seed=1)
    temperature = fit_temperature(said, labels)
    interval = temperature_interval(said, labels, temperature)
    assert interval is not None
    losses = [log_losses(apply_temperature(said, one), labels).sum() for one in (interval[0], temperature, interval[1])]
    assert losses[0] - losses[1] == pytest.approx(losses[2] - losses[1], rel=1e-3)
    assert losses[0] - losses[1] >= 1.96**2 / 2
    assert 1.2 < interval[0] < temperature < interval[1] < 1.9
    copied = temperature_interval(said.repeat(2, axis=0), labels.repeat(2), temperature, np.arange(500).repeat(2))
    assert copied == pytest.approx(interval, rel=0.05), "copies of texts say nothing new"


def test_an_interval_without_texts_or_beyond_the_range() -> None:
    """None if all are right or there is one text; an end beyond the temperatures that are searched is theirs."""
    said = np.array([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])
    assert fit_temperature(said, np.array([0, 1, 0])) == 1.0, "no temperature is too low for them; none is made up"
    assert temperature_interval(said, np.array([0, 1, 0]), 1.0) is None
    assert temperature_interval(said[:1], np.array([1]), 20.0) is None
    labels = np.array([1, 1, 1])
    interval = temperature_interval(said, labels, fit_temperature(said, labels))
    assert interval is not None
    assert interval[1] == pytest.approx(20)


@pytest.mark.proofs
@pytest.mark.parametrize("count", [200, 500])
def test_few_equal_calibration_errors_are_said_to_differ(count: int) -> None:
    """One model is as overconfident as the other is underconfident: at most 5% of comparisons tell them apart, either way together.

    Temperatures 1.2 and 0.84 have the same error on endless texts, 3.5 points.
    """
    found = []
    for seed in range(repeats(300, 120)):
        calibrated, labels = drawn(count, 1.0, classes=3, seed=seed)
        right = calibrated.argmax(axis=1) == labels
        over, under = (apply_temperature(calibrated, 1 / by).max(axis=1) for by in (1.2, 0.842638))
        found.append(calibration_error_change(over, under, right))
    print(f"{count} texts: {np.mean(np.array(found) != 0):.1%} of comparisons of equal calibration errors claim a difference")
    assert np.mean(np.array(found) != 0) <= most(0.05, len(found))
    sure, labels = drawn(2000, 3.0, seed=1)
    right = sure.argmax(axis=1) == labels
    assert calibration_error_change(sure.max(axis=1), apply_temperature(sure, 3.0).max(axis=1), right) == -1


VERDICTS = {
    (1.2, 1.8): "The model was overconfident: the temperature fitted on the validation texts is 1.50 (1.20 to 1.80).",
    (0.3, 0.9): "The model was underconfident: the temperature",
    (0.9, 2.5): "No significant miscalibration: the temperature fitted on the validation texts is 1.50 (0.90 to 2.50), and the "
    "interval includes 1; a distance of 1.14 from 1 would have been detected with 80% power.",
    None: "No temperature was fitted, because all validation texts are classified correctly",
}
"""by interval of the temperature"""


def test_confidence_is_judged_beyond_noise() -> None:
    """Over- or underconfident only if the interval excludes 1; few test texts show no change, many do."""
    few, many = (drawn(count, 1.5, seed=2) for count in (20, 2000))
    for interval, sentence in VERDICTS.items():
        calibration = Calibration(temperature=1.0 if interval is None else 1.5, interval=interval)
        for (said, labels), expected in ((few, "did not change significantly"), (many, "fell")):
            first, *rest = ConfidenceResult(calibration, said, labels, np.arange(len(labels))).findings[0].split("With it, ")
            assert first.startswith(sentence)
            assert bool(rest) == (interval is not None)
            for what in rest:
                assert f"the log loss on the test texts {expected}" in what
                assert f"The expected calibration error there {expected}" in what


@given(st.integers(0, 1000), st.floats(0.06, 15))
def test_no_label_changes(seed: int, temperature: float) -> None:
    """Order stays, rows sum to one."""
    probabilities, _ = drawn(20, 1.0, seed=seed)
    scaled = apply_temperature(probabilities, temperature)
    np.testing.assert_array_equal(scaled.argmax(axis=1), probabilities.argmax(axis=1))
    np.testing.assert_allclose(scaled.sum(axis=1), 1)


def test_the_calibration_error_by_hand() -> None:
    """Two bins of two texts: |0.55 - 0.5| and |0.95 - 0.5|; of four equal widths, 0.5 and 0.6 stand alone and 0.5 is on an edge."""
    sure, right = np.array([0.5, 0.6, 0.9, 1.0]), np.array([True, False, True, False])
    assert expected_calibration_error(sure, right, bins=2) == pytest.approx((0.05 + 0.45) / 2)
    assert expected_calibration_error(sure, right, bins=4, equal_mass=False) == pytest.approx((0.5 + 0.6 + 2 * 0.45) / 4)
    assert [one.count for one in reliability_bins(sure, right, bins=2)] == [2, 2]


def test_a_perfect_model_shows_the_error_of_chance() -> None:
    """Calibrated labels of 500 texts: their calibration error is that of chance on average, which is far from 0."""
    chance = np.random.default_rng(7)
    confidence = chance.beta(6, 2, 500)
    errors = [expected_calibration_error(confidence, chance.random(500) < confidence) for _ in range(400)]
    expected = perfect_calibration_error(confidence)
    assert expected == pytest.approx(np.mean(errors), rel=0.05)
    assert 0.04 < expected < 0.08


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A language model and a task."""
    folder = tmp_path_factory.mktemp("calibration")
    save_task(cats(), folder / "task")
    save(language_bundle(tokenizer), folder / "lm")
    return folder


@pytest.fixture(scope="module")
def adapted(place: Path) -> AdaptResult:
    """With half of the validation texts for calibration; its run is in ``run``."""
    return adapt(run(place, "run", calibration_fraction=0.5))


def run(place: Path, out: str, **changes: object) -> AdaptConfig:
    tune = {"train": {"epochs": 3, "batch": 8, "learning_rate": 5e-3}}
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / out), "tune": tune, "seeds": 2}
    return AdaptConfig.build(given | {"scratch": False, "baselines": False} | changes)


def test_a_bundle_keeps_its_calibration(place: Path, adapted: AdaptResult) -> None:
    """Saved and loaded it is the same; predictions are calibrated; the report has a section on it."""
    bundle = load_bundle(place / "run" / "bundle")
    assert bundle.calibration
    assert len(bundle.calibration.held_out) == 10
    assert len(adapted.task.validation) == 10
    expected = apply_temperature(adapted.best.final.test_predictions, bundle.calibration.temperature)
    np.testing.assert_allclose(raw_predictions(bundle, adapted.task.test.texts), expected, atol=1e-6)
    page = (place / "run" / "report.html").read_text()
    assert "Can its confidence be trusted?" in page
    assert "guaranteed error rate" in page


def test_calibration_texts_choose_nothing() -> None:
    """They are disjoint from the validation texts that remain."""
    task = cats()
    rest, calibration = split_calibration_texts(task, 0.5)
    assert calibration
    assert sorted((*rest.validation.texts, *calibration.texts)) == sorted(task.validation.texts)
    assert len(calibration) == 10
    assert split_calibration_texts(task, 0.0) == (task, None)


@pytest.mark.parametrize(("split", "labels"), [("validation", None), ("train", 20)])
def test_copies_of_a_text_are_on_one_side(split: str, labels: int | None) -> None:
    """Without groups too: none of the texts that choose is among those that guarantee, and of each text one copy serves.

    Of the validation texts, or of a budget of labels, which have no influence.
    """
    task = cats()
    once = task.splits()[split]
    twice = Split(tuple(f"{text}{' ' * copy}" for text in once.texts for copy in range(2)), once.labels.repeat(2))
    rest, calibration = split_calibration_texts(replace(task, **{split: twice}), 0.5, labels)
    assert calibration
    kept, apart = ({text.strip() for text in one.texts} for one in (rest.splits()[split], calibration))
    assert not kept & apart
    assert labels or kept | apart == {*once.texts}
    assert len(calibration) == len(apart) <= (labels or len(once)) / 2
    relabelled = replace(task, **{split: Split(twice.texts, 1 - twice.labels)})
    assert split_calibration_texts(relabelled, 0.5, labels)[1].texts == calibration.texts  # type: ignore[union-attr]


@pytest.mark.usefixtures("adapted")
def test_predict_abstains_below_the_threshold(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With few texts no threshold can guarantee 1% errors; a loose guarantee labels what is sure; no held-out texts: an error."""
    assert main(["predict", str(place / "run"), "She holds the cat.", "--target-error", "0.01"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["label"] is None
    assert "No threshold can guarantee" in out.err
    assert main(["predict", str(place / "run"), "She holds the cat.", "--target-error", "0.6"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "cat"
    adapt(run(place, "plain"))
    capsys.readouterr()
    assert main(["predict", str(place / "plain"), "She holds the cat.", "--target-error", "0.05"]) == 2
    assert "adapt it with --calibration-fraction 0.5" in capsys.readouterr().err.replace("\n", " ")


def test_a_language_model_has_no_calibration(place: Path) -> None:
    """And no guarantee can be given with it."""
    bundle = load_bundle(place / "lm")
    assert bundle.calibration is None
    with pytest.raises(ModelError, match="a guarantee needs held-out texts that chose nothing"):
        threshold_for(bundle, 0.1, 0.95)
