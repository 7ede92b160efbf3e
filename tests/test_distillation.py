"""``adapt --teacher``: the probabilities of a saved model for the pool teach a student, and texts that choose decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.numpy import save as serialise

from helpers.bundles import SCHEME_CASES, classifier, language_bundle
from helpers.tasks import cats, tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import AdaptConfig, adapt
from warmstart.commands.adapt.result import AdaptResult
from warmstart.data.budget import LabelBudget, label_budget
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.compose import make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.encoded_task import EncodedTask
from warmstart.finetuning.finetune import fine_tune, run_length, task_model, training_inputs
from warmstart.finetuning.language_loss import LanguageTask
from warmstart.finetuning.soft_labels import SoftBatch, SoftTexts, soft_cross_entropy
from warmstart.finetuning.teacher import Lesson, Teacher, TeacherChoice, TeacherConfig, teaching_pool
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.stack.files import save_stack
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.readout import ConstantReadout, LinearReadout
from warmstart.stack.rows import WordRows
from warmstart.stack.stack import Member, Stack
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


def word_stack(labels: tuple[str, ...] = ("other", "cat"), sign: float = 1.0) -> Stack:
    """A teacher that knows the answer: the word cat decides."""
    sums = np.array([[1.0 if label == "cat" else -1.0 for label in labels]]) * 6 * sign
    rows, readout = WordRows(("cat",), word_pairs=False), LinearReadout(sums, -sums[0] / 2)
    return Stack((Member("words", FittedBaseline(rows, readout)),), "classification", labels)


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save(language_bundle(tokenizer), tmp_path / "lm")
    save_task(cats(), tmp_path / "task")
    save_stack(word_stack(), tmp_path / "teacher")
    return tmp_path


def run(place: Path, **changes: Any) -> AdaptResult:
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


def test_the_loss_is_torchs_cross_entropy_with_probabilities() -> None:
    """At temperature 1; at another it is that of the divided logits, times the square."""
    logits, targets = torch.randn(5, 3), torch.rand(5, 3).softmax(dim=1)
    expected = F.cross_entropy(logits, targets, reduction="sum")
    torch.testing.assert_close(soft_cross_entropy(logits, targets, 1.0), expected)
    by_hand = -9 * (targets * (logits / 3).log_softmax(dim=1)).sum()
    torch.testing.assert_close(soft_cross_entropy(logits, targets, 3.0), by_hand)


def test_certain_probabilities_are_labels(tokenizer: Tokenizer) -> None:
    """The loss of a pool whose probabilities are 0 and 1 is that of the same texts with labels."""
    labels = np.array([1] * 5 + [0] * 5)
    taught, model = soft(tokenizer, np.eye(2)[labels]), classifier(tokenizer)
    batch = taught.batch(np.arange(10), tokenizer.specials.pad, causal=False)
    plain = taught.encoded.batch(np.arange(10), labels, tokenizer.specials.pad, causal=False)
    torch.testing.assert_close(taught.loss(model, batch), model.loss(plain))
    torch.testing.assert_close(replace(taught, weight=0.5).loss(model, batch), model.loss(plain) / 2)


@pytest.mark.parametrize("scheme", ["full", "lm-loss"])
def test_each_labelled_batch_comes_with_as_many_texts_of_the_pool(scheme: str, tokenizer: Tokenizer) -> None:
    """A step's loss is divided by its labelled texts alone, and the batches of a step are a pure function of its number."""
    bundle, task = language_bundle(tokenizer), label_budget(cats(), 10, "none", 0).task
    config = FineTuneConfig.build(tune(scheme, batch=4, accumulate=2))
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = replace(EncodedTask.of(task, model, tokenizer), soft=soft(tokenizer))
    inputs = training_inputs(model, encoded, config, make_scheme(scheme), (0, LanguageTask.of(bundle)))
    for step in (0, 1):
        batches = inputs.batches(step)
        labelled = [one for one in batches if one.count]
        pool = [one for one in batches if isinstance(one, SoftBatch)]
        assert len(labelled) == len(pool) == 2
        assert all(len(one.ids) <= len(other.ids) for one, other in zip(pool, labelled, strict=True))
        again = inputs.batches(step)
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


