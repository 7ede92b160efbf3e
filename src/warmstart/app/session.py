"""A labelling session: which text a person sees next, what becomes of the answer, and what is known so far.

One turn is one text. Mostly it is new, drawn with a known probability (``choosing.py``). Some turns go to disagreements between
people, to labels that are likely wrong, and to texts that somebody else has answered, for the agreement between people. A text that
somebody left open is given to the next person after a while, so that no draw stays without an answer.

Methods are quick and may be called from several threads; their answers are plain values. What is computed slowly, the model,
is computed in the background (``learner.py``).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.app.accuracy import (
    FEWEST_FOR_FIGURES,
    NOTHING_COMPARED,
    Outcomes,
    RunningAccuracy,
    newest_accuracy,
    newest_sentence,
    newest_shares,
    outlook,
    running_accuracy,
)
from warmstart.app.answered import AnsweredQuery, answered_texts, correct
from warmstart.app.choosing import Distances, Mixture, draw_text
from warmstart.app.learner import BackgroundLearner
from warmstart.app.pool import NameVectors, pool_vectors, refuse_held_out
from warmstart.app.project import Project
from warmstart.app.tables import CORRECTION, DISAGREEMENT, IMPORTED, TRIED, Draw, Value
from warmstart.app.training import Training
from warmstart.seeding import rng
from warmstart.stats.extrapolation import round_labels
from warmstart.stats.formatting import percent
from warmstart.stats.scores import krippendorff_interval

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle

_SECOND_LOOKS = ("doubtful", DISAGREEMENT, CORRECTION)
"""queues of people who know what was said before"""
_DISAGREEMENTS = 0.2
"""share of the turns, while there are any"""
_STALE, _OVERTAKEN = timedelta(minutes=15), timedelta(minutes=2)
"""after which a text that was shown and not answered is given to somebody else; the second if others went on meanwhile"""
_WENT_ON = 5
"""new texts answered meanwhile, which makes others go on; from so many by one person on, the open text counts as wrong: hard ones
are left open"""
_LONGEST = 300.0
"""seconds for an answer; longer ones were breaks"""


FITTED = "The model of the last training is the one to use; how good it is stands below."


class LabelSession:
    """People who label the texts of a project, and a model that learns from them."""

    def __init__(
        self, project: Project, vectors: np.ndarray, seed: int = 0, names: Callable[[], Mapping[int, np.ndarray]] = dict
    ) -> None:
        self.project, self.mixture, self.seed = project, Mixture.of(project.settings.mixture), seed
        self._lock, self._distances = threading.RLock(), Distances(vectors)
        draws = project.draws()
        self._shown = np.zeros(len(project.texts), dtype=bool)
        self._note(*{draw.text for draw in draws})
        self._seen = dict[int, datetime]()
        """draw -> when it was last shown or taken back, since this session began"""
        self._status: tuple[object, dict[str, Any]] | None = None
        self._status_lock = threading.Lock()
        version = max((draw.version for draw in draws), default=0)
        self.learner = BackgroundLearner(vectors, self._labels_to_learn, version, seed, names)
        self.learner.wake()
        self.training = Training(project)

    @classmethod
    def open(cls, project: Project, seed: int = 0, encoder: Bundle | None = None) -> LabelSession:
        """A session on a project, by its settings; ``encoder`` is the model of its vectors, if it is loaded already.

        With an encoder, the names of the labels are a model until the regression is better. Raises ``ModelError`` if it cannot be
        loaded.
        """
        vectors = pool_vectors(project.texts, project.settings.vectors, project.folder, encoder)
        named = project.settings.vectors and project.type == "classification"
        return cls(project, vectors, seed, NameVectors(project, encoder) if named else dict)

    def close(self) -> None:
        """End the background work, and close the project."""
        self.learner.close()
        self.training.close()
        self.project.close()

    # ------------------------------------------------------------------------------------------------ turns

    def join(self, person: str, browser: str = "", *, same: bool = False) -> dict[str, Any]:
        """Somebody takes part; not yet if the name joined in another browser, unless it is the ``same`` person."""
        person = person.strip()
        taken = bool(browser) and not same and self.project.browser_of(person) not in (None, browser)
        if not taken:
            self.project.join(person, browser)
        answered = sum(answer.person == person for answer in self.project.answers())
        return {"person": person, "answered": answered, "taken": taken}

    def next(self, person: str) -> dict[str, Any] | None:
        """The text for a person: the one that is open, else by the mixture; None if nothing is left."""
        person = person.strip()
        with self._lock:
            own = [draw for draw in self.project.open_draws() if draw.person == person and not self._went_on(draw)]
            draw = own[-1] if own else self._look_again(person) or self._taken_over(person) or self._new(person)
            draw = draw or self._look_again(person, surely=True)
            return None if draw is None else self._item(draw)

    def answer(self, person: str, draw: int, value: Sequence[int] | int | None, seconds: float, comment: str = "") -> None:
        """Store a person's answer to a text; None: skipped."""
        self.project.answer(draw, person, value, seconds, comment)
        self.learner.wake()

    def undo(self, person: str, draw: int | None = None) -> dict[str, Any] | None:
        """Take the person's last answer back, that of ``draw`` if it is named; its text is shown again. None: there is none."""
        with self._lock:
            before = self.project.last_answer(person)
            opened = self.project.undo(person, draw)
            if opened is None:
                return None
            self.learner.wake()
            earlier = {"answered": before.value, "comment": before.comment} if before and before.draw == opened.id else {}
            return self._item(opened) | earlier

    def last(self, person: str) -> int | None:
        """The draw whose answer ``undo`` would take back now."""
        answer = self.project.last_answer(person)
        return None if answer is None else answer.draw

    def find(self, query: AnsweredQuery) -> dict[str, Any]:
        """The answered texts that a query finds, and their number."""
        return answered_texts(self.project, query, self._doubtful())

    def correct(self, person: str, text: int, value: int | None) -> Value | None:
        """Another answer of a person to a text in that list; returns the label that counts now."""
        counts = correct(self.project, person, text, value)
        self.learner.wake()
        return counts

    def label_tried(self, person: str, text: str, value: int) -> dict[str, Any]:
        """Store a person's label of a text that a model was tried on, which may be new in the project; returns a sentence.

        Nobody drew it at random, so no figure of accuracy counts it. The model that learns along reads new texts from the next
        start on. Raises ``DataError`` for a text that is held out to score models.
        """
        project, person = self.project, person.strip()
        refuse_held_out(project, text)
        with self._lock:
            with project.at_once():
                new, place = project.add_texts([text]), project.texts.index(text)
                if any(answer.text == place for answer in project.answers()):
                    correct(project, person, place, value)
                else:
                    project.answer(project.draw(text=place, person=person, queue=TRIED).id, person, value, 0)
            self._note(place)
        self.learner.wake()
        label, names = project.labelled().get(place), {name.id: name.name for name in project.labels()}
        sentence = f"Saved: {names[value]}, by {person}." if value in names else "Saved."
        more = " The text is new in the project." * bool(new) + " People differ about it; somebody must decide." * (label is None)
        return {"label": label, "sentence": sentence + more}

    def _item(self, draw: Draw) -> dict[str, Any]:
        self._seen[draw.id] = datetime.now(UTC)
        text = self.project.texts[draw.text]
        item: dict[str, Any] = {
            "draw": draw.id,
            "text_id": draw.text,
            "text": text,
            "queue": draw.queue,
            "answered": None,
            "comment": "",
        }
        if self.project.type == "tagging":
            item["words"] = text.split()
        if draw.suggested:
            item["likely"] = draw.predicted
        if draw.queue in ("disagreement", "doubtful"):
            item["others"] = [{"person": who, "value": value} for who, value in self.project.votes(draw.text).items()]
        return item

    def _new(self, person: str) -> Draw | None:
        remaining = np.flatnonzero(~self._shown)
        if not len(remaining):
            return None
        beliefs = self.learner.beliefs
        chosen = draw_text(remaining, beliefs, self._distances.squared, self.mixture, self._chance("text"))
        known: dict[str, Any] = {}
        if beliefs is not None:
            confidence = beliefs.confidence
            known = {
                "predicted": int(beliefs.predicted[chosen.text]),
                "confidence": float(confidence[chosen.text]),
                "mean_confidence": float(confidence[remaining].mean()),
                "version": beliefs.version,
                "named": beliefs.named,
            }
        probability: float | None = chosen.probability
        share = self.mixture.random
        if beliefs is not None and self.project.settings.suggest:  # only who does not see the prediction tests it
            probability, share = (1 / len(remaining) if chosen.component == "random" else None), 1.0
        draw = self.project.draw(
            text=chosen.text, person=person, queue="new", component=chosen.component, probability=probability,
            remaining=len(remaining), random_share=share, **known,
        )  # fmt: skip
        self._note(chosen.text)
        return draw

    def _look_again(self, person: str, *, surely: bool = False) -> Draw | None:
        """A text for another look, by chance or surely: a disagreement, a doubtful label, or a text for a second answer.

        Disagreements go to the judge, or to who has not answered the text: nobody decides what their own answer made.
        """
        open_ = {draw.text for draw in self.project.open_draws() if not self._is_stale(draw)}
        draws = self.project.draws()
        drawn = {(draw.queue, draw.text) for draw in draws if draw.person == person}
        several = len({draw.person for draw in draws if draw.queue != IMPORTED} | {person}) > 1
        for queue, share, texts in (
            ("disagreement", _DISAGREEMENTS, partial(self._to_decide, person)),
            ("doubtful", self.mixture.doubtful, self._doubtful),
            ("overlap", self.mixture.overlap if several else 0.0, partial(self._for_second_answer, person)),
        ):
            chance = self._chance(queue)
            if not (chance.random() < share or (surely and share and queue != "overlap")):
                continue
            waiting = [text for text in texts() if text not in open_ and (queue, text) not in drawn]
            if waiting:
                text = waiting[int(chance.integers(len(waiting)))] if queue == "overlap" else waiting[0]
                return self.project.draw(text=text, person=person, queue=queue)
        return None

    def _to_decide(self, person: str) -> list[int]:
        """Disagreements that this person may decide."""
        judge, texts = self.project.settings.judge, self.project.disagreements()
        return [text for text in texts if (person == judge if judge else person not in self.project.votes(text))]

    def _doubtful(self) -> list[int]:
        """Texts with a label that is likely wrong, each once."""
        looked = {draw.text for draw in self.project.draws() if draw.queue in _SECOND_LOOKS}
        return [text for text in self.learner.doubtful if text not in looked]

    def _for_second_answer(self, person: str) -> list[int]:
        """Texts that one other person has answered on the page, and that this one has not seen."""
        draws = [draw for draw in self.project.draws() if draw.queue not in (IMPORTED, TRIED)]
        seen, shown = {draw.text for draw in draws if draw.person == person}, {draw.text for draw in draws}
        return [text for text in self.project.labelled() if text in shown - seen and len(self.project.votes(text)) == 1]

    def _taken_over(self, person: str) -> Draw | None:
        """A text that somebody else left open for long, with what was known when it was drawn."""
        answered = {answer.text for answer in self.project.answers()}
        latest = {draw.text: draw for draw in self.project.draws() if draw.queue == "new"}
        for draw in latest.values():
            if draw.text not in answered and draw.person != person and self._is_stale(draw):
                known = {name: value for name, value in vars(draw).items() if name not in ("id", "at", "person")}
                return self.project.draw(**known, person=person)
        return None

    def _is_stale(self, draw: Draw) -> bool:
        """True if an open draw has been left for long, or for a while in which others answered some new texts."""
        shown = self._seen.get(draw.id, datetime.fromisoformat(draw.at))
        waited = datetime.now(UTC) - shown
        if waited <= _OVERTAKEN:
            return False
        since = shown.isoformat(timespec="milliseconds")
        others = sum(answer.at > since and answer.person != draw.person for answer in self.project.answers())
        return waited > _STALE or others >= _WENT_ON

    def _went_on(self, draw: Draw) -> bool:
        """True if another person has answered a new text that this draw left open."""
        return draw.queue == "new" and any(answer.text == draw.text for answer in self.project.answers())

    def _chance(self, what: str) -> np.random.Generator:
        return rng(self.seed, "label", what, len(self.project.draws()))

    def _note(self, *texts: int) -> None:
        """Texts are new to nobody any more; one that came since this session began was new to nobody in it."""
        known = [text for text in texts if text < len(self._shown)]
        self._shown[known] = True
        self._distances.add(*known)

    def _labels_to_learn(self) -> dict[int, int]:
        counted = self.project.labelled().items()
        return {text: label for text, label in counted if isinstance(label, int) and text < len(self._shown)}

    # ------------------------------------------------------------------------------------------------ label names

    def labels(self) -> list[dict[str, Any]]:
        """The labels, and how many texts (or words) have each."""
        values = self.project.labelled().values()
        counts = Counter(label for value in values for label in ((value,) if isinstance(value, int) else value))
        return [
            {"id": label.id, "name": label.name, "key": label.key, "count": counts[label.id]} for label in self.project.labels()
        ]

    def add_label(self, person: str, name: str) -> None:
        """A new label."""
        self.project.add_label(name, person)
        self.learner.wake()

    def rename_label(self, person: str, label: int, name: str) -> None:
        """Another name for a label."""
        self.project.rename_label(label, name, person)
        self.learner.wake()

    def merge_labels(self, person: str, label: int, into: int) -> None:
        """One label counts as another from now on."""
        self.project.merge_labels(label, into, person)
        self.learner.forget()

    # ------------------------------------------------------------------------------------------------ what is known

    def status(self) -> dict[str, Any]:
        """The state of the session: progress, agreement, accuracy, proof of the target, gain and cost of more labels."""
        answers, beliefs = self.project.answers(), self.learner.beliefs
        model = (beliefs and beliefs.version, self.learner.checked)
        key = (answers[-1] if answers else None, len(answers), len(self.project.history()), model)
        with self._status_lock:  # not that of the turns: nobody's next text waits for figures
            if self._status is None or self._status[0] != key:
                self._status = key, self._new_status()
            status = dict(self._status[1])
        status["people"], status["training"] = self._people(), self.training.status()
        if status["training"] and status["training"]["findings"]:
            status |= _beside_a_fit(status["target"])
        status["doubtful"] = len(self._doubtful())
        if beliefs is not None:
            status["model"] = {"version": beliefs.version, "labels": beliefs.learned_from, "fitting": self.learner.fitting}
        return status

    def _new_status(self) -> dict[str, Any]:
        answers, labelled, left = self.project.answers(), self.project.labelled(), int((~self._shown).sum())
        settings = self.project.settings
        outcomes, counts, since = self.outcomes()
        drawn = self._new_texts()
        accuracy = running_accuracy(outcomes, settings.target) if outcomes else None
        accuracy = accuracy and replace(accuracy, first=int(counts[accuracy.first - 1]))  # as the page counts, not the proof
        here = [(draw, answer) for draw, answer, closed in drawn if closed and not draw.suggested]
        newest, names = newest_accuracy(here, self.learner.left_out), {label.id: label.name for label in self.project.labels()}
        ahead = outlook(outcomes, counts, left, self.seed, since) if outcomes else None
        times = [min(answer.seconds, _LONGEST) for answer in answers if answer.seconds > 0]
        price = ahead.price_sentence(self.project.price, median(times) if times else None) if ahead else ""
        return {
            "texts": len(self.project.texts),
            "labelled": len(labelled),
            "skipped": len({answer.text for answer in answers if answer.value is None} - set(labelled)),
            "progress": self._progress(accuracy, left, len(here)),
            "disagreements": len(self.project.disagreements()),
            "judge": settings.judge,
            "agreement": self._agreement(),
            "model": None,
            "newest": newest and {"estimate": newest.value, "low": newest.low, "high": newest.high, "tells": newest.tells},
            "accuracy": accuracy
            and {"estimate": accuracy.value, "low": accuracy.low, "labels": accuracy.compared},
            "sentence": "" if self.project.type == "tagging" else newest_sentence(newest, len(here)),
            "shares": newest_shares(here, self.learner.left_out, labelled, names),
            "waiting": _waiting_sentence(drawn),
            "target": _target_state(settings.target, accuracy, left),
            "outlook": ahead and {"sentence": ahead.sentence(), "points": [list(point) for point in ahead.points]},
            "price": {"sentence": price} if price else None,
        }  # fmt: skip

    def _progress(self, accuracy: RunningAccuracy | None, left: int, here: int) -> dict[str, Any]:
        """Labels there are, and those that the next goal takes: the first figures, then the target; None if nobody knows.

        The first figures take labels of new texts, given ``here``: not imported ones, nor second answers.
        """
        labels, target = len(self.project.labelled()), self.project.settings.target
        done = f"{labels:,} {'text is' if labels == 1 else 'texts are'} labelled"
        if self.project.type == "tagging":
            return {"labels": labels, "of": len(self.project.texts), "sentence": f"{done}, of {len(self.project.texts):,}"}
        if here < FEWEST_FOR_FIGURES:
            how = "without a suggestion" if self.project.settings.suggest else "on this page"
            sentence = f"{done}; the first figures come with {FEWEST_FOR_FIGURES} given {how}"
            return {"labels": here, "of": FEWEST_FOR_FIGURES, "sentence": sentence}
        if target is None or accuracy is None:
            return {"labels": labels, "of": None, "sentence": done}
        goal = percent(target, trim=True)
        if accuracy.proves(target):
            return {"labels": labels, "of": labels, "sentence": f"{done}; the goal, {goal}, is proven"}
        more = accuracy.needed.get(target, math.inf)
        if more > left:
            return {
                "labels": labels,
                "of": None,
                "sentence": f"{done}; the model that learns along is not good enough to prove the goal, {goal}",
            }
        return {
            "labels": labels,
            "of": labels + more,
            "sentence": f"{done}; about {round_labels(more)} more would prove the goal, {goal}",
        }

    def outcomes(self) -> tuple[Outcomes | None, np.ndarray, int]:
        """Predictions of the models for new texts before these had a label, up to the first that is being read; None without any.

        Also the number of labels (n,) with each, and the first that the kind of model in use now predicted: that of the names, or
        the regression. What a text is compared with is the answer to the draw itself: second looks are drawn where the model
        disagrees, so they would flatter it. A skipped text counts as wrong, as does one that was left open until it is answered:
        for answers that stay, what is proven can only be too low.
        """
        first = {answer.text: answer for answer in reversed(self.project.answers())}
        begun = np.sort([answer.draw for answer in first.values()])
        rows, counts, since = list[tuple[bool, float, float, float, float]](), list[int](), 0
        beliefs, drawn = self.learner.beliefs, self._new_texts()
        for draw, answer, closed in drawn:
            if not closed and not _left_open(drawn, draw):
                break
            if draw.predicted is None or draw.probability is None:
                continue
            assert draw.confidence is not None
            assert draw.mean_confidence is not None
            assert draw.random_share is not None
            ratio = 1 / (draw.remaining * draw.probability)
            rows.append((draw.predicted == answer, draw.confidence, draw.mean_confidence, ratio, draw.random_share))
            counts.append(int(np.searchsorted(begun, draw.id)) + 1)
            if beliefs is not None and draw.named != beliefs.named:
                since = len(rows)
        if not rows:
            return None, np.array([]), 0
        return Outcomes(*(np.array(column) for column in zip(*rows, strict=True))), np.array(counts), since

    def _new_texts(self) -> list[tuple[Draw, Value | None, bool]]:
        """The first draw of each new text, in their order, with the answer to it, and whether there is one (None: skipped)."""
        drawn, values = dict[int, Draw](), {answer.draw: answer.value for answer in self.project.answers()}
        taken = dict[int, Value | None]()
        for draw in self.project.draws():
            if draw.queue == "new":
                drawn.setdefault(draw.text, draw)  # when it was taken over, its first draw counts
                if draw.id in values:
                    taken.setdefault(draw.text, values[draw.id])
        return [(draw, taken.get(text), text in taken) for text, draw in drawn.items()]

    def _people(self) -> list[dict[str, Any]]:
        times: dict[str, list[float]] = {person: [] for person in self.project.people()}
        for answer in self.project.answers():
            times[answer.person].append(min(answer.seconds, _LONGEST))
        return [
            {"person": person, "answered": len(some), "median_seconds": median(some) if some else None}
            for person, some in times.items()
        ]

    def _agreement(self) -> dict[str, Any] | None:
        """Krippendorff's alpha on the texts that were drawn for a second answer; not what people say who know both."""
        draws = {draw.id: draw for draw in self.project.draws()}
        texts = {draw.text for draw in draws.values() if draw.queue == "overlap"}
        by_text = dict[int, dict[str, Value]]()
        for answer in self.project.answers():
            if answer.text in texts and answer.value is not None and draws[answer.draw].queue not in _SECOND_LOOKS:
                by_text.setdefault(answer.text, {})[answer.person] = answer.value
        votes: list[list[Value]] = [[*people.values()] for people in by_text.values() if len(people) > 1]
        if self.project.type == "tagging":
            units = [[list(word) for word in zip(*text, strict=True)] for text in votes]
        else:
            units = [[text] for text in votes]
        alpha, low, high = krippendorff_interval(units)
        return {"alpha": alpha, "low": low, "high": high, "texts": len(votes)} if np.isfinite(alpha) else None


