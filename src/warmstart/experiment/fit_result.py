"""The result of a fit: the method that the labels choose, its score on new texts, and its failures. Needs no torch."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.errors import ModelError
from warmstart.experiment.choose import MAJORITY_LABEL, TRANSFER, other_side
from warmstart.experiment.label_findings import never_recognised, rows_of_labels, unseen_labels
from warmstart.experiment.trial import OutOfFold
from warmstart.notebook import Shown
from warmstart.runs.steps import NextStep, TaskPlace, command, label_step, steps_after
from warmstart.runs.verdict import (
    ACCURACY,
    Mistake,
    ScoreRow,
    Verdict,
    about_task,
    failures,
    failures_of_several,
    glossed,
    row_lines,
    row_of,
    rows_of,
    score_words,
    use_sentence,
    with_flags,
)
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import MethodScores
from warmstart.stats.formatting import first_of, of_100, sentence_case
from warmstart.stats.intervals import Estimate
from warmstart.stats.scores import given_and_found, without_label
from warmstart.stats.selected import SelectedScore, selected_accuracy, selected_f1, worse_out_of_fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmstart.data.audit import Audit
    from warmstart.data.task import Split, Task
    from warmstart.experiment.beside import OtherColumns
    from warmstart.experiment.votes import UsedVotes
    from warmstart.model.bundle import Bundle
    from warmstart.model.stack import Stack
    from warmstart.stats.abstention import Threshold
    from warmstart.tasks.shares import Shares

FROZEN_FOLDS = 20
"""folds of methods that fit in milliseconds: a model that predicts a text left out has learned from nearly all others"""
SHOWN_MISSING = 4
ONE_SIDED, NEARLY_ONE_SIDED = 0.8, 0.6
"""the share of the most frequent label from which accuracy misleads; from the second on if the model is hardly better than it"""
FEW_UNLABELLED = 5
"""texts without labels below which nothing is learned from them"""


def least_unlabelled(task: Task) -> int:
    """Texts without labels from which methods can learn: as many as label names, so that each may have one."""
    return max(FEW_UNLABELLED, len(task.labels))


@dataclass(frozen=True, repr=False)
class FitResult(Shown, view="commands.fit.page:fit_view"):
    """The methods within the labels of one user, and the one that was fitted to all of them."""

    task: Task
    """all labelled texts are in its training split; test texts only if they were given"""
    unlabelled: int
    """texts without labels; methods learn from them if there are enough (``least_unlabelled``)"""
    candidates: tuple[OutOfFold, ...]
    """in the order in which they ran, the cheapest first"""
    left_out: Split
    """the N labelled texts that were left out in turn"""
    audit: Audit
    missing: tuple[str, ...] = ()
    """methods that did not run: the time was too short, or Ctrl-C came"""
    no_signal: float | None = None
    """the p-value of a permutation test against the hypothesis that nothing can be learned from the labels; None without a stack"""
    alone: Threshold | None = None
    """confidence from which the model answers without a person"""
    more: tuple[int, Estimate] | None = None
    """a number of further labels, and the accuracy that they are expected to add"""
    interrupted: bool = False
    """True if Ctrl-C ended the comparison before all methods had run"""
    late: bool = False
    """True if the time was too short to know ``more``"""
    columns: OtherColumns | None = None
    """other columns that were tried beside the texts; None: there are none"""
    tested: Estimate | None = None
    """the task's metric on the test texts that were given"""
    votes: UsedVotes | None = None
    """votes of a language model, if there are any"""
    shares: Shares | None = None
    """shares of the labels among the texts without labels, if there are enough of both"""
    model: Bundle | Stack | None = field(default=None, repr=False, compare=False)
    """fitted to all labels; None if no method learned anything"""

    def __repr__(self) -> str:
        use = [".predict(texts) labels new texts, .save(folder) keeps the model, .findings say what to mind"]
        others = row_lines(self.rows[self.learned :])[:2]
        return "\n".join([self.counted_texts, self.headline, *others, *(use if self.model else ())])

    def predict(self, texts: Sequence[str]) -> list[Any]:
        """The label of each new text, or its labels; ``ws.predict(result.model, texts)`` gives probabilities, too.

        ``texts`` are a data frame where the model reads other columns beside the text.
        """
        from warmstart.tasks.predict import predict

        return [one["labels" if self.several else "label"] for one in predict(self._usable, texts)]

    def save(self, folder: str | Path) -> Path:
        """Write the model, which ``ws.load`` and commands that take a model read; returns the folder."""
        from warmstart.model.files import save

        return save(self._usable, Path(folder))

    @property
    def _usable(self) -> Bundle | Stack:
        if self.model is None:
            raise ModelError("the labels must show something that can be learned, but show nothing; label more texts")
        return self.model

    @cached_property
    def selected(self) -> SelectedScore:
        """The best method and the score to expect of it; the majority label if no method gains anything over it."""
        learned = any(one.gain > 0 for one in self.candidates if one.name != MAJORITY_LABEL)
        shown = [one for one in self.candidates if learned or one.name == MAJORITY_LABEL]
        found = self._score(*shown)
        return found if learned else replace(found, index=self.candidates.index(shown[0]))

    @property
    def several(self) -> bool:
        """True if a text may have several labels, each of which is given at its threshold."""
        return not self.task.single_label

    @cached_property
    def _held(self) -> np.ndarray:
        """(N, C) 1 for each label of a text that was left out, else 0."""
        return self.left_out.labels if self.several else np.eye(len(self.task.labels))[self.left_out.labels]

    def _score(self, *methods: OutOfFold, metric: str = "") -> SelectedScore:
        """The best of some methods by a metric, that of the task if none is named; a stack unless another is ahead beyond chance.

        A text without another of its label is wrong when it is left out.
        """
        units, metric = self.left_out.units, metric or self.task.metric
        stacks = [number for number, one in enumerate(methods) if one.family == "stack"]  # of equal ones that without votes
        favourite = sorted(stacks, key=lambda number: -methods[number].score) or None
        favourite = [number for number, one in enumerate(methods) if one.columns] or favourite
        known = self.task.train.labels
        single = np.empty(0, dtype=np.int64) if self.several else known[~np.isin(known, self.left_out.labels)]
        units = np.append(units, units.max() + 1 + np.arange(len(single)))
        if metric in (ACCURACY, "subset"):
            return selected_accuracy(np.stack([np.append(one.right, np.zeros(len(single))) for one in methods]), units, favourite)
        classes = np.eye(len(self.task.labels))
        labels, none = np.concatenate([self._held, classes[single]]), 0 * classes[single]
        predicted = np.stack([np.append(one.predicted, none, axis=0) for one in methods])
        return selected_f1(predicted, labels, metric.removesuffix("_f1"), units, favourite)

    @cached_property
    def alone_scores(self) -> dict[str, SelectedScore]:
        """The score of each method by itself, by name, the best first."""
        found = {one.name: self._score(one) for one in self.candidates}
        return dict(sorted(found.items(), key=lambda one: -one[1].out_of_fold))

    @property
    def best(self) -> OutOfFold:
        """The method that was chosen."""
        return self.candidates[self.selected.index]

    @property
    def learned(self) -> bool:
        """True if any method learned anything."""
        return self.best.name != MAJORITY_LABEL

    @property
    def expected(self) -> Estimate:
        """Its accuracy on new texts: that on the test texts if they were given, else what its labels lead to expect."""
        return self.tested or self.selected.expected

    @property
    def promised(self) -> bool:
        """True if ``expected`` holds for new texts: something was learned, and not from labels that the texts spell."""
        spelled = bool(self.audit.spelled and self.audit.spelled.misleads)
        return self.learned and (bool(self.tested) or not (spelled or self.unproven))

    @property
    def told(self) -> bool:
        """True if ``expected`` is known well enough to be said."""
        return self.promised and self.expected.tells

    @property
    def rival(self) -> OutOfFold | None:
        """The best method on the other side: without pretraining if the chosen one transfers, otherwise with it."""
        families, _ = other_side(self.best.family)
        others = [one for one in self.candidates if one.family in families and one.name != MAJORITY_LABEL]
        return max(others, key=lambda one: self.alone_scores[one.name].out_of_fold, default=None)

    @property
    def unclear(self) -> str:
        """A sentence if the rival may be as good, by the texts that both predicted when they were left out; else empty."""
        if not (self.promised and self.rival):
            return ""
        best, rival = (self.alone_scores[one.name] for one in (self.best, self.rival))
        if worse_out_of_fold(*(MethodScores("", (one.out_of_fold,), one.resampled[None]) for one in (rival, best))):
            return ""
        return "Not yet clear which of the first two is better: your labels cannot tell them apart."

    @property
    def answers_alone(self) -> str:
        """For how many texts the model needs no person; empty if no threshold is known to keep its errors few."""
        if self.unseen or not self.promised or not self.alone or math.isinf(self.alone.threshold):
            return ""
        share, wrong = of_100(self.alone.answered / self.alone.examples), of_100(self.alone.target)
        how = f"(predict --target-error {self.alone.target:g})"
        return f"Answers alone: {share} of 100, with at most {wrong} of 100 of these wrong {how}."

    @property
    def outlook(self) -> str:
        """The gain from more labels; empty if it is not known well, or if the score may be that of the commonest label."""
        if not self.promised or not self.more or not self.more[1].tells or self.selected.expected.low <= self.majority[1]:
            return ""
        count, (gain, low, high) = self.more
        about = f"about {of_100(gain)}" if round(100 * gain) else "hardly any"
        return f"{count:,} more labels: {about} of 100 more right (likely {of_100(max(0.0, low))} to {of_100(high)})."

    @property
    def counted_labels(self) -> str:
        """The shares of the labels among the texts without labels; empty where they are not known well."""
        return f"{self.shares.sentence}." if self.promised and self.shares and self.shares.covered else ""

    @property
    def column_sentences(self) -> tuple[str, ...]:
        """What other columns of the table add, as complete sentences."""
        if not self.columns or not self.learned:
            return ()
        return self.columns.sentences if self.promised else tuple(filter(None, [self.columns.away]))

    @property
    def majority(self) -> tuple[str, float]:
        """The most frequent label, and its share: of texts that have it, where they may have several."""
        if self.several:
            shares = self.left_out.labels.mean(axis=0)
            return self.task.labels[int(shares.argmax())], float(shares.max())
        number, count = Counter(self.left_out.labels.tolist()).most_common(1)[0]
        return self.task.labels[number], count / len(self.task.train)

    @property
    def counted(self) -> str:
        """The number of labels that it learned from, in words."""
        return f"{len(self.task.train):,} {'labels' if self.task.single_label else 'labelled texts'}"

    @property
    def always(self) -> str:
        """The behaviour of a method that learns nothing."""
        return "giving every text the same labels" if self.several else f"always saying {self.majority[0]}"

    @property
    def headline(self) -> str:
        """Advice, the score to expect, and the rival's; at most 25 words."""
        if not self.learned:
            return f"Label more texts first: no method does better than {self.always}."
        if not self.promised:
            return f"Use {glossed(self.best.name)}, but {self.no_promise}."
        known_from = f"{len(self.task.test):,} test texts" if self.tested else self.counted
        return use_sentence(self.best.name, self.task.metric, self.expected, known_from)

    @property
    def no_promise(self) -> str:
        """Why nothing is said of new texts."""
        if self.unproven:
            return f"label more: {self.counted} do not show yet that anything can be learned from them"
        return "how often it is right is not known: your texts spell their label, which new texts may not"

    @property
    def how(self) -> str:
        """The origin of the figure, as a complete sentence; empty if none is told."""
        if not self.told:
            return ""
        if self.tested:
            return f"Scored once, on {len(self.task.test):,} test texts."
        count = sum(one.name != MAJORITY_LABEL for one in self.candidates)
        return (
            f"Estimated from your {self.counted} alone, each left out in turn, for texts whose labels are as frequent; the luck of "
            f"being the best of {count} methods is taken off."
        )

    @property
    def rows(self) -> tuple[ScoreRow, ...]:
        """The chosen method, its rival, the best other one, and the most frequent label, in the metric on new texts."""
        scores = {name: one.expected for name, one in self.alone_scores.items() if name != MAJORITY_LABEL}
        scores |= {self.best.name: self.expected} if self.learned else {}
        first = [*([self.best.name] if self.learned else []), *([self.rival.name] if self.rival else [])]
        roles = {self.rival.name: self._role_of_rival} if self.rival else {}
        found = rows_of(self.task.metric, scores, first, roles, self.constant_row)
        if self.learned and not self.promised:
            found = tuple(row if row == self.constant_row else row._replace(score="not known", ends=None) for row in found)
        return found

    @property
    def constant_row(self) -> ScoreRow:
        """The score of the most frequent label, or of the labels that most texts have, at their thresholds."""
        (label, share), metric = self.majority, self.task.metric
        if self.several:
            label, constant = "the same labels", self.alone_scores[MAJORITY_LABEL].out_of_fold
        else:
            label, classes = f'"{label}"', len(np.unique(self.left_out.labels))
            constant = share if metric == ACCURACY else 2 * share / (1 + share) / classes
        return row_of(f"always {label}", metric, Estimate(constant, constant, constant))

    @cached_property
    def by_metric(self) -> dict[str, float]:
        """Scores of the chosen method out of fold by all metrics, with several labels per text."""
        names = ("micro_f1", "macro_f1", "subset") if self.several and self.promised else ()
        return {name: self._score(self.best, metric=name).out_of_fold for name in names}

    @property
    def label_sentences(self) -> tuple[str, ...]:
        """Sentences on votes; on several labels per text: those given that are right, those found, all metrics, texts with none."""
        if not (scores := self.by_metric):
            return (self.votes.sentence,) if self.votes else ()
        none = without_label(float(np.mean(~self.best.predicted.any(axis=1))))
        whole = (
            f"On your own texts, left out: micro-F1 {scores['micro_f1']:.2f}, macro-F1 {scores['macro_f1']:.2f}; all labels are "
            f"right in {of_100(scores['subset'])} of 100 texts."
        )
        return (given_and_found(self.left_out.labels, self.best.predicted), whole, *filter(None, [none]))

    @property
    def _role_of_rival(self) -> str:
        pretrained = any(one.family in TRANSFER for one in self.candidates)
        role = other_side(self.best.family)[1] if pretrained else "best single method"
        scores = [self.alone_scores[self.rival.name].expected, self.expected] if self.rival and not self.tested else []
        ahead = len({round(100 * one.value) for one in scores}) == 2 and scores[0].value > scores[1].value
        return f"{role}, ahead by no more than luck" if ahead else role

    @property
    def no_time(self) -> str:
        """Parts that did not run, methods or the gain from more labels, as a complete sentence; empty if all did."""
        if self.interrupted and self.missing:
            return f"Interrupted, so these did not run: {first_of(self.missing, SHOWN_MISSING, 'others')}."
        short = [f"for {first_of(self.missing, SHOWN_MISSING, 'others')}"] if self.missing else []
        short += ["to say what more labels would add"] if self.late else []
        return f"The time was too short {' and '.join(short)}." if short else ""

    @property
    def flags(self) -> dict[str, str]:
        """Sentence about the time or the metric -> the flag that changes it."""
        flags = dict.fromkeys((self.misleads, self.unrecognised), "--metric macro_f1 chooses by the mean over labels")
        flags |= {} if self.interrupted and self.missing else {self.no_time: "--minutes gives more"}
        flags |= {self.columns.away: f"--columns {self.columns.leaky[0][0]} reads it"} if self.columns and self.columns.away else {}
        return {sentence: flag for sentence, flag in flags.items() if sentence}

    def verdict(self, folder: Path | None = None, place: TaskPlace | None = None) -> Verdict:
        """The first screen; ``folder`` is that of the run, if the model was saved, and ``place`` is that of the labelled texts."""
        mistakes, fails = self.failures if self.learned else ((), ())
        rows = self.rows
        return Verdict(
            about_task(self.task.name, self.task.labels),
            self.counted,
            len(self.task.train),
            self.headline,
            rows,
            len(self.candidates) - len(rows),
            tuple(
                filter(
                    None,
                    [
                        *self.label_sentences,
                        *self.column_sentences,
                        self.unclear,
                        self.answers_alone,
                        self.how,
                        self.counted_labels,
                        self.no_time,
                    ],
                )
            ),
            mistakes,
            fails,
            self.steps(folder if self.learned else None, place),
            tuple(self.warnings),
            flags=self.flags,
        )

    @property
    def findings(self) -> list[str]:
        """The result in a few sentences."""
        sentences = [self.headline, *filter(None, [self.how]), *self.label_sentences, *self.column_sentences]
        if self.learned and self.rival:
            has = score_words(self.task.metric, self.alone_scores[self.rival.name].expected.value)
            sentences += [f"{sentence_case(self._role_of_rival)}: {self.rival.name}, {has}.", *filter(None, [self.unclear])]
        if self.alone:
            sentences.append(self.answers_alone or "The labels do not suffice yet to let it answer alone.")
        return with_flags([*sentences, *filter(None, [self.outlook, self.no_time])], self.flags)

    @property
    def warnings(self) -> list[str]:
        """Warnings about the texts and labels."""
        unproven = "" if self.learned and not self.promised else self.unproven  # which the headline says
        return [*filter(None, [unproven, self.unseen, self.misleads, self.unrecognised]), *self.audit.warnings]

    @property
    def unproven(self) -> str:
        """A warning if as much could be learned by chance, from labels that say nothing; else empty."""
        if not self.learned or self.no_signal is None or self.no_signal < SIGNIFICANT:
            return ""
        return "Your labels do not show yet that anything can be learned from them; label more."

    @property
    def unseen(self) -> str:
        """See ``unseen_labels``."""
        return unseen_labels(self.task, self.left_out)

    @property
    def misleads(self) -> str:
        """A warning if accuracy, by which the method is chosen, hardly tells it from the most frequent label."""
        label, share = self.majority
        gains = any(one.gain > 0 for one in self.candidates if one.name != MAJORITY_LABEL)
        near = gains and share > NEARLY_ONE_SIDED and (not self.learned or share >= self.selected.expected.low)
        if self.task.metric != ACCURACY or not (share > ONE_SIDED or near):
            return ""
        return f'Always "{label}" is right on {of_100(share)} of 100, so accuracy misleads.'

    @property
    def unrecognised(self) -> str:
        """A frequent enough label that the chosen method never recognises, where accuracy chose it."""
        if not self.learned or self.task.metric != ACCURACY or self.misleads:
            return ""
        return never_recognised(self.left_out.labels, self.best.right, self.task.labels)

    @cached_property
    def failures(self) -> tuple[tuple[Mistake, ...], tuple[str, ...]]:
        """Failures of the chosen method when texts are left out: the surest mistakes, and sentences about labels."""
        best = self.best
        if not self.several:
            return failures(self.left_out, best.probabilities, self.task.labels)
        name, count, found, _ = self.label_rows()[0]
        weakest = f'Weakest label: "{name}", found in {found}% of the texts that have it ({count}).'
        return failures_of_several(self.left_out, best.predicted, best.probabilities, self.task.labels), (weakest,)

    def label_rows(self) -> list[tuple[str, str, str, str]]:
        """See ``rows_of_labels``."""
        return rows_of_labels(self._held, self.best.predicted, self.task.labels, several=self.several)

    def steps(self, folder: Path | None, place: TaskPlace | None) -> tuple[NextStep, ...]:
        """The next steps; without labels that are still to be given, and without a model, the same fit with more of them."""
        title = f"Label {self.outlook.replace('more labels:', 'more:').rstrip('.') or 'more'}"
        label = label_step(place, self.task, title)
        if not (folder or label) and place and place.flags is not None:
            again = command("fit", place.path, *place.flags)
            return (NextStep("fit", "Once it has more labels", again),)
        return steps_after(folder, self.task, place, label)

    @property
    def counted_texts(self) -> str:
        """The numbers of texts and labels, in words."""
        more = f", {self.unlabelled:,} text{'s' * (self.unlabelled != 1)} without labels" if self.unlabelled else ""
        more += ", too few to learn from" if 0 < self.unlabelled < least_unlabelled(self.task) else ""
        return f"{len(self.task.train):,} labelled texts, {len(self.task.labels)} labels{more}"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        found = self.selected
        return {
            "task": self.task.summary(),
            "unlabelled": self.unlabelled,
            "recommended": self.best.name if self.learned else None,
            "metric": self.task.metric,
            "expected": None if self.learned and not self.promised else found.expected._asdict(),
            "out_of_fold": found.out_of_fold,
            "optimism": found.optimism,
            "no_signal": self.no_signal,
            "threshold": self.alone.threshold if self.alone and self.answers_alone else None,
            "more_labels": {"labels": self.more[0], **self.more[1]._asdict()} if self.more else None,
            "test": self.tested._asdict() if self.tested else None,
            "shares": self.shares.rows if self.shares else None,
            "columns": self.columns.to_dict() if self.columns else None,
            "votes": self.votes.to_dict() if self.votes else None,
            "majority": {"label": self.majority[0], "share": self.majority[1]},
            "methods": [
                {"method": one.name, "family": one.family, "score": one.score, "gain": one.gain, "seconds": one.seconds}
                for one in self.candidates
            ],
            "findings": self.findings,
            "warnings": with_flags(self.warnings, self.flags),
            "mistakes": [one._asdict() for one in self.failures[0]],
            **({"out_of_fold_by_metric": self.by_metric} if self.several else {}),
        }
