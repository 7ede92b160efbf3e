"""Contributions of words to a prediction, by three methods, and the faithfulness of each method.

What is explained is the log-probability of one target: a label of a classifier, as ``predict`` gives it (calibrated), or the next
token of a language model, as ``generate`` would choose it (left to right, and no special token but end-of-text).

- *erasure*: the drop when a word, or a phrase, is removed (Li et al. 2016)
- *gradient x input*: the gradient with respect to each token's embedding, times the embedding (Shrikumar et al. 2016)
- *integrated gradients*: the gradient integrated from empty embeddings to those of the text (Sundararajan et al. 2017); the sum
  over tokens must equal the total difference (completeness), and the missing fraction is reported

Of a model that is known by its predictions alone, such as a stack, words are erased; it has no gradients.

An order of the words is faithful if removing them in that order makes the probability fall faster than a random order does, and
adding them makes it rise faster (Petsiuk et al. 2018; DeYoung et al. 2020).

Letters: B batch, T tokens, D width, W words, P points on the path, M methods, R random orders, O orders in all, N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from warmstart.backbone.taps import tapped
from warmstart.data.encode import Encoded, encode, framed_windows, window_starts
from warmstart.errors import ModelError, suggest
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.per_text import ClassificationHead
from warmstart.model.bundle import Bundle
from warmstart.model.inference import run_in_batches
from warmstart.seeding import rng
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.progress import counting
from warmstart.types import Batch

_TOLERANCE, _MAX_POINTS = 0.01, 512
"""integrated gradients take more points until less than this fraction is missing, or until they have this many"""
_GRADIENT_TOKENS = 2048
"""tokens whose gradients are taken in one batch"""
_TEXTS = 128
"""texts that a model known by its predictions reads at once"""
_BAR = "texts without some words"

Removal = Literal["delete", "mask"]


@dataclass(frozen=True)
class ExplainedText:
    """One text, and the target whose log-probability is explained."""

    bundle: Bundle
    row: np.ndarray
    """(T,) token ids, with those that frame the text"""
    words: tuple[str, ...]
    """W words without the space around them; of white space alone, that"""
    owner: np.ndarray
    """(T,) the word that each token belongs to; -1 for tokens that frame the text"""
    target: int
    """the number of the label, or the id of the next token"""
    removal: Removal = "delete"
    """fate of a removed word: its tokens are deleted, or replaced by mask tokens"""

    @property
    def causal(self) -> bool:
        """Language models are read from left to right, even if they can read both ways."""
        return self.bundle.model.causal or isinstance(self.bundle.model.head, LMHead)

    @property
    def target_name(self) -> str:
        """The label, or the text of the next token."""
        labels = self.bundle.labels
        return labels[self.target] if labels else self.bundle.tokenizer.token(self.target)

    def without(self, words: Sequence[int] | np.ndarray) -> np.ndarray:
        """The row (T,) with these words (R,) removed: shorter, if their tokens are deleted."""
        removed = np.isin(self.owner, words)
        if self.removal == "delete":
            return self.row[~removed]
        return np.where(removed, self.bundle.tokenizer.specials.mask, self.row)

    def windows(self, tokens: int) -> np.ndarray:
        """(V, T) the positions that each of V windows reads of a row of ``tokens`` tokens; one window if the row fits."""
        model = self.bundle.model
        opening = len(self.bundle.tokenizer.opening)
        return framed_windows(tokens, model.backbone.config.max_length, model.head.config.window_settings, opening)

    def log_probabilities(self, rows: Sequence[np.ndarray], *, show: bool = False) -> np.ndarray:
        """(N,) the target's log-probability for each of N rows (T,), in nats; ``show`` how long it takes."""
        out, read = np.empty(len(rows)), [row[self.windows(len(row))] for row in rows]
        counts = np.array([len(windows) for windows in read])
        parts = tuple(part for windows in read for part in windows)
        encoded = Encoded(parts, np.zeros(len(parts), dtype=np.int64), windows=counts if len(parts) > len(rows) else None)
        with counting(_BAR, len(rows), show=show) as done:

            def forward(batch: Batch, indices: np.ndarray) -> Tensor:
                done(len(indices))
                return self.target_log_probability(batch)

            pad = self.bundle.tokenizer.specials.pad
            for indices, values in run_in_batches(self.bundle.model, encoded, pad, forward=forward):
                out[indices] = values.numpy()
        return out

    def batch(self, copies: int, device: torch.device) -> Batch:
        """The row so many times; if it is longer than the model reads, the windows of each copy."""
        windows = self.windows(len(self.row))
        ids = torch.from_numpy(self.row[windows]).to(device).repeat(copies, 1)
        counts = torch.full((copies,), len(windows), device=device) if len(windows) > 1 else None
        return Batch(ids, causal=self.causal, windows=counts)

    def target_log_probability(self, batch: Batch) -> Tensor:
        """(B,) the target's log-probability, with its gradient if gradients are enabled."""
        return self.logits(batch).log_softmax(dim=-1)[:, self.target]

    def logits(self, batch: Batch) -> Tensor:
        """(B, C) of a classifier, over its temperature; (B, V) of the next token, -inf for tokens that are never generated."""
        model, calibration = self.bundle.model, self.bundle.calibration
        states = model.backbone.forward_batch(batch, causal=self.causal).last_hidden_state
        if isinstance(model.head, ClassificationHead):
            logits = model.head(states, batch.attention_mask, batch.windows)
            return logits / (calibration.temperature if calibration else 1.0)
        last = batch.lengths.to(states.device) - 1
        logits = model.head(states[torch.arange(len(states), device=states.device), last])
        return logits.index_fill(1, torch.tensor(self.bundle.never_generated, device=logits.device), -torch.inf)


