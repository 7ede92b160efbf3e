"""A labelling session: turns, several people, what is on disk, what the model knows, and what is said of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.labelling import news
from warmstart.app import learner as learning_
from warmstart.app import pool as pooled
from warmstart.app import session as session_module
from warmstart.app.accuracy import Outcomes
from warmstart.app.choosing import Mixture
from warmstart.app.pool import task_to_label
from warmstart.app.project import Project
from warmstart.app.session import FITTED, LabelSession
from warmstart.errors import ConfigError, DataError
from warmstart.runs.verdict import Verdict, write_verdict

WORDS = {"animals": "cat dog horse mouse cow sheep", "tools": "hammer saw drill wrench plane file"}
ALWAYS_NEW = {"doubtful": 0.0, "overlap": 0.0}


def pool(count: int) -> list[str]:
    """Texts of two topics, in turn."""
    chance = np.random.default_rng(0)
    words = [one.split() for one in WORDS.values()]
    return [f"{number}: {' '.join(chance.choice(words[number % 2], 5))}" for number in range(count)]


def truth(item: dict[str, object]) -> int:
    """The label id of a text: 1 or 2."""
    return int(item["text_id"]) % 2 + 1  # type: ignore[call-overload]


def begin(folder: Path, count: int = 200, type: str = "classification") -> Project:
    return Project.create(folder, name="topics", type=type, labels=[*WORDS], texts=pool(count), price=0.1)  # type: ignore[arg-type]


def vectors(project: Project) -> np.ndarray:
    """The topic, and noise."""
    chance = np.random.default_rng(1)
    return np.column_stack([np.arange(len(project.texts)) % 2 * 2.0 - 1, chance.normal(0, 0.3, (len(project.texts), 3))])


def open_session(project: Project, mixture: Mapping[str, float] = ALWAYS_NEW, target: float | None = None) -> LabelSession:
    project.change_settings(mixture=mixture, target=target)
    return LabelSession(project, vectors(project))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[LabelSession]:
    found = open_session(begin(tmp_path / "project"), target=0.85)
    yield found
    found.close()


def shown(session: LabelSession, person: str) -> dict[str, Any]:
    """What a person is asked next."""
    item = session.next(person)
    assert item is not None
    return item


def outcomes(session: LabelSession) -> Outcomes:
    """What is known of the accuracy."""
    known, *_ = session.outcomes()
    assert known is not None
    return known


def after(minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let that time pass."""

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(minutes=minutes)

    monkeypatch.setattr(session_module, "datetime", Later)


def label(session: LabelSession, person: str, count: int) -> list[int]:
    """Answer some texts correctly, each with the model that knows all before; the texts."""
    texts = []
    for _ in range(count):
        session.learner.wait()
        item = shown(session, person)
        assert not {*item} & {"predicted", "confidence", "probabilities"}, "no prediction reaches the page"
        session.answer(person, item["draw"], truth(item), 2.0)
        texts.append(item["text_id"])
    session.learner.wait()
    return texts


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    """After a restart: the same open text, no text twice, the same accuracy, later versions of the model; until the pool ends."""
    session = open_session(begin(tmp_path / "project", 65), target=0.9)
    seen = label(session, "Ada", 50)
    item, status = session.next("Ada"), session.status()
    session.close()
    project = Project.open(tmp_path / "project")
    assert (project.settings.target, project.settings.mixture) == (0.9, ALWAYS_NEW)
    session = LabelSession(project, vectors(project))
    session.learner.wait()
    assert session.next("Ada") == item
    again = session.status()
    assert again["accuracy"] == status["accuracy"] is not None
    assert again["model"]["version"] > status["model"]["version"]
    assert sorted([*seen, *label(session, "Ada", 15)]) == [*range(65)]
    assert session.next("Ada") is None
    session.close()


PROVEN = "Proven: on average, the models since text 53 label at least 85% of the remaining texts correctly."


@pytest.mark.proofs
def test_an_easy_pool_is_learned_and_the_target_proven(session: LabelSession) -> None:
    """Two topics that one dimension tells apart: at the end at least 85% is proven."""
    label(session, "Ada", 29)
    status = session.status()
    assert (status["accuracy"], status["newest"]) == (None, None)
    label(session, "Ada", 15)
    status = session.status()
    assert status["newest"]["low"] < status["newest"]["estimate"] <= status["newest"]["high"]
    assert status["accuracy"]["low"] < status["accuracy"]["estimate"]
    assert not status["target"]["proven"]
    label(session, "Ada", 126)
    status = session.status()
    assert status["target"] == {"target": 0.85, "proven": True, "sentence": PROVEN}
    assert status["outlook"]["sentence"].startswith("30 more labels would bring about 0.")
    assert "cost 3.00 and 0.0 hours" in status["price"]["sentence"]
    assert status["labelled"] == 170
    assert status["people"] == [{"person": "Ada", "answered": 170, "median_seconds": 2.0}]
    json.dumps(status, allow_nan=False)


