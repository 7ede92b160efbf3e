"""Neurons: activations inside the feed-forward layers, the properties of tokens they correlate with, and where they are largest.

A neuron is one number of a block's inner layer, after the non-linearity and before the projection back into the residual stream;
with ``states`` it is one dimension of the residual stream. Over a corpus each is correlated with properties of every token.

Among thousands of neurons some correlate with anything by chance, and tokens of one passage are not independent. So every best
correlation is compared with a permutation threshold: the best over all neurons if the property is shifted randomly within passages.

Sources: Radford et al. 2017, "Learning to generate reviews"; Dalvi et al. 2019, "What is one grain of sand in the desert?".

Letters: N passages, B batch, T tokens, n tokens without those that frame a text, F neurons of all layers, P properties, K untrained
backbones, L depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.backbone.backbone import Backbone
from warmstart.backbone.block import FeedForward
from warmstart.data.encode import Encoded, encode
from warmstart.errors import DataError, ModelError
from warmstart.inspection.activations import encode_words, run_backbone, with_random_weights
from warmstart.inspection.tokens import is_punctuation, running_text, token_texts
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.stats.correlation import PearsonSums, bootstrap_correlation, correlation_q_values
from warmstart.stats.intervals import upper_prediction_bound
from warmstart.stats.multiple_testing import max_statistic_threshold
from warmstart.stats.resampling import circular_shifts
from warmstart.training.progress import counting
from warmstart.types import Batch

Units = Literal["neurons", "states"]
_UNTRAINED = 8
"""untrained backbones; one draw of random weights says little about the next"""
_MAX_SHOWN = 24
"""neurons whose passages are shown"""
_CONTEXT = 30
"""tokens shown on each side of the largest activation"""
_COLOURED = 3
"""passages of each neuron that are coloured"""
_MIN_TAGS = 50
"""a part of speech with fewer tokens is left out"""


@dataclass(frozen=True)
class NeuronLayout:
    """The F neurons of a model, as columns. Layers count from 1, and 0 is the embedding; neurons of a layer count from 1."""

    first: int
    """the number of the first layer"""
    layers: int
    width: int
    """neurons of a layer"""

    def name(self, column: int) -> str:
        """The neuron of a column: ``"2.113"``, its layer and its number there."""
        return f"{self.first + column // self.width}.{column % self.width + 1}"

    def column(self, name: str) -> int:
        """The column of a neuron by its name: ``"2.113"``. Raises ``ModelError`` if there is no such neuron."""
        layer, _, index = name.partition(".")
        if layer.isdecimal() and index.isdecimal():
            row, within = int(layer) - self.first, int(index) - 1
            if 0 <= row < self.layers and 0 <= within < self.width:
                return row * self.width + within
        last = self.first + self.layers - 1
        raise ModelError(
            f"a neuron must be LAYER.INDEX with layers {self.first} to {last} and indices 1 to {self.width}, but got '{name}'"
        )


def neuron_layout(model: Model, units: Units) -> NeuronLayout:
    """The neurons of a model. Raises ``ModelError`` if the backbone has no blocks, and so no neurons."""
    config = model.backbone.config
    if units == "states":
        return NeuronLayout(0, config.depth + 1, config.width)
    if not config.depth:
        raise ModelError("a backbone of depth 0 has no feed-forward layers; study its states (--units states)")
    return NeuronLayout(1, config.depth, config.feedforward)


@contextmanager
def recorded_feedforward(backbone: Backbone) -> Iterator[list[Tensor]]:
    """While open, each forward pass refills the list with the inputs of the projections back: L of (B, T, feedforward)."""
    recorded = list[Tensor]()
    parts = [part for part in backbone.modules() if isinstance(part, FeedForward)]

    def hook(_part: nn.Module, inputs: tuple[Any, ...]) -> None:
        recorded.append(inputs[0])

    hooks = [part.out.register_forward_pre_hook(hook) for part in parts]
    hooks.append(backbone.register_forward_pre_hook(lambda *_: recorded.clear()))
    try:
        yield recorded
    finally:
        for handle in hooks:
            handle.remove()


Visitor = Callable[[np.ndarray, list[np.ndarray]], None]
"""gets the indices of a batch's passages, and the activations (n, F) float32 of each"""


