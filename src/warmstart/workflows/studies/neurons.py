"""``study neurons``: what single neurons go with over a corpus, above what chance and untrained networks give."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.activations import with_random_weights
from warmstart.analysis.correlation import corrected, interval
from warmstart.analysis.neurons import Correlated, Of, activations, correlate, plan_of, strongest
from warmstart.analysis.pieces import in_running_text, sampled
from warmstart.analysis.properties import Told, told_of_sentences, told_of_texts
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.data.batch import Encoded, encode
from warmstart.data.conllu import is_conllu, read_conllu
from warmstart.errors import ConfigError, DataError
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.neurons import Strip, best_chart, layers_chart, strips_chart
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude
from warmstart.workflows.studies.peaks import HEADER, Best, Neurons, Peak, Untrained
from warmstart.workflows.studies.wording import model_name

UNTRAINED = 8
"""backbones with random weights, as one draw says nothing of the next"""
FEWEST = 8
"""passages without which no interval is worth its name"""
SHOWN = 24
"""neurons whose passages are shown at most"""
AROUND = 30
"""tokens shown on either side of the strongest"""
STRIPS = 3
"""passages of each neuron that are coloured"""


class NeuronsConfig(Config):
    """Correlate every neuron with what can be told of each token, and show where the best of them are strongest."""

    model: Positional[str]
    """any model: a bundle, or a run's folder"""
    text: tuple[str, ...] = Field(min_length=1)
    """files or folders of text; .conllu files (.gz too) bring parts of speech"""
    of: Of = "neurons"
    """what is looked at: the inner layers of the blocks, or the states between them"""
    neuron: tuple[str, ...] = ()
    """neurons to show, each as LAYER.PLACE, both from 1 (2.113); default: the best for each property"""
    show: str | None = None
    """a text of your own to be coloured by them"""
    passages: int = Field(500, ge=FEWEST)
    """so many passages or sentences of the text, drawn at random"""
    top: int = Field(5, gt=0, le=100)
    """passages shown of each neuron"""
    shifts: int = Field(20, gt=0, le=1000)
    """times that properties are turned round by chance, for the floor"""
    control: bool = True
    """the same with eight backbones of the same shape whose weights are random"""
    out: str = "runs/neurons"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""


@dataclass(frozen=True)
class Shown:
    """Some neurons and their activations over all passages."""

    columns: list[int]
    names: list[str]
    values: list[np.ndarray]
    """for each passage (n, columns)"""

    def size(self, place: int) -> float:
        """The largest activation of a neuron without its sign."""
        return max((float(np.abs(rows[:, place]).max()) for rows in self.values if len(rows)), default=0.0) or 1.0


def neurons(config: NeuronsConfig) -> Neurons:
    """Read, correlate, print and write the page; the ``study neurons`` command."""
    bundle = load_model(config.model)
    plan, told = plan_of(bundle.model, config.of), _told(bundle, config)
    named, own = [plan.column(name) for name in config.neuron], _own(bundle, config)
    folder = open_run(config.out, config, resume=False)
    correlated = correlate(bundle, told, config.of, config.shifts, config.seed)
    found = _found(bundle, told, correlated, config)
    columns = named or list(dict.fromkeys(one.peak.column for one in found.best))[:SHOWN]
    shown = Shown(columns, [str(plan.neuron(one)) for one in columns], activations(bundle, told.encoded, config.of, columns))
    passages, strips = _passages(bundle, told, shown, own, config)
    sections = (_going(found, config), _where(passages, strips, found, config))
    tiles = [("neurons", f"{len(correlated.r):,}"), ("passages", f"{len(told.values):,}"), ("tokens", f"{correlated.n:,}")]
    data = {"correlations": found.table(), "passages": passages}
    title = f"Neurons of {model_name(config.model)}"
    conclude(Study(title, found.sentences(), sections, data, tiles, (found.rows(), HEADER)), config, folder, [config.model])
    return found


