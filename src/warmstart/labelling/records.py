"""What a labelling project holds: texts that were shown to people, their answers, and the names of labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

Value = int | tuple[int, ...]
"""a label id, or one for each word"""
ProjectType = Literal["classification", "tagging"]
OUTSIDE = 0
"""the label of words that have no other, in tagging"""
IMPORTED, DISAGREEMENT, CORRECTION = "imported", "disagreement", "correction"
"""queues of draws that mean more than where a text came from"""


@dataclass(frozen=True)
class Draw:
    """A text that was shown to a person, or whose answer was imported."""

    id: int
    text: int
    person: str
    at: str
    """time in UTC, as ISO 8601"""
    queue: str
    """new: of texts that nobody answered; overlap: for a second answer; doubtful: for a second look; disagreement; imported;
    correction: of a label in the list"""
    component: str = ""
    """of the mixture: random, uncertain or diverse; empty for other queues than new"""
    probability: float | None = None
    """of this text among the ``remaining``, under the whole mixture; None for other queues than new, and if ``suggested``"""
    remaining: int = 0
    """texts from which it was drawn"""
    predicted: int | None = None
    """label id by the model at that time (after merges: the one that stands now); None without a model"""
    confidence: float | None = None
    """of that prediction"""
    mean_confidence: float | None = None
    """over the remaining texts"""
    version: int = 0
    """of the model; 0: none"""
    random_share: float | None = None
    """of the draws among new texts that were random; None for other queues than new"""
    named: bool = False
    """whether the model was that of the names of the labels"""

    @property
    def suggested(self) -> bool:
        """Whether the prediction is shown to the person."""
        return self.queue == "new" and self.predicted is not None and self.probability is None


class KnownOfDraw(TypedDict, total=False):
    """What a draw may hold beside text, person and queue; as in ``Draw``."""

    component: str
    probability: float | None
    remaining: int
    predicted: int | None
    confidence: float | None
    mean_confidence: float | None
    version: int
    random_share: float | None
    named: bool


class AboutProject(TypedDict, total=False):
    """What a project may hold beside its name, type, labels and texts."""

    guidelines: str
    price: float | None
    task: str
    """the manifest that it belongs to"""
    table: Mapping[str, Any]
    """how that is read, if it is a table"""


@dataclass(frozen=True)
class ProjectSettings:
    """How a project goes on; it stays until it is changed."""

    vectors: str = ""
    """a model whose frozen vectors the learner reads; empty: vectors made from the words of the pool"""
    target: float | None = None
    """accuracy to reach"""
    mixture: Mapping[str, float] = field(default_factory=dict)
    """shares of the ways to choose the next text; empty: the default"""
    suggest: Literal["", "yes"] = ""
    """whether the likely label stands beside texts that are not drawn at random; only the others then tell the accuracy"""
    judge: str = ""
    """who decides disagreements; empty: whoever has not answered the text"""


@dataclass(frozen=True)
class GivenAnswer:
    """What a person said of a text."""

    id: int
    draw: int
    text: int
    person: str
    at: str
    value: Value | None
    """label id (after merges: the one that stands now), or those of the words; None: skipped"""
    seconds: float
    comment: str = ""


@dataclass(frozen=True)
class LabelName:
    """A label that stands."""

    id: int
    name: str
    key: str
    """chooses it on the page; empty if all keys are in use"""


@dataclass(frozen=True)
class LabelChange:
    """A change of the label names."""

    at: str
    """time in UTC, as ISO 8601"""
    person: str
    """empty: whoever made the project"""
    words: str
    """what happened"""