@dataclass(frozen=True)
class PredictedText:
    """A text and target of a model that is known by its predictions alone; words stand between white space, and are deleted."""

    predict: Callable[[Sequence[str]], np.ndarray]
    """(N, C) the probabilities of the labels for N texts"""
    labels: Sequence[str]
    row: str
    """the text"""
    target: int
    """the number of the label"""

    @property
    def words(self) -> tuple[str, ...]:
        """W words."""
        return tuple(self.row.split())

    @property
    def target_name(self) -> str:
        """The label."""
        return self.labels[self.target]

    def without(self, words: Sequence[int] | np.ndarray) -> str:
        """The text with these words (R,) removed."""
        removed = {*map(int, words)}
        return " ".join(word for i, word in enumerate(self.words) if i not in removed) if removed else self.row

    def log_probabilities(self, rows: Sequence[str], *, show: bool = False) -> np.ndarray:
        """(N,) the target's log-probability for each of N texts, in nats; equal texts are read once. ``show`` as there."""
        texts, known = list(dict.fromkeys(rows)), dict[str, float]()
        with counting(_BAR, len(texts), show=show) as done:
            for start in range(0, len(texts), _TEXTS):
                part = texts[start : start + _TEXTS]
                probabilities = np.maximum(self.predict(part)[:, self.target], np.finfo(float).tiny)
                known |= dict(zip(part, np.log(probabilities).tolist(), strict=True))
                done(len(part))
        return np.array([known[row] for row in rows])


TextToExplain = ExplainedText | PredictedText


class Phrase(NamedTuple):
    """A run of words, and the nats that the target loses without it."""

    start: int
    end: int
    """the word after the last"""
    nats: float


@dataclass(frozen=True)
class Explanation:
    """A prediction explained by M methods."""

    target: str
    words: Sequence[str]
    values: Mapping[str, np.ndarray]
    """(W,) nats of each word, by method"""
    missing: float
    """the fraction of the total difference that integrated gradients miss"""
    points: int
    """points on the path of integrated gradients; 0 of a model without gradients"""
    deletion: np.ndarray
    """(M + R, W + 1) the target's probability as words are removed, in the order of each method, then in random orders"""
    insertion: np.ndarray
    """(M + R, W + 1) the same as words are added"""
    phrases: Sequence[Phrase] = ()
    """the most important first"""

    @property
    def probability(self) -> float:
        """Probability of the target, for the whole text."""
        return float(self.deletion[0, 0])

    @property
    def faithfulness(self) -> dict[str, float]:
        """Faithfulness by method, -1 to 1."""
        areas = area_between(self.deletion, self.insertion)
        return {method: float(area) for method, area in zip(self.values, areas, strict=False)}

    @property
    def random_faithfulness(self) -> np.ndarray:
        """(R,) of random orders."""
        return area_between(self.deletion, self.insertion)[len(self.values) :]


