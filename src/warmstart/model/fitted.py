"""A fitted model that trains no network: how it reads texts, and what it makes of them; as plain values and arrays, and back.

Nothing but numbers and words is stored: no code, no pattern, no pickle. What is read is checked: every shape, and every number.

Letters: N texts, V words, D dimensions, C classes, M known texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from pydantic import Field

from warmstart.config import Config
from warmstart.errors import BundleError
from warmstart.model.bundle import Bundle
from warmstart.model.known import KnownTexts
from warmstart.model.readout import ConstantReadout, LinearReadout, PerLabelReadout, Readout
from warmstart.model.rows import BackboneVectors, VectorRows, WordRows

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class FittedBaseline:
    """A baseline that has learned, fit to be saved."""

    rows: WordRows | VectorRows | None
    """maps texts to rows; None: texts are not read"""
    readout: Readout | PerLabelReadout
    """maps rows to predictions"""
    known: KnownTexts | None = None
    """tells texts of none of the classes, by the vectors of the backbone; None: it cannot"""

    @property
    def columns(self) -> int:
        """C, the number of columns that it predicts."""
        return self.readout.columns

    @property
    def backbone(self) -> Bundle | None:
        """The network whose vectors it reads; None if it reads none."""
        vectors = self.rows.vectors if isinstance(self.rows, VectorRows) else None
        return vectors.bundle if isinstance(vectors, BackboneVectors) else None

    def predict(self, inputs: Sequence[Any]) -> np.ndarray:
        """(N, C) probabilities, or (N, 1) numbers; without calibration."""
        return self.predict_and_compare(inputs)[0]

    def predict_and_compare(self, inputs: Sequence[Any], vectors: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray | None]:
        """The predictions, and (N,) how typical each text is of those that it knows, if it can say that.

        ``vectors`` (N, D) are those of its backbone, if the inputs have been read.
        """
        if not isinstance(self.rows, VectorRows):
            return self.readout(np.zeros((len(inputs), 0)) if self.rows is None else self.rows(inputs)), None
        vectors = self.rows.vectors(inputs) if vectors is None else vectors
        typicality = None if self.known is None else self.known.typicality(vectors)
        return self.readout(self.rows.standardised(vectors)), typicality


class ReadoutSettings(Config):
    """The settings of a readout."""

    kind: Literal["linear", "constant"]
    link: Literal["softmax", "identity"] = "softmax"
    """linear: map from the sums to predictions"""
    unit_length: bool = False
    """linear: rows are divided by their length first"""


class BaselineSettings(Config):
    """Settings of a fitted baseline."""

    rows: Literal["words", "vectors", "none"]
    word_pairs: bool = False
    """words: True if pairs count"""
    characters: bool = False
    """words: True if these are character n-grams"""
    readouts: tuple[ReadoutSettings, ...] = Field(min_length=1, max_length=100_000)
    per_label: bool = False
    """True if there is a readout for each label"""
    vocabulary: tuple[str, ...] = ()
    """words: in the order of the columns"""


def packed(baseline: FittedBaseline) -> tuple[BaselineSettings, dict[str, np.ndarray]]:
    """Settings and arrays; those of the n-th readout begin with ``n.``. The backbone of vectors is not among them."""
    rows, arrays = baseline.rows, dict[str, np.ndarray]()
    several = isinstance(baseline.readout, PerLabelReadout)
    parts = baseline.readout.parts if isinstance(baseline.readout, PerLabelReadout) else (baseline.readout,)
    readouts = []
    for number, part in enumerate(parts):
        settings, own = _packed_readout(part)
        readouts.append(settings)
        arrays |= {f"{number}.{name}": array for name, array in own.items()}
    shared: dict[str, Any] = {"readouts": tuple(readouts), "per_label": several}
    if isinstance(rows, WordRows):
        arrays |= {name: array for name, array in (("idf", rows.idf), ("directions", rows.directions)) if array is not None}
        shared |= {"word_pairs": rows.word_pairs, "characters": rows.characters, "vocabulary": rows.vocabulary}
        return BaselineSettings(rows="words", **shared), arrays
    if isinstance(rows, VectorRows):
        known = baseline.known
        arrays |= {"mean": rows.mean, "scale": rows.scale} | ({"means": known.means, "left_out": known.left_out} if known else {})
        return BaselineSettings(rows="vectors", **shared), arrays
    return BaselineSettings(rows="none", **shared), arrays


def unpacked(settings: BaselineSettings, arrays: Arrays, backbone: Bundle | None = None) -> FittedBaseline:
    """The inverse of ``packed``; ``backbone`` makes the vectors. Raises ``BundleError`` for arrays that do not fit the settings."""
    taken = _Taken(arrays)
    rows, width = _rows(settings, taken, backbone)
    parts = tuple(_readout(part, f"{number}.", taken, width) for number, part in enumerate(settings.readouts))
    compares = settings.rows == "vectors" and "means" in arrays
    known = KnownTexts(taken.take("means", None, width), taken.take("left_out", None)) if compares else None
    if unknown := sorted(arrays.keys() - taken.names):
        raise BundleError(f"a saved baseline must hold no other arrays than its settings name, but holds {', '.join(unknown)}")
    if not settings.per_label and len(parts) != 1:
        raise BundleError(f"a saved baseline must have one readout, or one for each label, but has {len(parts)}")
    if settings.per_label and any(part.columns != 2 for part in parts):
        raise BundleError("a saved baseline with a readout for each label must have two columns in each, but has others")
    return FittedBaseline(rows, PerLabelReadout(parts) if settings.per_label else parts[0], known)


class _Taken:
    """Arrays that are taken by name, with the shape that they must have."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays, self.names = arrays, set[str]()

    def take(self, name: str, *shape: int | None, infinite: bool = False) -> np.ndarray:
        """The array of this name; None: any length. Raises ``BundleError`` for another shape, or a value that is no number."""
        self.names.add(name)
        array = self.arrays.get(name)
        if array is None:
            raise BundleError(f"a saved baseline must hold the array {name}, but does not; copy it again")
        fits = array.ndim == len(shape) and all(length in (None, size) for length, size in zip(shape, array.shape, strict=True))
        if not fits or array.dtype != np.float64:
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            actual = f"{array.dtype} of shape {list(array.shape)}"
            raise BundleError(f"the array {name} of a saved baseline must be float64 of shape [{wanted}], but is {actual}")
        if not (np.isfinite(array) | (array == -np.inf if infinite else False)).all():
            raise BundleError(f"the array {name} of a saved baseline must hold finite numbers, but does not")
        return array


