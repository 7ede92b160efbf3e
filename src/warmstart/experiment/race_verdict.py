"""The first screen of a race: the method to use beside its strongest rival, both by their own scores. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from warmstart.config import Config
from warmstart.experiment.choose import MAJORITY_LABEL, RECOMMENDED, other_side
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.ranking import RankedMethod
from warmstart.runs.steps import NextStep, TaskPlace, command, label_step, steps_after
from warmstart.runs.verdict import (
    CONSTANT,
    NOT_CLEAR,
    SHOWN_METHODS,
    Mistake,
    ScoreRow,
    Verdict,
    about_task,
    failures_on_test,
    rows_of,
    use_sentence,
)
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import paired_difference
from warmstart.stats.formatting import first_of
from warmstart.stats.intervals import Estimate


def race_verdict(result: Comparison, folder: Path | None = None, config: Config | None = None) -> Verdict:
    """The first screen; with commands for the run in a ``folder``, once it has one."""
    learned = result.recommended.name != MAJORITY_LABEL
    rows = _rows(result)
    unclear = learned and not _is_clear(result)
    missing = first_of([method.name for method in result.ranking.missing], SHOWN_METHODS)
    no_time = f"The time was too short for {missing}." if missing else ""
    mistakes, fails = _failures(result) if learned else ((), ())
    kept = getattr(config, "save", None)
    saved = folder if kept and folder and (folder / "bundle").is_dir() else None
    other = f"The saved model is {kept}, as was asked." if saved and kept not in (None, RECOMMENDED) else ""
    return Verdict(
        about_task(result.task.name, result.task.labels),
        f"{result.labels:,} {'labels' if result.ranking.drawn else 'training texts'}",
        result.labels,
        headline_of(result),
        rows,
        len(result.ranking.methods) - len(rows),
        tuple(filter(None, [NOT_CLEAR * unclear, _not_taken(rows) if learned else "", no_time, other])),
        mistakes,
        fails,
        steps_after(saved, result.task, TaskPlace.of(config), *_steps(result, folder, config, kept=bool(saved))),
        result.audit.warnings,
        of_saved=kept == RECOMMENDED,
    )


def headline_of(result: Comparison) -> str:
    """The recommendation with the score of that method; at most 25 words."""
    one = result.recommended
    if one.name == MAJORITY_LABEL:
        return "Label more texts first: no method is better than the majority label."
    if result.choice.doubtful:
        return f"{result.labels:,} labels do not show that anything can be learned; to decide now, take {one.name}."
    return use_sentence(one.name, result.task.metric, _score(result, one), f"{len(result.task.test):,} test texts")


def _score(result: Comparison, one: RankedMethod) -> Estimate:
    """A method's own score; of the recommended one without the luck of having been chosen, where all seeds chose together.

    Its interval is over test texts alone where seeds are too few to say anything of others.
    """
    chosen = one is result.recommended and not result.ranking.drawn
    found = result.score_of_recommended if chosen else result.interval(one)
    known, texts = Estimate(found.mean, found.low, found.high), one.test_scores.over_texts
    return known if known.tells else Estimate(found.mean, texts.low, texts.high)


def _rows(result: Comparison) -> tuple[ScoreRow, ...]:
    """The recommended method, its strongest rival, those with the highest scores, and the most frequent label."""
    one, rival = result.recommended, _rival(result)
    names = {method.name: CONSTANT if method.name == MAJORITY_LABEL else method.name for method in result.ranking.methods}
    scores = {names[method.name]: _score(result, method) for method in result.ranking.methods}
    first = [names[method.name] for method in (one, rival) if method and method.name != MAJORITY_LABEL]
    return rows_of(result.task.metric, scores, first, {rival.name: other_side(one.family)[1]} if rival else {})


def _not_taken(rows: Sequence[ScoreRow]) -> str:
    """Why a method with a higher score on the test texts is not the recommended one, which is the first of the rows."""
    first, *others = (row.ends[0] if row.ends else 0.0 for row in rows)
    better = [row.name for row, value in zip(rows[1:], others, strict=True) if value > first and row.score != rows[0].score]
    return (
        f"{better[0]} scores higher on the test texts, which may not choose: the texts that choose take {rows[0].name}."
        if better
        else ""
    )


def _rival(result: Comparison) -> RankedMethod | None:
    """The method with the highest score on the other side: with pretraining, or without it."""
    families, _ = other_side(result.recommended.family)
    others = [one for one in result.ranking.methods if one.family in families and one.name != MAJORITY_LABEL]
    return max(others, key=lambda one: _score(result, one).value, default=None)


def _is_clear(result: Comparison) -> bool:
    """True if the recommended method and its rival differ by more than chance on the test texts."""
    rival = _rival(result)
    gap = paired_difference(result.recommended.test_scores, rival.test_scores) if rival else None
    return gap is None or (gap.claimable and gap.p < SIGNIFICANT)


def _failures(result: Comparison) -> tuple[tuple[Mistake, ...], tuple[str, ...]]:
    """Those of the recommended method in its first run, on the test texts."""
    if not (result.trials and result.task.single_label) or result.resampled:
        return (), ()
    return failures_on_test(result.task, result.trials.test_predictions(result.recommended.method))


def _steps(result: Comparison, folder: Path | None, config: Config | None, *, kept: bool) -> Iterator[NextStep | None]:
    """To go on with what is missing, to keep the model, and to label more; the folder of the run has the settings of the race."""
    again = ("race", "--config", folder / "config.yaml") if folder else None
    if again and result.ranking.missing:
        yield NextStep("race", "Go on with the methods that had no time", command(*again))
    if again and result.recommended.name != MAJORITY_LABEL and not kept:
        yield NextStep("race", "Keep it as a model", command(*again, "--save", RECOMMENDED))
    yield label_step(TaskPlace.of(config), result.task, "Label more")
