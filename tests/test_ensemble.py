"""``adapt --teacher``: a saved model teaches a student, and texts that choose decide; ``--ensemble``: seeds as one model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from helpers.bundles import classifier, language_bundle
from helpers.tasks import cats, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data.budget import label_budget
from warmstart.data.task import Split
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.adaptation import AdaptConfig
from warmstart.experiment.adaptation_result import AdaptResult, EnsembleResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.ensemble import Averaged, FoldSoups, Soup
from warmstart.finetuning.finetune import run_length, task_model, training_inputs
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask, SoftBatch, SoftTexts, soft_cross_entropy
from warmstart.finetuning.schemes import make_scheme
from warmstart.finetuning.selection import SelectionSettings, fine_tune_within
from warmstart.finetuning.teacher import Lesson, Teacher, TeacherChoice, TeacherConfig, teaching_pool
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import fresh_head
from warmstart.stack.files import save_stack
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.readout import ConstantReadout, LinearReadout
from warmstart.stack.rows import WordRows
from warmstart.stack.stack import Member, Stack
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.load import load_task, save_task
from warmstart.tasks.predict import uncalibrated_predictions
from warmstart.tokenizer.tokenizer import Tokenizer


def word_stack(labels: tuple[str, ...] = ("other", "cat"), sign: float = 1.0) -> Stack:
    """A teacher that knows the answer: the word cat decides."""
    sums = np.array([[1.0 if label == "cat" else -1.0 for label in labels]]) * 6 * sign
    rows, readout = WordRows(("cat",), word_pairs=False), LinearReadout(sums, -sums[0] / 2)
    return Stack((Member("words", FittedBaseline(rows, readout)),), "classification", labels)


@pytest.fixture(scope="module")
def made(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model, a task and a teacher."""
    folder = tmp_path_factory.mktemp("made")
    save(language_bundle(tokenizer), folder / "lm")
    save_task(cats(), folder / "task")
    save_stack(word_stack(), folder / "teacher")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of them, beside which a test works."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def taught(place: Path, **changes: Any) -> AdaptResult:
    number = len([*place.glob("run*")])
    distil = {"teacher": str(place / "teacher")} | changes.pop("distil", {})
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / f"run{number}"), "scratch": False}
    given |= {"labels": 12, "seeds": 2, "baselines": False, "tune": tune(epochs=20), "distil": distil}
    return adapt(AdaptConfig.build(given | changes))


def soft(tokenizer: Tokenizer, probabilities: np.ndarray | None = None, **changes: Any) -> SoftTexts:
    texts = [f"They found the {what} in {year}." for what in ("cat", "lake") for year in (1901, 1902, 1903, 1904, 1905)]
    encoded = EncodedTask.of(cats().with_train(Split(tuple(texts), np.zeros(10, dtype=np.int64))), classifier(tokenizer), tokenizer)
    given = np.tile([0.3, 0.7], (10, 1)) if probabilities is None else probabilities
    return replace(SoftTexts(encoded.train, given, 1.0, 1.0), **changes)


def test_the_loss_is_torchs_cross_entropy_with_probabilities(tokenizer: Tokenizer) -> None:
    """At temperature 1; at another it is that of the divided logits, times the square; of 0 and 1 it is that of labels."""
    logits, targets = torch.randn(5, 3), torch.rand(5, 3).softmax(dim=1)
    expected = F.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(soft_cross_entropy(logits, targets, 1.0), expected)
    by_hand = -9 * (targets * (logits / 3).log_softmax(dim=1)).sum()
    torch.testing.assert_close(soft_cross_entropy(logits, targets, 3.0), by_hand)
    labels = np.array([1] * 5 + [0] * 5)
    taught, model = soft(tokenizer, np.eye(2)[labels]), classifier(tokenizer)
    batch = taught.batch(np.arange(10), tokenizer.specials.pad, causal=False)
    plain = taught.encoded.batch(np.arange(10), labels, tokenizer.specials.pad, causal=False)
    torch.testing.assert_close(taught.loss(model, batch), model.loss(plain))
    torch.testing.assert_close(replace(taught, weight=0.5).loss(model, batch), model.loss(plain) / 2)


