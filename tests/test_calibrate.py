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

from test_race import cats
from test_schemes import language_bundle
from warmstart.cli import main
from warmstart.data import Split, save_task
from warmstart.errors import ModelError
from warmstart.evaluate import find_bar, predict
from warmstart.evaluate.calibrate import at_temperature, calibration_error, fit_temperature, reliability
from warmstart.model import load, save
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.adapt import AdaptConfig, adapt
from warmstart.workflows.calibration import bar_for, set_apart


def drawn(count: int, temperature: float, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels drawn from true probabilities, and what a model says that is off by a temperature."""
    chance = np.random.default_rng(seed)
    logits = chance.normal(0, 2, (count, classes))
    truth = softmax(logits, axis=1)
    labels = (truth.cumsum(axis=1) > chance.random(count)[:, None]).argmax(axis=1)
    return softmax(logits * temperature, axis=1), labels


@pytest.mark.parametrize("distortion", [0.4, 1.0, 3.0])
def test_a_known_distortion_is_found_and_mended(distortion: float) -> None:
    """The fitted temperature is the one that was put in, and the calibration error falls to that of chance."""
    said, labels = drawn(20_000, distortion)
    temperature = fit_temperature(said, labels)
    assert temperature == pytest.approx(distortion, rel=0.05)
    mended = at_temperature(said, temperature)
    right = mended.argmax(axis=1) == labels
    assert calibration_error(mended.max(axis=1), right) < 0.015
    if distortion != 1:
        assert calibration_error(said.max(axis=1), right) > 0.05


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
    said = model.predict_proba(features[40:])
    ours = at_temperature(said, fit_temperature(said, labels[40:]))
    np.testing.assert_allclose(ours, wrapped.predict_proba(features[40:]), atol=2e-3)


@given(st.integers(0, 1000), st.floats(0.06, 15))
def test_no_label_changes(seed: int, temperature: float) -> None:
    """Order stays, rows sum to one."""
    said, _ = drawn(20, 1.0, seed=seed)
    scaled = at_temperature(said, temperature)
    np.testing.assert_array_equal(scaled.argmax(axis=1), said.argmax(axis=1))
    np.testing.assert_allclose(scaled.sum(axis=1), 1)


def test_the_calibration_error_by_hand() -> None:
    """Two bins of two texts: |0.55 - 0.5| and |0.95 - 0.5|; of four equal widths, 0.5 and 0.6 stand alone and 0.5 is on an edge."""
    sure, right = np.array([0.5, 0.6, 0.9, 1.0]), np.array([True, False, True, False])
    assert calibration_error(sure, right, bins=2) == pytest.approx((0.05 + 0.45) / 2)
    assert calibration_error(sure, right, bins=4, equal_mass=False) == pytest.approx((0.5 + 0.6 + 2 * 0.45) / 4)
    assert [one.count for one in reliability(sure, right, bins=2)] == [2, 2]


def test_equal_width_bins_are_the_brute_force_sum() -> None:
    """A loop over bins, as the definition has it (Naeini et al. 2015)."""
    chance = np.random.default_rng(2)
    sure = chance.random(500)
    right = chance.random(500) < sure
    total = 0.0
    for number in range(15):
        inside = (sure > number / 15) & (sure <= (number + 1) / 15) if number else sure <= 1 / 15
        if inside.any():
            total += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    assert calibration_error(sure, right, equal_mass=False) == pytest.approx(total)


@pytest.mark.parametrize(("shape", "ties"), [((5, 1), None), ((2, 2), None), ((8, 1), 1)], ids=["sure", "spread", "tied"])
def test_promises_hold_on_simulated_texts(shape: tuple[int, int], ties: int | None) -> None:
    """Over 1,000 draws of held-out texts, the bar's true share of wrong labels passes 10 % in at most 5 % of them."""
    chance = np.random.default_rng(3)

    def texts(count: int) -> tuple[np.ndarray, np.ndarray]:
        sure = chance.beta(*shape, count)
        right = chance.random(count) < 0.6 * sure + 0.4 * sure**4  # too sure of itself
        return (sure if ties is None else sure.round(ties)), right

    endless, broken = texts(200_000), 0
    for _ in range(1000):
        bar = find_bar(*texts(300), 0.1, 0.95)
        given = endless[0] >= bar.threshold
        broken += bool(given.any()) and (~endless[1][given]).mean() > 0.1
    assert broken <= 50


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_mapie_agrees_on_what_can_be_promised() -> None:
    """Its controller of a risk with the same certainty admits bars near ours; neither is wildly below the other's threshold."""
    control = pytest.importorskip("mapie.risk_control", reason="pip install mapie to run this test")
    chance = np.random.default_rng(4)
    sure = chance.uniform(0.5, 1, 2000)
    positive = chance.random(2000) < sure  # calibrated: where it says yes with confidence p, it is right with p
    risk = control.BinaryClassificationController(
        predict_function=lambda rows: np.stack([1 - rows[:, 0], rows[:, 0]], axis=1),
        risk="precision",
        target_level=0.85,
        confidence_level=0.95,
        best_predict_param_choice="recall",
    )
    risk.calibrate(sure[:, None], positive.astype(int))
    ours = find_bar(sure, positive, 0.15, 0.95)
    assert risk.best_predict_param == pytest.approx(ours.threshold, abs=0.06)


@pytest.fixture
def adapted(tmp_path: Path, tokenizer: Tokenizer, no_second_process: None) -> Path:
    save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    return tmp_path


def run(place: Path, out: str, **changes: object) -> AdaptConfig:
    tune = {"train": {"epochs": 3, "batch": 8, "learning_rate": 5e-3}}
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / out), "tune": tune, "seeds": 2}
    return AdaptConfig.build(given | {"scratch": False, "baselines": False} | changes)


