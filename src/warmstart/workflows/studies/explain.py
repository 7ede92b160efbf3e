"""``study explain``: why a model said what it said of a text, by three methods, and how faithful each of them is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.explain import Question, areas, check, curves, erasure, gradient_input, integrated, phrases, question
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.engine import console
from warmstart.errors import ConfigError, ModelError
from warmstart.evaluate.seeds import Interval, bootstrap
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.explain import curve_chart, heat_chart, heat_text, printed
from warmstart.seeding import rng
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude

ERASURE, GRADIENT, INTEGRATED = "erasure", "gradient x input", "integrated gradients"
METHODS = (ERASURE, GRADIENT, INTEGRATED)
SHOWN = 8
"""phrases in the table"""
LEFT_OUT = "empty, of a single word, or too long for the model"
LITTLE = 1e-3
"""nats below which a word is said not to matter"""


class ExplainConfig(Config):
    """Say how much each word counts in a prediction, and test whether that is so."""

    model: Positional[str]
    """a model that labels texts, or one that writes: a bundle, or a run's folder"""
    text: Positional[str | None] = None
    """the text whose prediction is explained"""
    outcome: str | None = None
    """the label, or the next token (" the"), that is explained; default: the likeliest"""
    file: str | None = None
    """texts over which the methods' faithfulness is measured: one a line, or a table"""
    column: str = "text"
    """the table's column that holds the texts"""
    first: int = Field(50, gt=1)
    """so many texts of the file, drawn from the seed"""
    by: Literal["delete", "mask"] = "delete"
    """how a word is taken out: its tokens go, or become mask tokens (for models trained with these)"""
    phrase: int = Field(3, gt=0, le=10)
    """longest phrase that is erased, in words"""
    orders: int = Field(20, gt=1)
    """orders by chance that each text's words are tried in"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""
    out: str = "runs/explain"
    """folder of the run"""


@dataclass(frozen=True)
class Explained:
    """One text's prediction, explained."""

    asked: Question
    values: dict[str, np.ndarray]
    """for each method (W,) nats"""
    missing: float
    """the share of the whole difference that integrated gradients miss"""
    points: int
    faithful: dict[str, float]
    """for each method the area between its insertion and its deletion curve"""
    chance: np.ndarray
    """(R,) the same of orders by chance"""
    curves: tuple[np.ndarray, np.ndarray]
    """deletion and insertion, (methods + R, W + 1)"""

    @property
    def probability(self) -> float:
        """Of the outcome, for the whole text."""
        return float(self.curves[0][0, 0])


def explain(config: ExplainConfig) -> tuple[Explained | None, dict[str, Interval]]:
    """Explain, test, print and write the page; the ``study explain`` command."""
    if config.text is None and config.file is None:
        raise ConfigError("give a text to explain, or --file of texts over which the methods are tested")
    bundle = load_model(config.model)
    check(bundle)
    texts = _texts(config) if config.file else []
    one = _explained(question(bundle, config.text, config.outcome, config.by), config) if config.text is not None else None
    folder = open_run(config.out, config, resume=False)
    findings, sections, data = list[str](), list[Section](), dict[str, pl.DataFrame]()
    if one:
        console.print(f"{one.asked.name!r}, probability {one.probability:.3f}", markup=False, highlight=False)
        for method in METHODS:
            console.print(heat_text(one.asked.words, one.values[method]).append(f"  {method}", style="dim"))
        found = phrases(one.asked, config.phrase)
        findings += _said_of_one(one, found)
        sections.append(_heat_section(one, found))
        data["words"] = pl.DataFrame({"word": [printed(word) for word in one.asked.words], **one.values})
    tested = _tested(bundle, texts, config) if texts else {}
    if tested:
        findings += _said_of_many(tested, len(texts))
        rows = [(name, f"{i.mean:+.3f} ({i.low:+.3f} to {i.high:+.3f})") for name, i in tested.items()]
        said = "The area between insertion and deletion curve, less its mean over orders by chance; 95 % intervals over texts."
        sections.append(Section("Faithfulness over texts", (said,), (Table(("method", "above chance"), rows),)))
        data["faithfulness"] = pl.DataFrame(
            [{"method": n, "mean": i.mean, "low": i.low, "high": i.high} for n, i in tested.items()]
        )
    conclude(Study("Why it said so", findings, sections, data), config, folder, [config.model])
    return one, tested


def _texts(config: ExplainConfig) -> list[str]:
    given = list(documents_of([Source(path=str(config.file), text=config.column, document="line")]))
    if len(given) < 2:
        raise ConfigError(f"faithfulness is measured over at least two texts, but {config.file} has {len(given)}")
    return [given[place] for place in rng(config.seed, "texts to explain").permutation(len(given))[: config.first]]


