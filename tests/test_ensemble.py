"""``adapt --ensemble``: several seeds as one model, the mean of their probabilities or of their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import SCHEME_CASES, classifier, language_bundle
from helpers.tasks import cats, tune, write_task
from warmstart.commands.adapt.command import AdaptConfig, adapt
from warmstart.commands.adapt.result import AdaptResult, EnsembleResult
from warmstart.data.budget import label_budget
from warmstart.errors import ConfigError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.ensemble import Averaged, FoldSoups, Soup
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.interop.load import load
from warmstart.interop.stack_export import stack_to_onnx
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import fresh_head
from warmstart.stack.stack import Stack
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import save_task
from warmstart.tasks.predict import raw_predictions, uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save(language_bundle(tokenizer), tmp_path / "lm")
    save_task(cats(), tmp_path / "task")
    return tmp_path


def run(place: Path, **changes: Any) -> AdaptResult:
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / "run"), "seeds": 3, "scratch": False}
    return adapt(AdaptConfig.build(given | {"labels": 24, "tune": tune(epochs=2)} | changes))


def test_a_soup_is_the_mean_of_tensors(tokenizer: Tokenizer) -> None:
    """Of every tensor, by torch's mean; the networks stay as they are."""
    models = [classifier(tokenizer) for _ in range(3)]
    for seed, model in enumerate(models):
        model.head = fresh_head(model.head.config, model.backbone, seed)
    before, soup = models[0].head.score.weight.clone(), Soup()
    for model in models:
        soup.add(model)
    found = soup.model.state_dict()
    for name in found:
        expected = torch.stack([model.state_dict()[name] for model in models]).mean(dim=0)
        torch.testing.assert_close(found[name], expected)
    assert torch.equal(models[0].head.score.weight, before)


@pytest.mark.parametrize("selection", ["cross-validation", "holdout"])
@pytest.mark.parametrize("kind", ["mean", "soup"])
def test_the_saved_model_is_what_was_scored(kind: str, selection: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command to the reloaded folder: its predictions, its temperature, its history, its report, its export."""
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: self.asked)
    result = run(place, ensemble=kind, selection=selection, calibration_fraction=0.25)
    saved, task = load(place / "run"), cats()
    assert isinstance(saved, Stack if kind == "mean" else Bundle)
    assert result.averaged
    found = uncalibrated_predictions(saved, task.test.texts)
    np.testing.assert_allclose(found, result.test_predictions, atol=1e-6)
    singles = [one.final.test_predictions for one in result.runs["pretrained"]]
    if kind == "mean":
        np.testing.assert_allclose(found, np.mean(singles, axis=0), atol=1e-6)
    assert saved.calibration
    assert len(saved.calibration.held_out) == result.set_apart == 6
    assert saved.history[-1].budget == (*result.label_findings, *result.ensemble_findings)
    assert saved.history[-1].test.figures["accuracy"] == result.scores[f"{kind} of 3 seeds"][0].score("accuracy")
    assert result.ensemble_findings[0] in (place / "run" / "report.html").read_text()
    assert [row[0] for row in result.ensemble_rows] == ["single seeds, mean", "mean of 3 seeds", "soup of 3 seeds"]
    assert {row.name for row in result.comparison.rows} >= {"mean of 3 seeds", "soup of 3 seeds"}
    if kind == "mean":
        assert [one.name for one in saved.members] == ["seed 0", "seed 1", "seed 2"]


def test_a_mean_is_exported_like_any_stack(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ONNX graphs with a script."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: self.asked)
    run(place, ensemble="mean", seeds=2, baselines=False)
    stack = load(place / "run")
    assert isinstance(stack, Stack)
    assert stack_to_onnx(stack, place / "exported") < 1e-4
    assert raw_predictions(stack, ["She holds the cat."]).shape == (1, 2)


def test_all_seeds_have_the_labels_of_the_first(place: Path) -> None:
    """A model of five draws would have looked at the labels of five; the report says that the intervals hold for one draw."""
    result = run(place, ensemble="mean", baselines=False)
    assert len({one.train.tobytes() for one in result.budgets.values()}) == 1
    assert result.labels == 24
    assert result.one_split
    folds = [[fold.choose.tolist() for fold in one.folds] for one in result.budgets.values()]
    assert folds[0] == folds[1] == folds[2]
    assert not np.array_equal(*(one.choosing for one in result.runs["pretrained"][:2])), "seeds differ all the same"


def test_fold_soups_predict_texts_that_no_member_learned_from(tokenizer: Tokenizer) -> None:
    """Each text that chooses is predicted by the mean of the networks that were trained without its fold."""
    task, bundle = cats(), language_bundle(tokenizer)
    budget, config = label_budget(task, 20, "cross-validation", 0), FineTuneConfig.build(tune(epochs=1))
    folds, models = FoldSoups(), list[tuple[int, Any]]()
    encoded = EncodedTask.of(task, classifier(tokenizer), tokenizer)

    def watch(fold: int, model: Any) -> None:
        folds.add(fold, model)
        models.append((fold, model))

    for seed in (0, 1):
        fine_tune_within(bundle, encoded, budget.for_seed(seed), config, SelectionSettings("cross-validation", watch=watch))
    assert [fold for fold, _ in models] == [0, 1, 2, 3, 4] * 2
    expected = []
    for number, fold in enumerate(budget.folds):
        mine, soup = [model for one, model in models if one == number], Soup()
        for model in mine:
            soup.add(model)
        expected.append(TASK_TYPES["classification"].predict(soup.model, encoded.fold(fold).validation, encoded.pad_id))
    np.testing.assert_array_equal(folds.predictions(encoded, budget), budget.joined(expected))


@pytest.mark.parametrize(("score", "kept"), [(0.6, True), (0.59, False)])
def test_what_is_worse_than_a_single_seed_is_not_saved(score: float, kept: bool) -> None:
    """The measure is the mean of single seeds: the best of them was chosen on the same texts."""
    model = Averaged("soup", "soup of 2 seeds", None, None, None, score, 10, 0.1)  # type: ignore[arg-type]
    result = EnsembleResult("soup", (model,), 10, 0.1)
    assert (result.kept((0.5, 0.7)) is model) == kept
    saved = "saved" if kept else "not saved"
    assert result.sentence((0.5, 0.7), "accuracy").endswith(f"and single seeds 60.0% on average; it is {saved}.")


def test_a_single_seed_is_saved_if_the_soup_is_worse(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder then holds a bundle as without the flag, and the report says so."""
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: None)
    result = run(place, ensemble="soup", baselines=False)
    assert isinstance(load(place / "run"), Bundle)
    assert result.saved.startswith("The saved model is that of seed")
    assert result.ensemble_findings[0].endswith("it is not saved.")