def visit_activations(bundle: Bundle, encoded: Encoded, units: Units, visitor: Visitor, *, show: bool = True) -> None:
    """Pass on the activations of every passage, batch by batch, without the tokens that frame it; ``show`` how long it takes."""
    neuron_layout(bundle.model, units)

    def visit(batch: Batch, indices: np.ndarray) -> Tensor:
        states = run_backbone(bundle, batch)
        layers = recorded if units == "neurons" else [*states.hidden_states[:-1], states.last_hidden_state]
        values = torch.cat(list(layers), dim=-1).float().cpu().numpy()  # (B, T, F)
        visitor(indices, [values[row, 1 : len(encoded.rows[index]) - 1] for row, index in enumerate(indices)])
        done(len(indices))
        return torch.zeros(0)

    with recorded_feedforward(bundle.model.backbone) as recorded, counting("passages", len(encoded), show=show) as done:
        run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=visit)


def activations(bundle: Bundle, encoded: Encoded, units: Units, columns: Sequence[int], *, show: bool = True) -> list[np.ndarray]:
    """For each passage (n, F): the activations of some neurons, F ``columns``."""
    kept, out = list(columns), [np.zeros((0, len(columns)), dtype=np.float32) for _ in encoded.rows]

    def visitor(indices: np.ndarray, rows: list[np.ndarray]) -> None:
        for index, values in zip(indices, rows, strict=True):
            out[index] = values[:, kept]

    visit_activations(bundle, encoded, units, visitor, show=show)
    return out


_FORMS: Mapping[str, Callable[[str], bool | int]] = {
    "length": lambda piece: len(piece.strip()),
    "capital": lambda piece: piece.strip()[:1].isupper(),
    "number": lambda piece: any(c.isdigit() for c in piece) and all(c.isdigit() or c in ".,:/-%" for c in piece.strip()),
    "punctuation": is_punctuation,
}
"""properties of a token's own text: its characters, and three that hold or not"""
TEXT_PROPERTIES = ("position", *_FORMS, "quoted", "brackets")
"""position in the passage, the forms, inside quotation marks or not, and the number of open brackets"""


@dataclass(frozen=True)
class TokenProperties:
    """N passages as a model reads them, and P properties of their tokens."""

    encoded: Encoded
    names: tuple[str, ...]
    values: tuple[np.ndarray, ...]
    """for each passage (n, P) float32"""
    constant: tuple[str, ...]
    """properties that never vary in these passages, and are left out"""

    @property
    def passages(self) -> int:
        """Those that have tokens."""
        return sum(len(rows) > 0 for rows in self.values)


def text_properties(bundle: Bundle, texts: Sequence[str]) -> TokenProperties:
    """The properties of the tokens of texts, which are cut to the model's context."""
    encoded = encode(bundle.tokenizer, texts, bundle.model.backbone.config.max_length)
    return _varying(encoded, TEXT_PROPERTIES, _text_values(bundle, encoded))


def tagged_properties(bundle: Bundle, sentences: Sequence[Sequence[tuple[str, str]]]) -> TokenProperties:
    """Properties of the tokens of sentences of (word, tag), the tags of at least 50 tokens among them."""
    words = encode_words(bundle, [[form for form, _ in sentence] for sentence in sentences])
    tags = [[sentence[owner][1] for owner in owners[1:-1]] for sentence, owners in zip(sentences, words.word_ids, strict=True)]
    counts = Counter(tag for row in tags for tag in row)
    known = sorted(tag for tag, count in counts.items() if count >= _MIN_TAGS)
    values = [
        np.hstack([row, np.array([[tag == name for name in known] for tag in of_row], np.float32).reshape(len(row), len(known))])
        for row, of_row in zip(_text_values(bundle, words.encoded), tags, strict=True)
    ]
    return _varying(words.encoded, (*TEXT_PROPERTIES, *known), values)


