"""What ``study explain`` reports: the most important words of a prediction, and how faithful each method is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from warmstart.report.result import StudyResult
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import percent, sentence_case
from warmstart.stats.intervals import Interval, bootstrap_interval

if TYPE_CHECKING:
    from warmstart.inspection.explanations import Explanation

_NEGLIGIBLE = 1e-3
"""nats below which a word does not matter"""
_COMPLETE = 0.05
"""integrated gradients that miss more than this fraction are not to be relied on"""
_LEFT_OUT = "empty, of a single word, or too long for the model"


@dataclass(frozen=True)
class ExplainDetails:
    """The explanation of one text, and the faithfulness of each method over many, as far as they were requested."""

    explanation: Explanation | None
    faithfulness: Mapping[str, Interval]
    """above random orders, over texts"""


def explain_result(
    model: str, explanation: Explanation | None, gaps: Mapping[str, np.ndarray], text_count: int, seed: int
) -> StudyResult:
    """The result for a model by its name; ``gaps`` are (N,) by method, of those of ``text_count`` texts that were explained."""
    faithfulness = {method: bootstrap_interval(values, seed) for method, values in gaps.items()}
    findings, tables, figures = list[str](), dict[str, pl.DataFrame](), dict[str, float]()
    if explanation:
        findings += _text_findings(explanation)
        tables["words"] = pl.DataFrame({"word": [printed(word) for word in explanation.words], **explanation.values})
        figures["probability"] = explanation.probability
    if faithfulness:
        findings += _faithfulness_findings(faithfulness, text_count)
        rows = [{"method": method, "mean": i.mean, "low": i.low, "high": i.high} for method, i in faithfulness.items()]
        tables["faithfulness"] = pl.DataFrame(rows)
        figures |= {f"faithfulness of {method}": interval.mean for method, interval in faithfulness.items()}
    details = ExplainDetails(explanation, faithfulness)
    return StudyResult(f"Explanation: {model}", findings, tables, figures, details=details)


def printed(word: str) -> str:
    r"""A word as it prints; white space as Python spells it: a line break -> ``'\n'``."""
    return word if word.strip() else repr(word)


def _text_findings(one: Explanation) -> list[str]:
    findings = [f"{one.target!r} has a probability of {one.probability:.3f}. {_most_important(one)}"]
    if one.phrases:
        start, end, nats = one.phrases[0]
        if end - start > 1 and abs(nats) >= _NEGLIGIBLE:
            findings.append(f"The most important phrase is {' '.join(one.words[start:end])!r}: {nats:+.2f} nats.")
    complete = "complete" if one.missing <= _COMPLETE else "not complete, so do not rely on them here"
    findings.append(
        f"Integrated gradients are {complete}: {percent(one.missing)} of the difference is missing after {one.points} points."
    )
    random = one.random_faithfulness
    for method, value in one.faithfulness.items() if len(one.words) > 1 else ():  # one word has one order
        findings.append(
            f"{sentence_case(method)}: faithfulness {value:+.2f}, higher than {percent((value > random).mean(), 0)} of "
            f"{len(random)} random orders (mean {random.mean():+.2f})."
        )
    return findings


def _most_important(one: Explanation) -> str:
    """The single word that contributes most, for or against the target, if any does."""
    nats = one.values["erasure"]
    most = int(np.abs(nats).argmax())
    if abs(nats[most]) < _NEGLIGIBLE:
        return f"No single word matters: removing any one changes the log-probability by less than {_NEGLIGIBLE} nats."
    verb = "supports" if nats[most] > 0 else "opposes"
    without = one.probability * np.exp(-nats[most])
    return f"The most important word, {one.words[most]!r}, {verb} it: without this word the probability would be {without:.3f}."


def _faithfulness_findings(faithfulness: Mapping[str, Interval], text_count: int) -> list[str]:
    """Whether each method beats random orders, and how many texts are left out."""
    count = next(iter(faithfulness.values())).count
    texts = f"{count}" if count == text_count else f"{count} of {text_count}"
    findings = [
        f"{_verdict(method, interval)} over {texts} texts{limit_clause(interval.low, interval.high, write='{:.3f}'.format)}."
        for method, interval in faithfulness.items()
    ]
    if count < text_count:
        findings.append(f"{text_count - count} of {text_count} texts are left out: they are {_LEFT_OUT}.")
    return findings


def _verdict(method: str, interval: Interval) -> str:
    verdict = "not significantly more faithful"
    if interval.low > 0 or interval.high < 0:
        verdict = "more faithful" if interval.low > 0 else "less faithful"
    verb = "are" if method.endswith("s") else "is"
    return f"{sentence_case(method)} {verb} {verdict} than random orders: {signed_interval(interval)}"


def signed_interval(interval: Interval) -> str:
    """``"+0.366 (+0.269 to +0.477)"``."""
    return f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"