def test_the_figure_of_a_training_is_the_only_one(session: LabelSession) -> None:
    """People use the model of the training, so the one that learns along says no accuracy of its own beside it."""
    label(session, "Ada", 40)
    before = session.status()
    assert before["newest"]["tells"] == before["sentence"].startswith("The model that learns along labels about ")
    folder = session.project.folder / "model"
    folder.mkdir()
    write_verdict(Verdict("news", "40 labels", 40, "Use probe: right on 84 of 100 new texts (likely 70 to 92)."), folder)
    status = session.status()
    assert (status["newest"], status["outlook"], status["price"], status["sentence"]) == (None, None, None, FITTED)
    assert status["target"]["sentence"].startswith("Of the model that learns along: not proven")


def test_the_shares_of_all_labels_are_said(session: LabelSession) -> None:
    """Of the pool's texts with and without a label, whatever was preferred; nothing before the first figures."""
    label(session, "Ada", 20)
    assert session.status()["shares"] == ""
    label(session, "Ada", 40)
    found = re.fullmatch(
        r"Of 100 of the 200 texts, (\d+) are (\w+) \(\d+ to \d+\), (\d+) \w+ .*, if you look once\.", session.status()["shares"]
    )
    assert found
    assert int(found[1]) + int(found[3]) == 100
    assert abs(int(found[1]) - 50) < 12


def test_skipped_texts_count_as_wrong(session: LabelSession) -> None:
    """Who skips what is hard would otherwise make the model look better than it is."""
    label(session, "Ada", 40)
    before = session.status()["accuracy"]["estimate"]
    for _ in range(20):
        item = shown(session, "Ada")
        session.answer("Ada", item["draw"], None, 1.0)
    assert session.status()["accuracy"]["estimate"] < before - 0.1
    assert session.status()["skipped"] == 20