def is_explainable(bundle: Bundle) -> bool:
    """True for a model that labels texts, or was trained to generate text from left to right."""
    head = bundle.model.head
    untrained = isinstance(head, LMHead) and bundle.model.causal and not (bundle.history or bundle.language.objective)
    return isinstance(head, ClassificationHead) or bundle.generates or untrained


def check_explainable(bundle: Bundle) -> None:
    """Raise ``ModelError`` for a model whose predictions cannot be explained."""
    if is_explainable(bundle):
        return
    head, causal = bundle.model.head, bundle.model.causal
    why = f"has a head of type '{head.config.kind}'"
    if isinstance(head, LMHead):
        why += " and was not trained to generate: it was pretrained to fill gaps" if causal else " and is bidirectional"
    raise ModelError(
        f"a prediction can be explained for a model that labels or generates text, but this one {why}; adapt it to a task first, "
        "or give a model that works with `warmstart generate`"
    )


def prepare_text(bundle: Bundle, text: str, target: str | None = None, removal: Removal = "delete") -> ExplainedText:
    """A text with its words, and the ``target``: a label or the next token; the most probable one if None.

    Raises ``ModelError`` as ``check_explainable`` does, for a text that is empty or does not fit, and for an unknown target.
    """
    check_explainable(bundle)
    head, tokenizer, max_length = bundle.model.head, bundle.tokenizer, bundle.model.backbone.config.max_length
    generates, settings = isinstance(head, LMHead), head.config.window_settings
    (whole,) = encode(tokenizer, [text], 1 << 40, appended=getattr(head.config, "pooling", "") == "appended").rows
    opening = len(tokenizer.opening)
    if lost := window_starts(len(whole) - opening - 1, max_length - opening - 1, settings)[1]:
        windows = f"{settings.max_windows} windows of " if settings.max_windows else ""
        raise ModelError(f"the text must fit into {windows}{max_length} tokens, but is {lost} tokens longer")
    row = whole[:-1] if generates else whole
    inside = np.arange(len(row)) >= opening
    if not generates:
        inside[-1] = False
    starts = tokenizer.vocabulary().word_starts[row] & inside
    starts[opening : opening + 1] |= inside[opening : opening + 1]
    owner = np.where(inside, starts.cumsum() - 1, -1)
    words = tuple(_word(tokenizer, row[owner == number]) for number in range(int(owner.max()) + 1))
    if not words:
        raise ModelError("an empty text has nothing to explain; give some words")
    prepared = ExplainedText(bundle, row, words, owner, 0, removal)
    if target is not None:
        return replace(prepared, target=_target(bundle, target))
    with torch.no_grad():
        device = next(bundle.model.parameters()).device
        return replace(prepared, target=int(prepared.logits(prepared.batch(1, device)).argmax()))


def _word(tokenizer: Tokenizer, ids: np.ndarray) -> str:
    """A word's text without the space around it; white space as it is, and tokens that stand for no text by their names."""
    text = tokenizer.decode(ids.tolist())
    return text.strip() or text or "".join(tokenizer.token(int(token_id)) for token_id in ids)


def _target(bundle: Bundle, name: str) -> int:
    if bundle.labels:
        if name not in bundle.labels:
            raise ModelError(f"there is no label '{name}'; {suggest(name, bundle.labels)}")
        return bundle.labels.index(name)
    ids = bundle.tokenizer.encode([name])[0]
    if len(ids) != 1:
        raise ModelError(f"a target must be one token, but {name!r} is {len(ids)}; mind the space before a word: ' the'")
    if ids[0] in bundle.never_generated:
        raise ModelError(f"a target must be a token that the model can generate, but {name!r} is {bundle.tokenizer.token(ids[0])}")
    return ids[0]