def _varying(encoded: Encoded, names: Sequence[str], values: Sequence[np.ndarray]) -> TokenProperties:
    """Properties without those that are constant; raises ``DataError`` if there is nothing to correlate."""
    flat = np.concatenate(values)
    if len(flat) < 3:
        raise DataError(f"correlations need at least three tokens, but the text has {len(flat)}; give more text")
    varies = flat.min(axis=0) != flat.max(axis=0)
    if not varies.any():
        raise DataError("tokens must differ in some property, but all are alike; give more text")
    kept = tuple(name for name, varying in zip(names, varies, strict=True) if varying)
    constant = tuple(name for name, varying in zip(names, varies, strict=True) if not varying)
    return TokenProperties(encoded, kept, tuple(row[:, varies] for row in values), constant)


def _text_values(bundle: Bundle, encoded: Encoded) -> list[np.ndarray]:
    """For each passage (n, P) the text properties, in the order of ``TEXT_PROPERTIES``."""
    pieces = token_texts(bundle.tokenizer, encoded) | dict.fromkeys(bundle.tokenizer.specials.all(), "")  # "[UNK]" opens no bracket
    forms = {token_id: [float(form(piece)) for form in _FORMS.values()] for token_id, piece in pieces.items()}
    values = []
    for row in encoded.rows:
        inside = row[1:-1].tolist()
        depths = quotes_and_brackets([pieces[token_id] for token_id in inside])
        rows = [[position, *forms[token_id], *depth] for position, (token_id, depth) in enumerate(zip(inside, depths, strict=True))]
        values.append(np.array(rows, dtype=np.float32).reshape(len(inside), len(TEXT_PROPERTIES)))
    return values


def quotes_and_brackets(pieces: Sequence[str]) -> list[tuple[int, int]]:
    """For each piece, whether it is inside double quotation marks (by their parity), and the number of open brackets.

    Marks count as inside: ``["a", '"', "b", '"']`` -> quoted 0, 1, 1, 1. Brackets that close nothing are ignored.
    """
    values, inside, depth = [], False, 0
    for piece in pieces:
        quoted, deepest = inside, depth
        for character in piece:
            if character == '"':
                inside = not inside
            elif character in "“”":
                inside = character == "“"
            depth += (character in "([{") - (character in ")]}" and depth > 0)
            quoted, deepest = quoted or inside, max(deepest, depth)
        values.append((int(quoted), deepest))
    return values


@dataclass(frozen=True)
class Correlations:
    """F neurons against P properties."""

    r: np.ndarray
    """(F, P) Pearson's"""
    threshold: np.ndarray
    """(P,) the permutation threshold: what the largest absolute r of any neuron stays below in 95% of random shifts; nan without"""
    n: int
    """tokens"""

    def best(self) -> np.ndarray:
        """(P,) the column of the neuron with the largest absolute r."""
        return np.abs(self.r).argmax(axis=0)


def correlate(
    bundle: Bundle, properties: TokenProperties, units: Units, shifts: int, seed: int, *, show: bool = True
) -> Correlations:
    """Every neuron with every property, in one pass; memory holds F x P x (1 + shifts) sums, and one batch."""
    observed, shifted, count = PearsonSums(), PearsonSums(), len(properties.names)

    def visitor(indices: np.ndarray, rows: list[np.ndarray]) -> None:
        filled = [(int(index), values) for index, values in zip(indices, rows, strict=True) if len(values)]
        if not filled:
            return
        values = np.concatenate([values for _, values in filled])
        observed.add(values, np.concatenate([properties.values[i] for i, _ in filled]))
        if shifts:
            rotated = [circular_shifts(properties.values[i], rng(seed, "shifts", i), shifts) for i, _ in filled]
            shifted.add(values, np.concatenate(rotated))

    visit_activations(bundle, properties.encoded, units, visitor, show=show)
    threshold = np.full(count, np.nan)
    if shifts:
        threshold = max_statistic_threshold(np.abs(shifted.correlations()).max(axis=0).reshape(shifts, count))
    return Correlations(observed.correlations(), threshold, observed.n)


