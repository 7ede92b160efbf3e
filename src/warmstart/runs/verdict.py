"""The first screen after training: what to use, how good it is and against what, where it fails, and what comes next.

A ``Verdict`` is plain data and complete sentences. A report shows it above everything else and writes it as ``verdict.json``
into the folder of the run, beside the model. Any other page shows the same:

    verdict = read_verdict(Path("runs/fit"))      # or the bundle in it; None if there is none
    html = verdict_html(verdict, box="<form>…</form>", actions={"serve": None, "label": "/label"}) if verdict else ""

(``report.templates``), with ``report/verdict.css`` in its style sheet after ``common.css``. Needs neither torch nor charts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from warmstart.runs.steps import NextStep, terminal_lines
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate
from warmstart.system.limits import MANIFEST_BYTES
from warmstart.system.storage import atomic_write, json_or_none

if TYPE_CHECKING:
    from warmstart.data.task import Split, Task

VERDICT_FILE = "verdict.json"
ACCURACY = "accuracy"
SHOWN_METHODS, SHOWN_MISTAKES = 4, 5
MOST_LINES, TERMINAL_STEPS = 16, 4
"""lines on a terminal, and next steps if they fit into these"""
MISTAKE_CHARACTERS = 300
"""most characters of a mistake"""
NOT_CLEAR = "Not yet clear which is better: the difference may be chance."
CONSTANT = "always the most frequent label"
"""names the row of what learns nothing"""
NAMED_LABELS = 3
"""labels that are named beside the task"""


class ScoreRow(NamedTuple):
    """A method in the chart of the first screen; all rows have the same unit."""

    name: str
    score: str
    """``"87 of 100"``"""
    ends: tuple[float, float, float] | None = None
    """value and interval along the axis, from 0 to 1; None if no number is known well enough"""
    role: str = ""
    """``"best without pretraining"``"""


class Mistake(NamedTuple):
    """A text whose label the model does not predict."""

    text: str
    label: str
    predicted: str
    confidence: float


@dataclass(frozen=True)
class Verdict:
    """Advice about a model, in the order of the first screen."""

    about: str
    """the task and its labels: ``"sst: negative or positive?"``"""
    made: str
    """from what: ``"110 labels"``"""
    count: int
    """labelled texts that it was made from"""
    headline: str
    """a verb, a score as "n of 100" and a range; at most 25 words"""
    rows: tuple[ScoreRow, ...] = ()
    """the recommended method, its strongest rival, others, and the most frequent label"""
    more: int = 0
    """methods that ``rows`` leaves out"""
    use: tuple[str, ...] = ()
    """sentences below the chart"""
    mistakes: tuple[Mistake, ...] = ()
    """the surest ones first"""
    fails: tuple[str, ...] = ()
    """sentences about labels"""
    steps: tuple[NextStep, ...] = ()
    mind: tuple[str, ...] = ()
    """doubts about the score: leaks, too few texts, imbalance"""
    of_saved: bool = True
    """True if the saved model is the one that it names"""
    flags: Mapping[str, str] = field(default_factory=dict)
    """sentence of ``use`` or ``mind`` -> the flag that changes it, for readers with a terminal (``with_flags``)"""

    @property
    def for_terminals(self) -> Verdict:
        """The verdict whose sentences name their flags, as the terminal and the page of the run show it."""
        use, mind = (tuple(with_flags(sentences, self.flags)) for sentences in (self.use, self.mind))
        return replace(self, use=use, mind=mind)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All complete sentences, in order."""
        return (self.headline, *self.use, *self.fails, *self.mind)


def with_flags(sentences: Iterable[str], flags: Mapping[str, str]) -> list[str]:
    """The sentences with their flags.

    ``"The time was too short."`` -> ``"The time was too short; --minutes gives more."``
    """
    return [f"{sentence[:-1]}; {flags[sentence]}." if sentence in flags else sentence for sentence in sentences]


def row_lines(rows: Sequence[ScoreRow]) -> list[str]:
    """The methods and their scores as lines of text."""
    width = max((len(row.name) for row in rows), default=0)
    return [f"  {row.name:<{width}}  {row.score}{row.role and f' ({row.role})'}" for row in rows]