@pytest.mark.parametrize("scheme", [name for name in SCHEME_CASES if "dapt" not in name])
def test_every_scheme_learns_from_a_teacher(scheme: str, tokenizer: Tokenizer) -> None:
    """Other probabilities give another model, also under frozen backbones and trimmed embeddings."""
    bundle, task = language_bundle(tokenizer), label_budget(cats(), 12, "none", 0).task
    config, found = FineTuneConfig.build(tune(scheme, epochs=2)), []
    for probabilities in (np.tile([0.1, 0.9], (10, 1)), np.tile([0.9, 0.1], (10, 1))):
        model = task_model(bundle, task, config, 0, scratch=False)
        encoded = replace(EncodedTask.of(task, model, tokenizer), soft=soft(tokenizer, probabilities))
        found.append(fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle)).test_predictions)
    assert found[0][:, 1].mean() > found[1][:, 1].mean()


def test_long_texts_of_the_pool_are_read_in_windows(tokenizer: Tokenizer) -> None:
    """Each has one row of probabilities, however many windows it has."""
    bundle, task = language_bundle(tokenizer), label_budget(cats(), 12, "none", 0).task
    config = FineTuneConfig.build(tune(epochs=1) | {"windows": "mean"})
    model = task_model(bundle, task, config, 0, scratch=False)
    long = Split((" ".join(task.train.texts), "the cat"), np.zeros(2, dtype=np.int64))
    pool = EncodedTask.of(task.with_train(long), model, tokenizer).train
    assert len(pool.rows) > len(pool) == 2
    encoded = replace(EncodedTask.of(task, model, tokenizer), soft=SoftTexts(pool, np.tile([0.2, 0.8], (2, 1)), 1.0, 1.0))
    assert np.isfinite(fine_tune(model, encoded, config, 0, "").test_predictions).all()


def test_a_teacher_is_reported(place: Path) -> None:
    """Its score, the student's without and with it, sizes and speeds, the rule and what it cannot know."""
    result = run(place, selection="holdout", labels=20, tune=tune(epochs=1), distil={"teacher_weight": 5.0})
    assert {row.name for row in result.comparison.rows} == {"pretrained", "distilled", "teacher"}
    assert result.scores["teacher"][0].score("accuracy") == 1
    assert result.teaching
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
    result = run(place, labels=None, selection="holdout", distil={"pool": str(file)}, tune=tune(epochs=1), seeds=1)
    assert result.teaching
    assert 2 <= result.teaching.record.texts <= 120


