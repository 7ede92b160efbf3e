"""Minimal pairs judged by a language model, and by others beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warmstart.inspection.minimal_pairs import MinimalPair, PairGroup, judge_pairs
from warmstart.inspection.sentence_scores import ScoreKind, score_sentences
from warmstart.model.bundle import Bundle


@dataclass(frozen=True)
class PairsMeasured:
    """The verdicts on P pairs."""

    pairs: Sequence[MinimalPair]
    scores: np.ndarray
    """(2 P,) the model's scores of all good sentences, then of all bad ones"""
    groups: list[PairGroup]
    rivals: Mapping[str, list[PairGroup]]
    """groups as other models judge them, by name of the model"""
    kind: ScoreKind
    """the model's score of a sentence"""


def measure_pairs(bundle: Bundle, pairs: Sequence[MinimalPair], others: Mapping[str, Bundle], *, per_token: bool) -> PairsMeasured:
    """Judge the pairs by the model, and by ``others``."""
    sentences = [pair.good for pair in pairs] + [pair.bad for pair in pairs]
    scored = score_sentences(bundle, sentences)
    scores = scored.normalized(per_token=per_token)
    rivals = {name: score_sentences(other, sentences).normalized(per_token=per_token) for name, other in others.items()}
    judged = {name: judge_pairs(pairs, rival) for name, rival in rivals.items()}
    return PairsMeasured(pairs, scores, judge_pairs(pairs, scores), judged, scored.kind)
