"""``study neurons``: which properties of tokens neurons correlate with, compared with chance and with untrained backbones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, ThreadsConfig
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.inspection.tokens import sample_passages
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import attention_step, study_step
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import model_name, percent
from warmstart.stats.noise import detectable_above

if TYPE_CHECKING:
    import polars as pl

    from warmstart.data.encode import Encoded
    from warmstart.inspection.neurons import NeuronMeasurement, TokenProperties
    from warmstart.model.bundle import Bundle

_MIN_PASSAGES, _ENOUGH_PASSAGES = 8, 30
"""below the first there are no intervals worth reporting, below the second the bootstrap's are too narrow"""
_LISTED = 6
"""properties with a finding of their own"""


class StudyNeuronsConfig(ThreadsConfig):
    """Correlate every neuron with properties of each token, and show the passages that activate the best ones most."""

    model: Positional[FileInput[str]]
    """any model: a bundle, or the folder of a run"""
    text: FileInput[tuple[str, ...]] = Field(min_length=1)
    """files or folders of text; .conllu files (.gz too) add parts of speech"""
    units: Literal["neurons", "states"] = "neurons"
    """units of the study: the inner layers of the blocks, or the dimensions of the hidden states between them"""
    neuron: tuple[str, ...] = ()
    """neurons to show, each as LAYER.INDEX, both from 1 (2.113); default: the best one of each property"""
    show: str | None = None
    """a text of your own, to be coloured by the activations"""
    passages: Advanced[int] = Field(500, ge=_MIN_PASSAGES)
    """number of passages or sentences of the text, drawn at random"""
    top: int = Field(5, gt=0, le=100)
    """number of passages shown for each neuron"""
    shifts: Advanced[int] = Field(20, gt=0, le=1000)
    """number of random circular shifts of the properties, for the permutation threshold"""
    control: bool = True
    """compare with eight untrained backbones of the same shape"""
    out: Effectless[str] = "runs/neurons"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_neurons(config: StudyNeuronsConfig) -> StudyResult:
    """Correlate, print the findings and write the page. The details are a ``NeuronMeasurement``."""
    import polars as pl

    from warmstart.data.conllu import is_conllu
    from warmstart.heads.language_modeling import LMHead
    from warmstart.inspection.neurons import NeuronOptions, measure_neurons, neuron_layout
    from warmstart.interop.load import load_model
    from warmstart.runs.run import Run

    bundle = load_model(config.model)
    layout, (properties, texts) = neuron_layout(bundle.model, config.units), _properties(bundle, config)
    columns, own_text = [layout.column(name) for name in config.neuron], _own_text(bundle, config)
    folder = Run.open(config.out, config).folder
    options = NeuronOptions(config.units, config.shifts, config.control, columns, own_text, config.top)
    measured = measure_neurons(bundle, properties, options, config.seed)
    step = attention_step(config.model, texts)
    if isinstance(bundle.model.head, LMHead) and not any(map(is_conllu, config.text)):
        step = study_step("ablate", "How much the model needs each part", config.model, "--text", *config.text)
    passages = pl.DataFrame([asdict(token) for token in measured.tokens])
    figures = {"neurons": len(measured.q), "passages": len(properties.values), "tokens": measured.correlations.n}
    result = StudyResult(
        f"Neurons of {model_name(config.model)}", neuron_findings(measured),
        {"correlations": _correlations(measured), "passages": passages},
        {name: float(count) for name, count in figures.items()}, _summary(measured), measured, step,
    )  # fmt: skip
    tiles = [(name, f"{value:,}") for name, value in figures.items()]
    return finish_study(result, _sections(measured, passages, config), config, folder, tiles=tiles)


