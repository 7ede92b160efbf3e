"""What a kind of task settles: how its texts are read, which head reads them, what a model says of them, and how that is scored.

Most kinds read one state of each text; this is their common ground, and each file beside it says what is different.

Letters: N examples, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import Tensor

from warmstart.data import Split, Task
from warmstart.data.batch import Encoded, encode, labelled_batches
from warmstart.data.task import plain_text
from warmstart.engine import read
from warmstart.evaluate import Scores
from warmstart.evaluate.resample import DRAWS, draw
from warmstart.heads import EmbedHead, LanguageHead, TaskHeadConfig
from warmstart.kinds.figures import Figures
from warmstart.model import Bundle, Model
from warmstart.tokenizer import Tokenizer
from warmstart.types import Batch

Result = Scores | Figures
Baseline = Callable[[Task], tuple[Any, str]]
"""what a task's baseline says of the test split, and the settings it chose"""


class Reading(NamedTuple):
    """How a head reads: the settings that a user chooses."""

    pooling: str = "mean"
    dropout: float = 0.1
    hidden: Literal["none", "tanh", "relu"] = "none"


class Kind(ABC):
    """One kind of task."""

    name: ClassVar[str]
    """what manifests call it"""
    head_kind: ClassVar[str]
    """the kind of head that it needs"""
    pooled: ClassVar[bool] = True
    """the head reads one state of each text, so that features of a frozen backbone can be kept"""

    share: ClassVar[bool] = True
    """a score lies between 0 and 1"""

    @abstractmethod
    def head(self, task: Task, reading: Reading) -> TaskHeadConfig:
        """The settings of the head that a task needs."""

    @abstractmethod
    def scores(self, split: Split, said: Any, task: Task) -> Result:
        """How ``said`` fares against the split's targets."""

    @abstractmethod
    def baselines(self) -> dict[str, Baseline]:
        """What needs no backbone."""

    @abstractmethod
    def answers(self, bundle: Bundle, texts: Sequence[Any], said: Any, top: int) -> list[dict[str, Any]]:
        """What is said of each text, as plain values for a line of JSON."""

    def encode(self, model: Model, tokenizer: Tokenizer, texts: Sequence[Any]) -> Encoded:
        """Texts as the model reads them."""
        appended = getattr(model.head.config, "pooling", "") == "appended"
        typed = model.backbone.config.types > 1
        return encode(tokenizer, texts, model.backbone.config.max_tokens, appended=appended, typed=typed)

    def batches(self, split: Split, encoded: Encoded, size: tuple[int, int], seed: int, pad_id: int, *, causal: bool) -> Batches:
        """``batches(step)`` for training; ``size`` is (texts of a batch, batches of a step)."""
        return labelled_batches(encoded, split.labels, size, seed, pad_id, causal=causal)

    def said(self, model: Model, encoded: Encoded, pad_id: int, precision: str = "float32") -> np.ndarray:
        """(N, ·) what the head says of every example, in order."""
        out = np.empty(0)
        for places, scores in read(model, encoded, pad_id, precision):
            rows = said_by(model, scores).numpy()
            if not len(out):
                out = np.empty((len(encoded), *rows.shape[1:]))
            out[places] = rows
        return out

    def floor(self, task: Task) -> float:
        """The score of what takes no learning: the first baseline."""
        said, _ = next(iter(self.baselines().values()))(task)
        return self.scores(task.test, said, task).score(task.metric)

    def lost(self, task: Task, result: Result) -> bool:
        """Whether a run learned nothing: no better than what takes no learning."""
        return bool(result.score(task.metric) <= self.floor(task) + 0.01)

    def resampled(self, split: Split, said: Any, task: Task) -> np.ndarray:
        """(R,) the task's metric on resamples of the split, the same for every method."""
        draws = draw(len(split), DRAWS // 5)
        return np.array([self.scores(split.take(places), take(said, places), task).score(task.metric) for places in draws])


Batches = Callable[[int], list[Batch]]


def said_by(model: Model, scores: Tensor) -> Tensor:
    """What the head makes of its scores, in float64 on the processor."""
    assert not isinstance(model.head, LanguageHead | EmbedHead)
    return model.head.said(scores.float().cpu().double())


def loss_by(model: Model, scores: Tensor, targets: Tensor) -> Tensor:
    """The head's own summed loss."""
    assert not isinstance(model.head, LanguageHead | EmbedHead)
    return model.head.loss(scores, targets)


def take(said: Any, places: np.ndarray) -> Any:
    """What was said of the examples at ``places``."""
    return said[places] if isinstance(said, np.ndarray) else [said[place] for place in places]


def strings(split: Split) -> list[str]:
    """The split's texts as plain strings, for baselines."""
    return [plain_text(text) for text in split.texts]