def _explained(asked: Question, config: ExplainConfig) -> Explained:
    whole, missing, points = integrated(asked)
    values = {ERASURE: erasure(asked), GRADIENT: gradient_input(asked), INTEGRATED: whole}
    orders = [np.argsort(-values[method], kind="stable") for method in METHODS]
    draw = rng(config.seed, "orders by chance")
    drawn = [draw.permutation(len(asked.words)) for _ in range(config.orders)]
    found = curves(asked, [*orders, *drawn])
    area = areas(found)
    faithful = dict(zip(METHODS, map(float, area[: len(METHODS)]), strict=True))
    return Explained(asked, values, missing, points, faithful, area[len(METHODS) :], found)


def _tested(bundle: Bundle, texts: Sequence[str], config: ExplainConfig) -> dict[str, Interval]:
    """For each method how much more faithful it is than chance, over texts; those that cannot be explained are left out.

    So are texts of one word, which have one order alone.
    """
    gaps = []
    for text in texts:
        try:
            asked = question(bundle, text, None, config.by)
        except ModelError:
            continue  # how many is said
        if len(asked.words) > 1:
            one = _explained(asked, config)
            gaps.append([one.faithful[method] - one.chance.mean() for method in METHODS])
    if len(gaps) < 2:
        raise ModelError(f"of the file's texts, fewer than two could be explained: the others are {LEFT_OUT}")
    return {method: bootstrap(column, config.seed) for method, column in zip(METHODS, np.array(gaps).T, strict=True)}


def _said_of_one(one: Explained, found: Sequence[tuple[int, int, float]]) -> list[str]:
    words = one.asked.words
    said = [f"{one.asked.name!r} has the probability {one.probability:.3f}; {_weightiest(one)}"]
    start, end, lost = found[0]
    if end - start > 1 and abs(lost) >= LITTLE:
        said.append(f"of phrases, {' '.join(words[start:end])!r} counts most: {lost:+.2f} nats")
    how = "complete" if one.missing <= 0.05 else "NOT complete: do not trust them here"
    missing = f"{100 * one.missing:.1f} % of the difference is missing after {one.points} points"
    said.append(f"integrated gradients are {how}: {missing}")
    for method in METHODS if len(words) > 1 else ():  # one word has one order
        better = float((one.faithful[method] > one.chance).mean())
        said.append(
            f"{method} orders the words more faithfully ({one.faithful[method]:+.2f}) than {100 * better:.0f} % of "
            f"{len(one.chance)} orders by chance (their mean is {one.chance.mean():+.2f})"
        )
    return said


def _weightiest(one: Explained) -> str:
    """Which single word counts most, for or against the outcome, if any does."""
    weight = one.values[ERASURE]
    top = int(np.abs(weight).argmax())
    if abs(weight[top]) < LITTLE:
        return f"no single word matters: taking any one out changes its logarithm by less than {LITTLE} nats"
    way = "for" if weight[top] > 0 else "against"
    without = one.probability * np.exp(-weight[top])
    return (
        f"the single word that counts most, {one.asked.words[top]!r}, speaks {way} it: without this word it would be {without:.3f}"
    )


def _said_of_many(tested: dict[str, Interval], count: int) -> list[str]:
    """Of each method whether it beats chance; and how many of the file's ``count`` texts are left out."""
    held = next(iter(tested.values())).count
    over = f"{held}" if held == count else f"{held} of {count}"
    said = [f"{_verdict(method, found)} over {over} texts" for method, found in tested.items()]
    return said + [f"{count - held} of {count} texts are left out: they are {LEFT_OUT}"] * (held < count)


def _verdict(method: str, found: Interval) -> str:
    if found.low > 0:
        verdict = "is more faithful than chance"
    else:
        verdict = "is less faithful than chance" if found.high < 0 else "is not seen to be more faithful than chance"
    return f"{method} {verdict}: {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"


def _heat_section(one: Explained, found: Sequence[tuple[int, int, float]]) -> Section:
    heats = [
        Figure(
            f"heat-{method.replace(' ', '-')}", f"{method}: blue words speak for {one.asked.name!r}, orange ones against it.",
            heat_chart(one.asked.words, one.values[method]),
        )
        for method in METHODS
    ]  # fmt: skip
    kinds = ("words taken out, weightiest first", "words put in, weightiest first")
    drawn = [
        (method, kind, part[place]) for place, method in enumerate(METHODS) for kind, part in zip(kinds, one.curves, strict=True)
    ]
    chance = [(kind, part[len(METHODS) :]) for kind, part in zip(kinds, one.curves, strict=True)]
    tests = Figure(
        "faithfulness", "Faithful orders fall fast and rise fast; grey: the middle 90 % of chance.", curve_chart(drawn, chance)
    )
    rows = [(" ".join(map(printed, one.asked.words[a:b])), f"{lost:+.3f}") for a, b, lost in found[:SHOWN]]
    return Section(f"Why {one.asked.name!r}", (), (*heats, tests, Table(("phrase", "nats lost without it"), rows)))