def predicted_text(
    predict: Callable[[Sequence[str]], np.ndarray], labels: Sequence[str], text: str, target: str | None = None
) -> PredictedText:
    """A text and its ``target`` for a model by its predictions (N, C); raises ``ModelError`` as ``prepare_text`` does."""
    if not text.split():
        raise ModelError("an empty text has nothing to explain; give some words")
    if target is not None and target not in labels:
        raise ModelError(f"there is no label '{target}'; {suggest(target, labels)}")
    number = int(predict([text])[0].argmax()) if target is None else labels.index(target)
    return PredictedText(predict, labels, text, number)


def explain_text(text: TextToExplain, random_orders: int, seed: int, max_phrase: int = 0, *, show: bool = False) -> Explanation:
    """Explain a prediction by each method, and compare the methods with random orders; ``show`` how long it takes.

    Phrases of up to ``max_phrase`` words are erased too.
    """
    values, missing, points = dict[str, np.ndarray](), 0.0, 0
    if isinstance(text, ExplainedText):
        integrated, missing, points = integrated_gradients(text)
        values = {"gradient x input": gradient_times_input(text), "integrated gradients": integrated}
    values = {"erasure": erase_words(text)} | values
    draw = rng(seed, "orders by chance")
    orders = [np.argsort(-nats, kind="stable") for nats in values.values()]
    orders += [draw.permutation(len(text.words)) for _ in range(random_orders)]
    deletion, insertion = perturbation_curves(text, orders, show=show)
    phrases = erase_phrases(text, max_phrase) if max_phrase else ()
    return Explanation(text.target_name, text.words, values, missing, points, deletion, insertion, phrases)


def explain_texts(
    prepare: Callable[[str], TextToExplain], texts: Sequence[str], random_orders: int, seed: int
) -> dict[str, np.ndarray]:
    """(N,) by method, each text's faithfulness minus the mean of random orders; ``prepare`` makes a text ready.

    Texts that cannot be explained are left out, and so are texts of a single word, which has one order only. Raises ``ModelError``
    if fewer than two are left.
    """
    rows = []
    with counting("texts explained", len(texts)) as done:
        for text in texts:
            try:
                prepared = prepare(text)
            except ModelError:
                continue  # their number is reported
            if len(prepared.words) > 1:
                explanation = explain_text(prepared, random_orders, seed)
                chance = explanation.random_faithfulness.mean()
                rows.append({method: value - chance for method, value in explanation.faithfulness.items()})
            done(1)
    if len(rows) < 2:
        raise ModelError(
            f"at least two texts of the file must have several words and fit into the model, but {len(rows)} of {len(texts)} do; "
            "give more texts"
        )
    return {method: np.array([row[method] for row in rows]) for method in rows[0]}


def erase_words(text: TextToExplain) -> np.ndarray:
    """(W,) the nats that the target loses without each word; below zero, the word opposes the target."""
    rows: list[Any] = [text.row, *(text.without([word]) for word in range(len(text.words)))]
    values = text.log_probabilities(rows)
    return np.asarray(values[0] - values[1:])


def erase_phrases(text: TextToExplain, longest: int = 3) -> list[Phrase]:
    """Every run of up to ``longest`` words but the whole text, the most important first."""
    count = len(text.words)
    spans = [(a, b) for a in range(count) for b in range(a + 1, min(count, a + longest) + 1) if b - a < count or count == 1]
    rows: list[Any] = [text.row, *(text.without(np.arange(a, b)) for a, b in spans)]
    values = text.log_probabilities(rows)
    phrases = [Phrase(a, b, float(values[0] - value)) for (a, b), value in zip(spans, values[1:], strict=True)]
    return sorted(phrases, key=lambda phrase: -abs(phrase.nats))


def gradient_times_input(text: ExplainedText) -> np.ndarray:
    """(W,) the target's gradient with respect to each token's embedding, times the embedding, summed over a word's tokens."""
    x = _embedded(text)
    return _word_sums(text, (_gradients(text, x[None])[0] * x).sum(dim=-1))


