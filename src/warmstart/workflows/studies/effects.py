"""What came of an ablation: every part's effect beside its noise, and the sentences that say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warmstart.analysis.ablate import Part
from warmstart.evaluate.differences import Gap, Judged
from warmstart.workflows.studies.yardstick import Yardstick

SURE = 0.05
"""a change is seen where its corrected probability is below this"""
FEW = 30
"""texts below which the bootstrap's intervals are too narrow"""
LEAST = 1e-6
"""probabilities below this are not told apart"""
HEADER = ("part", "worse by", "95 % interval", "p (Holm)", "")


@dataclass(frozen=True)
class Effect:
    """What erasing one part did."""

    part: Part
    judged: Judged
    gap: Gap
    """how much worse the model was"""
    p: float
    """corrected for the number of parts (Holm 1979)"""

    @property
    def seen(self) -> bool:
        """It can be told from no change."""
        return self.p < SURE

    @property
    def missed(self) -> bool:
        """The model is seen to be worse without it."""
        return self.seen and self.gap.mean > 0

    def plain(self) -> dict[str, Any]:
        """A row of plain values; blocks and heads count from 1."""
        block, head = (None if place is None else place + 1 for place in (self.part.block, self.part.head))
        what = {"part": self.part.name, "kind": self.part.kind, "block": block, "head": head, "worse": self.gap.mean}
        doubt = {"low": self.gap.low, "high": self.gap.high, "error": self.gap.error, "p": self.p, "seen": self.seen}
        scores = self.judged.scores
        return what | doubt | {"spread_over_repeats": float(np.std(scores, ddof=1)) if len(scores) > 1 else None}

    def cells(self, stick: Yardstick) -> tuple[str, ...]:
        """A row of ``HEADER``."""
        around = f"{stick.said(self.gap.low)} to {stick.said(self.gap.high)}"
        return (
            self.part.name,
            stick.said(self.gap.mean, signed=True),
            around,
            f"{self.p:.2g}" if self.p >= LEAST else f"< {LEAST:g}",
            "seen" if self.seen else "",
        )


@dataclass(frozen=True)
class Pruned:
    """What came of taking heads out."""

    dropped: list[Part]
    together: Gap
    """erased together, in the way in which each was erased"""
    added: float
    """the sum of what each did alone"""
    beyond: Gap
    """the first less the second"""
    cost: Gap
    """the smaller model against the whole one"""
    figure: float
    """what the smaller model has"""
    parameters: tuple[int, int]
    """before, after"""
    differs: float
    """from the whole model with these heads at zero, as a share of the largest state"""


@dataclass(frozen=True)
class Found:
    """What came of it."""

    stick: Yardstick
    whole: Judged
    effects: list[Effect]
    """what costs most first"""
    passes: int
    seconds: float
    pruned: Pruned | None = None

    @property
    def heads(self) -> list[Effect]:
        """The single heads."""
        return [one for one in self.effects if one.part.kind == "head"]

    def sentences(self) -> list[str]:
        """What was found, and how sure it is."""
        stick, first, texts = self.stick, self.effects[0], len(self.stick.encoded)
        before = f"{stick.name} of the whole model: {stick.said(self.whole.scores[0])}"
        if most := next((one for one in self.effects if one.missed), None):
            verb = "matters most" if most is first else "matters most of what is seen to matter"
            said = [f"{most.part.name} {verb}: without it {stick.name} is worse by {stick.change(most.gap)}; {before}"]
            if most is not first:
                said.append(f"{first.part.name} costs more, {stick.change(first.gap)}, but is not told from no change")
        else:
            said = [
                f"no part is seen to matter on {texts:,} texts: {first.part.name} costs most, {stick.change(first.gap)}; {before}"
            ]
        if self.heads:
            said += self._of_heads()
        tokens = int(sum(map(len, stick.encoded.rows)))
        said.append(f"{self.passes} passes over {texts:,} texts ({tokens:,} tokens) took {self.seconds:.1f} s")
        if texts < FEW:
            said.append(f"intervals over as few as {texts} texts are too narrow: take what is just seen for chance")
        return said + (_of_pruned(self.pruned, stick) if self.pruned else [])

    def _of_heads(self) -> list[str]:
        heads, stick = self.heads, self.stick
        missed, helped = [one for one in heads if one.missed], [one for one in heads if one.seen and not one.missed]
        noise = float(np.median([one.gap.error for one in heads]))
        most = (missed or heads)[0]
        times = f", {most.gap.mean / most.gap.error:.1f} times its own standard error" if most.gap.error else ""
        better = f"; the model is seen to be better without {len(helped)} of them" if helped else ""
        return [
            f"{len(heads) - len(missed)} of {len(heads)} heads can be erased one at a time without a loss that is seen (at 5 %, "
            f"corrected for {len(self.effects)} parts){better}",
            f"the head that is missed most is {most.part.name}: {stick.change(most.gap)}{times}; the noise of one head's change, "
            f"its standard error over texts, is {stick.said(noise)} in the median: changes of that size cannot be seen",
        ]


def _of_pruned(pruned: Pruned, stick: Yardstick) -> list[str]:
    (before, after), count = pruned.parameters, len(pruned.dropped)
    verb = "more than" if pruned.beyond.low > 0 else "less than" if pruned.beyond.high < 0 else "within the noise of"
    return [
        f"with {count} heads out for good, {stick.name} is {stick.said(pruned.figure)}, worse by {stick.change(pruned.cost)}; "
        "they were chosen on these same texts, so that others may show more",
        f"erased together in the same way as alone, these heads cost {stick.change(pruned.together)}, {verb} the sum of what each "
        f"costs alone, {stick.said(pruned.added)}: the difference is {stick.change(pruned.beyond)}; effects need not add up",
        f"{before - after:,} of {before:,} parameters are gone ({100 * (before - after) / before:.1f} %); what is left differs "
        f"from the whole model with these heads at zero by {pruned.differs:.1g} of the largest state",
    ]