def _properties(bundle: Bundle, config: StudyNeuronsConfig) -> tuple[TokenProperties, list[str]]:
    """The properties of the tokens of the passages, and these."""
    from warmstart.data.conllu import is_conllu, read_conllu
    from warmstart.data.read import documents_of
    from warmstart.inspection.neurons import tagged_properties, text_properties

    tagged = [is_conllu(path) for path in config.text]
    if any(tagged) and not all(tagged):
        raise ConfigError("--text must be .conllu files only, or none of them, but there are both; run the study once for each")
    if any(tagged):
        every = (sentence for path in config.text for sentence in read_conllu(path))
        sentences = sample_passages(every, config.passages, config.seed)
        properties, texts = tagged_properties(bundle, sentences), [" ".join(form for form, _ in sentence) for sentence in sentences]
    else:
        texts = sample_passages(documents_of([Source(path=path) for path in config.text]), config.passages, config.seed)
        properties = text_properties(bundle, texts)
    if properties.passages < _MIN_PASSAGES:
        raise DataError(
            f"correlations need at least {_MIN_PASSAGES} passages with tokens for their intervals, "
            f"but there are {properties.passages}; give more text, and separate its passages by blank lines"
        )
    return properties, texts


def _own_text(bundle: Bundle, config: StudyNeuronsConfig) -> Encoded | None:
    """The user's own text, if there is one."""
    from warmstart.data.encode import encode

    if config.show is None:
        return None
    encoded = encode(bundle.tokenizer, [config.show], bundle.model.backbone.config.max_length)
    if not config.show.strip() or len(encoded.rows[0]) < 3:  # nothing but its frame
        raise DataError(f"--show must be a text with at least one token, but is {config.show!r}; give one, or leave --show out")
    return encoded


def neuron_findings(measured: NeuronMeasurement) -> list[str]:
    """Sentences about the properties that have a neuron, the correlations, and their certainty."""
    results, properties = measured.results, measured.properties
    above, learned = [result for result in results if result.above_chance], [result for result in results if result.learned]
    first, beyond, control = results[0], "", results[0].control
    if control:
        beyond = (
            f", and for {len(learned)} it is also above {len(control.largest)} untrained backbones (the interval is above a "
            f"prediction bound for one more, corrected for {control.properties} properties)"
        )
    findings = [
        _headline(measured),
        f"For {len(above)} of {len(results)} properties the best neuron is above the permutation threshold{beyond}. The "
        f"largest correlation is with '{first.name}': neuron {measured.neuron(first)}, r = {first.best}.",
    ]
    for result in sorted(learned if control else above, key=lambda result: -result.gain)[:_LISTED]:
        compared = f"the permutation threshold is {result.threshold:.2f}" + (f"; {result.control}" if result.control else "")
        findings.append(f"Property '{result.name}': neuron {measured.neuron(result)}, r = {result.best}; {compared}.")
    if missing := [result for result in results if not result.above_chance]:
        sizes = [min(1.0, detectable_above(result.threshold, result.best.low, result.best.high)) for result in missing]
        limit = f"; an absolute r of {detection_text(sizes, '{:.2f}'.format, '')}" if np.isfinite(sizes).all() else ""
        names = ", ".join(result.name for result in missing)
        findings.append(f"No neuron correlates above the permutation threshold with {names}{limit}.")
    over = np.abs(measured.correlations.r) > measured.correlations.threshold
    findings.append(
        f"{percent((measured.q < 0.05).mean(), 0)} of all {measured.q.size:,} correlations have q < 0.05 (Benjamini and Hochberg), "
        f"which treats the {measured.correlations.n:,} tokens as independent; {percent(over.mean())} are above the permutation "
        "threshold."
    )
    if properties.constant:
        findings.append(f"Left out, since they are constant in this text as tokenized: {', '.join(properties.constant)}.")
    if properties.passages < _ENOUGH_PASSAGES:
        findings.append(
            f"Intervals over only {properties.passages} passages are too narrow: treat what is just above a threshold as chance."
        )
    return findings


