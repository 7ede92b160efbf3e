"""Every task type from manifest to prediction: head, training, scores, bundle, predictions."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers.bundles import language_bundle
from helpers.refusals import refused
from helpers.tasks import rows_of, tune, write_task
from warmstart.baselines import BASELINES, baselines_for
from warmstart.baselines.choice import run_baseline
from warmstart.baselines.simple import collapsed, constant_score
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.commands.race.command import race
from warmstart.data.audit import audit, drop_leaks
from warmstart.data.budget import label_budget
from warmstart.data.encode import encode, encode_pieces
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, DataError
from warmstart.experiment.config import AdaptConfig, RaceConfig
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.heads.per_text import RegressionHeadConfig
from warmstart.heads.registry import make_head
from warmstart.model.files import load_bundle, save
from warmstart.stats.comparison import compare_pairs
from warmstart.stats.resampling import resample_indices
from warmstart.tasks import TASK_TYPES, task_type_for, task_type_of
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import predict
from warmstart.tasks.tagging import spans_of
from warmstart.tasks.task_type import take_predictions
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.mark.parametrize("name", TASK_TYPES)
def test_every_kind_learns(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Under several sorts of schemes the loss on the training texts falls, and scores are numbers between their bounds.

    On a causal backbone, batches without padding, such as the last text of an epoch alone, are counted like any other.
    """
    task, bundle = load_task(write_task(tmp_path / name, name)), language_bundle(tokenizer)
    for scheme in ("full", "probe") if list(TASK_TYPES).index(name) % 2 else ("lora", "gradual"):
        config = FineTuneConfig.build(tune(scheme))
        model = task_model(bundle, task, config, 0, scratch=False)
        splits = EncodedTask.of(task, model, tokenizer)
        batches = task_type_of(task).batches(task.train, splits.train, (48, 1), 0, splits.pad_id, causal=False)
        before = float(model.loss(batches(0)[0]).detach())
        done = fine_tune(model, splits, config, 0, "")
        model.eval()
        assert float(model.loss(batches(0)[0]).detach()) < before, scheme
        scores = task_type_of(task).scores(task.test, done.test_predictions, task)
        assert all(-1.5 <= scores.score(metric) <= 1 for metric in TASK_TYPES[name].metrics)
        assert scores.to_dict()
    config = FineTuneConfig.build(tune(epochs=1, batch=5))
    model = task_model(language_bundle(tokenizer, "causal"), task, config, 0, scratch=False)
    splits = EncodedTask.of(task, model, tokenizer)
    assert fine_tune(model, splits, config, 0, "").training.tokens == sum(map(len, splits.train.rows))


@pytest.mark.parametrize("name", TASK_TYPES)
def test_every_kind_from_manifest_to_prediction(
    name: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """adapt beats what takes no learning, the bundle says the same when loaded, evaluate and predict agree with it."""
    monkeypatch.setattr(BASELINES, "_rows", {"majority": BASELINES["majority"]})
    manifest = write_task(tmp_path / name, name)
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {"model": str(tmp_path / "lm"), "task": str(manifest), "out": str(tmp_path / "run"), "seeds": 2, "scratch": False}
    outcome = adapt(AdaptConfig.build(given | {"tune": tune(epochs=12)}))
    task, rows = outcome.task, {row.name: row.interval.mean for row in outcome.comparison.rows}
    assert rows["pretrained"] > rows["majority"]
    first, *others = outcome.comparison.rows
    assert all(found.over_texts for found in compare_pairs([(first, other) for other in others])), "test texts are chance too"
    bundle = load_bundle(tmp_path / "run" / "bundle")
    assert task_type_for(bundle) is TASK_TYPES[name]
    texts = task.test.texts
    together, alone = predict(bundle, texts), [predict(bundle, [text])[0] for text in texts]
    assert [_plain(row) for row in together] == [_plain(row) for row in alone], "batch mates changed a prediction"
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(manifest)]) == 0
    words = ["predict", str(tmp_path / "run"), "--file", str(tmp_path / name / "test.ndjson")]
    capsys.readouterr()
    assert main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    said = [{one: line.get(f"predicted_{one}", line.get(one)) for one in row} for line, row in zip(lines, together, strict=True)]
    assert [_plain(row) for row in said] == [_plain(row) for row in together]
    assert "text" in lines[0]
    assert (tmp_path / "run" / "report.html").exists()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A prediction without the probabilities, which differ in the last digit, and without the text and its row."""
    kept = {name: value for name, value in row.items() if name not in ("probabilities", "probability", "text", "row")}
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in kept.items()}


@pytest.mark.parametrize("name", TASK_TYPES)
def test_baselines_audit_and_samples(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Baselines give scores and name their settings; the audit counts; leaks go; a smaller sample is a smaller task."""
    task = load_task(write_task(tmp_path / name, name))
    for baseline in baselines_for(task).values():
        result = run_baseline(baseline, label_budget(task, None, "holdout", 0))
        predictions = result.test
        assert TASK_TYPES[name].scores(task.test, predictions, task).score(task.metric) >= -1
        assert result.note
        for metric in TASK_TYPES[name].metrics:
            asked = replace(task, metric=metric)
            drawn = TASK_TYPES[name].resampled_scores(task.test, predictions, asked)
            assert len(drawn) >= 200
            places = next(resample_indices(len(task.test), groups=task.test.units))
            expected = TASK_TYPES[name].scores(task.test.take(places), take_predictions(predictions, places), asked).score(metric)
            # macro F1 passes over labels that were not drawn, which the test of resamples holds
            assert metric == "macro_f1" or drawn[0] == pytest.approx(expected), metric
    assert audit(task).splits[0].examples == 48
    assert len(drop_leaks(task).test) == 16
    model = task_model(language_bundle(tokenizer), task, FineTuneConfig(), 0, scratch=True)
    few = EncodedTask.of(task, model, tokenizer).within(label_budget(task, 12, "none", 0))
    assert len(few.train) == len(few.task.train) == 12