@pytest.mark.parametrize("kept", [True, False])
def test_the_saved_model_is_the_one_that_was_chosen(kept: bool, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the teacher in its history, or the student without it as if there had been none."""
    monkeypatch.setattr(TeacherChoice, "kept", kept)
    result = run(place, tune=tune(epochs=1))
    saved = load(place / "run0")
    assert isinstance(saved, Bundle)
    assert result.method == result.comparison.rows[0].name == ("distilled" if kept else "pretrained")
    final = result.best.final.model.weights()
    assert all(torch.equal(tensor, final[name]) for name, tensor in saved.model.weights().items())
    record = saved.history[-1]
    assert (record.teacher is not None) == kept
    assert record.budget == (*result.label_findings, *result.model_findings)
    if kept:
        assert (record.teacher.texts, record.teacher.learned) == (result.teaching.record.texts, "unknown")
        return
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(place / "plain"), "labels": 12, "seeds": 1}
    plain = adapt(AdaptConfig.build(given | {"scratch": False, "baselines": False, "tune": tune(epochs=1)}))
    same = plain.best.final.model.weights()
    first = result.runs["pretrained"][0].final.model.weights()
    assert all(torch.equal(tensor, same[name]) for name, tensor in first.items())


def test_an_ensemble_of_taught_seeds_is_saved(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both flags together: the seeds of the method that was chosen are averaged."""
    monkeypatch.setattr(TeacherChoice, "kept", True)
    result = run(place, ensemble="mean", tune=tune(epochs=1))
    assert result.ensemble
    singles = [one.final.test_predictions for one in result.runs["distilled"]]
    np.testing.assert_allclose(result.ensemble.asked.test_predictions, np.mean(singles, axis=0))


@pytest.mark.parametrize("selection", ["cross-validation", "holdout"])
def test_no_text_that_chooses_has_soft_labels(selection: Any, place: Path) -> None:
    """Nor a test text, nor one that is nearly the same, nor one that was set apart."""
    task = cats()
    copies = tuple(text.replace(".", " !") for text in (*task.test.texts, *task.validation.texts))
    task = task.with_train(Split((*task.train.texts, *copies), np.arange(60 + len(copies)) % 2))
    budget, apart = label_budget(task, 12, selection, 0), task.train.take(np.array([5]))
    pool = teaching_pool(budget, "rest", apart)
    scored = {*task.test.texts, *task.validation.texts, *budget.task.train.texts, *apart.texts}
    assert not {*pool.texts} & (scored | {*copies})
    assert pool.left_out >= len(copies)
    assert 0 < len(pool) <= 60 - 9


def test_labels_are_matched_by_name(place: Path) -> None:
    """A teacher with the labels in another order gives the same columns."""
    task, texts = cats(), ["the cat", "a river"]
    save_stack(word_stack(("cat", "other")), place / "turned")
    one, other = (Teacher.load(str(place / name), task) for name in ("teacher", "turned"))
    np.testing.assert_allclose(one.predict(texts), other.predict(texts))
    np.testing.assert_allclose(one.pool_labels(texts), other.pool_labels(texts))
    assert one.predict(texts)[:, 1].round().tolist() == [1, 0]


def test_the_pool_is_labelled_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept is checked: a damaged file counts as none; another text, or another teacher, is labelled anew."""
    task, texts = cats(), ("the cat", "a river")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    found = Teacher.load(str(place / "teacher"), task).pool_labels(texts)
    (file,) = (place / "cache" / "warmstart" / "teachers").iterdir()
    before = file.stat().st_mtime_ns
    np.testing.assert_array_equal(Teacher.load(str(place / "teacher"), task).pool_labels(texts), found)
    assert file.stat().st_mtime_ns == before
    file.write_bytes(serialise({"probabilities": np.full((2, 2), 0.5), "sha256": np.zeros(32, dtype=np.uint8)}))
    np.testing.assert_array_equal(Teacher.load(str(place / "teacher"), task).pool_labels(texts), found)
    save_stack(word_stack(sign=-1.0), place / "other")
    assert not np.allclose(Teacher.load(str(place / "other"), task).pool_labels(texts), found)
    assert len([*file.parent.iterdir()]) == 2


def taught_by(tokenizer: Tokenizer, place: Path, budget: LabelBudget, selection: str) -> Teacher:
    """A network that ``adapt`` trained on the first seed's labels."""
    out = place / f"teacher-{selection}"
    given = {"model": str(place / "lm"), "task": str(place / "task"), "out": str(out), "labels": 20, "selection": selection}
    adapt(AdaptConfig.build(given | {"seeds": 1, "scratch": False, "baselines": False, "tune": tune("probe", epochs=1)}))
    return Teacher.load(str(out), budget.whole)


@pytest.mark.parametrize(("selection", "learned"), [("holdout", "others"), ("cross-validation", "these")])
def test_what_a_teacher_learned_from_is_known(selection: Any, learned: str, place: Path, tokenizer: Tokenizer) -> None:
    """By the hash of its learning texts: the same as the student's, of which none chooses with a holdout, and all do in folds."""
    from warmstart.tasks.load import load_task

    task = load_task(str(place / "task"))
    budget = label_budget(task, 20, selection, 0)
    teacher = taught_by(tokenizer, place, budget, selection)
    assert teacher.learned(budget) == learned
    assert teacher.own_labels == len(budget.train)
    assert teacher.learned(label_budget(task, 20, selection, 1)) == "unknown"
    assert Teacher.load(str(place / "teacher"), task).learned(budget) == "unknown"


RULE = [("others", 7, True), ("others", 6, False), ("these", 7, False), ("these", 9, True), ("unknown", 7, False)]


@pytest.mark.parametrize(("learned", "right", "kept"), RULE)
def test_the_rule(learned: Any, right: int, kept: bool) -> None:
    """More texts right; by more than one standard error if the teacher may have learned from them."""
    budget = label_budget(cats(), 10, "cross-validation", 0)
    labels = budget.choosing.labels

    def predictions(count: int) -> np.ndarray:
        return np.eye(2)[np.where(np.arange(10) < count, labels, 1 - labels)]

    choice = TeacherChoice.of(budget, [predictions(6)], [predictions(right)], learned)
    assert choice.kept == kept
    assert (choice.without, choice.taught) == (0.6, right / 10)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"labels": ("cat", "dog")}, "the teacher must know the labels of the task, other, cat, and no others, but knows cat, dog"),
    ({"labels": ("other", "cat", "dog")}, "and no others, but knows other, cat, dog"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_a_teacher_of_other_labels_is_refused(changes: dict[str, Any], message: str, place: Path) -> None:
    """By name, before anything is trained or written."""
    names = changes["labels"]
    constant = FittedBaseline(None, ConstantReadout(np.full(len(names), 1 / len(names))))
    save_stack(Stack((Member("constant", constant),), "classification", names), place / "wrong")
    with pytest.raises(DataError, match=message):
        run(place, distil={"teacher": str(place / "wrong")})
    assert not (place / "run0").exists()


def test_other_wrong_inputs_are_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another type of task, no texts without labels, none that choose, no model: nothing is written."""
    with pytest.raises(ConfigError, match="--teacher needs a task with one label per text"):
        run(place, task=str(write_task(place / "numbers", "regression")), labels=None)
    with pytest.raises(ConfigError, match=r"--teacher needs texts without labels, but the pool of 'cats' has none; give --labels"):
        run(place, labels=None, selection="holdout")
    with pytest.raises(ConfigError, match="--teacher needs texts that choose"):
        run(place, selection="none")
    words = ["adapt", str(place / "lm"), str(place / "task"), "--out", str(place / "run0"), "--teacher", str(place / "nothing")]
    assert main(words) == 2
    assert "there is no model at" in capsys.readouterr().err
    assert not (place / "run0").exists()


def test_a_pair_task_has_no_teacher(place: Path) -> None:
    """A pool holds single texts."""
    task: Task = cats()
    pairs = replace(task, train=Split(tuple((text, text) for text in task.train.texts), task.train.labels))
    with pytest.raises(ConfigError, match="texts that are no pairs"):
        Teacher.load(str(place / "teacher"), pairs)


def test_the_lesson_is_softened(place: Path, tokenizer: Tokenizer) -> None:
    """At a higher temperature the teacher's probabilities are nearer to each other, and no label changes."""
    teacher, budget = Teacher.load(str(place / "teacher"), cats()), label_budget(cats(), 12, "holdout", 0)
    pool = teaching_pool(budget, "rest")
    plain, softer = (
        Lesson(teacher, pool, TeacherConfig(teacher_temperature=value)).soft_texts(classifier(tokenizer), tokenizer, cats())
        for value in (1.0, 4.0)
    )
    assert (plain.probabilities.max(axis=1) > softer.probabilities.max(axis=1)).all()
    np.testing.assert_array_equal(plain.probabilities.argmax(axis=1), softer.probabilities.argmax(axis=1))
