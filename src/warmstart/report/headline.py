"""The headline of a page: a finding in fewer than twenty words. The complete sentence stands below it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmstart.report.parts import Report

HEADLINE_WORDS = 19
_FEWEST_WORDS = 6
"""a shorter beginning, such as "With 100 labels", says nothing"""
_LONGEST_NAME = 40
"""characters of a word"""
_SENTENCES = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9])")
_BRACKETS = re.compile(r"\s*\([^()]*\)")


def headline(finding: str) -> str:
    """The first sentence without what stands in brackets; of a longer one, as many clauses from its start as fit.

    ``"LoRA is better than TF-IDF by 3.1 points (95% interval 1.0 to 5.2). …"`` -> ``"LoRA is better than TF-IDF by 3.1 points."``
    """
    sentence = _BRACKETS.sub("", _SENTENCES.split(finding)[0])
    at_colons, at_commas = (_shortened(sentence, ends) for ends in (r"(?<=[;:])\s+", r"(?<=[;:,])\s+"))
    sentence = at_colons if _FEWEST_WORDS <= len(at_colons.split()) <= HEADLINE_WORDS else at_commas
    return _bounded(f"{sentence.rstrip(' .;:,')}." if sentence[-1:] not in "!?" else sentence)


def _bounded(sentence: str) -> str:
    """The sentence, with an ellipsis in names that are too long, and at the end of a single clause that is."""
    words = [word if len(word) <= _LONGEST_NAME else f"{word[:20]}…{word[-12:]}" for word in sentence.split()]
    return " ".join(words if len(words) <= HEADLINE_WORDS else [*words[: HEADLINE_WORDS - 1], "…"])


def _shortened(sentence: str, ends: str) -> str:
    """As many clauses from the start as a headline holds, at least one."""
    clauses = re.split(ends, sentence)
    while len(clauses) > 1 and len(" ".join(clauses).split()) > HEADLINE_WORDS:
        clauses.pop()
    return " ".join(clauses)


def paragraphs_once(report: Report) -> Report:
    """The same report, each of whose paragraphs stands where it comes first, without the sentence that is the headline."""
    seen = {report.sentence, "", *(report.verdict.sentences if report.verdict else ())}
    sections = []
    for section in report.sections:
        told = (text.removeprefix(report.sentence).strip() for text in section.text)
        kept = [text for text in dict.fromkeys(told) if text not in seen]
        seen.update(kept)
        sections.append(replace(section, text=kept))
    return replace(report, sections=sections)
