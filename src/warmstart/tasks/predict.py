"""Predictions of a fine-tuned model, whatever its task type.

Letters: N inputs, C classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from warmstart.data.encode import Encoded, cut_sentence, cut_tokens
from warmstart.errors import DataError
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.notebook import Shown
from warmstart.stats.abstention import conformal_p_values
from warmstart.stats.calibration import apply_temperature
from warmstart.tasks import TASK_TYPES, task_type_for
from warmstart.tasks.thresholds import at_thresholds, thresholds_of

if TYPE_CHECKING:
    from warmstart.model.fitted import FittedBaseline
    from warmstart.model.stack import Stack

Cut = Callable[[], str]
"""says how many inputs were cut, as a sentence; empty if none"""


class Predictions(Sequence[dict[str, Any]], Shown, view="report.notebook:predictions_view"):
    """One dictionary of plain values per input, in the order of the inputs. What is in it depends on the task type.

    classification   {"label": "tea", "probabilities": {"tea": 0.91, "milk": 0.09}}
    multilabel       {"labels": ["hot", "sweet"], "probabilities": {"hot": 0.8, "sweet": 0.7, "cold": 0.1}}
    regression       {"number": 3.5}
    tagging          {"words": ["I", "rub"], "tags": ["PRON", "VERB"]}
    generated answer {"answer": "Lisbon", "confidence": 0.8}
    """

    def __init__(
        self,
        rows: Sequence[dict[str, Any]],
        probabilities: np.ndarray | None = None,
        cut: Cut = lambda: "",
        typicality: np.ndarray | None = None,
    ) -> None:
        self._rows, self._cut = list(rows), cut
        self.probabilities = probabilities
        """(N, C) probabilities, unrounded, columns in the order of the labels; None for types without them"""
        self.typicality = typicality
        """(N,) the share of texts of the model's own classes that are no more typical of these than each input; None: unknown.
        Of texts of its classes at most the share s has a value of at most s; texts of none of them have more of the small ones."""

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Predictions({self._rows!r})"

    @property
    def cut(self) -> str:
        """The number of inputs that the model cut, as a sentence; empty if none."""
        return self._cut()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, fit for JSON."""
        return {"predictions": self._rows}


@overload
def predict(bundle: Bundle | Stack, inputs: str, *, top: int = 3) -> dict[str, Any]: ...
@overload
def predict(bundle: Bundle | Stack, inputs: Sequence[Any], *, top: int = 3) -> Predictions: ...
def predict(bundle: Bundle | Stack, inputs: str | Sequence[Any], *, top: int = 3) -> dict[str, Any] | Predictions:
    """Predictions of a fine-tuned model for each input; probabilities are calibrated if the bundle knows its temperature.

    A single string is one input, as it would be typed on a command line, and gives one dictionary.

    Inputs are a list, a column of a table, an array or an iterator: of texts, or pairs of texts if the task is about pairs; of
    tuples of words for tagging. Dictionaries hold the ``top`` most probable labels. Other inputs, their number and their order
    never change a prediction. A model that was trained on a task of type answers answers questions. Raises ``DataError`` for an
    input that is missing or no text, and ``ModelError`` for any other model without a task head.
    """
    inputs = inputs if isinstance(inputs, str) else as_inputs(inputs, bundle)
    if not len(inputs) and not isinstance(inputs, str):
        return Predictions([])
    if isinstance(bundle, Bundle) and bundle.max_answer_tokens:
        from warmstart.tasks.answers import answer_questions

        questions = [inputs] if isinstance(inputs, str) else inputs
        answers = [{"answer": item.text, "confidence": round(item.confidence, 4)} for item in answer_questions(bundle, questions)]
        return answers[0] if isinstance(inputs, str) else Predictions(answers)
    if isinstance(inputs, str):
        return predict(bundle, [task_type_for(bundle).parse(inputs)], top=top)[0]
    task_type, (values, cut, typicality) = task_type_for(bundle), read(bundle, inputs)
    rows = described(bundle, values, inputs, top)
    return Predictions(rows, values if task_type.probabilistic else None, cut, typicality)


def described(bundle: Bundle | Stack, values: Any, inputs: Sequence[Any], top: int) -> list[dict[str, Any]]:
    """Calibrated predictions of a model as dictionaries of plain values; labels are given at its thresholds."""
    rows = task_type_for(bundle).describe(values, inputs, bundle.labels, top)
    if thresholds := thresholds_of(bundle):
        for row, reached in zip(rows, at_thresholds(values, thresholds), strict=True):
            row["labels"] = [bundle.labels[i] for i in np.flatnonzero(reached)]
    return rows


def as_inputs(inputs: Iterable[Any], model: Any = None) -> list[Any]:
    """Inputs as a list; a data frame, if the ``model`` reads other columns beside the text.

    Raises ``DataError`` for a whole table otherwise, and for an input that is missing or no text.
    """
    if isinstance(inputs, Mapping | bytes) or hasattr(inputs, "columns"):
        if getattr(model, "beside", None) and not isinstance(inputs, bytes):
            from warmstart.data.source import Source
            from warmstart.data.tables import frame_table
            from warmstart.tasks.trained_on import reading_of_model

            source = Source.build({"path": "the frame", **reading_of_model(model)})
            return frame_table(inputs, (source.text, *source.columns)).inputs(source)
        raise DataError(
            f"inputs must be a list or one column of texts, but are a {type(inputs).__name__}; give its column of texts"
        )
    listed = list(inputs)
    for number, item in enumerate(listed):
        if isinstance(item, bytes) or not (isinstance(item, str) or hasattr(item, "__len__")):
            raise DataError(f"input {number} must be a text, but is {item!r}; fill in what is missing, or leave it out")
    return listed


