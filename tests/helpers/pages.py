"""What a reader of a report would read twice."""

from __future__ import annotations

import re

from warmstart.report.parts import Report


def repeated(report: Report) -> list[str]:
    """The sentences and captions that occur more than once on a page."""
    texts = [report.sentence, *(text for section in report.sections for text in section.text)]
    # "They differ …" goes on about the pair that the sentence before it names; two pairs may have the same figures
    sentences = [one for text in texts for one in re.split(r"(?<=[.!?])\s+(?=[A-Z])(?!They )", text) if one]
    sentences += [figure.caption for figure in report.figures()]
    return sorted({one for one in sentences if sentences.count(one) > 1})