def test_baselines_do_without_words(tmp_path: Path) -> None:
    """Training texts that are all empty leave what takes no learning, and the note says why."""
    for name, text in (("classification", ""), ("multilabel", ""), ("regression", " ")):
        task = load_task(write_task(tmp_path / name, name))
        task = task.with_train(Split((text,) * len(task.train), task.train.labels))
        budget = label_budget(task, None, "holdout", 0)
        first, *others = (run_baseline(baseline, budget) for baseline in baselines_for(task).values())
        for other in others:
            assert np.array_equal(other.test, first.test), name
            assert other.note == f"the training texts have no words in common; {first.note}"


def test_a_run_collapses_in_the_tasks_metric() -> None:
    """190 texts against 10: accuracy 0.93 is below the commonest label's 0.95, but macro F1 0.77 is far above its 0.49."""
    truth = np.array([0] * 190 + [1] * 10)
    split = Split(("a",) * 200, truth)
    found, always = truth.copy(), np.zeros(200, dtype=np.int64)
    found[:14] = 1
    for metric, constant, lost in (("macro_f1", 0.487, False), ("accuracy", 0.95, True)):
        task = Task("rare", ("common", "rare"), split, split, split, metric=metric)
        scores = task_type_of(task).scores
        assert constant_score(task) == pytest.approx(constant, abs=1e-3)
        assert collapsed(task, scores(split, np.eye(2)[found], task)) == lost
        assert collapsed(task, scores(split, np.eye(2)[always], task))
        assert collapsed(task, scores(split, np.eye(2)[1 - truth], task)), "worse than a constant prediction is collapsed too"


