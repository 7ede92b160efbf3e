"""The table of pretrained encoders: races with 100 labels on frozen vectors, nothing fine-tuned.

Sets that an encoder has read before, as far as its card and papers say, stand apart: its score there is not that of a new task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from benchmarks.few_label_tasks import SETS
from benchmarks.few_labels import Case, case_of
from benchmarks.table import Table, paragraph

from warmstart.interop.encoders import ENCODERS
from warmstart.model.already_read import named_in, read_by
from warmstart.stats.formatting import percent, percent_value

AT_HAND = ("minilm", "e5")
"""the encoders of the table; smollm2 is ten times slower"""
NAMES = ("banking77", "emotion", "sentiment", "trec")
LABELS = 100


def encoders(results: Sequence[dict[str, Any]]) -> str:
    """A row for each set, those that no encoder has read first."""
    cases = sorted(map(case_of, results), key=lambda case: (bool(_readers(case.name)), NAMES.index(case.name)))
    header = ("set", "read by", "words", *AT_HAND, "recommended", "best in hindsight")
    lines = [f"| {' | '.join(header)} |", "| --- " * len(header) + "|"]
    for case in cases:
        vectors = [percent(max(score for name, score in case.scores.items() if name.endswith(f" · {one}"))) for one in AT_HAND]
        cells = (_set_name(case), ", ".join(_readers(case.name)) or "none", percent(case.scores[case.baseline]), *vectors)
        lines.append(f"| {' | '.join(cells)} | {percent(case.recommended)} | {case.best}, {percent(case.scores[case.best])} |")
    regret = percent_value(float(np.mean([case.regret for case in cases])))
    sentence = (
        f"The other sets likewise. Accuracy with {LABELS} labels, mean over 5 draws of labels, which are everything that anything "
        "looked at; test splits above 2,000 texts are sampled to 2,000 once. Words and each encoder: the method that is best in "
        "hindsight, without a pretrained network and on that encoder's frozen vectors. Recommended: what each draw recommends by "
        f"its own labels, at {regret} points of regret on average. Read by: encoders that are known to have read the set, whose "
        "scores there are not those of a new task."
    )
    return "\n".join(lines) + "\n\n" + paragraph(sentence)


def _set_name(case: Case) -> str:
    return f"{case.name} ({SETS[case.name].remark})" if SETS[case.name].remark else case.name


def _readers(name: str) -> list[str]:
    """The encoders of the table that have read a set."""
    known = {one: read_by(ENCODERS[one].model) for one in AT_HAND}
    return [encoder for encoder, read in known.items() if named_in([data.name for data in read], name)]


def encoders_table(page: str, minutes: float) -> Table:
    """One race for each set."""
    commands = tuple(
        f"warmstart race runs/tasks/{name}/task.yaml --backbones {' '.join(AT_HAND)} --labels {LABELS} --schemes probe "
        f"--no-scratch --selection none --seeds 5 --drop-leaks --out runs/tables/encoders/{name}"
        for name in NAMES
    )
    return Table("encoders", (page,), commands, encoders, minutes=minutes, shown=1)
