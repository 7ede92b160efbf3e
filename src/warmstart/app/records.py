"""What a labelling project holds: texts that were shown to people, their answers, and the names of labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

from warmstart.data.annotations import OUTSIDE_NAME
from warmstart.errors import ConfigError, DataError

Value = int | tuple[int, ...]
"""a label id, or one for each word"""
ProjectType = Literal["classification", "tagging"]
MOST_TEXT_BYTES = 1 << 20
"""of a text in UTF-8"""
MOST_COMMENT = 10_000
"""characters of a comment, or of a person's or a label's name (a hundredth of them)"""
MOST_PEOPLE = 1_000
"""who may join"""
OUTSIDE = 0
"""the label of words that have no other, in tagging"""
OUTSIDE_LABEL = (OUTSIDE, OUTSIDE_NAME, "0")
"""its id, name and key"""
KEYS = "123456789abdefghijklmnopqrtvwxyz"
"""that choose labels on the page, which has other uses for c, s and u"""
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

    @property
    def row(self) -> tuple[Any, ...]:
        """Its fields, in the order of its table."""
        return (*vars(self).values(),)


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


def free_key(used: Iterable[str]) -> str:
    """The first key that chooses no label; empty if all are in use."""
    taken = {*used}
    return next((key for key in KEYS if key not in taken), "")


@dataclass(frozen=True)
class LabelChange:
    """A change of the label names."""

    at: str
    """time in UTC, as ISO 8601"""
    person: str
    """empty: whoever made the project"""
    words: str
    """what happened"""


# ------------------------------------------------------------------------------------------------ what may be written


def now() -> str:
    """The time in UTC, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def check_label_name(name: str, used: Iterable[str]) -> None:
    """Raise ``ConfigError`` if a label's name is empty, too long or in use."""
    _check_words(name, "a label")
    if name in used:
        raise ConfigError(f"each label needs its own name, but there is a label '{name}' already; choose another name")


def _check_words(name: str, what: str) -> None:
    most = MOST_COMMENT // 100
    if not name or len(name) > most or not name.isprintable():
        raise ConfigError(f"the name of {what} must have 1 to {most} characters that can be printed, but is {name[: 2 * most]!r}")


def person_name(person: str, *, empty: bool = False) -> str:
    """A person's name. Raises ``ConfigError`` if it is too long or empty (unless ``empty``: the program itself acts)."""
    person = person.strip()
    if person or not empty:
        _check_words(person, "a person")
    return person


def check_price(price: float | None) -> None:
    """Raise ``ConfigError`` unless a price is above 0, if there is one."""
    if price is not None and not (math.isfinite(price) and price > 0):
        raise ConfigError(f"the price of a label must be a number above 0, but is {price}")


def check_texts(texts: Sequence[str]) -> None:
    """Raise ``DataError`` that names the first text that cannot be labelled."""
    for number, text in enumerate(texts, 1):
        check_text(text, f"text {number}")


def check_text(text: str, where: str) -> None:
    """Raise ``DataError`` that says ``where`` unless a text is Unicode, not blank, and at most ``MOST_TEXT_BYTES`` long."""
    if not is_unicode(text):
        raise DataError(f"{where} must be Unicode, but has half of a surrogate pair; correct it")
    if (size := len(text.encode())) > MOST_TEXT_BYTES:
        raise DataError(f"{where} must have at most {MOST_TEXT_BYTES:,} bytes, but has {size:,}; cut it into parts")
    if not text.strip():
        raise DataError(f"{where} must have words, but is blank; remove it")


def is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