def test_each_labelled_batch_comes_with_as_many_texts_of_the_pool(tokenizer: Tokenizer) -> None:
    """A step's loss is divided by its labelled texts alone, and the batches of a step are a pure function of its number."""
    bundle, task = language_bundle(tokenizer), label_budget(cats(), 10, "none", 0).task
    for scheme in ("full", "lm-loss"):
        config = FineTuneConfig.build(tune(scheme, batch=4, accumulate=2))
        model = task_model(bundle, task, config, 0, scratch=False)
        encoded = replace(EncodedTask.of(task, model, tokenizer), soft=soft(tokenizer))
        inputs = training_inputs(model, encoded, config, make_scheme(scheme), (0, LanguageTask.of(bundle)))
        for step in (0, 1):
            batches, again = inputs.batches(step), inputs.batches(step)
            labelled = [one for one in batches if one.count]
            pool = [one for one in batches if isinstance(one, SoftBatch)]
            assert len(labelled) == len(pool) == 2
            assert all(len(one.ids) <= len(other.ids) for one, other in zip(pool, labelled, strict=True))
            assert all(torch.equal(one.ids, other.ids) for one, other in zip(batches, again, strict=True))


def test_a_run_with_a_teacher_reads_the_pool_three_times(tokenizer: Tokenizer) -> None:
    """Unless its budget is named, or that would take more than 300 steps."""
    task = label_budget(cats(), 10, "none", 0).task
    encoded = EncodedTask.of(task, classifier(tokenizer), tokenizer)
    train = FineTuneConfig().train.model_copy(update={"batch": 2})
    taught = soft(tokenizer)
    many = replace(taught, encoded=taught.encoded.take(np.tile(np.arange(10), 10)))
    most = replace(taught, encoded=taught.encoded.take(np.tile(np.arange(10), 100)))
    lengths = [run_length(replace(encoded, soft=one), train, make_scheme("full"))[0] for one in (None, taught, many, most)]
    assert lengths == [60, 60, 150, 300]
    assert run_length(replace(encoded, soft=most), train.model_copy(update={"steps": 7}), make_scheme("full"))[0] == 7


def test_a_teacher_is_reported(place: Path) -> None:
    """Its score, the student's without and with it, sizes and speeds, the rule and what it cannot know."""
    result = taught(place, selection="holdout", labels=20, tune=tune(epochs=1), distil={"teacher_weight": 5.0})
    assert {row.name for row in result.comparison.rows} == {"pretrained", "distilled", "teacher"}
    assert result.scores["teacher"][0].score("accuracy") == 1
    assert result.teaching.choice.learned == "unknown"
    page = (place / "run0" / "report.html").read_text()
    assert "Teacher and student" in page
    assert all(sentence in page for sentence in result.model_findings)
    assert [row[0] for row in result.teaching_rows] == ["teacher", "student without it", "student with it"]
    assert json.loads(json.dumps(result.to_dict()))["teacher"] == [[*row] for row in result.teaching_rows]
    assert len({one.train.tobytes() for one in result.budgets.values()}) == 1, "all seeds have the labels of the first"


def test_a_file_can_be_the_pool(place: Path) -> None:
    """Also with all labels, where no training text is left over."""
    file = place / "pool.txt"
    file.write_text("\n".join(f"We found {what} near {year}." for what in ("a cat", "the river") for year in range(60)))
    result = taught(place, labels=None, selection="holdout", distil={"pool": str(file)}, tune=tune(epochs=1), seeds=1)
    assert 2 <= result.teaching.record.texts <= 120


