"""Answers of a served model to a request, as plain values, and their forms; one thread at a time computes them (``batches.py``).

Routes name the forms of answers, so that ``/openapi.json`` describes what is sent, and nothing else is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from warmstart.app.answers import AnswerForm
from warmstart.app.models import ServedModel
from warmstart.data.source import Source
from warmstart.data.text_key import is_blank
from warmstart.errors import DataError, ModelError, suggest
from warmstart.generation.generate import continue_prompts
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import most_probable, step_of
from warmstart.inspection.explanations import explain_text, prepare_text
from warmstart.model.inference import embed
from warmstart.model.stack import Stack
from warmstart.stats.abstention import Threshold
from warmstart.tasks.answers import answer_questions
from warmstart.tasks.predict import Unread, confidences_of, predict, raw_predictions, unread
from warmstart.tasks.unknown import UNKNOWN_SHARE


class _Sure(AnswerForm):
    confidence: float = Field(ge=0, le=1)
    """calibrated, if the model knows its temperature"""
    abstained: bool
    """true if the confidence is below the threshold of the guarantee, or the text is blank"""


class LabelPrediction(_Sure):
    """One label for a text."""

    label: str | None
    """null: abstained"""
    probabilities: dict[str, float]
    """probabilities of the ``top`` most probable labels"""
    unknown: bool = False
    """true if the text is like none of the labels, as on average at most 5 of 100 texts of known labels are; left out by models
    that cannot tell"""


class LabelsPrediction(_Sure):
    """Any number of labels for a text."""

    labels: list[str] | None
    """those with a probability of at least a half, or that reach their thresholds; null: the text is blank"""
    probabilities: dict[str, float]
    """probabilities of the ``top`` most probable labels, each for itself"""


class NumberPrediction(AnswerForm):
    """A number for a text."""

    number: float | None
    """null: the text is blank"""


class TagsPrediction(AnswerForm):
    """A tag for each word."""

    words: list[str]
    tags: list[str | None]
    """null: the word was not read"""


class AnswerPrediction(_Sure):
    """A text that answers a question."""

    answer: str | None
    """null: abstained"""


Prediction = LabelPrediction | LabelsPrediction | NumberPrediction | TagsPrediction | AnswerPrediction
"""forms of a prediction, by the task of the model"""


class ModelAnswer(AnswerForm):
    """Fields of every answer of a model."""

    model: str
    """name of the model that answered"""


class Predicted(ModelAnswer):
    """``POST /api/predict``."""

    predictions: list[Prediction]
    """one for each input"""
    guarantee: str | None
    """guarantee by ``target_error``, in a sentence"""
    threshold: float | None
    """the confidence below which the model abstains; null: without ``target_error``, or where it always abstains"""
    cut: str | None
    """number of inputs that were too long for the model, in a sentence"""
    unread: list[int]
    """tokens (words, where words are tagged) of each input that were not read"""


class Candidate(AnswerForm):
    """A token that could have come."""

    token: str
    probability: float = Field(ge=0, le=1)


class Follower(AnswerForm):
    """A token of the corpus."""

    token: str
    count: int = Field(gt=0)


class CorpusCounts(AnswerForm):
    """Tokens that followed the same ones in the corpus of the server."""

    context: list[str]
    """the last tokens, as many as the corpus has"""
    count: int
    """number of times that anything followed them"""
    followed: list[Follower]
    """tokens that followed most often"""
    candidates: list[int]
    """number of times that each of the step's candidates did"""
    kl_divergence: float
    """divergence of the model from the corpus, in nats"""


class GeneratedToken(AnswerForm):
    """A token of a continuation; also the data of an event ``token``."""

    text: str
    """characters that it adds; empty while bytes of a character are missing"""
    token: str
    probability: float = Field(ge=0, le=1)
    entropy: float
    """entropy of the next token, in nats"""
    candidates: list[Candidate]
    """the most probable tokens"""
    corpus: CorpusCounts | None
    """null: the server has no corpus"""


class Ended(AnswerForm):
    """The whole continuation; the data of the event ``done``."""

    text: str
    ended: bool
    """true if the model ended the text itself"""


class Generated(ModelAnswer, Ended):
    """``POST /api/generate`` without ``stream``."""

    steps: list[GeneratedToken]


class Embedded(ModelAnswer):
    """``POST /api/embed``."""

    vectors: list[list[float]]
    """one for each text"""


class Token(AnswerForm):
    """A token of a text."""

    id: int = Field(ge=0)
    token: str
    starts_word: bool


class Tokenized(ModelAnswer):
    """``POST /api/tokens``."""

    tokens: list[list[Token]]
    """tokens of each text"""