def test_a_text_left_open_is_given_to_the_next_person(session: LabelSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a quarter of an hour; the accuracy waits while it may be being read, for only quick answers would count otherwise."""
    label(session, "Ada", 20)
    left = shown(session, "Ada")
    label(session, "Bob", 4)
    counted = len(outcomes(session).right)

    after(20, monkeypatch)
    item = shown(session, "Bob")
    assert item["text_id"] == left["text_id"]
    session.answer("Bob", item["draw"], truth(item), 1.0)
    assert len(outcomes(session).right) == counted + 5


def test_an_idle_visitor_holds_nobody_up(session: LabelSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who enters a name and goes away has a text open: it counts as wrong once one other went on, who gets it soon."""
    label(session, "Ada", 20)
    left = shown(session, "Visitor")
    label(session, "Ada", 4)
    before = outcomes(session)
    label(session, "Ada", 2)
    known = outcomes(session)
    assert (len(known.right) - len(before.right), bool(known.right[len(before.right)])) == (7, False)
    assert session.status()["waiting"].startswith("A text left open by Visitor counts as wrong until answered")

    after(3, monkeypatch)
    assert left["text_id"] in label(session, "Ada", 2)
    assert session.status()["waiting"] == ""
    assert shown(session, "Visitor")["text_id"] != left["text_id"]


def test_undo_shows_the_text_again_with_what_was_chosen(session: LabelSession) -> None:
    """Only to the person who answered; two people never get the same new text."""
    (text,) = label(session, "Ada", 1)
    item = session.undo("Ada")
    assert item is not None
    assert (item["text_id"], item["answered"]) == (text, truth(item))
    assert shown(session, "Ada")["draw"] == item["draw"]
    assert shown(session, "Bob")["text_id"] != text
    assert session.undo("Bob", item["draw"]) is None


def test_second_answers_give_agreement_and_disagreements_are_decided(tmp_path: Path) -> None:
    """Two people answer the same texts; where they differ, a third person decides, and sees what both said; or a judge does."""
    session = open_session(begin(tmp_path / "project", 40), {"doubtful": 0.0, "overlap": 0.5})
    session.join("Bob")
    queues = set()

    def work(person: str) -> str:
        """Answer what comes next, wrongly where it is a second answer to every fifth text; where it came from."""
        item = session.next(person)
        if item is None:
            return ""
        if item["queue"] == "disagreement":
            assert {one["person"] for one in item["others"]} == {"Ada", "Bob"}
        errs = item["queue"] == "overlap" and item["text_id"] % 5 == 0
        wrong = errs and person != "Eve" and not session.project.settings.judge
        session.answer(person, item["draw"], 3 - truth(item) if wrong else truth(item), 1.0)
        session.learner.wait()
        return str(item["queue"])

    while came := {work("Ada"), work("Bob")} - {""}:
        queues |= came
    assert queues == {"new", "overlap"}
    waiting = session.status()["disagreements"]
    assert waiting > 1
    while work("Eve") != "disagreement":
        pass
    assert session.status()["disagreements"] == waiting - 1
    session.project.change_settings(judge="Bob")
    assert {work("Eve") for _ in range(60)} <= {"overlap", ""}
    while (queue := work("Bob")) != "":
        assert queue in ("disagreement", "overlap")
    status = session.status()
    assert 0 < status["agreement"]["alpha"] < 1
    assert status["disagreements"] == 0
    assert all(value == text % 2 + 1 for text, value in session.project.labelled().items())
    session.close()


@pytest.mark.proofs
def test_likely_wrong_labels_are_shown_once_more(tmp_path: Path) -> None:
    """Of 5 planted errors among 100 labels the model doubts at least 4, and each is shown once."""
    session = open_session(begin(tmp_path / "project", 120), {"doubtful": 1.0, "overlap": 0.0})
    planted, again = set(), list[int]()
    while (number := len(session.project.labelled())) < 100:
        session.learner.wait()
        item = shown(session, "Ada")
        wrong = item["queue"] != "doubtful" and number % 20 == 10
        session.answer("Ada", item["draw"], 3 - truth(item) if wrong else truth(item), 1.0)
        planted |= {item["text_id"]} if wrong else set()
        if item["queue"] == "doubtful":
            assert len(item["others"]) == 1
            again.append(item["text_id"])
    session.learner.wait()
    assert len(again) == len(set(again))
    assert len(planted) == 5
    assert len(planted & ({*again} | {*session.learner.doubtful})) >= 4
    session.close()


def test_merged_labels_count_as_one_everywhere(session: LabelSession) -> None:
    """Predictions that named the merged label too."""
    label(session, "Ada", 40)
    session.add_label("Ada", "plants")
    session.rename_label("Ada", 3, "flowers")
    session.merge_labels("Ada", 2, 1)
    assert [(one["name"], one["count"]) for one in session.labels()] == [("animals", 40), ("flowers", 0)]
    assert outcomes(session).right.all()


def test_a_fit_that_began_before_a_merge_leaves_no_predictions_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """They name labels that mean something else now."""
    places = np.arange(40.0).reshape(-1, 1)
    learner = learning_.BackgroundLearner(places, lambda: {text: 1 + text % 2 for text in range(40)}, 0, 0)
    learner.close()
    learner.learn()
    assert learner.left_out is not None
    learner.forget()
    monkeypatch.setattr(learning_, "left_out_predictions", lambda *_: learner.forget())
    learner.learn()
    assert (learner.left_out, learner.checked) == (None, 0)


def test_suggestions_leave_the_accuracy_to_texts_without_one(session: LabelSession) -> None:
    """The likely label stands beside texts that are not drawn at random; random ones, each as probable, are asked without."""
    label(session, "Ada", 20)
    before = outcomes(session)
    session.project.change_settings(suggest="yes")
    suggested = list[bool]()
    for _ in range(40):
        item = shown(session, "Ada")
        draw = session.project.draws()[-1]
        assert ("likely" in item) == (draw.component != "random")
        assert draw.probability == (None if "likely" in item else 1 / draw.remaining)
        suggested.append("likely" in item)
        session.answer("Ada", item["draw"], truth(item), 1.0)
    assert 5 < sum(suggested) < 35
    known = outcomes(session)
    new = len(known.right) - len(before.right)
    assert new == 40 - sum(suggested)
    assert np.allclose(known.ratio[-new:], 1)


def test_words_are_tagged_without_a_model(tmp_path: Path) -> None:
    """Texts are drawn at random and diverse; people's agreement is by word."""
    session = open_session(begin(tmp_path / "project", 30, "tagging"), {"doubtful": 0.0, "overlap": 1.0})
    for person in ("Ada", "Bob"):
        session.join(person)
        for _ in range(20):
            item = shown(session, person)
            session.answer(person, item["draw"], [0, 1, 1, 2, 0, 0][: len(item["words"])], 1.0)
    status = session.status()
    assert (status["accuracy"], status["model"], status["sentence"]) == (None, None, "")
    assert status["agreement"]["alpha"] == 1
    session.close()


def test_mixtures_that_cannot_be_are_refused() -> None:
    """Shares that are not named are none, or the default."""
    for shares, words in (
        ({"uncertain": 1.0}, "'random' has 0%"),
        ({"rendom": 1.0}, "did you mean 'random'"),
        ({"random": 2.0}, "between 0 and 1"),
    ):
        with pytest.raises(ConfigError, match=words):
            Mixture.of(shares)
    assert Mixture.of({"random": 1, "diverse": 1}) == Mixture(0.5, 0.0, 0.5)
    assert Mixture.of({"overlap": 0.5}) == Mixture(overlap=0.5)


def test_vectors_of_a_model_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And kept beside the project; without a model, those of the words tell the topics apart."""
    texts = pool(40)
    plain = pooled.pool_vectors(texts, "", tmp_path)
    topics = np.arange(40) % 2 == 0
    assert ((plain[topics].mean(axis=0) - plain[~topics].mean(axis=0)) ** 2).max() > 1
    monkeypatch.setattr("warmstart.model.folder.model_digest", lambda _: "d")
    monkeypatch.setattr("warmstart.model.files.load_bundle", None)  # a model that is loaded is not loaded again
    monkeypatch.setattr(pooled, "_frozen_vectors", lambda texts, _: np.random.default_rng(0).normal(size=(len(texts), 8)))
    first = pooled.pool_vectors(texts, "model", tmp_path, loaded=object())  # type: ignore[arg-type]
    monkeypatch.setattr(pooled, "_frozen_vectors", None)
    assert np.array_equal(pooled.pool_vectors(texts, "model", tmp_path), first)


def test_the_names_of_labels_know_something_before_the_first_answer(tmp_path: Path) -> None:
    """Texts are compared with the names of the labels; one that was merged is named no more."""
    chance = np.random.default_rng(0)
    truth = chance.integers(1, 4, 120)
    vectors = np.eye(4)[truth] + chance.normal(0, 0.2, (120, 4))
    project = news(tmp_path, [f"text {i}" for i in range(120)], ["a", "b", "c"])
    project.change_settings(suggest="yes", mixture={"random": 0.1, "uncertain": 0.9})
    session = LabelSession(project, vectors, names=lambda: {one.id: np.eye(4)[one.id] for one in project.labels()})
    session.learner.wait()
    beliefs = session.learner.beliefs
    assert beliefs is not None
    assert (beliefs.learned_from, (beliefs.predicted == truth).mean() > 0.9) == (0, True)
    assert "likely" in [*(session.next(person) or {} for person in "defgh")][-1]
    session.merge_labels("Ada", 3, 1)
    session.learner.wait()
    assert session.learner.beliefs is not None
    assert session.learner.beliefs.classes.tolist() == [1, 2]
    for text in range(50):
        project.answer(project.draw(text=text, person="Ada", queue="new").id, "Ada", min(int(truth[text]), 2), 1.0)
    session.learner.learn()
    assert session.learner.beliefs.learned_from == 50
    session.close()


def test_names_are_left_for_good_once_a_regression_predicts_better() -> None:
    """With a label or two for most of many classes the names do, if they are good; one name alone is no model."""
    chance = np.random.default_rng(0)
    truth = chance.integers(0, 40, 300)
    vectors = np.eye(40)[truth] + chance.normal(0, 0.2, (300, 40))

    def learner(classes: int, names: dict[int, np.ndarray]) -> learning_.BackgroundLearner:
        found = learning_.BackgroundLearner(
            vectors, lambda: dict(enumerate((truth[:count] % classes).tolist())), 0, 0, lambda: names
        )
        found.close()
        found.learn()
        assert found.beliefs is not None
        return found

    count = 60
    good, wrong = (learner(classes, dict(enumerate(np.roll(np.eye(40), 1 - classes // 40, 0)))) for classes in (40, 4))
    assert good.beliefs
    assert (good.beliefs.named, (good.beliefs.predicted == truth).mean() > 0.9) == (True, True)
    count = 40
    wrong.learn()
    assert wrong.beliefs
    assert (wrong.beliefs.learned_from, wrong.beliefs.named) == (40, False)
    alone = learner(2, {7: np.eye(40)[7]}).left_out
    assert alone is not None
    assert set(alone.ravel().tolist()) <= {0, 1}


def test_the_words_of_labels_are_read_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the task, if its manifest can be read, else the name; also of labels that were added or renamed."""
    read = list[str]()
    monkeypatch.setattr("warmstart.model.folder.model_digest", lambda _: "d")
    monkeypatch.setattr("warmstart.model.files.load_bundle", lambda _: object())
    monkeypatch.setattr("warmstart.interop.encoders.find_model", lambda one: one)
    monkeypatch.setattr(pooled, "_frozen_vectors", lambda texts, _: (read.extend(texts), np.full((len(texts), 2), len(read)))[1])
    manifest = tmp_path / "task.yaml"
    manifest.write_text("{name: t, train: gone.csv, test: 0.2, label_descriptions: {tools: what one works with}}")
    project = Project.create(tmp_path / "p", name="t", type="classification", labels=[*WORDS], texts=pool(3), task=str(manifest))
    project.change_settings(vectors="model")
    names = pooled.NameVectors(project)
    assert ([*names()], read[3:]) == ([1, 2], ["animals", "what one works with"])
    project.rename_label(1, "living beings", "Ada")
    project.add_label("plants", "Ada")
    assert ([*names()], read[5:]) == ([1, 2, 3], ["living beings", "plants"])
    manifest.write_text("[")
    assert (len(pooled.NameVectors(project)()), read[7:]) == (3, ["living beings", "tools", "plants"])
    project.close()


def test_the_outlook_begins_with_the_model_in_use(session: LabelSession) -> None:
    """Outcomes of the names and of a regression follow no common law; what is proven counts both, under any random shares."""
    label(session, "Ada", 12)
    beliefs = session.learner.beliefs
    assert beliefs is not None
    session.learner.beliefs = replace(beliefs, named=True)
    item = shown(session, "Ada")
    session.answer("Ada", item["draw"], truth(item), 1.0)
    session.learner.wait()
    session.mixture = Mixture(random=0.8, uncertain=0.2, diverse=0.0)
    label(session, "Ada", 5)
    known, counts, since = session.outcomes()
    assert known is not None
    assert len(known.right) == len(counts)
    assert since == len(counts) - 5
    assert np.unique(known.random_share).tolist() == [0.5, 0.8]
    assert np.isfinite(known.floors).all()


def test_a_text_that_a_model_was_tried_on_is_no_random_draw(session: LabelSession) -> None:
    """Its label counts as an answer of that person, can be undone and is never asked for, and no figure of accuracy counts it."""
    first, other = session.project.texts[:2]
    said = [session.label_tried(" Anna ", text, 1) for text in ("a new text", first)]
    assert said[0] == {"label": 1, "sentence": "Saved: animals, by Anna. The text is new in the project."}
    assert said[1] == {"label": 1, "sentence": "Saved: animals, by Anna."}
    assert session.label_tried("Ben", first, 2) == {
        "label": None, "sentence": "Saved: tools, by Ben. People differ about it; somebody must decide."
    }  # fmt: skip
    session.learner.wait()
    assert session.outcomes()[0] is None
    assert {session.project.draws()[place].queue for place in range(2)} == {"tried"}
    asked = {shown(session, person)["text"] for person in ("Cleo", "Dora")}
    assert not asked & {"a new text"}
    assert (session.status()["texts"], session.status()["newest"]) == (201, None)
    assert session.label_tried("Ben", other, 2)["label"] == 2
    undone = session.undo("Ben")
    assert undone is not None
    assert (undone["text"], session.project.labelled().get(1)) == (other, None)
    again = LabelSession(session.project, np.zeros((201, 1)))
    again.learner.close()
    assert again.project.labelled()[200] == 1


def test_a_text_that_tests_models_is_not_labelled_where_it_is_tried(tmp_path: Path) -> None:
    """However it is spaced: else a model would be tested on a text that it learned."""
    table = tmp_path / "cups.csv"
    table.write_text("text,label\n" + "".join(f"{text},{[*WORDS][i % 2]}\n" for i, text in enumerate(pool(60))), "utf-8")
    task = task_to_label(table)
    project = Project.create(tmp_path / "p", name="t", type="classification", labels=[*WORDS], texts=pool(3), task=str(table))
    tried = LabelSession(project, np.zeros((3, 1)))
    with pytest.raises(DataError, match="held out to test models"):
        tried.label_tried("Anna", f" {task.test.texts[0]}!", 1)
    assert (len(project.texts), tried.label_tried("Anna", str(task.train.texts[0]), 1)["label"]) == (3, 1)
    tried.close()
