"""What differs between two models of one shape: hidden states, weights, attention, language loss, neighbours and probes.

Letters: N passages, n tokens, B batch, T tokens, S attended tokens, L depth, H heads, D width, W words, K neighbours.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from warmstart.adapters.insertion import Adapter, merge_adapters
from warmstart.adapters.scalar_mix import ScalarMix
from warmstart.backbone.backbone import Backbone
from warmstart.data.batches import sorted_batches
from warmstart.data.encode import Encoded
from warmstart.data.probing import ProbingTask
from warmstart.errors import DataError, ModelError
from warmstart.heads.language_modeling import LMHead
from warmstart.inspection.activations import layer_names, run_backbone, stack_layers, with_random_weights
from warmstart.inspection.attention import attention_masks, attention_weights
from warmstart.inspection.cka import cka_by_layer, cka_grid
from warmstart.inspection.lexicon import Lexicon, lexicon_from_text, static_embeddings
from warmstart.inspection.neighbours import nearest_neighbours, neighbour_overlap, row_overlap, unit_vectors
from warmstart.inspection.occurrences import Occurrences, find_occurrences, occurrence_states
from warmstart.inspection.passages import Passages, passage_losses
from warmstart.inspection.probe_scores import BAG, ProbeScores, scores_by_layer
from warmstart.inspection.probing import probe_layers
from warmstart.inspection.tokens import sample_passages, token_chunks
from warmstart.model.bundle import Bundle
from warmstart.model.inference import INFERENCE_TOKENS, inference_weights, run_in_batches
from warmstart.model.model import Model
from warmstart.seeding import rng
from warmstart.stats.intervals import percentiles
from warmstart.stats.ratios import resampled_ratios
from warmstart.stats.resampling import resample_counts
from warmstart.types import IGNORE, Batch

_MAX_TOKENS = 128
"""tokens of a passage, with the tokens that frame it; a longer document becomes several passages"""
_MIN_PASSAGES = 8
"""below this the intervals mean little"""
_RANDOM_DRAWS = 3
"""backbones with random weights; CKA with them is averaged"""
_HEAD_PASSAGES = 40
"""passages over which all pairs of heads are compared"""
_PROBE_FITS = 3
"""fits of each probe"""
_NEIGHBOURS = 10
_MIN_WORDS = 3 * _NEIGHBOURS
"""below this neighbours mean little"""
_MIN_LETTERS = 3
_MAX_OCCURRENCES, _MIN_OCCURRENCES = 20, 4
"""occurrences of a word; half of them make a vector"""


@dataclass(frozen=True)
class TokenSample:
    """N passages, and the n tokens of them whose states are compared."""

    encoded: Encoded
    positions: tuple[np.ndarray, ...]
    """the positions of the sampled tokens of each passage; never the tokens that frame a text"""

    @cached_property
    def starts(self) -> np.ndarray:
        """(N,) the number of each passage's first sampled token."""
        return np.cumsum([0, *(len(one) for one in self.positions[:-1])])

    @property
    def owners(self) -> np.ndarray:
        """(n,) the passage of each token."""
        return np.repeat(np.arange(len(self.positions)), [len(one) for one in self.positions])


@dataclass(frozen=True)
class FrequentWords:
    """The W frequent words of a text, and where they occur."""

    lexicon: Lexicon
    occurrences: Occurrences
    indices: np.ndarray
    """(W,) the words with enough occurrences, as indices into the lexicon"""

    @property
    def words(self) -> list[str]:
        """Their spelling."""
        return [self.lexicon.words[index] for index in self.indices]


@dataclass(frozen=True)
class DiffInputs:
    """The texts and tasks on which two models are compared."""

    sample: TokenSample
    passages: Passages | None
    """for the language loss; None if the first model was not trained to predict text"""
    words: FrequentWords
    tasks: Sequence[ProbingTask]


@dataclass(frozen=True)
class StateDiff:
    """How similar the hidden states of n tokens are in both models; CKA of all, then with each of N passages left out."""

    layers: Sequence[str]
    """L + 1 names"""
    cka: np.ndarray
    """(L + 1, L + 1, 1 + N) of each layer before with each layer after"""
    random_cka: np.ndarray
    """(L + 1, 1 + N) of each layer before with the same layer of backbones with random weights, the mean over draws"""
    cosines: np.ndarray
    """(n, L + 1) of each token's state before with its state after"""
    owners: np.ndarray
    """(n,) the passage of each token"""
    identical: np.ndarray
    """(L + 1,) bool: the states are the same to the last bit"""
    random_draws: int