def verdict_lines(verdict: Verdict, *places: str, before: str = "") -> list[str]:
    """The first screen on a terminal: sixteen lines, and as many more as there are warnings.

    ``places`` say what was saved, and ``before`` what was read. Of the next steps as many are shown as fit, one at least.
    """
    shown = verdict.for_terminals
    rows = row_lines(shown.rows)
    if shown.more > 0 and rows:
        rows[-1] += f"; {shown.more} more in the report"
    lines = [*filter(None, [before]), shown.headline, *rows, *shown.use]
    room = MOST_LINES - len(lines) - len(places) - 1
    minds = (f"mind: {sentence}" for sentence in shown.mind)
    return [*lines, *minds, *places, *terminal_lines(shown.steps[: max(1, min(TERMINAL_STEPS, room))])]


def write_verdict(verdict: Verdict, folder: Path) -> None:
    """Write it into the folder of a run. Raises ``StorageError`` when the disk refuses."""
    atomic_write(folder / VERDICT_FILE, json.dumps(asdict(verdict), ensure_ascii=False, indent=1).encode(errors="backslashreplace"))


def read_verdict(model: Path) -> Verdict | None:
    """The verdict on the model in the folder of a run, or in the bundle of one; None if none can be read, or it is of another."""
    for folder in (model, model.parent) if model.name == "bundle" else (model,):
        file = folder / VERDICT_FILE
        try:
            if file.is_file() and file.stat().st_size <= MANIFEST_BYTES and (saved := json_or_none(file)):
                verdict = verdict_of(saved)
                return verdict if verdict.of_saved else None
        except (OSError, TypeError, ValueError, KeyError):
            return None
    return None


def verdict_of(saved: Mapping[str, Any]) -> Verdict:
    """A verdict from its plain values. Raises ``TypeError``, ``ValueError`` or ``KeyError`` for anything else."""
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in saved.items()}
    rows = tuple(ScoreRow(name, score, ends and (*ends,), role) for name, score, ends, role in saved["rows"])
    mistakes, steps = (tuple(kind(*row) for row in saved[name]) for name, kind in (("mistakes", Mistake), ("steps", NextStep)))
    return Verdict(**values | {"rows": rows, "mistakes": mistakes, "steps": steps})


def about_task(name: str, labels: Sequence[str]) -> str:
    """``"sst: negative or positive?"``; the number of labels if they are many, the name alone if there are none."""
    if not labels:
        return name
    return f"{name}: {' or '.join(labels)}?" if len(labels) <= NAMED_LABELS else f"{name}: {len(labels)} labels"


def score_words(metric: str, value: float) -> str:
    """A score in the words of every first screen: ``"87 of 100"``, ``"macro-F1 0.83"``."""
    return f"{of_100(value)} of 100" if metric == ACCURACY else f"{metric_words(metric)} {value:.2f}"


def metric_words(metric: str) -> str:
    """``"macro_f1"`` -> ``"macro-F1"``."""
    return "subset accuracy" if metric == "subset" else metric.replace("_", "-").replace("f1", "F1")


def glossed(name: str) -> str:
    """The name of a method for a reader who meets it for the first time."""
    first, plus, more = name.partition(" + ")
    return f"{first} (several methods, averaged){plus}{more}" if first in ("stack", "stack with votes") else name


def use_sentence(name: str, metric: str, score: Estimate, known_from: str) -> str:
    """The headline for a method to use; without a figure if ``known_from``, such as ``"22 test texts"``, are too few for one."""
    value, low, high = score
    name = glossed(name)
    if math.isnan(low):
        return f"Use {name}: {score_words(metric, value)} on these texts."
    if not score.tells:
        known = "how often it is right" if metric == ACCURACY else "how good it is"
        return f"Use {name}; {known_from} are too few to say {known}."
    if metric == ACCURACY:
        return f"Use {name}: right on {of_100(value)} of 100 new texts (likely {of_100(low)} to {of_100(high)})."
    return f"Use {name}: {score_words(metric, value)} on new texts (likely {low:.2f} to {high:.2f})."