def _beside_a_fit(target: dict[str, Any] | None) -> dict[str, Any]:
    """The figures of the model that learns along give way to that of a training: people use the model of the training."""
    if target:
        target = target | {"sentence": f"Of the model that learns along: {target['sentence'][0].lower()}{target['sentence'][1:]}"}
    return {"newest": None, "outlook": None, "price": None, "sentence": FITTED, "target": target}


def _target_state(target: float | None, accuracy: RunningAccuracy | None, left: int) -> dict[str, Any] | None:
    if target is None:
        return None
    proven = accuracy is not None and accuracy.proves(target)
    sentence = accuracy.target_sentence(target, left) if accuracy else NOTHING_COMPARED
    return {"target": target, "proven": proven, "sentence": sentence}


def _left_open(drawn: Sequence[tuple[Draw, Value | None, bool]], open_: Draw) -> bool:
    """True if one other person has gone on by some texts since an open one was drawn; one who reads is not passed so often."""
    later = Counter(draw.person for draw, _, closed in drawn if closed and draw.id > open_.id and draw.person != open_.person)
    return max(later.values(), default=0) >= _WENT_ON


def _waiting_sentence(drawn: Sequence[tuple[Draw, Value | None, bool]]) -> str:
    """A sentence on the people whose open texts count as wrong for now."""
    people = [draw.person for draw, _, closed in drawn if not closed and _left_open(drawn, draw)]
    who = " and ".join(dict.fromkeys(people))
    if len(people) > 1:
        return f"{len(people):,} texts left open by {who} count as wrong until answered; others get them after two minutes."
    return f"A text left open by {who} counts as wrong until answered; others get it after two minutes." if people else ""