@dataclass(frozen=True)
class NeuronCorrelation:
    """One neuron's correlation with a property."""

    column: int
    r: float
    low: float
    high: float
    """95% interval over passages"""

    @property
    def ends(self) -> tuple[float, float]:
        """The interval of the absolute r, as far as it has the sign of r."""
        low, high = (self.low, self.high) if self.r >= 0 else (-self.high, -self.low)
        return max(low, 0.0), max(high, 0.0)

    def __str__(self) -> str:
        return f"{self.r:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def best_neurons(
    bundle: Bundle, properties: TokenProperties, correlations: Correlations, units: Units, seed: int, *, show: bool = True
) -> list[NeuronCorrelation]:
    """The best neuron of each of the P properties, with its interval."""
    columns = correlations.best().tolist()
    values = activations(bundle, properties.encoded, units, columns, show=show)
    best = []
    for i, column in enumerate(columns):
        pairs = [(rows[:, i], known[:, i]) for rows, known in zip(values, properties.values, strict=True)]
        interval = bootstrap_correlation(pairs, rng(seed, "bootstrap"))
        best.append(NeuronCorrelation(column, float(correlations.r[column, i]), *interval))
    return best


@dataclass(frozen=True)
class UntrainedControl:
    """The best neuron for a property in each of K untrained backbones."""

    largest: Sequence[float]
    """(K,) absolute r"""
    best: NeuronCorrelation
    """correlation of the first backbone"""
    properties: int
    """compared at the same time"""

    @property
    def threshold(self) -> float:
        """Bound for one more such backbone, or the end of the first one's interval over passages if that is more.

        The former is a prediction bound with an error rate of 2.5% for all properties together (Student's t, Bonferroni).
        """
        return min(1.0, max(upper_prediction_bound(self.largest, 0.025 / self.properties), self.best.ends[1]))

    def __str__(self) -> str:
        least, most = min(self.largest), max(self.largest)
        return f"{len(self.largest)} untrained backbones have {least:.2f} to {most:.2f} (threshold {self.threshold:.2f})"


@dataclass(frozen=True)
class PropertyResult:
    """The neuron that correlates best with a property, and what it is compared with."""

    name: str
    best: NeuronCorrelation
    threshold: float
    """threshold of the permutations"""
    control: UntrainedControl | None
    """None if no untrained backbone was read"""

    @property
    def gain(self) -> float:
        """Excess of the absolute r over the threshold of untrained backbones, or that of the permutations."""
        return abs(self.best.r) - (self.threshold if self.control is None else self.control.threshold)

    @property
    def above_chance(self) -> bool:
        """Above the permutation threshold."""
        return abs(self.best.r) > self.threshold

    @property
    def learned(self) -> bool:
        """Also above untrained backbones: the whole interval is."""
        return self.above_chance and self.control is not None and self.best.ends[0] > self.control.threshold


def untrained_controls(bundle: Bundle, properties: TokenProperties, units: Units, seed: int) -> list[UntrainedControl]:
    """For each of the P properties, the best neurons of eight untrained backbones; the first one's with its interval."""
    largest, best = list[np.ndarray](), list[NeuronCorrelation]()
    with counting("untrained backbones", _UNTRAINED) as done:
        for draw in range(_UNTRAINED):
            fresh = with_random_weights(bundle, seed + draw)
            correlations = correlate(fresh, properties, units, 0, seed, show=False)
            largest.append(np.abs(correlations.r).max(axis=0))
            best = best or best_neurons(fresh, properties, correlations, units, seed, show=False)
            done(1)
    return [UntrainedControl(row.tolist(), neuron, len(best)) for row, neuron in zip(np.stack(largest, axis=1), best, strict=True)]


@dataclass(frozen=True)
class TokenInContext:
    """A token where a neuron's activation is large."""

    neuron: str
    rank: int
    activation: float
    before: str
    token: str
    after: str


class ColouredText(NamedTuple):
    """A stretch of text with the activations of one neuron."""

    neuron: str
    tokens: Sequence[str]
    activations: Sequence[float]
    """over the neuron's largest absolute activation in the corpus, -1 to 1"""