def _told(bundle: Bundle, config: NeuronsConfig) -> Told:
    """The passages and the properties of their tokens."""
    tagged = [is_conllu(path) for path in config.text]
    if any(tagged) and not all(tagged):
        raise ConfigError("--text must be .conllu files only, or none of them, but both came; run it once for each")
    if any(tagged):
        sentences = [sentence for path in config.text for sentence in read_conllu(path)]
        told = told_of_sentences(bundle, sampled(sentences, config.passages, config.seed))
    else:
        documents = documents_of([Source(path=path) for path in config.text])
        told = told_of_texts(bundle, sampled(documents, config.passages, config.seed))
    if (count := _filled(told)) < FEWEST:
        raise DataError(
            f"neurons need at least {FEWEST} passages with tokens, or their intervals are worth nothing, but {count} came; give "
            "more text, and set its passages apart by blank lines"
        )
    return told


def _filled(told: Told) -> int:
    """Passages that have tokens."""
    return sum(len(rows) > 0 for rows in told.values)


def _own(bundle: Bundle, config: NeuronsConfig) -> Encoded | None:
    """The text of one's own, if one came."""
    if config.show is None:
        return None
    encoded = encode(bundle.tokenizer, [config.show], bundle.model.backbone.config.max_tokens)
    if not config.show.strip() or len(encoded.rows[0]) < 3:  # nothing but its frame
        raise DataError(f"--show must be a text with at least one token, but {config.show!r} came; write one, or leave --show out")
    return encoded


def _found(bundle: Bundle, told: Told, correlated: Correlated, config: NeuronsConfig) -> Neurons:
    """The best neuron of each property beside chance and, if asked, beside untrained backbones."""
    peaks = _peaks(bundle, told, correlated, config)
    controls: list[Untrained | None] = [None] * len(peaks)
    if config.control:
        controls[:] = _untrained(bundle, told, config)
    floors = correlated.floor.tolist()
    best = [Best(*one) for one in zip(told.names, peaks, floors, controls, strict=True)]
    q = corrected(correlated.r, correlated.n)
    order = sorted(best, key=lambda one: -abs(one.peak.r))
    return Neurons(correlated, q, order, plan_of(bundle.model, config.of), told.names, told.still, _filled(told))


def _untrained(bundle: Bundle, told: Told, config: NeuronsConfig) -> list[Untrained]:
    """The best neuron of each property in backbones of the same shape with random weights; the first one's with its interval."""
    sizes, peaks = [], list[Peak]()
    for draw in range(UNTRAINED):
        fresh = with_random_weights(bundle, config.seed + draw)
        correlated = correlate(fresh, told, config.of, 0, config.seed)
        sizes.append(np.abs(correlated.r).max(axis=0))
        peaks = peaks or _peaks(fresh, told, correlated, config)
    return [Untrained(of_one.tolist(), peak, len(peaks)) for of_one, peak in zip(np.transpose(sizes), peaks, strict=True)]


def _peaks(bundle: Bundle, told: Told, correlated: Correlated, config: NeuronsConfig) -> list[Peak]:
    """The best neuron of each property, with its interval."""
    columns = correlated.best().tolist()
    values = activations(bundle, told.encoded, config.of, columns)
    peaks = []
    for place, column in enumerate(columns):
        pairs = [(rows[:, place], known[:, place]) for rows, known in zip(values, told.values, strict=True)]
        peaks.append(Peak(column, float(correlated.r[column, place]), *interval(pairs, config.seed)))
    return peaks