def test_a_bundle_keeps_its_calibration(adapted: Path) -> None:
    """Saved, loaded, the same; probabilities are at the temperature; the report has its section."""
    outcome = adapt(run(adapted, "run", calibration=0.5))
    bundle = load(adapted / "run" / "bundle", selftest=True)
    assert bundle.calibration
    assert len(bundle.calibration.held_out) == 10
    assert len(outcome.task.validation) == 10
    expected = at_temperature(outcome.best.probabilities, bundle.calibration.temperature)
    np.testing.assert_allclose(predict(bundle, outcome.task.test.texts), expected, atol=1e-6)
    page = (adapted / "run" / "report.html").read_text()
    assert "Can its confidence be trusted?" in page
    assert "promised at most" in page


def test_texts_set_apart_choose_nothing() -> None:
    """Validation and what is set apart are disjoint and together the whole; the draw is a plain one, whatever the labels are."""
    task = cats()
    chosen, apart = set_apart(task, 0.5)
    assert apart
    assert sorted((*chosen.validation.texts, *apart.texts)) == sorted(task.validation.texts)
    assert len(apart) == 10
    turned = replace(task, validation=Split(task.validation.texts, 1 - task.validation.labels))
    assert set_apart(turned, 0.5)[1].texts == apart.texts  # type: ignore[union-attr]
    assert set_apart(task, 0.0) == (task, None)


def test_predict_keeps_silent_below_the_bar(adapted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With few texts no bar can promise 1 %; a loose promise labels what is sure; without texts apart there is a clear error."""
    adapt(run(adapted, "run", calibration=0.5))
    capsys.readouterr()
    assert main(["predict", str(adapted / "run"), "She holds the cat.", "--target-error", "0.01"]) == 0
    out = capsys.readouterr()
    assert json.loads(out.out)["label"] is None
    assert "no bar can promise" in out.err
    assert main(["predict", str(adapted / "run"), "She holds the cat.", "--target-error", "0.6"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == "cat"
    adapt(run(adapted, "plain"))
    assert main(["predict", str(adapted / "plain"), "She holds the cat.", "--target-error", "0.05"]) == 2
    assert "adapt it with --calibration 0.5" in capsys.readouterr().err.replace("\n", " ")


def test_old_bundles_load_without_it(adapted: Path, tokenizer: Tokenizer) -> None:
    """A language model has none, and makes no promise."""
    bundle = load(adapted / "lm")
    assert bundle.calibration is None
    with pytest.raises(ModelError, match="set none apart"):
        bar_for(bundle, 0.1, 0.95)


def test_texts_that_are_all_right_leave_confidence_alone() -> None:
    """No temperature is too low for them; none is made up."""
    said = np.array([[0.7, 0.3], [0.2, 0.8], [0.9, 0.1]])
    assert fit_temperature(said, np.array([0, 1, 0])) == 1.0
    assert fit_temperature(said, np.array([0, 1, 1])) > 1.0
