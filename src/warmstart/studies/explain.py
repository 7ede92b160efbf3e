"""``study explain``: which words a prediction depends on, by up to three methods, and how faithful each method is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, ThreadsConfig
from warmstart.data.source import Source, TableFlags
from warmstart.errors import ConfigError, ModelError
from warmstart.report.charts import INK
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import NextStep, attention_step
from warmstart.seeding import rng
from warmstart.stats.comparison import limit_clause
from warmstart.stats.formatting import model_name, percent, sentence_case
from warmstart.stats.intervals import Interval, bootstrap_interval
from warmstart.system.console import console

if TYPE_CHECKING:
    from rich.text import Text

    from warmstart.inspection.explanations import Explanation, TextToExplain
    from warmstart.model.bundle import Bundle
    from warmstart.model.stack import Stack

MAX_PHRASE = 3
"""words of the longest phrase that is erased"""
_NEGLIGIBLE = 1e-3
"""nats below which a word does not matter"""
_COMPLETE, _SHOWN_PHRASES = 0.05, 8
"""integrated gradients that miss more than this fraction are not to be relied on; phrases of the page's table"""
_OVER_TEXTS = "The area between the insertion and the deletion curve, minus its mean over random orders; 95% intervals over texts."


class StudyExplainConfig(ThreadsConfig, TableFlags):
    """Measure how much each word contributes to a prediction, and test whether the explanation is faithful."""

    model: Positional[FileInput[str]]
    """a model that labels or generates text: a bundle, or the folder of a run"""
    text: Positional[str | None] = None
    """the text whose prediction is explained"""
    target: str | None = None
    """the label, or the next token (" the"), to be explained; default: the most probable one"""
    file: FileInput[str | None] = None
    """texts over which the faithfulness of the methods is measured: one per line, or a table"""
    limit: int = Field(50, gt=1)
    """number of texts of the file, drawn at random"""
    removal: Literal["delete", "mask"] = "delete"
    """removal of a word: delete its tokens, or mask them (for models trained with mask tokens)"""
    random_orders: Advanced[int] = Field(20, gt=1)
    """number of random word orders that the methods are compared with"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    out: Effectless[str] = "runs/explain"
    """folder of the run"""


@dataclass(frozen=True)
class ExplainDetails:
    """The explanation of one text, and the faithfulness of each method over many, as far as they were requested."""

    explanation: Explanation | None
    faithfulness: Mapping[str, Interval]
    """above random orders, over texts"""


def study_explain(config: StudyExplainConfig) -> StudyResult:
    """Explain, test, print the findings and write the page. The details are ``ExplainDetails``."""
    from warmstart.data.read import given_file
    from warmstart.inspection.explanations import explain_text, explain_texts
    from warmstart.interop.load import load_text_model
    from warmstart.model.bundle import Bundle
    from warmstart.runs.run import Run

    if config.text is None and config.file is None:
        raise ConfigError("there is nothing to explain; give a text, or --file with texts over which the methods are tested")
    if config.text is not None and (file := given_file([config.text])):
        raise ConfigError(f"one text is explained, but {file} is a file; give --file {file}, or a text")
    model = load_text_model(config.model, "The study")
    prepare, texts = explainer(model, config.removal), _texts(config) if config.file else []
    prepared = prepare(config.text, config.target) if config.text is not None else None
    folder, explanation = Run.open(config.out, config).folder, None
    if prepared:
        explanation = explain_text(prepared, config.random_orders, config.seed, MAX_PHRASE, show=True)
        console.print(f"{explanation.target!r}, probability {explanation.probability:.3f}")
        for method, values in explanation.values.items():
            console.print(heat_text(explanation.words, values).append(f"  {method}", style="dim"))
    gaps = explain_texts(prepare, texts, config.random_orders, config.seed) if texts else {}
    step = attention_step(config.model, [config.text] if config.text else texts) if isinstance(model, Bundle) else None
    result = explain_result(model_name(config.model), explanation, gaps, len(texts), config.seed, step)
    return finish_study(result, explain_sections(result.details), config, folder)


def _texts(config: StudyExplainConfig) -> list[str]:
    from warmstart.data.read import documents_of

    texts = list(documents_of([Source.build({"path": str(config.file), "document": "line", **config.reading})]))
    if len(texts) < 2:
        raise ConfigError(f"faithfulness needs at least two texts, but {config.file} has {len(texts)}")
    return [texts[i] for i in rng(config.seed, "texts to explain").permutation(len(texts))[: config.limit]]


def explainer(model: Bundle | Stack, removal: Literal["delete", "mask"]) -> Callable[..., TextToExplain]:
    """A function that makes a text and its target ready. Raises ``ModelError`` for a model that gives no probabilities.

    A network with one label a text, or that generates, is explained from the inside; any other model by its predictions.
    """
    from warmstart.inspection.explanations import check_explainable, is_explainable, predicted_text, prepare_text
    from warmstart.model.bundle import Bundle
    from warmstart.tasks import task_type_for
    from warmstart.tasks.predict import raw_predictions

    if isinstance(model, Bundle) and is_explainable(model):
        return partial(prepare_text, model, removal=removal)
    if isinstance(model, Bundle) and not model.labels:
        check_explainable(model)
    if (kind := task_type_for(model).name) not in ("classification", "multilabel"):
        raise ModelError(f"a prediction can be explained for a model that labels or generates text, but this one's task is {kind}")
    if removal == "mask":
        raise ModelError("the words of such a model can be deleted, but not masked; leave --removal out")
    return partial(predicted_text, partial(raw_predictions, model), model.labels)


def explain_result(
    model: str,
    explanation: Explanation | None,
    gaps: Mapping[str, np.ndarray],
    text_count: int,
    seed: int,
    step: NextStep | None = None,
) -> StudyResult:
    """The result for a model by its name; ``gaps`` are (N,) by method, of those of ``text_count`` texts that were explained."""
    import polars as pl

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
    return StudyResult(f"Explanation: {model}", findings, tables, figures, details=details, next_step=step)


def printed(word: str) -> str:
    r"""A word as it prints; white space as Python spells it: a line break -> ``'\n'``."""
    return word if word.strip() else repr(word)


def _text_findings(explanation: Explanation) -> list[str]:
    findings = [f"{explanation.target!r} has a probability of {percent(explanation.probability)}{_most_important(explanation)}."]
    if explanation.phrases:
        start, end, nats = explanation.phrases[0]
        if end - start > 1 and abs(nats) >= _NEGLIGIBLE:
            findings.append(f"The most important phrase is {' '.join(explanation.words[start:end])!r}: {nats:+.2f} nats.")
    if explanation.points:
        complete = "complete" if explanation.missing <= _COMPLETE else "not complete, so do not rely on them here"
        missing = f"{percent(explanation.missing)} of the difference is missing after {explanation.points} points"
        findings.append(f"Integrated gradients are {complete}: {missing}.")
    random = explanation.random_faithfulness
    for method, value in explanation.faithfulness.items() if len(explanation.words) > 1 else ():  # one word has one order
        findings.append(
            f"{sentence_case(method)}: faithfulness {value:+.2f}, higher than {percent((value > random).mean(), 0)} of "
            f"{len(random)} random orders (mean {random.mean():+.2f})."
        )
    return findings


def _most_important(explanation: Explanation) -> str:
    """The single word that contributes most, for or against the target, if any does: the end of a sentence."""
    nats = explanation.values["erasure"]
    most = int(np.abs(nats).argmax())
    if abs(nats[most]) < _NEGLIGIBLE:
        return f"; no single word matters (removing any one changes the log-probability by less than {_NEGLIGIBLE} nats)"
    why, without = "because" if nats[most] > 0 else "in spite", percent(explanation.probability * np.exp(-nats[most]))
    return f", mostly {why} of {printed(explanation.words[most])!r}: without this word it would be {without}"


def _faithfulness_findings(faithfulness: Mapping[str, Interval], text_count: int) -> list[str]:
    """Sentences about the methods that beat random orders, and the texts left out."""
    count = next(iter(faithfulness.values())).count
    texts = f"{count}" if count == text_count else f"{count} of {text_count}"
    good = [method for method, interval in faithfulness.items() if interval.low > 0]
    finds = "finds" if len(good) == 1 and not good[0].endswith("s") else "find"
    what = "the words that matter better than chance does"
    named = f"{' and '.join(good)} {finds} {what}" if good else f"no method is shown to find {what}"
    findings = [f"Over {texts} texts, {named}."]
    for method, interval in faithfulness.items():
        verb = f"{'are' if method.endswith('s') else 'is'} {'' if interval.low > 0 or interval.high < 0 else 'not significantly '}"
        compared = (
            f"{'less' if interval.high < 0 else 'more'} faithful than random orders: {signed_interval(interval)} over {texts} texts"
        )
        findings.append(
            f"{sentence_case(method)} {verb}{compared}{limit_clause(interval.low, interval.high, write='{:.3f}'.format)}."
        )
    if count < text_count:
        left = "they are empty, of a single word, or too long for the model"
        findings.append(f"{text_count - count} of {text_count} texts are left out: {left}.")
    return findings


def signed_interval(interval: Interval) -> str:
    """``"+0.366 (+0.269 to +0.477)"``."""
    return f"{interval.mean:+.3f} ({interval.low:+.3f} to {interval.high:+.3f})"


def heat_text(words: Sequence[str], values: np.ndarray) -> Text:
    """Words on blue if they support the target and on orange if they oppose it, from values (W,): the darker, the larger."""
    from rich.text import Text

    text, most = Text(), float(np.abs(values).max()) or 1.0
    for word, value in zip(words, values, strict=True):
        goal, share = (86, 180, 233) if value > 0 else (230, 159, 0), abs(float(value)) / most
        shade = ",".join(str(round(255 + (end - 255) * share)) for end in goal)
        text.append(printed(word), style=f"{INK} on rgb({shade})").append(" ")
    return text


def explain_sections(details: ExplainDetails) -> list[Section]:
    """The explanation of one text, and the faithfulness of the methods over many."""
    from warmstart.report.study_charts import curve_chart, heat_chart

    sections = list[Section]()
    if explanation := details.explanation:
        words, items = [printed(word) for word in explanation.words], list[Any]()
        for method, values in explanation.values.items():
            caption = f"{sentence_case(method)}: blue words support {explanation.target!r}, orange words oppose it."
            items.append(Figure(f"heat-{method.replace(' ', '-')}", caption, heat_chart(words, values)))
        caption = "Faithful orders fall fast and rise fast; grey: the middle 90% of random orders."
        items.append(
            Figure("faithfulness", caption, curve_chart(list(explanation.values), explanation.deletion, explanation.insertion))
        )
        rows = [(" ".join(words[start:end]), f"{nats:+.3f}") for start, end, nats in explanation.phrases[:_SHOWN_PHRASES]]
        sections.append(Section(f"Why {explanation.target!r}", (), (*items, Table(("phrase", "nats lost without it"), rows))))
    if details.faithfulness:
        rows = [(method, signed_interval(interval)) for method, interval in details.faithfulness.items()]
        table = Table(("method", "above random orders"), rows)
        sections.append(Section("Faithfulness over texts", (_OVER_TEXTS,), (table,)))
    return sections