class TrainingText(AnswerForm):
    """A training text near an input."""

    text: str | list[str]
    label: str | list[str] | float
    """label of the text: several where a text may have several, a number where numbers are predicted"""
    cosine: float


class Nearest(ModelAnswer):
    """``POST /api/nearest``."""

    nearest: list[list[TrainingText]]
    """for each input, nearest first"""
    random_pairs: float
    """mean cosine of random pairs of training texts"""


class Explained(ModelAnswer):
    """``POST /api/explain``."""

    target: str
    """the label, or token, that is explained"""
    probability: float = Field(ge=0, le=1)
    words: list[str]
    importance: dict[str, list[float]]
    """method -> the importance of each word"""
    faithfulness: dict[str, float]
    """method -> its faithfulness: 1 is best; empty for a stack, whose words are erased and no more"""
    faithfulness_of_random_orders: float | None


class Guarantee(AnswerForm):
    """An error rate that can be guaranteed."""

    target_error: float
    threshold: float
    answered: float
    """share of texts that gets a label"""


class Guarantees(ModelAnswer):
    """``GET /api/guarantees``."""

    guarantees: list[Guarantee]


class Cells(AnswerForm):
    """``POST /api/table``."""

    rows: list[list[str]]
    """the names of the columns, then the rows"""


class ServedModelFacts(AnswerForm):
    """Facts and abilities of a model."""

    name: str
    kind: str
    """kind of its head, or stack"""
    task: str | None
    """task type; null: it predicts nothing"""
    labels: list[str]
    abilities: list[str]
    calibrated: bool
    guarantees: bool
    """true if ``target_error`` may be given"""
    reads_texts: bool
    """true if it predicts from one vector of each text"""
    several_texts: bool | None
    """true if an input is a list of texts, such as a pair; null: nothing says so, and it takes both"""
    depth: int | None
    max_length: int | None
    """tokens that it reads"""


class Models(AnswerForm):
    """``GET /api/models``."""

    models: list[ServedModelFacts]


MOST_WORDS = 100
"""words of a text to be explained: the time grows with their square"""
RANDOM_ORDERS = 5
"""random word orders that an explanation is compared with"""


def predictions_for(model: ServedModel, inputs: Sequence[Any], top: int, threshold: Threshold | None) -> list[dict[str, Any]]:
    """A prediction for each input, its confidence, and whether the model abstains: below the threshold, or of a blank text."""
    lowest = [math.inf if is_blank(value) else threshold.threshold if threshold else 0.0 for value in inputs]
    if model.task_type == "answers":
        answers = answer_questions(model.bundle, inputs)
        return [
            {"answer": answer.text if answer.confidence >= least else None} | _confidence(answer.confidence, least)
            for answer, least in zip(answers, lowest, strict=True)
        ]
    predictions = predict(model.model, inputs, top=top)
    if model.recorder:
        model.recorder.count(inputs, predictions)
    probabilities = predictions.probabilities
    confidences = [0.0] * len(inputs) if probabilities is None else confidences_of(probabilities).tolist()
    rows = [
        row
        | ({next(iter(row)): None} if confidence < least else {})
        | ({} if probabilities is None else _confidence(confidence, least))
        for row, confidence, least in zip(predictions, confidences, lowest, strict=True)
    ]
    if predictions.typicality is None:
        return rows
    return [row | {"unknown": unlike} for row, unlike in zip(rows, (predictions.typicality <= UNKNOWN_SHARE).tolist(), strict=True)]


def _confidence(confidence: float, lowest: float) -> dict[str, Any]:
    return {"confidence": round(confidence, 6), "abstained": confidence < lowest}


def unread_of(model: ServedModel, inputs: Sequence[Any]) -> Unread:
    """The parts of inputs that do not fit into the model."""
    return Unread(tokens=(0,) * len(inputs)) if model.task_type == "answers" else unread(model.model, inputs)


def write_on(
    model: ServedModel, prompt: str, config: GenerateConfig, top: int, on_token: Callable[[dict[str, Any]], None]
) -> tuple[str, bool]:
    """The continuation of a prompt, and whether it ended by itself; ``on_token`` gets every token as it comes.

    A token says the text that it adds, its probability and entropy, and the ``top`` most probable ones.
    """
    bundle, ids, sent = model.bundle, list[int](), 0
    begin = [bundle.tokenizer.specials.begin, *bundle.tokenizer.encode([prompt])[0]]

    def note(row: int, log_probabilities: Tensor, chosen: int) -> None:
        nonlocal sent
        probable = most_probable(log_probabilities, top)
        step = step_of(bundle.tokenizer, log_probabilities, chosen, config, probable)
        corpus = _followed(model.counts, [*begin, *ids], log_probabilities, probable) if model.counts else None
        ids.append(chosen)
        text = bundle.tokenizer.decode(ids)
        whole = len(text.rstrip("\N{REPLACEMENT CHARACTER}"))  # of a character of which bytes are still missing, nothing
        added, sent = text[sent:whole], max(sent, whole)
        on_token(
            {
                "text": added,
                "token": step.token,
                "probability": step.probability,
                "entropy": step.entropy,
                "candidates": [{"token": token, "probability": probability} for token, probability in step.candidates],
                "corpus": corpus,
            }
        )

    (decoded,) = continue_prompts(bundle, [prompt], config, note)
    return bundle.tokenizer.decode(decoded.ids), decoded.stopped