@pytest.mark.parametrize("kept", [True, False])
def test_the_saved_model_is_the_one_that_was_chosen(kept: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the teacher in its history, also as the mean of its seeds; or the student without it, as if there had been none."""
    monkeypatch.setattr(TeacherChoice, "kept", kept)
    result = taught(place, tune=tune(epochs=1), ensemble="mean" if kept else "none")
    assert result.comparison.rows[0].name == ("distilled" if kept else "pretrained")
    saved = load(place / "run0")
    record = saved.history[-1]
    assert (record.teacher is not None) == kept
    if kept:
        singles = [one.final.test_predictions for one in result.runs["distilled"]]
        np.testing.assert_allclose(result.ensemble.asked.test_predictions, np.mean(singles, axis=0))
        assert (record.teacher.texts, record.teacher.learned) == (result.teaching.record.texts, "unknown")
        return
    assert isinstance(saved, Bundle)
    final = result.best.final.model.weights()
    assert all(torch.equal(tensor, final[name]) for name, tensor in saved.model.weights().items())
    assert record.budget == (*result.label_findings, *result.model_findings)
    plain = taught(place, tune=tune(epochs=1), seeds=1, distil={"teacher": None}).best.final.model.weights()
    first = result.runs["pretrained"][0].final.model.weights()
    assert all(torch.equal(tensor, plain[name]) for name, tensor in first.items())


def test_no_text_that_chooses_has_soft_labels() -> None:
    """Nor a test text, nor one that is nearly the same, nor one that was set apart."""
    task = cats()
    copies = tuple(text.replace(".", " !") for text in (*task.test.texts, *task.validation.texts))
    task = task.with_train(Split((*task.train.texts, *copies), np.arange(60 + len(copies)) % 2))
    for selection in ("cross-validation", "holdout"):
        budget, apart = label_budget(task, 12, selection, 0), task.train.take(np.array([5]))
        pool = teaching_pool(budget, "rest", apart)
        scored = {*task.test.texts, *task.validation.texts, *budget.task.train.texts, *apart.texts}
        assert not {*pool.texts} & (scored | {*copies}), selection
        assert pool.left_out >= len(copies)
        assert 0 < len(pool) <= 60 - 9


def test_labels_are_matched_by_name(place: Path, tokenizer: Tokenizer) -> None:
    """A teacher with the labels in another order gives the same columns; at a higher temperature they are nearer to each other."""
    task, texts = cats(), ["the cat", "a river"]
    save_stack(word_stack(("cat", "other")), place / "turned")
    one, other = (Teacher.load(str(place / name), task) for name in ("teacher", "turned"))
    np.testing.assert_allclose(one.predict(texts), other.predict(texts))
    np.testing.assert_allclose(one.pool_labels(texts), other.pool_labels(texts))
    assert one.predict(texts)[:, 1].round().tolist() == [1, 0]
    pool = teaching_pool(label_budget(task, 12, "holdout", 0), "rest")
    plain, softer = (
        Lesson(one, pool, TeacherConfig(teacher_temperature=value)).soft_texts(classifier(tokenizer), tokenizer, task)
        for value in (1.0, 4.0)
    )
    assert (plain.probabilities.max(axis=1) > softer.probabilities.max(axis=1)).all()
    np.testing.assert_array_equal(plain.probabilities.argmax(axis=1), softer.probabilities.argmax(axis=1))


def test_the_pool_is_labelled_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read counts as none; another text, or another teacher, is labelled anew."""
    task, texts = cats(), ("the cat", "a river")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    found = Teacher.load(str(place / "teacher"), task).pool_labels(texts)
    (file,) = (place / "cache" / "warmstart" / "teachers").iterdir()
    before = file.stat().st_mtime_ns
    np.testing.assert_array_equal(Teacher.load(str(place / "teacher"), task).pool_labels(texts), found)
    assert file.stat().st_mtime_ns == before
    file.write_bytes(file.read_bytes()[:-1])
    np.testing.assert_array_equal(Teacher.load(str(place / "teacher"), task).pool_labels(texts), found)
    save_stack(word_stack(sign=-1.0), place / "other")
    assert not np.allclose(Teacher.load(str(place / "other"), task).pool_labels(texts), found)
    assert len([*file.parent.iterdir()]) == 2


@pytest.mark.parametrize(("selection", "learned"), [("holdout", "others"), ("cross-validation", "these")])
def test_what_a_teacher_learned_from_is_known(selection: Any, learned: str, place: Path) -> None:
    """By the hash of its learning texts: the same as the student's, of which none chooses with a holdout, and all do in folds."""
    task = load_task(str(place / "task"))
    budget = label_budget(task, 20, selection, 0)
    taught(place, labels=20, selection=selection, seeds=1, tune=tune("probe", epochs=1), distil={"teacher": None})
    teacher = Teacher.load(str(place / "run0"), budget.whole)
    assert teacher.learned(budget) == learned
    assert teacher.own_labels == len(budget.train)
    assert teacher.learned(label_budget(task, 20, selection, 1)) == "unknown"
    assert Teacher.load(str(place / "teacher"), task).learned(budget) == "unknown"


def test_the_rule() -> None:
    """More texts right; by more than one standard error if the teacher may have learned from them."""
    budget = label_budget(cats(), 10, "cross-validation", 0)
    labels = budget.choosing.labels

    def predictions(count: int) -> np.ndarray:
        return np.eye(2)[np.where(np.arange(10) < count, labels, 1 - labels)]

    rule: dict[tuple[Any, int], bool] = {("others", 7): True, ("others", 6): False, ("these", 7): False, ("these", 9): True}
    for (learned, right), kept in (rule | {("unknown", 7): False}).items():
        choice = TeacherChoice.of(budget, [predictions(6)], [predictions(right)], learned)
        assert choice.kept == kept, (learned, right)
        assert (choice.without, choice.taught) == (0.6, right / 10)


def test_a_teacher_that_does_not_fit_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other labels, pairs, another type of task, no texts without labels, none that choose, no model: nothing is written."""
    for names, message in (
        (("cat", "dog"), "the teacher must know the labels of the task, other, cat, and no others, but knows cat, dog"),
        (("other", "cat", "dog"), "and no others, but knows other, cat, dog"),
    ):
        constant = FittedBaseline(None, ConstantReadout(np.full(len(names), 1 / len(names))))
        save_stack(Stack((Member("constant", constant),), "classification", names), place / f"wrong-{len(names)}")
        with pytest.raises(DataError, match=message):
            taught(place, distil={"teacher": str(place / f"wrong-{len(names)}")})
    task = cats()
    pairs = replace(task, train=Split(tuple((text, text) for text in task.train.texts), task.train.labels))
    with pytest.raises(ConfigError, match="texts that are no pairs"):
        Teacher.load(str(place / "teacher"), pairs)
    with pytest.raises(ConfigError, match="--teacher needs a task with one label per text"):
        taught(place, task=str(write_task(place / "numbers", "regression")), labels=None)
    with pytest.raises(ConfigError, match=r"--teacher needs texts without labels, but the pool of 'cats' has none; give --labels"):
        taught(place, labels=None, selection="holdout")
    with pytest.raises(ConfigError, match="--teacher needs texts that choose"):
        taught(place, selection="none")
    words = ["adapt", str(place / "lm"), str(place / "task"), "--out", str(place / "run0"), "--teacher", str(place / "nothing")]
    assert main(words) == 2
    assert "there is no model at" in capsys.readouterr().err
    assert not (place / "run0").exists()


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


@pytest.mark.parametrize(("kind", "selection"), [("mean", "cross-validation"), ("soup", "holdout")])
def test_the_saved_model_is_what_was_scored(kind: str, selection: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command to the reloaded folder: its predictions, temperature, history and report; all seeds share the labels."""
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: self.asked)
    result = run(place, ensemble=kind, selection=selection, calibration_fraction=0.25)
    saved, task = load(place / "run"), cats()
    assert result.averaged
    found = uncalibrated_predictions(saved, task.test.texts)
    np.testing.assert_allclose(found, result.test_predictions, atol=1e-6)
    assert len(saved.calibration.held_out) == result.set_apart == 6
    assert saved.history[-1].budget == (*result.label_findings, *result.ensemble_findings)
    assert saved.history[-1].test.figures["accuracy"] == result.scores[f"{kind} of 3 seeds"][0].score("accuracy")
    assert result.ensemble_findings[0] in (place / "run" / "report.html").read_text()
    assert [row[0] for row in result.ensemble_rows] == ["single seeds, mean", "mean of 3 seeds", "soup of 3 seeds"]
    assert {row.name for row in result.comparison.rows} >= {"mean of 3 seeds", "soup of 3 seeds"}
    assert len({one.train.tobytes() for one in result.budgets.values()}) == 1, "a model of three draws would look at more labels"
    assert (result.labels, result.one_split) == (24, True)
    if kind == "soup":
        assert isinstance(saved, Bundle)
        return
    assert isinstance(saved, Stack)
    assert [one.name for one in saved.members] == ["seed 0", "seed 1", "seed 2"]
    singles = [one.final.test_predictions for one in result.runs["pretrained"]]
    np.testing.assert_allclose(found, np.mean(singles, axis=0), atol=1e-6)
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