def raw_predictions(bundle: Bundle | Stack, inputs: Sequence[Any]) -> Any:
    """Predictions as arrays, in the form that the task type scores."""
    return read(bundle, inputs).values


class Read(NamedTuple):
    """Raw predictions for N inputs."""

    values: Any
    """predictions in the form that the task type scores"""
    cut: Cut
    """sentence on the number of inputs that the model cuts, made from the tokens that it has read"""
    typicality: np.ndarray | None = None
    """(N,) as in ``Predictions``"""


def read(bundle: Bundle | Stack, inputs: Sequence[Any]) -> Read:
    """Calibrated predictions. Typicality is by the vectors of a stack's member, else by the confidence for texts held out."""
    raw = _read(bundle, inputs)
    if (calibration := bundle.calibration) is None:
        return raw
    kind, typicality = task_type_for(bundle), raw.typicality
    values = apply_temperature(raw.values, calibration.temperature, kind.several_labels)
    if typicality is None and calibration.held_out and kind.one_label:
        confidence = np.array([confidence for confidence, _ in calibration.held_out])
        typicality = conformal_p_values(confidence, confidences_of(values))
    return Read(values, raw.cut, typicality)


def confidences_of(probabilities: np.ndarray) -> np.ndarray:
    """The highest of the probabilities (N, C) of each text, rounded as bundles store it: (N,)."""
    return probabilities.max(axis=1).round(6)


def uncalibrated_predictions(model: Bundle | Stack | FittedBaseline, inputs: Sequence[Any]) -> Any:
    """Predictions before the model's own temperature; a stack's are the weighted mean of its members, each with its temperature."""
    return _read(model, inputs).values


def _read(model: Bundle | Stack | FittedBaseline, inputs: Sequence[Any]) -> Read:
    """Predictions without the model's own temperature, and what is cut: of a stack, by the first member that cuts."""
    if not isinstance(model, Bundle):
        return _read_stack(model, inputs)
    task_type, network, tokenizer = task_type_for(model), model.model, model.tokenizer
    encoded = task_type.encode(network, tokenizer, inputs)
    cut = _sentence(encoded, model, pooled=task_type.pooled)
    return Read(task_type.predict(network, encoded, tokenizer.specials.pad), lambda: cut)


def _read_stack(model: Stack | FittedBaseline, inputs: Sequence[Any]) -> Read:
    from warmstart.model.fitted import FittedBaseline

    if isinstance(model, FittedBaseline):
        return _read_member(model, inputs, {})
    vectors = {id(backbone): embed(backbone, inputs).double().numpy() for backbone in model.backbones}
    parts = [_read_member(member.model, inputs, vectors) for member in model.members]
    pairs, several = zip(model.members, parts, strict=True), model.several_labels
    calibrated = [apply_temperature(part.values, member.temperature, several) for member, part in pairs]
    mean = np.average(calibrated, axis=0, weights=[member.weight for member in model.members])
    if model.beside:
        mean = model.beside(apply_temperature(mean, model.beside.text.temperature, several), inputs)
    compared = (part.typicality for part in parts if part.typicality is not None)
    return Read(mean, lambda: next(filter(None, (part.cut() for part in parts)), ""), next(compared, None))


def _read_member(model: Bundle | FittedBaseline, inputs: Sequence[Any], vectors: Mapping[int, np.ndarray]) -> Read:
    """A member of a stack; ``vectors`` are those that backbones, by ``id``, have given for the inputs."""
    if isinstance(model, Bundle):
        return _read(model, inputs)
    values, typicality = model.predict_and_compare(inputs, vectors.get(id(model.backbone)))
    return Read(values, lambda: unread(model, inputs).sentence, typicality)


class Unread(NamedTuple):
    """Tokens cut from each input."""

    sentence: str = ""
    """number of cut inputs and the remedy; empty if none are cut; of a stack, that of the first member that cuts"""
    tokens: tuple[int, ...] = ()
    """number of tokens cut from each input (words, where words are tagged); of a stack, the largest of its members"""


def unread(model: Bundle | Stack | FittedBaseline, inputs: Sequence[Any]) -> Unread:
    """Tokens that a model cuts off, without predicting the inputs; see ``read``."""
    from warmstart.model.stack import Stack

    if isinstance(model, Stack):
        members = [unread(member.model, inputs) for member in model.members]
        most = map(max, zip(*(part.tokens for part in members), strict=True))
        return Unread(next((part.sentence for part in members if part.sentence), ""), tuple(most))
    reader = model if isinstance(model, Bundle) else model.backbone
    if reader is None or not len(inputs):
        return Unread(tokens=(0,) * len(inputs))
    task_type = task_type_for(model) if isinstance(model, Bundle) else TASK_TYPES["classification"]
    encoded = task_type.encode(reader.model, reader.tokenizer, inputs)
    return Unread(_sentence(encoded, reader, pooled=task_type.pooled), tuple(cut_tokens(encoded).tolist()))


def _sentence(encoded: Encoded, reader: Bundle, *, pooled: bool) -> str:
    unread = reader.model.head.config.window_settings.windows == "none" and pooled
    return cut_sentence(encoded, reader.model.backbone.config.max_length, advice=unread)


def texts_per_second(bundle: Bundle | Stack, texts: Sequence[Any]) -> float:
    """Texts that a model labels in a second on this machine, by the first batches that take a fifth of a second or more."""
    count, seconds = 8, 0.0
    while seconds < 0.2:
        count *= 2
        batch = [texts[place % len(texts)] for place in range(count)]
        started = time.perf_counter()
        predict(bundle, batch)
        seconds = time.perf_counter() - started
    return count / seconds