LONG = {"classification", "multilabel", "regression"}
"""kinds with many baselines"""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.journeys] * (name in LONG)) for name in TASK_TYPES])
def test_every_kind_has_a_race_and_a_curve(
    name: str, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """Every baseline of the kind and methods with a frozen backbone, with a few labels."""
    if name not in LONG:
        request.getfixturevalue("no_pages")
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {
        "task": str(write_task(tmp_path / name, name)),
        "backbones": [str(tmp_path / "lm")],
        "schemes": ["probe"],
        "seeds": 1,
        "scratch": False,
        "out": str(tmp_path / "run"),
        "learning_rates": [5e-4],
        "tune": {"train": {"steps": 2, "batch": 8}},
    }
    (tmp_path / "pool.txt").write_text("She found the dog.\nHe holds the cats.\n")
    found = race(RaceConfig.build(given | {"labels": 24, "pool": str(tmp_path / "pool.txt")}))
    unread = f"No method for a {name} task reads --pool" in " ".join(capsys.readouterr().err.split())
    assert unread == (not any(one.reads_pool for one in baselines_for(found.task, pool=True).values()))
    expected = {*baselines_for(found.task, pool=True, vectors=True), "probe", "scalar-mix"}
    assert expected <= {one.name for one in found.ranking.methods}
    assert found.findings[0]
    assert name not in LONG or (tmp_path / "run" / "report.html").exists()


def test_figures_are_scikit_learns_and_scipys(tmp_path: Path) -> None:
    """Micro and macro F1 and subset accuracy by hand; correlations and errors of a shifted line."""
    task = load_task(write_task(tmp_path / "multilabel", "multilabel"))
    predictions = np.where(task.test.labels > 0.5, 0.9, 0.1)
    predictions[0] = 0.1
    found = TASK_TYPES["multilabel"].scores(task.test, predictions, task)
    missed, total = task.test.labels[0].sum(), task.test.labels.sum()
    assert found.score("micro_f1") == pytest.approx(2 * (total - missed) / (2 * total - missed))
    assert found.score("subset") == pytest.approx(15 / 16)
    task = load_task(write_task(tmp_path / "regression", "regression"))
    found = TASK_TYPES["regression"].scores(task.test, task.test.labels[:, None] * 2 + 3, task)
    assert (found.score("pearson"), found.score("spearman")) == pytest.approx((1, 1))
    assert found.values["mae"] == pytest.approx(np.abs(task.test.labels + 3).mean())
    assert TASK_TYPES["regression"].scores(task.test, np.zeros((16, 1)), task).score("pearson") == 0
    refused(ConfigError, "unknown metric 'persson'; did you mean 'pearson'", found.score, "persson")


def test_targets_by_hand() -> None:
    """Spans of BIO tags; large numbers."""
    assert spans_of(["B-PER", "I-PER", "O", "B-LOC"]) == [(0, 2, "PER"), (3, 4, "LOC")]
    assert spans_of(["I-PER", "B-PER", "I-LOC"]) == [(0, 1, "PER"), (1, 2, "PER"), (2, 3, "LOC")]
    assert spans_of(["NOUN", "VERB", "O"]) == []
    head = make_head(RegressionHeadConfig(mean=1.7e9, std=10.0), 4, torch.zeros(3, 4))
    loss = head.loss(torch.zeros(1, 1), torch.tensor([1.7e9 + 40], dtype=torch.float64))  # type: ignore[union-attr]
    assert float(loss) == pytest.approx(16), "four spreads away"


WORDS = st.lists(st.sampled_from(["cat", "dog", "river", "hold", "1912", "qz"]), max_size=30).map(" ".join)


@given(st.tuples(WORDS, WORDS), st.integers(6, 32))
def test_pairs_fit_and_the_longer_side_is_cut_first(tokenizer: Tokenizer, pair: tuple[str, str], room: int) -> None:
    """Three ends stay, nothing is longer than the room, and the shorter side loses nothing that the longer one could."""
    eos = tokenizer.specials.eos
    one, other = tokenizer.encode(list(pair))
    found = encode(tokenizer, [pair], room)
    row = found.rows[0].tolist()
    assert len(row) <= room
    assert (row[0], row[-1], row.count(eos)) == (eos, eos, 3)
    first = row.index(eos, 1) - 1
    second = len(row) - 3 - first
    assert row[1 : 1 + first] == one[:first]
    assert row[2 + first : -1] == other[:second]
    assert found.cut[0] == len(one) + len(other) - first - second
    if found.cut[0]:
        assert len(row) == room
        assert first == len(one) or first >= (room - 3) // 2
        assert second == len(other) or second >= (room - 3) // 2


@given(
    st.lists(st.lists(st.sampled_from(["cat", " dog", " qzx", "."]), min_size=1, max_size=20), min_size=1, max_size=4),
    st.integers(5, 32),
)
def test_pieces_are_marked_where_they_begin(tokenizer: Tokenizer, texts: list[list[str]], room: int) -> None:
    """Each mark is the first token of its piece; what does not fit is left out whole, and counted."""
    found = encode_pieces(tokenizer, texts, room)
    for pieces, row, marks, cut in zip(texts, found.rows, found.piece_starts, found.cut, strict=True):
        assert len(marks) + cut == len(pieces)
        assert len(row) <= room
        ends = [*marks[1:].tolist(), len(row) - 1]
        for piece, start, end in zip(pieces, marks, ends, strict=False):
            assert row[start:end].tolist() == tokenizer.encode([piece])[0]


def task_from(folder: Path, content: str | bytes, name: str, **values: Any) -> Task:
    """A task whose splits are read from one file, unless it says otherwise."""
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    splits = dict.fromkeys(("train", "validation", "test"), name)
    (folder / "task.yaml").write_text(yaml.safe_dump({"name": "t"} | splits | values))
    return load_task(folder / "task.yaml")


def test_conll_files_are_read(tmp_path: Path) -> None:
    """Comments, words written as one, and words left out of the text are passed over; columns can be named; gz is opened."""
    first = "# text = cannot go\n1-2\tcannot\t_\t_\n1\tcan\tcan\tAUX\n2\tnot\tnot\tPART\n2.1\tx\tx\tX\n3\tgo\tgo\tVERB\n\n"
    text = first + "1\tI\tI\tPRON\n2\tgo\tgo\tVERB\n\n"
    others = "".join(text.replace("\tgo\tgo\t", f"\t{word}\t{word}\t") for word in ("run", "sleep", "sing"))
    task = task_from(tmp_path, gzip.compress((text + others).encode()), "a.conllu.gz", type="tagging", validation=0.25)
    assert task.labels == ("AUX", "PART", "PRON", "VERB")
    assert task.test.texts[:2] == (("can", "not", "go"), ("I", "go"))
    assert task.test.labels[0].tolist() == [0, 1, 3]
    assert (len(task.train), len(task.validation)) == (6, 2)
    # CoNLL-2003 has its words, some of which look like numbers, in the first column; a document's mark is no sentence
    text = "-DOCSTART- -X- O O\n\nLeeds NNP I O\n2-1 CD I O\n3.50 CD I B-X\n# SYM I O\n\nIt PRP I O\n"
    task = task_from(tmp_path, text, "t.conll", type="tagging", source={"text": "1", "label": "4"})
    assert task.train.texts == (("Leeds", "2-1", "3.50", "#"), ("It",))


MISTAKES = {
    "regression": ({"label": "much"}, "row 1 of .* must hold a number in 'label', but holds 'much'"),
    "regression, nan": ({"label": "nan"}, "must have labels in column 'label', but has none \\('nan' 4\\)"),
    "tagging": ({"label": ["O"]}, "must have one tag per word, but has"),
    "multilabel": ({"label": []}, "no training example has one"),
    "classification": ({"label": None}, "must have labels in column 'label', but has none \\(blank 4\\)"),
}


def test_wrong_rows_are_told(tmp_path: Path) -> None:
    """The row, what it must hold, what it holds; a misspelt column of labels is no task without labels."""
    for case, (change, message) in MISTAKES.items():
        name = case.split(",")[0]
        manifest = write_task(tmp_path / case, name)
        rows = [row | change for row in rows_of(name, 4, 0)]
        (tmp_path / case / "train.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
        refused(DataError, message, load_task, manifest)
    manifest = write_task(tmp_path / "misspelt", "multilabel")
    manifest.write_text(yaml.safe_dump(yaml.safe_load(manifest.read_text()) | {"source": {"label": "labl"}}))
    refused(DataError, "no column 'labl'", load_task, manifest)


def test_every_kind_has_a_digest_of_its_own(tmp_path: Path) -> None:
    """A race finds its results again by it; another target is another task."""
    for name in TASK_TYPES:
        task = load_task(write_task(tmp_path / name, name))
        turned = replace(task, train=Split(task.train.texts, task.train.labels[::-1]))
        assert task.digest == load_task(tmp_path / name / "task.yaml").digest != turned.digest, name


def test_token_types_say_where_the_second_text_of_a_pair_begins(tokenizer: Tokenizer) -> None:
    """0 for the frame and the first text, 1 from the second text on."""
    pair = encode(tokenizer, [("what?", "She holds the cat.")], 64, typed=True)
    assert pair.second_starts is not None
    first = int(pair.second_starts[0])
    types = pair.batch(np.array([0]), None, 0, causal=False).token_type_ids
    assert types is not None
    assert types.tolist() == [[0] * first + [1] * (len(pair.rows[0]) - first)]


def test_wrong_settings_are_told(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Metrics, labels and options that a kind does not know; a task of another kind; texts that need a table."""
    manifest = write_task(tmp_path / "regression", "regression")
    values = yaml.safe_load(manifest.read_text())
    for change, message in (({"metric": "accuracy"}, "scored by pearson, spearman, r2"), ({"labels": ["a", "b"]}, "has no labels")):
        manifest.write_text(yaml.safe_dump(values | change))
        refused(ConfigError, message, load_task, manifest)
    manifest.write_text(yaml.safe_dump(values))
    save(language_bundle(tokenizer), tmp_path / "lm")
    base = [str(tmp_path / "lm"), str(manifest), "--steps", "3", "--seeds", "1", "--no-scratch"]
    cases = {
        "label-smoothing": ["--label-smoothing", "0.1"],
        "--head-start are for": ["--head-start", "class-means"],
        "--calibration-fraction needs a task with one label per text": ["--calibration-fraction", "0.5"],
    }
    for message, words in cases.items():
        assert main(["adapt", *base, *words, "--out", str(tmp_path / message)]) == 2
        assert message in capsys.readouterr().err
    assert main(["adapt", *base, "--out", str(tmp_path / "run")]) == 0
    other = write_task(tmp_path / "multilabel", "multilabel")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), str(other)]) == 2
    assert "fine-tuned for a regression task, but 'multilabel' is a multilabel task" in capsys.readouterr().err