def integrated_gradients(text: ExplainedText) -> tuple[np.ndarray, float, int]:
    """(W,) integrated gradients, the fraction of the total difference that they miss, and the number of points.

    The path starts at zeros for the text and the frame's own embeddings. Points are those of Gauss and Legendre; they are doubled
    until at most a hundredth is missing.
    """
    end = _embedded(text)
    start = torch.where(torch.from_numpy(text.owner >= 0).to(end.device)[:, None], torch.zeros_like(end), end)
    with torch.no_grad():
        ends = _log_probability_at(text, torch.stack([start, end]))
    total, points = float(ends[1] - ends[0]), 16
    while True:
        nodes, weights = np.polynomial.legendre.leggauss(points)
        fraction = torch.from_numpy((nodes + 1) / 2).to(end)[:, None, None]
        gradients = _gradients(text, start + fraction * (end - start))  # (P, T, D)
        mean = torch.einsum("p,ptd->td", torch.from_numpy(weights / 2).to(end), gradients)
        tokens = (mean * (end - start)).sum(dim=-1)
        missing = abs(total - float(tokens.sum())) / max(abs(total), 1e-6)
        if missing <= _TOLERANCE or points >= _MAX_POINTS:
            return _word_sums(text, tokens), missing, points
        points *= 2


def _word_sums(text: ExplainedText, tokens: Tensor) -> np.ndarray:
    """(W,) the sums of values (T,) over each word's tokens."""
    values, inside = tokens.detach().cpu().double().numpy(), text.owner >= 0
    return np.bincount(text.owner[inside], values[inside], minlength=len(text.words))


def _embedded(text: ExplainedText) -> Tensor:
    """(T, D) the embeddings of the row's tokens."""
    table = text.bundle.model.backbone.embedding.weight.detach()
    return table[torch.from_numpy(text.row).to(table.device)]


def _log_probability_at(text: ExplainedText, x: Tensor) -> Tensor:
    """(P,) the target's log-probability with embeddings (P, T, D) instead of the text's own.

    A token that several windows hold has its embedding in each, so that its gradient is the sum over them.
    """
    text.bundle.model.eval()
    in_windows = x[:, torch.from_numpy(text.windows(x.shape[1])).to(x.device)].flatten(0, 1)
    with tapped(text.bundle.model.backbone, {"embedding": lambda _: in_windows}):
        return text.target_log_probability(text.batch(len(x), x.device))


def _gradients(text: ExplainedText, x: Tensor) -> Tensor:
    """(P, T, D) the target's gradient at each of the embeddings (P, T, D)."""
    size, gradients = max(1, _GRADIENT_TOKENS // x.shape[1]), []
    for start in range(0, len(x), size):
        part = x[start : start + size].clone().requires_grad_()
        with torch.enable_grad():
            gradients.append(torch.autograd.grad(_log_probability_at(text, part).sum(), part)[0])
    return torch.cat(gradients)


def perturbation_curves(text: TextToExplain, orders: Sequence[np.ndarray], *, show: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Deletion and insertion curves, each (O, W + 1): the target's probability as words are removed, and added, in each order (W,).

    Deletion begins with the whole text and ends without any of it, insertion the other way round; ``show`` how long it takes.
    """
    count, rows = len(text.words), list[Any]()
    for order in orders:
        rows += [text.without(order[:removed]) for removed in range(count + 1)]
        rows += [text.without(order[added:]) for added in range(count + 1)]
    probabilities = np.exp(text.log_probabilities(rows, show=show)).reshape(len(orders), 2, count + 1)
    return probabilities[:, 0], probabilities[:, 1]


def area_between(deletion: np.ndarray, insertion: np.ndarray) -> np.ndarray:
    """(O,) the area under each insertion curve (O, W + 1) minus that under its deletion curve (O, W + 1), -1 to 1."""
    removed, added = (np.trapezoid(curves, axis=-1) / (curves.shape[-1] - 1) for curves in (deletion, insertion))
    return np.asarray(added - removed)