@dataclass(frozen=True)
class NeuronMeasurement:
    """Everything that was measured."""

    layout: NeuronLayout
    properties: TokenProperties
    correlations: Correlations
    q: np.ndarray
    """(F, P) q-values by Benjamini and Hochberg"""
    results: Sequence[PropertyResult]
    """P, the largest correlation first"""
    tokens: Sequence[TokenInContext]
    texts: Sequence[ColouredText]

    def neuron(self, result: PropertyResult) -> str:
        """The name of a property's best neuron."""
        return self.layout.name(result.best.column)


@dataclass(frozen=True)
class NeuronOptions:
    """Settings of a study of neurons."""

    units: Units
    shifts: int
    untrained: bool
    """compare with untrained backbones"""
    columns: Sequence[int]
    """neurons to show; if empty, the best of each property"""
    own_text: Encoded | None
    """a text of the user's, to be coloured"""
    passages: int
    """shown of each neuron"""


def measure_neurons(bundle: Bundle, properties: TokenProperties, options: NeuronOptions, seed: int) -> NeuronMeasurement:
    """Correlate every neuron with every property, and find where the shown neurons are most active."""
    units = options.units
    correlations = correlate(bundle, properties, units, options.shifts, seed)
    best = best_neurons(bundle, properties, correlations, units, seed)
    controls: Sequence[UntrainedControl | None] = [None] * len(best)
    if options.untrained:
        controls = untrained_controls(bundle, properties, units, seed)
    rows = zip(properties.names, best, correlations.threshold.tolist(), controls, strict=True)
    results = sorted((PropertyResult(*row) for row in rows), key=lambda result: -abs(result.best.r))
    columns = list(options.columns) or list(dict.fromkeys(result.best.column for result in results))[:_MAX_SHOWN]
    layout, q = neuron_layout(bundle.model, units), correlation_q_values(correlations.r, correlations.n)
    tokens, texts = _shown(bundle, properties, options, layout, columns)
    return NeuronMeasurement(layout, properties, correlations, q, results, tokens, texts)


def _shown(
    bundle: Bundle, properties: TokenProperties, options: NeuronOptions, layout: NeuronLayout, columns: Sequence[int]
) -> tuple[list[TokenInContext], list[ColouredText]]:
    """The largest activations of some neurons, and the texts to be coloured: the user's own first."""
    tokens, texts, own = list[TokenInContext](), list[ColouredText](), options.own_text
    values = activations(bundle, properties.encoded, options.units, columns)
    own_values = activations(bundle, own, options.units, columns)[0] if own is not None else None
    for i, column in enumerate(columns):
        name = layout.name(column)
        largest = max((float(np.abs(rows[:, i]).max()) for rows in values if len(rows)), default=0.0) or 1.0
        if own is not None and own_values is not None:
            texts.append(_coloured(bundle, name, own.rows[0][1:-1], own_values[:, i] / largest))
        for rank, (passage, token, value) in enumerate(strongest_tokens(values, i, max(options.passages, _COLOURED)), 1):
            ids = properties.encoded.rows[passage][1:-1]
            start, end = max(0, token - _CONTEXT), token + _CONTEXT + 1
            parts = (ids[start:token], ids[token : token + 1], ids[token + 1 : end])
            tokens.append(TokenInContext(name, rank, value, *(bundle.tokenizer.decode(part.tolist()) for part in parts)))
            if rank <= _COLOURED:
                texts.append(_coloured(bundle, name, ids[start:end], values[passage][start:end, i] / largest))
    return tokens, texts


def _coloured(bundle: Bundle, name: str, ids: np.ndarray, shares: np.ndarray) -> ColouredText:
    return ColouredText(name, [running_text(bundle.tokenizer, int(token_id)) for token_id in ids], np.clip(shares, -1, 1).tolist())


def strongest_tokens(values: Sequence[np.ndarray], column: int, count: int) -> list[tuple[int, int, float]]:
    """Each passage's largest absolute activation, largest first: (passage, token, activation); ``values`` are N of (n, neurons)."""
    largest = [(passage, int(np.abs(rows[:, column]).argmax())) for passage, rows in enumerate(values) if len(rows)]
    rows = [(passage, token, float(values[passage][token, column])) for passage, token in largest]
    return sorted(rows, key=lambda row: (-abs(row[2]), row[0]))[:count]