def _rows(settings: BaselineSettings, taken: _Taken, backbone: Bundle | None) -> tuple[WordRows | VectorRows | None, int | None]:
    """The map from texts to rows, and the width of these; None: any."""
    if settings.rows == "none":
        return None, None
    if settings.rows == "vectors":
        assert backbone is not None, "vectors are read with their backbone"
        width = backbone.model.backbone.config.width
        mean, scale = taken.take("mean", width), taken.take("scale", width)
        if not (scale > 0).all():
            raise BundleError("the array scale of a saved baseline must be positive, but is not")
        return VectorRows(BackboneVectors(backbone), mean, scale), width
    words = len(settings.vocabulary)
    if not words or len(set(settings.vocabulary)) < words:
        raise BundleError("the vocabulary of a saved baseline must hold words, each once, but does not")
    idf = taken.take("idf", words) if "idf" in taken.arrays else None
    directions = taken.take("directions", None, words) if "directions" in taken.arrays else None
    width = words if directions is None else len(directions)
    return WordRows(settings.vocabulary, settings.word_pairs, idf, directions, settings.characters), width


def _packed_readout(readout: Readout) -> tuple[ReadoutSettings, dict[str, np.ndarray]]:
    if isinstance(readout, LinearReadout):
        arrays = {"weights": readout.weights, "bias": readout.bias}
        return ReadoutSettings(kind="linear", link=readout.link, unit_length=readout.unit_length), arrays
    return ReadoutSettings(kind="constant"), {"values": readout.values}


def _readout(settings: ReadoutSettings, prefix: str, taken: _Taken, width: int | None) -> Readout:
    if settings.kind == "constant":
        return ConstantReadout(taken.take(f"{prefix}values", None))
    weights = taken.take(f"{prefix}weights", width, None)
    bias = taken.take(f"{prefix}bias", weights.shape[1], infinite=True)
    return LinearReadout(weights, bias, settings.link, settings.unit_length)