def _headline(measured: NeuronMeasurement) -> str:
    """The neuron that says most: of those that untrained networks cannot explain, else of those above chance."""
    control = measured.results[0].control
    candidates = [result for result in measured.results if (result.learned if control else result.above_chance)]
    if not candidates:
        than = "untrained networks have" if control else "chance gives"
        return f"No neuron follows any of {len(measured.results)} properties of tokens more than {than}."
    best = max(candidates, key=lambda result: result.gain)
    below = f"untrained networks stay below {best.control.threshold:.2f}" if best.control else f"chance gives {best.threshold:.2f}"
    return f"Neuron {measured.neuron(best)} follows '{best.name}' most clearly: r = {best.best.r:+.2f}, where {below}."


def _summary(measured: NeuronMeasurement) -> Table:
    rows = [
        (
            result.name, measured.neuron(result), str(result.best), f"{result.threshold:.2f}",
            f"{result.control.threshold:.2f}" if result.control else "-",
        )
        for result in measured.results
    ]  # fmt: skip
    return Table(("property", "neuron", "r (95%)", "permutation threshold", "untrained threshold"), rows)


def _correlations(measured: NeuronMeasurement) -> pl.DataFrame:
    """Every correlation, neuron by neuron."""
    import polars as pl

    names, layout, columns = measured.properties.names, measured.layout, np.arange(len(measured.q))
    known = {"layer": layout.first + columns // layout.width, "neuron": columns % layout.width + 1}
    of_neurons = {name: np.repeat(numbers, len(names)) for name, numbers in known.items()}
    values = {"r": measured.correlations.r.ravel(), "q": measured.q.ravel()}
    return pl.DataFrame(of_neurons | {"property": np.tile(names, len(columns))} | values)


def _sections(measured: NeuronMeasurement, passages: pl.DataFrame, config: StudyNeuronsConfig) -> list[Section]:
    """The correlations, and where neurons are most active."""
    from warmstart.report.study_charts import best_chart, coloured_texts, layer_grid

    names, layout, control = [result.name for result in measured.results], measured.layout, measured.results[0].control
    largest = np.abs(measured.correlations.r).reshape(layout.layers, layout.width, -1).max(axis=1)
    largest = largest[:, [measured.properties.names.index(name) for name in names]]
    untrained = (
        f" Untrained: the best neurons of {len(control.largest)} backbones of the same shape with random weights. A neuron is "
        "above them if its whole interval is above a prediction bound for one more of them (error rate 2.5% for all properties "
        "together) and above the end of the first one's interval over passages."
        if control
        else ""
    )
    text = (
        f"Permutation threshold: properties are shifted circularly within each passage, at random, {config.shifts} times; each "
        f"time the largest correlation over all neurons is taken, and 95% of these are below the threshold.{untrained} Layers and "
        "neurons count from 1; layer 0 is the embedding."
    )
    bars = [
        (best.name, (abs(best.best.r), best.threshold, best.control.threshold if best.control else np.nan), best.best.ends)
        for best in measured.results
    ]
    caption = "The best neuron of each property, with its 95% interval over passages, and both thresholds."
    items = (
        Figure("best", caption, best_chart(bars)),
        Figure("layers", "The largest correlation in each layer.", layer_grid(largest, names, layout.first)),
        _summary(measured),
    )
    colours = (
        "Activations relative to the neuron's largest in the corpus: orange is positive, blue negative. Choose the neuron below."
    )
    figure = Figure("texts", colours, coloured_texts(measured.texts))
    table = Table(("neuron", "property", "activation", "passage"), _passage_rows(measured, passages, config.top))
    return [Section("Properties of neurons", (text,), items), Section("Largest activations", items=(figure, table))]


def _passage_rows(measured: NeuronMeasurement, passages: pl.DataFrame, count: int) -> Sequence[Sequence[str]]:
    """The largest activations as rows of text, the token between marks."""
    properties = {measured.neuron(one): one.name for one in reversed(measured.results)}
    rows = list[tuple[str, ...]]()
    for row in (one for one in passages.iter_rows(named=True) if one["rank"] <= count):
        text = f"{row['before'].strip()} «{row['token'].strip()}» {row['after'].strip()}".strip()
        name = (row["neuron"], properties.get(row["neuron"], "")) if row["rank"] == 1 else ("", "")
        rows.append((*name, f"{row['activation']:.2f}", text))
    return rows
