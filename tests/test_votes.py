"""Votes of a language model: another annotator beside people's labels, used only where these say that it helps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars
import pytest

import warmstart as ws
from helpers.figures import repeats, show
from warmstart.baselines import BASELINES
from warmstart.baselines.baseline import Sample
from warmstart.baselines.votes import confusion_of_votes, regression_with_votes
from warmstart.cli import main
from warmstart.commands.fit.command import read_labelled
from warmstart.experiment.fit_result import FitResult
from warmstart.runs.state import RunState
from warmstart.seeding import rng
from warmstart.stats.alternative import alternative_annotator_test
from warmstart.stats.selected import selected_accuracy
from warmstart.tasks.votes import agreement_of, with_votes

NAMES = ("anger", "joy", "calm")
LABELLED_ONLY = polars.when(polars.col("label").is_null()).then(polars.lit("")).otherwise("gpt")
KINDS = [(right, one) for right in (0.6, 0.75, 0.9) for one in (False, True)]


@pytest.fixture(scope="module")
def few_methods(words_alone: None) -> Iterator[None]:
    """Words alone, by three methods and one that reads votes."""
    few = ("majority", "TF-IDF + logistic regression", "NBSVM", "LSA + votes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BASELINES, "_rows", {name: BASELINES[name] for name in few})
        yield


def written(labels: np.ndarray, chance: np.random.Generator) -> list[str]:
    """A text of each label: 12 words, of which a quarter say something of it, each by a few of many words."""
    telling = chance.random((len(labels), 12)) < 0.25
    words = np.where(telling, chance.integers(0, 60, telling.shape), chance.integers(0, 300, telling.shape))
    return [
        " ".join(f"{NAMES[label]}{word}" if tells else f"word{word}" for tells, word in zip(*row, strict=True))
        for label, row in zip(labels, zip(telling, words, strict=True), strict=True)
    ]


def voted(labels: np.ndarray, right: float, one: bool, chance: np.random.Generator) -> np.ndarray:
    """Votes of which a share is right, and others any other label; with ``one``, calm is always called joy."""
    other = (labels + chance.integers(1, len(NAMES), len(labels))) % len(NAMES)
    votes = np.where(chance.random(len(labels)) < right, labels, other)
    return np.where((labels == 2) & one, 1, votes)


def frame_of(
    labels: np.ndarray, votes: np.ndarray | None, labelled: int, chance: np.random.Generator
) -> dict[str, list[str | None]]:
    """A table of texts, of which the first ones have a label, and all a vote."""
    frame: dict[str, list[str | None]] = {"text": [*written(labels, chance)]}
    frame["label"] = [NAMES[label] if place < labelled else None for place, label in enumerate(labels)]
    return frame if votes is None else frame | {"gpt": [NAMES[vote] for vote in votes]}


def fitted(frame: dict[str, list[str | None]], **votes: str) -> FitResult:
    """A fit of words, without the time to ask what more labels would bring."""
    return ws.fit(frame, text="text", label="label", encoders=(), minutes=0.4, **votes)


@pytest.mark.proofs
@pytest.mark.parametrize(("right", "one"), KINDS)
def test_votes_never_cost_beyond_noise(right: float, one: bool, few_methods: None) -> None:
    """150 labels and 1,000 votes: in the mean over draws accuracy is not below that of labels alone by two errors of the mean."""
    gains, used, draws = list[float](), 0, repeats(20, 3)
    for seed in range(draws):
        chance = rng(seed, f"votes {right} {one}")
        labels = chance.integers(0, len(NAMES), 1950)
        frame = frame_of(labels, voted(labels, right, one, chance), 150, chance)
        learned = {name: column[:1150] for name, column in frame.items()}
        alone, result = fitted({name: learned[name] for name in ("text", "label")}), fitted(learned, votes="gpt")
        truth = [NAMES[label] for label in labels[1150:]]
        scores = [
            np.mean([a == b for a, b in zip(fit.predict(frame["text"][1150:]), truth, strict=True)]) for fit in (result, alone)
        ]
        gains.append(float(scores[0] - scores[1]))
        used += bool(result.votes and result.votes.used)
    error = np.std(gains, ddof=1) / draws**0.5
    kind = "one label always wrong" if one else "errors on any label"
    show(
        f"votes {right:.0%} right, {kind}: {100 * np.mean(gains):+.1f} ± {100 * error:.1f} points, used in {used} of {draws} draws",
        votes=right, one=one, gain=float(np.mean(gains)), used=used / draws,
    )  # fmt: skip
    assert np.mean(gains) > -max(2 * error, 0.01)


@pytest.mark.proofs
@pytest.mark.parametrize(("people", "texts"), [(3, 50), (3, 200), (5, 100)])
def test_worse_votes_rarely_replace_people(people: int, texts: int) -> None:
    """A model that agrees with others less often than people do, by more than the margin, passes in at most 5 of 100 draws."""
    chance, draws, passed = rng(0, f"people {people} {texts}"), repeats(1000, 200), np.zeros(2)

    def answers(right: float, count: int) -> np.ndarray:
        return np.where(chance.random((count, texts)) < right, truth, (truth + 1) % 3)

    for _ in range(draws):
        truth = chance.integers(0, 3, texts)
        group = answers(0.85, people)
        for place, right in enumerate((0.62, 0.95)):
            passed[place] += bool((found := alternative_annotator_test(group, answers(right, 1)[0])) and found.passes)
    worse, better = passed / draws
    show(
        f"{people} people, {texts} texts: a worse model passes in {worse:.1%}, a better one in {better:.1%}",
        worse=worse,
        better=better,
    )
    assert worse <= 0.05 < better


def test_too_few_people_or_texts_say_nothing() -> None:
    """Three people must have answered thirty texts each, of which two others have answered, too."""
    same = np.zeros((3, 30), dtype=np.int64)
    found = alternative_annotator_test(same, same[0])
    assert found
    assert found.passes
    assert (found.people, found.texts, found.advantage) == (3, 30, 1.0)
    assert alternative_annotator_test(same[:2], same[0]) is None
    assert alternative_annotator_test(same[:, :29], same[0, :29]) is None
    same[0, 0] = -1
    assert alternative_annotator_test(same, same[0]) is None


def sample_of(votes: np.ndarray, labels: np.ndarray, rows: np.ndarray, labelled: int) -> Sample:
    """Rows with labels, and rows with votes; those with labels have both."""
    task = ws.Task.from_lists(["x"] * 3, NAMES, test=0)
    parts = {"votes": votes[:labelled], "pool_votes": votes[labelled:]}
    return Sample(rows[:labelled], labels[:labelled], rows[labelled:], task, 0, **parts)


def test_votes_that_always_err_in_the_same_way_teach_as_much_as_right_ones() -> None:
    """What is called by the name of another label is learned by its own."""
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 3, 800)
    rows = 0.6 * np.eye(3)[labels] @ np.eye(3, 20) + 0.3 * chance.normal(size=(800, 20))
    right, turned = (
        regression_with_votes(sample_of(votes, labels, rows, 60), 0.3)(rows[400:]).argmax(axis=1)
        for votes in (labels, (labels + 1) % 3)
    )
    nothing = sample_of(np.full(800, -1), labels, rows, 60)
    alone = regression_with_votes(nothing, 0.3)(rows[400:]).argmax(axis=1)
    truth = labels[400:]
    assert np.mean(turned == truth) > np.mean(right == truth) - 0.02
    assert min(np.mean(right == truth), np.mean(turned == truth)) > np.mean(alone == truth) + 0.01
    counted = confusion_of_votes(labels[:60], ((labels + 1) % 3)[:60], 3)
    assert np.allclose(counted.sum(axis=1), 1)
    assert (counted.argmax(axis=1) == [1, 2, 0]).all()
    assert np.allclose(np.diag(confusion_of_votes(labels, np.full(800, -1), 3)), 0.5)


def test_the_luck_of_the_better_of_two_favourites_is_taken_off() -> None:
    """Neither of two favourites needs a lead over the other; any other method does."""
    chance = np.random.default_rng(0)
    right = (chance.random((3, 200)) < 0.7).astype(float)
    right[1] = right[0]
    right[1, np.flatnonzero(right[0] == 0)[:1]] = 1  # one more
    right[2] = right[1]
    right[2, np.flatnonzero(right[1] == 0)[:1]] = 1  # and one more
    assert selected_accuracy(right, favourite=[1, 0]).index == 1
    assert selected_accuracy(right, favourite=[0]).index == selected_accuracy(right, favourite=0).index == 0
    noise = (chance.random((2, 200)) < 0.7).astype(float)
    assert selected_accuracy(noise, favourite=[0, 1]).optimism > selected_accuracy(noise, favourite=0).optimism


def table_of(folder: Path, right: float = 0.9, people: int = 0) -> Path:
    """A csv with 60 labels and 300 votes; where ``people`` answered, each row is one answer of one of them."""
    chance = np.random.default_rng(1)
    labels = chance.integers(0, 3, 300)
    frame = polars.DataFrame(frame_of(labels, voted(labels, right, False, chance), 60, chance))
    if people:
        rows = [frame.with_columns(person=polars.lit(f"person {number}")) for number in range(people)]
        frame = polars.concat([rows[0], *(part.filter(polars.col("label").is_not_null()) for part in rows[1:])])
    frame.write_csv(folder / "texts.csv")
    return folder / "texts.csv"


def test_votes_help_and_the_page_shows_where_they_differ(
    tmp_path: Path, few_methods: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the first screen without a p-value; the model is saved and predicts as it did; the column of votes is no label."""
    place, run = table_of(tmp_path), tmp_path / "run"
    assert main(["fit", str(place), "--votes", "gpt", "--minutes", "0.4", "--out", str(run)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "Labels may also stand in" not in said
    assert "The votes of gpt agree with " in said
    assert "used: " in said
    assert "p =" not in said
    assert (state := RunState(run, "run")).done == state.planned
    kept = json.loads((run / "fit.json").read_text())
    votes, page = kept["votes"], (run / "report.html").read_text()
    assert kept["recommended"] == "stack with votes"
    assert votes["used"]
    assert votes["texts"] == 60
    assert 0.8 < votes["agreement"]["value"] < 1
    assert [row["label"] for row in votes["labels"]] == sorted(NAMES)
    assert votes["differing"]
    assert all(one["vote"] != one["predicted"] for one in votes["differing"])
    assert votes["expected_without"] < kept["expected"]["value"]
    assert "Votes of gpt" in page
    assert "label next" in page
    assert votes["differing"][0]["text"].split()[0] in page
    assert len(ws.load(run).labels) == 3


def test_votes_that_say_nothing_are_left_out(few_methods: None) -> None:
    """The best without votes is chosen, and it is said."""
    chance = np.random.default_rng(2)
    labels = chance.integers(0, 3, 400)
    result = fitted(frame_of(labels, chance.integers(0, 3, 400), 150, chance), votes="gpt")
    assert result.votes
    assert result.votes.used == result.best.votes
    left_out = [each for each in result.candidates if each.votes]
    assert left_out, "they are among the candidates, whose luck is taken off"
    if not result.votes.used:
        assert result.votes.sentence.endswith("they add nothing, and were left out.")
        assert result.votes.expected[0] == pytest.approx(result.votes.expected[1], abs=0.02)


def test_answers_of_three_people_say_whether_votes_may_replace_one(tmp_path: Path) -> None:
    """Rows name the person; copies of a text count once."""
    place = table_of(tmp_path, people=3)
    flags = ws.FitConfig(data=str(place), votes="gpt")
    task = with_votes(read_labelled(flags), place, flags, "gpt")
    found = agreement_of(task)
    assert found
    assert found.texts == 60
    assert found.people
    assert found.people.people == 3
    assert found.people.texts == 60
    assert (
        "gpt must not yet replace a person: in the place of " in found.replacing or "gpt may replace a person: " in found.replacing
    )


@pytest.mark.parametrize(
    ("change", "flags", "message"),
    [
        ({}, ["--votes", "gtp"], "has no column 'gtp'; did you mean 'gpt'?"),
        ({"gpt": polars.lit("fear")}, ["--votes", "gpt"], "must be a label of the texts (anger, calm, joy), but some are 'fear'"),
        ({"gpt": polars.lit("")}, ["--votes", "gpt"], "rows without a label must have votes in 'gpt', but none has one"),
        ({"gpt": LABELLED_ONLY}, ["--votes", "gpt"], "only rows that have"),
        ({"gpt": None}, ["--votes", "label"], "label was not taken for either, since --votes names it"),
        ({}, ["--votes", "label", "--label-column", "label"], "--votes must name a column of its own"),
        ({"label": polars.col("label") + "|" + polars.col("gpt")}, ["--votes", "gpt"], "but this is a multilabel task"),
    ],
)  # fmt: skip
def test_votes_that_cannot_be_used_are_refused(
    change: dict[str, polars.Expr], flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One message, exit code 2, no folder."""
    place = table_of(tmp_path)
    polars.read_csv(place).with_columns(**change).write_csv(place)
    assert main(["fit", str(place), *flags, "--out", str(tmp_path / "run")]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()


def test_votes_are_spelled_in_any_case_and_may_be_unsure(tmp_path: Path) -> None:
    """Another case is the same label; what a model says in place of a label is none. A manifest has no column of votes."""
    place = table_of(tmp_path)
    frame = polars.read_csv(place).with_columns(gpt=polars.col("gpt").str.to_uppercase())
    frame.with_columns(gpt=polars.when(polars.int_range(300) % 3 == 0).then(polars.lit("unknown")).otherwise("gpt")).write_csv(
        place
    )
    flags = ws.FitConfig(data=str(place), votes="gpt")
    task = with_votes(read_labelled(flags), place, flags, "gpt")
    assert len(task.votes.answers) == 200
    assert {*task.votes.answers.values()} == {0, 1, 2}
    (tmp_path / "task.yaml").write_text("name: texts\ntrain: texts.csv\ntest: 0.2\n")
    with pytest.raises(ws.WarmstartError, match="--votes names a column of a table, but .* is none"):
        with_votes(task, tmp_path / "task.yaml", flags, "gpt")