def _followed(counts: NgramCounts, before: Sequence[int], log_probabilities: Tensor, probable: Tensor) -> dict[str, Any]:
    """Tokens that followed those ``before`` in the corpus, and the counts of the ``probable`` ones (k,) among them."""
    context, followers = counts.longest(before)
    compared = counts.compared(context, followers, log_probabilities, len(probable))
    return {
        "context": list(compared.context),
        "count": compared.count,
        "followed": [{"token": token, "count": count} for token, count in compared.most_common],
        "candidates": [followers[token] for token in probable.tolist()],
        "kl_divergence": compared.kl_divergence,
    }


def rows_of_workbook(data: bytes, name: str) -> list[list[str]]:
    """The cells of the only sheet with rows, read as every command reads them; the names of the columns first.

    Raises ``DataError`` if it is none, has several such sheets, or is too large.
    """
    from warmstart.data.tables import read_table

    with TemporaryDirectory() as folder:
        file = Path(folder) / "table.xlsx"  # its own name never reaches the disk
        file.write_bytes(data)
        try:
            frame = read_table(Source(path=str(file)), file).frame
        except DataError as error:
            what = str(error).partition(";")[0].replace(str(file), name)
            raise DataError(f"{what}; save the sheet with the texts as csv, and choose that") from None
    return [frame.columns, *([cell or "" for cell in row] for row in frame.rows())]


def vectors_of(model: ServedModel, texts: Sequence[str]) -> list[list[float]]:
    """(N, D) vectors of N texts, of width D."""
    vectors: list[list[float]] = embed(model.bundle, list(texts)).tolist()
    return vectors


def tokens_of(model: ServedModel, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The tokens of each text: id, name, and whether a word begins with it."""
    tokenizer = model.bundle.tokenizer
    starts = tokenizer.vocabulary().word_starts
    return [
        [{"id": id, "token": tokenizer.token(id), "starts_word": bool(starts[id])} for id in row]
        for row in tokenizer.encode(list(texts))
    ]


def _erasure_of(stack: Stack, text: str, target: str | None) -> dict[str, Any]:
    """The nats that a label loses without each word between white space; no gradient goes through words and numbers."""
    words = text.split()
    if not 0 < len(words) <= MOST_WORDS:
        raise ModelError(f"a text to be explained must have 1 to {MOST_WORDS} words, but has {len(words)}; give a part of it")
    if target is not None and target not in stack.labels:
        raise ModelError(f"there is no label '{target}'; {suggest(target, stack.labels)}")
    probabilities = raw_predictions(stack, [text, *(" ".join(words[:i] + words[i + 1 :]) for i in range(len(words)))])
    label = int(probabilities[0].argmax()) if target is None else stack.labels.index(target)
    nats = np.log(np.maximum(probabilities[:, label], np.finfo(float).tiny))
    return {
        "target": stack.labels[label],
        "probability": float(probabilities[0, label]),
        "words": words,
        "importance": {"erasure": (nats[0] - nats[1:]).tolist()},
        "faithfulness": {},
        "faithfulness_of_random_orders": None,
    }


def explanation_of(model: ServedModel, text: str, target: str | None) -> dict[str, Any]:
    """The importance of each word by three methods, and how faithful each is; of a stack, by erasure alone.

    Raises ``ModelError`` for too many words, and for an unknown ``target``.
    """
    if isinstance(model.whole, Stack):
        return _erasure_of(model.whole, text, target)
    prepared = prepare_text(model.whole, text, target)
    if (words := len(prepared.words)) > MOST_WORDS:
        raise ModelError(f"a text to be explained must have at most {MOST_WORDS} words, but has {words}; give a part of it")
    with torch.enable_grad():
        explanation = explain_text(prepared, RANDOM_ORDERS, seed=0)
    return {
        "target": explanation.target,
        "probability": explanation.probability,
        "words": list(explanation.words),
        "importance": {name: [float(value) for value in values] for name, values in explanation.values.items()},
        "faithfulness": explanation.faithfulness,
        "faithfulness_of_random_orders": float(np.mean(explanation.random_faithfulness)),
    }