@dataclass(frozen=True)
class WeightDiff:
    """The change of the weights of one part of the backbone."""

    part: str
    """attention, feed-forward, norms; embedding, positions ..."""
    block: int | None
    """from 1; None outside the blocks"""
    norm: float
    """the length of the weights before, as one vector"""
    change: float
    """the length of after - before"""

    @property
    def relative(self) -> float:
        """||after - before|| / ||before||; nan if all weights were 0."""
        return self.change / self.norm if self.norm else math.nan


@dataclass(frozen=True)
class Divergence:
    """Jensen-Shannon divergences in bits, summed over the tokens that attend to more than one."""

    sums: np.ndarray
    """(N, L, X) where X is H, or 1"""
    counts: np.ndarray
    """(N, L) tokens"""

    def interval(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means (L, X) over tokens, and both ends of their 95% bootstrap intervals over passages; nan without tokens."""
        weights = resample_counts(len(self.sums), rng(seed, "bootstrap"), with_original=True)  # (1 + R, N)
        values = resampled_ratios(self.sums, self.counts[:, :, None], weights)
        if np.isnan(values[0]).any():
            return values[0], values[0], values[0]
        low, high = percentiles(values, ignore_nan=True)
        return values[0], low, high

    @property
    def overall(self) -> Divergence:
        """The mean over all layers and X, with L = X = 1."""
        return Divergence(self.sums.mean(axis=2).sum(axis=1)[:, None, None], self.counts.sum(axis=1)[:, None])


@dataclass(frozen=True)
class AttentionDiff:
    """How far each head's attention changed, and how far two heads of one layer differ before."""

    change: Divergence
    """X is H"""
    between_heads: Divergence
    """X is 1: the mean over all pairs of heads of a layer; no tokens if a layer has one head"""


@dataclass(frozen=True)
class LanguageDiff:
    """The loss of N passages under both models."""

    counts: np.ndarray
    """(N,) predicted tokens"""
    before: np.ndarray
    """(N,) nats per predicted token"""
    after: np.ndarray
    """(N,) the same of the second model"""
    causal: bool
    """every token is predicted, not only masked ones"""
    own_head: bool
    """the second model has a language head of its own; else it gets the first model's"""
    words: int
    """words and line ends inside all passages, for word perplexity"""


@dataclass(frozen=True)
class NeighbourDiff:
    """What became of the nearest neighbours of W words in one space."""

    space: str
    """static, or a layer"""
    overlap: np.ndarray
    """(W,) the fraction of the K nearest that remain; in context the mean over both halves of the occurrences"""
    split_half: np.ndarray | None
    """(W,) the fraction shared by both halves of the occurrences in the first model; None for static vectors"""
    before: np.ndarray
    """(W, K) indices of the nearest words, nearest first, over all occurrences"""
    after: np.ndarray
    """(W, K) the same in the second model"""

    @property
    def overlap_of_all(self) -> np.ndarray:
        """(W,) the fraction of the K nearest that remain, over all occurrences."""
        return row_overlap(self.before, self.after)


@dataclass(frozen=True)
class ProbeDiff:
    """Linear probes of one task, before and after, by layer."""

    task: str
    before: dict[str, ProbeScores]
    after: dict[str, ProbeScores]
    layers: Sequence[str]
    """those that read the model, without the bag of embeddings"""


@dataclass(frozen=True)
class ModelDiff:
    """Everything that was compared."""

    states: StateDiff
    weights: Sequence[WeightDiff]
    attention: AttentionDiff
    language: LanguageDiff | None
    """None if the first model was not trained to predict text"""
    words: FrequentWords
    neighbours: Sequence[NeighbourDiff]
    """static, at the middle layer and at the last one; empty if there are too few words"""
    probes: Sequence[ProbeDiff]


def check_comparable(before: Bundle, after: Bundle) -> None:
    """Raise ``ModelError`` if two models cannot be compared token by token and head by head."""
    if before.tokenizer.digest != after.tokenizer.digest:
        raise ModelError(
            "both models must have the same tokenizer, but the digests are "
            f"{before.tokenizer.digest[:12]} and {after.tokenizer.digest[:12]}; give the bundle that the second was adapted from"
        )
    old, new = (bundle.model.backbone.config for bundle in (before, after))
    for name in ("depth", "width", "heads"):
        if (one := getattr(old, name)) != (other := getattr(new, name)):
            raise ModelError(f"both backbones must have the same {name}, but have {one} and {other}; give two of one shape")
    if before.model.causal != after.model.causal:
        raise ModelError("both models must be causal, or both bidirectional, but one is causal and the other is not")
    if not old.depth:
        raise ModelError("models are compared block by block, but these backbones have depth 0; give models with blocks")


def sample_tokens(bundle: Bundle, documents: Iterable[str], passages: int, tokens: int, seed: int) -> TokenSample:
    """About ``tokens`` random tokens of ``passages`` random passages. Raises ``DataError`` for fewer than 8 passages."""
    specials, room = bundle.tokenizer.specials, min(_MAX_TOKENS, bundle.model.backbone.config.max_length) - 2
    kept = sample_passages(token_chunks(bundle.tokenizer, documents, room), passages, seed)
    if len(kept) < _MIN_PASSAGES:
        raise DataError(
            f"a comparison needs at least {_MIN_PASSAGES} passages (paragraphs) of text, but there are {len(kept)}; give more text"
        )
    rows = tuple(np.array([specials.begin, *ids, specials.eos], dtype=np.int64) for ids in kept)
    each, draw = math.ceil(tokens / len(rows)), rng(seed, "tokens")
    positions = tuple(np.sort(draw.permutation(len(row) - 2)[:each]) + 1 for row in rows)
    return TokenSample(Encoded(rows, np.zeros(len(rows), dtype=np.int64)), positions)


def frequent_words(bundle: Bundle, sentences: Sequence[str], limit: int, seed: int) -> FrequentWords:
    """The ``limit`` most frequent words of three letters or more that occur at least 4 times within the model's context."""
    lexicon = lexicon_from_text(bundle.tokenizer, sentences, 5 * limit)
    enough = [i for i, word in enumerate(lexicon.words) if len(word) >= _MIN_LETTERS and lexicon.counts[i] >= _MIN_OCCURRENCES]
    occurrences = find_occurrences(bundle, sentences, lexicon, dict.fromkeys(enough[:limit], _MAX_OCCURRENCES), seed)
    indices, counts = np.unique(occurrences.words, return_counts=True)
    return FrequentWords(lexicon, occurrences, indices[counts >= _MIN_OCCURRENCES])


def compare_models(before: Bundle, after: Bundle, inputs: DiffInputs, seed: int) -> ModelDiff:
    """Compare two models in every respect."""
    depth = before.model.backbone.config.depth
    few = inputs.sample.encoded.take(np.arange(min(_HEAD_PASSAGES, len(inputs.sample.encoded))))
    enough = len(inputs.words.indices) >= _MIN_WORDS
    return ModelDiff(
        compare_states(before, after, inputs.sample, seed),
        compare_weights(before, after),
        AttentionDiff(attention_change(before, after, inputs.sample.encoded), head_divergence(before, few)),
        compare_language(before, after, inputs.passages) if inputs.passages else None,
        inputs.words,
        compare_neighbours(before, after, inputs.words, sorted({(depth + 1) // 2, depth})) if enough else [],
        [compare_probes(before, after, task, seed) for task in inputs.tasks],
    )


def compare_states(before: Bundle, after: Bundle, sample: TokenSample, seed: int) -> StateDiff:
    """CKA of every layer with every layer, and with random weights; cosines of each token with itself."""
    old, new = token_states(before, sample), token_states(after, sample)
    random = [
        cka_by_layer(old, token_states(with_random_weights(before, seed + draw), sample), sample.starts)
        for draw in range(_RANDOM_DRAWS)
    ]
    identical = np.array([np.array_equal(old[:, layer], new[:, layer]) for layer in range(old.shape[1])])
    grid = cka_grid(old, new, sample.starts)
    return StateDiff(
        layer_names(before), grid, np.mean(random, axis=0), token_cosines(old, new), sample.owners, identical, _RANDOM_DRAWS
    )


def token_states(bundle: Bundle, sample: TokenSample) -> np.ndarray:
    """(n, L + 1, D) float32: every layer's states of the sampled tokens, in the order of their passages."""
    config, owners = bundle.model.backbone.config, sample.owners
    out = np.empty((len(owners), config.depth + 1, config.width), dtype=np.float32)

    def sampled_states(batch: Batch, indices: np.ndarray) -> Tensor:
        layers = stack_layers(run_backbone(bundle, batch))  # (B, T, L + 1, D)
        return torch.cat([layers[i, torch.from_numpy(sample.positions[index])] for i, index in enumerate(indices)])

    for indices, states in run_in_batches(bundle.model, sample.encoded, bundle.tokenizer.specials.pad, forward=sampled_states):
        out[np.concatenate([sample.starts[i] + np.arange(len(sample.positions[i])) for i in indices])] = states.numpy()
    return out


def token_cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(n, L + 1) the cosines of the same tokens' states (n, L + 1, D) in two models."""
    return np.asarray((unit_vectors(one) * unit_vectors(other)).sum(axis=-1))


def compare_weights(before: Bundle, after: Bundle) -> list[WeightDiff]:
    """The change of each part of each block, LoRA merged; new parameters and changed shapes are left out."""
    olds, news = (_merged_weights(bundle.model.backbone) for bundle in (before, after))
    squares = dict[tuple[str, int | None], list[float]]()
    for name, old in olds.items():
        if (new := news.get(name)) is not None and new.shape == old.shape:
            sums = squares.setdefault(_part_of(name), [0.0, 0.0])
            sums[0] += float(old.double().square().sum())
            sums[1] += float((new.double() - old.double()).square().sum())
    return [WeightDiff(*part, *map(math.sqrt, sums)) for part, sums in squares.items()]


def _merged_weights(backbone: Backbone) -> dict[str, Tensor]:
    if any(isinstance(part, Adapter) and part.weight_change() is not None for part in backbone.modules()):
        backbone = copy.deepcopy(backbone)
        merge_adapters(backbone)
    return {name: parameter.detach().cpu() for name, parameter in backbone.named_parameters()}


def _part_of(name: str) -> tuple[str, int | None]:
    """The part of a parameter and its block, from 1: ``blocks.0.attention.out.weight`` -> ("attention", 1)."""
    first, *rest = name.split(".")
    if first != "blocks":
        return {"norm": "last norm", "embedding_norm": "embedding norm"}.get(first, first), None
    return {"attention": "attention", "feedforward": "feed-forward"}.get(rest[1], "norms"), int(rest[0]) + 1


def js_divergence(one: Tensor, other: Tensor) -> Tensor:
    """(...) Jensen-Shannon divergence in bits of two distributions (..., S)."""
    return (_entropy_bits((one + other) / 2) - (_entropy_bits(one) + _entropy_bits(other)) / 2).clamp(min=0)


def _entropy_bits(probabilities: Tensor) -> Tensor:
    return torch.special.entr(probabilities).sum(dim=-1) / math.log(2)


def attention_change(before: Bundle, after: Bundle, encoded: Encoded) -> Divergence:
    """The divergence of each head's attention over N passages from what it was; X is H."""
    config, device = before.model.backbone.config, next(before.model.parameters()).device
    sums = np.zeros((len(encoded), config.depth, config.heads))
    counts = np.zeros((len(encoded), config.depth))
    before.model.eval(), after.model.eval()
    weights_after = nullcontext() if after.model is before.model else inference_weights(after.model)
    with torch.no_grad(), inference_weights(before.model), weights_after:
        for indices, batch in sorted_batches(encoded, INFERENCE_TOKENS, before.tokenizer.specials.pad, causal=before.model.causal):
            here = batch.to(device)
            layers = zip(
                attention_weights(before, here), attention_weights(after, here), attention_masks(before, here), strict=True
            )
            for layer, (old, new, visible) in enumerate(layers):
                several = visible.sum(dim=-1) > 1  # (B, T)
                sums[indices, layer] = (js_divergence(old, new) * several[:, None]).sum(dim=-1).cpu().numpy()
                counts[indices, layer] = several.sum(dim=-1).cpu().numpy()
    return Divergence(sums, counts)


def head_divergence(bundle: Bundle, encoded: Encoded) -> Divergence:
    """The divergence of two heads of one layer over N passages, the mean over all pairs; X is 1."""
    heads, out = bundle.model.backbone.config.heads, np.zeros((len(encoded), bundle.model.backbone.config.depth, 2))
    pairs = heads * (heads - 1) // 2

    def sums_and_counts(batch: Batch, _: np.ndarray) -> Tensor:
        layers = []
        for weights, visible in zip(attention_weights(bundle, batch), attention_masks(bundle, batch), strict=True):
            several = (visible.sum(dim=-1) > 1) & (pairs > 0)  # (B, T)
            total = torch.zeros_like(weights[:, 0, :, 0])  # (B, T)
            for step in range(1, heads):
                total += js_divergence(weights[:, step:], weights[:, :-step]).sum(dim=1)
            layers.append(torch.stack([(total * several).sum(dim=-1) / max(1, pairs), several.sum(dim=-1)], dim=-1))
        return torch.stack(layers, dim=1)  # (B, L, 2)

    for indices, both in run_in_batches(bundle.model, encoded, bundle.tokenizer.specials.pad, forward=sums_and_counts):
        out[indices] = both.numpy()
    return Divergence(out[:, :, :1], out[:, :, 1])


def compare_language(before: Bundle, after: Bundle, passages: Passages) -> LanguageDiff:
    """The loss of the same tokens of the same passages under both models."""
    pad, counts = before.tokenizer.specials.pad, passages.counts
    old, new = (passage_losses(model, passages, pad) / counts for model in (before.model, as_language_model(before, after)))
    texts = [before.tokenizer.decode(row[row != IGNORE].tolist()) for row in passages.targets] if passages.causal else []
    own_head = isinstance(after.model.head, LMHead)
    return LanguageDiff(counts, old, new, passages.causal, own_head, sum(len(one.split()) + one.count("\n") for one in texts))


def as_language_model(before: Bundle, after: Bundle) -> Model:
    """The second model as a language model: with its own language head if it has one, else with the first model's.

    A scalar mix is left out then: it serves the new head. Raises ``ModelError`` if neither model has a language head.
    """
    if isinstance(after.model.head, LMHead):
        return after.model
    if not isinstance(before.model.head, LMHead):
        raise ModelError("the loss of a text needs a language head, but neither model has one; leave out --held-out")
    backbone = copy.deepcopy(after.model.backbone)
    for name in [name for name, part in backbone.named_children() if isinstance(part, ScalarMix)]:
        delattr(backbone, name)
    return Model(backbone, before.model.head, causal=before.model.causal).eval()


def compare_neighbours(before: Bundle, after: Bundle, words: FrequentWords, layers: Sequence[int]) -> list[NeighbourDiff]:
    """The nearest neighbours of each word in the embedding, and in context at some layers."""
    count = min(_NEIGHBOURS, len(words.indices) - 1)
    everyone = np.arange(len(words.indices))

    def nearest(*spaces: np.ndarray) -> list[np.ndarray]:
        return [nearest_neighbours(vectors, everyone, count)[0] for vectors in spaces]

    static = nearest(*(static_embeddings(bundle, words.lexicon)[words.indices] for bundle in (before, after)))
    out = [NeighbourDiff("static", row_overlap(*static), None, *static)]
    selected = np.arange(len(words.occurrences.words))
    states = [occurrence_states(bundle, words.occurrences, selected, layers) for bundle in (before, after)]
    for i, layer in enumerate(layers):
        old, new = ([_word_means(words, one[:, i], half) for half in (None, 0, 1)] for one in states)
        overlap = np.mean([neighbour_overlap(old[half], new[half], count) for half in (1, 2)], axis=0)
        split_half = neighbour_overlap(old[1], old[2], count)
        out.append(NeighbourDiff(f"layer {layer}", overlap, split_half, *nearest(old[0], new[0])))
    return out


def _word_means(words: FrequentWords, states: np.ndarray, half: int | None) -> np.ndarray:
    """(W, D): each word's mean over its occurrences' states (N, D), or over the first or second half of them."""
    rows = [words.occurrences.of(index) for index in words.indices]
    if half is not None:  # of an odd number the last is left out, so that both halves have the same size
        rows = [row[half * (len(row) // 2) : (half + 1) * (len(row) // 2)] for row in rows]
    return np.stack([states[row].mean(axis=0) for row in rows])


def compare_probes(before: Bundle, after: Bundle, task: ProbingTask, seed: int) -> ProbeDiff:
    """Linear probes of every layer of both models, on the same test items."""
    old, new = (
        scores_by_layer([probe_layers(bundle, task, "linear", range(seed, seed + _PROBE_FITS))]) for bundle in (before, after)
    )
    return ProbeDiff(task.name, old, new, [layer for layer in old if layer != BAG])