def _passages(
    bundle: Bundle, told: Told, shown: Shown, own: Encoded | None, config: NeuronsConfig
) -> tuple[pl.DataFrame, list[Strip]]:
    """Where neurons are strongest, as a table, and what is to be coloured: a text of one's own first."""
    rows, strips = list[dict[str, str | float]](), list[Strip]()
    read = activations(bundle, own, config.of, shown.columns)[0] if own is not None else None
    for place, name in enumerate(shown.names):
        size = shown.size(place)
        if own is not None and read is not None:
            strips.append(_strip(bundle, name, own.rows[0][1:-1], read[:, place] / size))
        for rank, (passage, token, value) in enumerate(strongest(shown.values, place, max(config.top, STRIPS)), 1):
            ids, values = told.encoded.rows[passage][1:-1], shown.values[passage][:, place]
            start, end = max(0, token - AROUND), token + AROUND + 1
            parts = (ids[start:token], ids[token : token + 1], ids[token + 1 : end])
            before, here, after = (bundle.tokenizer.decode(part.tolist()) for part in parts)
            rows.append({"neuron": name, "rank": rank, "activation": value, "before": before, "token": here, "after": after})
            if rank <= STRIPS:
                strips.append(_strip(bundle, name, ids[start:end], values[start:end] / size))
    return pl.DataFrame(rows), strips


def _strip(bundle: Bundle, name: str, ids: np.ndarray, shares: np.ndarray) -> Strip:
    return Strip(name, [in_running_text(bundle.tokenizer, int(one)) for one in ids], np.clip(shares, -1, 1).tolist())


def _going(found: Neurons, config: NeuronsConfig) -> Section:
    """What neurons go with, in pictures."""
    plan, names = found.plan, [one.name for one in found.best]
    rows = [
        (one.name, abs(one.peak.r), *one.peak.ends, one.floor, one.control.bar if one.control else np.nan) for one in found.best
    ]
    largest = np.abs(found.correlated.r).reshape(plan.layers, plan.width, -1).max(axis=1)
    drawn = layers_chart(largest[:, [found.names.index(name) for name in names]], names, plan.first)
    said = "The best neuron of each property, with its 95 % interval over passages, beside what it must pass."
    items = (
        Figure("best", said, best_chart(rows)),
        Figure("layers", "The largest correlation in each layer.", drawn),
        Table(HEADER, found.rows()),
    )
    return Section("What neurons go with", (_way(config),), items)


def _where(passages: pl.DataFrame, strips: list[Strip], found: Neurons, config: NeuronsConfig) -> Section:
    """Where neurons are strongest."""
    said = (
        "Tokens by activation: orange is active, blue negative, over the neuron's largest in the corpus; choose the neuron below."
    )
    table = Table(("neuron", "goes with", "activation", "passage"), _listed(passages, found, config.top))
    return Section("Where neurons are strongest", items=(Figure("strips", said, strips_chart(strips)), table))


def _listed(passages: pl.DataFrame, found: Neurons, top: int) -> list[tuple[str, ...]]:
    """The strongest passages as rows of text, the token between marks."""
    goes = {str(found.plan.neuron(one.peak.column)): one.name for one in reversed(found.best)}
    rows = list[tuple[str, ...]]()
    for row in passages.filter(pl.col("rank") <= top).iter_rows(named=True):
        first = row["rank"] == 1
        text = f"{row['before'].strip()} «{row['token'].strip()}» {row['after'].strip()}".strip()
        rows.append(
            (row["neuron"] if first else "", goes.get(row["neuron"], "") if first else "", f"{row['activation']:.2f}", text)
        )
    return rows


def _way(config: NeuronsConfig) -> str:
    beside = (
        f"; untrained: {UNTRAINED} backbones of the same shape with random weights are asked for their best neurons too. What one "
        "more of them would stay below is the bar that a whole interval must pass to be clearly more (a prediction bound over "
        "weights, 2.5 % for all properties together, and not less than where the first one's interval over passages ends)"
        if config.control
        else ""
    )
    return (
        f"Chance: properties are turned round within each passage {config.shifts} times, each time the largest correlation over "
        f"all neurons is taken, and 95 % of those lie below{beside}. Layers and neurons count from 1; layer 0 is the embedding."
    )