def test_a_mean_needs_no_texts_that_choose(place: Path) -> None:
    """Without selection it is saved, and the report says that no label chose."""
    result = run(place, ensemble="mean", selection="none", baselines=False)
    assert isinstance(load(place / "run"), Stack)
    assert result.ensemble_findings == ["The mean of 3 seeds is saved: no label chooses."]


@pytest.mark.parametrize("type_name", [*TASK_TYPES])
def test_every_task_type_has_a_soup(type_name: str, place: Path) -> None:
    """And those whose predictions have a mean have that too."""
    task = str(write_task(place / type_name, type_name))
    result = run(place, task=task, ensemble="soup", labels=None, selection="holdout", seeds=2, baselines=False)
    assert result.ensemble
    kinds = [one.kind for one in result.ensemble.models]
    assert kinds == (["mean", "soup"] if type_name in ("classification", "multilabel", "regression") else ["soup"])


@pytest.mark.parametrize("scheme", [name for name in SCHEME_CASES if "dapt" not in name])
def test_every_scheme_has_a_soup(scheme: str, place: Path) -> None:
    """Adapters and mixes have weights like any others."""
    result = run(place, ensemble="soup", selection="holdout", seeds=2, baselines=False, tune=tune(scheme, epochs=1))
    assert result.ensemble
    assert np.isfinite(result.ensemble.asked.score)


CASES: list[tuple[dict[str, Any], str]] = [
    ({"seeds": 1}, "needs two seeds at least, but has 1"),
    ({"selection": "none"}, "needs texts that choose"),
]


@pytest.mark.parametrize(("changes", "message"), CASES)
def test_what_cannot_be_averaged_is_refused(changes: dict[str, Any], message: str, place: Path) -> None:
    """Before anything is trained or written."""
    with pytest.raises(ConfigError, match=message):
        run(place, ensemble="soup", **changes)
    assert not (place / "run").exists()


def test_tags_have_no_mean(place: Path) -> None:
    """The message names what they have."""
    with pytest.raises(ConfigError, match="this is a tagging task; use --ensemble soup"):
        run(place, task=str(write_task(place / "tagging", "tagging")), ensemble="mean", labels=None)