def test_what_is_worse_than_a_single_seed_is_not_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measure is the mean of single seeds: the best was chosen on the same texts. The folder then holds one of them."""
    for score, kept in ((0.6, True), (0.59, False)):
        model = Averaged("soup", "soup of 2 seeds", None, None, None, score, 10, 0.1)
        result = EnsembleResult("soup", (model,), 10, 0.1)
        assert (result.kept((0.5, 0.7)) is model) == kept
        saved = "saved" if kept else "not saved"
        assert result.sentence((0.5, 0.7), "accuracy").endswith(f"and single seeds 60.0% on average; it is {saved}.")
    monkeypatch.setattr(EnsembleResult, "kept", lambda self, _: None)
    whole = run(place, ensemble="soup", selection="holdout", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Bundle)
    assert whole.saved.startswith("The saved model is that of seed")
    assert whole.ensemble_findings[0].endswith("it is not saved.")


def test_a_mean_needs_no_texts_that_choose(place: Path) -> None:
    """Without selection it is saved, and the report says that no label chose."""
    result = run(place, ensemble="mean", selection="none", seeds=2, baselines=False)
    assert isinstance(load(place / "run"), Stack)
    assert result.ensemble_findings == ["The mean of 2 seeds is saved: no label chooses."]


def test_every_task_type_has_a_soup(place: Path) -> None:
    """And those whose predictions have a mean have that too."""
    for name in TASK_TYPES.keys() - {"classification"}:
        given = {"task": str(write_task(place / name, name)), "out": str(place / f"run-{name}"), "tune": tune(epochs=1)}
        result = run(place, ensemble="soup", labels=None, selection="holdout", seeds=2, baselines=False, **given)
        kinds = [one.kind for one in result.ensemble.models]
        assert kinds == (["mean", "soup"] if name in ("multilabel", "regression") else ["soup"]), name


def test_what_cannot_be_averaged_is_refused(place: Path) -> None:
    """Before anything is trained or written; the message names what tags have."""
    tags = {"ensemble": "mean", "labels": None, "task": str(write_task(place / "tagging", "tagging"))}
    for changes, message in (
        ({"seeds": 1}, "needs two seeds at least, but has 1"),
        ({"selection": "none"}, "needs texts that choose"),
        (tags, "this is a tagging task; use --ensemble soup"),
    ):
        with pytest.raises(ConfigError, match=message):
            run(place, **{"ensemble": "soup"} | changes)
        assert not (place / "run").exists()