def row_of(name: str, metric: str, score: Estimate, role: str = "") -> ScoreRow:
    """A row of the chart; without a number if its interval is too wide for one."""
    if not (score.tells or math.isnan(score.low)):
        return ScoreRow(name, "too few texts to say", None, role)
    ends = None if math.isnan(score.low) else tuple(min(1.0, max(0.0, part)) for part in score)
    return ScoreRow(name, score_words(metric, score.value), ends, role)  # type: ignore[arg-type]


def rows_of(
    metric: str, scores: Mapping[str, Estimate], first: Sequence[str], roles: Mapping[str, str], constant: ScoreRow | None = None
) -> tuple[ScoreRow, ...]:
    """The chart of the first screen: the ``first`` methods, the next of ``scores``, and last ``constant``, or the row called so."""
    if not constant and CONSTANT in scores and CONSTANT not in first:
        constant = row_of(CONSTANT, metric, scores[CONSTANT])
    names = [*first, *(name for name in scores if name not in (*first, CONSTANT))][: SHOWN_METHODS - (constant is not None)]
    rows = (row_of(name, metric, scores[name], roles.get(name, "")) for name in names)
    return (*rows, *([constant] if constant else []))


def failures_on_test(task: Task, predicted: Any) -> tuple[tuple[Mistake, ...], tuple[str, ...]]:
    """Failures of predictions for the test texts of a task; none where they are no probabilities of labels."""
    test = task.test
    if not task.single_label or np.shape(predicted) != (len(test), len(task.labels)):
        return (), ()
    return failures(test, np.asarray(predicted), task.labels)


def failures(split: Split, probabilities: np.ndarray, names: Sequence[str]) -> tuple[tuple[Mistake, ...], tuple[str, ...]]:
    """Failures of a classifier, by ``probabilities`` (N, C) for the N texts of a split and C ``names``.

    The surest mistakes, and sentences about the label it predicts worst and the two labels it confuses most.
    """
    labels, predicted, sure = split.labels, probabilities.argmax(axis=1), probabilities.max(axis=1)
    wrong = np.flatnonzero(predicted != labels)
    if not len(wrong):
        return (), ()
    mistakes = [
        Mistake(str(split.texts[i])[:MISTAKE_CHARACTERS], names[labels[i]], names[predicted[i]], float(sure[i]))
        for i in _surest(split, np.where(predicted != labels, sure, 0.0))
    ]
    support = np.bincount(labels, minlength=len(names))
    missed = np.bincount(labels[wrong], minlength=len(names))
    weakest = max(np.flatnonzero(support).tolist(), key=lambda i: (missed[i] / support[i], missed[i]))
    pairs = Counter(zip(labels[wrong].tolist(), predicted[wrong].tolist(), strict=True))
    (true, taken), count = pairs.most_common(1)[0]
    right = f'Weakest label: "{names[weakest]}", right on {support[weakest] - missed[weakest]:,} of {support[weakest]:,}'
    confused = f'"{names[true]}" taken for "{names[taken]}", {count:,} of {support[true]:,} times'
    if len(names) == 2:
        return tuple(mistakes), (f"{right}.",)
    return tuple(mistakes), (f"Most confused: {confused}.", f"{right}.")


def failures_of_several(split: Split, chosen: np.ndarray, probabilities: np.ndarray, names: Sequence[str]) -> tuple[Mistake, ...]:
    """The surest mistakes where a text may have several of C ``names``: its labels, and those that are ``chosen``, both (N, C)."""
    truth, taken = split.labels > 0.5, chosen > 0.5
    wrong = np.where(taken != truth, np.abs(probabilities - truth), 0.0).max(axis=1)
    truly, predicted = (
        [", ".join(names[c] for c in np.flatnonzero(row).tolist()) or "none" for row in kind] for kind in (truth, taken)
    )
    return tuple(
        Mistake(str(split.texts[i])[:MISTAKE_CHARACTERS], truly[i], predicted[i], float(wrong[i])) for i in _surest(split, wrong)
    )


def _surest(split: Split, wrong: np.ndarray) -> list[int]:
    """The texts with the surest mistakes, by how sure each is (N,), 0 for none: one of copies and near copies."""
    order = np.argsort(-wrong, kind="stable")[: np.count_nonzero(wrong)]
    return order[np.sort(np.unique(split.units[order], return_index=True)[1])][:SHOWN_MISTAKES].tolist()
