"""What the votes of a language model are worth in a fit: how often they agree with people's labels, and what they add by these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from warmstart.runs.verdict import score_words

if TYPE_CHECKING:
    from warmstart.tasks.votes import Agreement


class DifferingVote(NamedTuple):
    """A text that the model and a language model label differently."""

    text: str
    vote: str
    predicted: str
    confidence: float


@dataclass(frozen=True)
class UsedVotes:
    """The votes of a language model beside the labels, and whether they are used."""

    agreement: Agreement
    used: bool
    """True if the chosen method has learned from them"""
    metric: str
    expected: tuple[float, float]
    """score to expect of the chosen method, and of the one that would be chosen without votes"""
    differing: tuple[DifferingVote, ...] = ()
    """texts on whose votes the model believes least, to label next"""

    @property
    def sentence(self) -> str:
        """How good the votes are, and what they are used for."""
        if not self.used:
            return f"{self.agreement.sentence}; they add nothing, and were left out."
        with_votes, without = (score_words(self.metric, score) for score in self.expected)
        if with_votes == without:
            return f"{self.agreement.sentence}; used, for less than 1 more of 100 right."
        return f"{self.agreement.sentence}; used: with them {with_votes}, without {without}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        found = self.agreement
        return {
            "column": found.name,
            "texts": found.texts,
            "agreement": found.overall._asdict() if found.texts else None,
            "labels": [{"label": name, "texts": count, **share._asdict()} for name, count, share, _ in found.labels],
            "used": self.used,
            "expected_without": self.expected[1],
            "people": found.people and {**found.people._asdict(), "passes": found.people.passes},
            "differing": [vote._asdict() for vote in self.differing],
        }
