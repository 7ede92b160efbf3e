"""Where the time of a race with a hundred labels goes: seconds by part of the work, and by method.

The race is ``warmstart race recipes/tasks/trec.yaml --labels 100 --drop-leaks --batch 16`` with an imported encoder
(``MINILM`` names it) and ``SEEDS`` draws (default: 2).
"""

from __future__ import annotations

import cProfile
import os
import pstats
from tempfile import TemporaryDirectory

from benchmarks.harness import table

from warmstart.cli import read_command
from warmstart.experiment.comparison import Comparison

PARTS = {
    "texts: reading, audit, tokens": (
        ("tasks/load.py", "load_task"),
        ("data/audit.py", "audit"),
        ("finetuning/inputs.py", "of"),
    ),
    "frozen states of the texts": (("finetuning/inputs.py", "from_features"), ("experiment/inputs.py", "trial_vectors")),
    "copies of the model": (("finetuning/finetune.py", "task_model"),),
    "forward passes": (("finetuning/inputs.py", "loss"),),
    "backward passes": (("torch/_tensor.py", "backward"),),
    "clipping and AdamW": (("training/optimizers.py", "step"),),
    "predictions for texts that choose": (("finetuning/finetune.py", "evaluate"),),
    "predictions for test texts": (("finetuning/finetune.py", "predict_test"),),
    "baselines": (("baselines/choice.py", "run_baseline"),),
    "stack": (("experiment/execution.py", "run_stack"),),
}
"""part -> functions, by the end of their file's path; none of them calls another one"""


def seconds_by_part(profile: cProfile.Profile) -> dict[str, float]:
    """The time inside the functions of each part, and what is left."""
    found = dict.fromkeys(PARTS, 0.0)
    for (file, _, name), (_, _, _, inside, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        for part, functions in PARTS.items():
            found[part] += inside * any(name == function and file.endswith(end) for end, function in functions)
    return found


def run() -> str:
    """Two tables: seconds and share of every part; of every method, for choosing and for the last fit, over all draws."""
    profile = cProfile.Profile()
    with TemporaryDirectory() as folder:
        command, settings = read_command(["import", os.environ["MINILM"], "--out", f"{folder}/minilm"])
        command(settings)
        race = f"race recipes/tasks/trec.yaml --backbones {folder}/minilm --labels 100 --drop-leaks --batch 16 --out {folder}/race"
        command, settings = read_command([*race.split(), "--seeds", os.environ.get("SEEDS", "2")])
        result = profile.runcall(command, settings)
    assert isinstance(result, Comparison)
    return f"{_parts(profile)}\n\n{_methods(result)}"


def _parts(profile: cProfile.Profile) -> str:
    whole, parts = pstats.Stats(profile).total_tt, seconds_by_part(profile)  # type: ignore[attr-defined]
    rows = [*parts.items(), ("everything else", whole - sum(parts.values())), ("the whole race", whole)]
    return table(("part", "seconds", "share"), [(name, f"{seconds:.1f}", f"{seconds / whole:.0%}") for name, seconds in rows])


def _methods(result: Comparison) -> str:
    rows = [
        (row.method.name, f"{sum(run.search_seconds for run in row.runs):.1f}", f"{sum(run.seconds for run in row.runs):.1f}")
        for row in result.ranking.methods
    ]
    return table(("method", "choosing, s", "last fit, s"), rows)


if __name__ == "__main__":
    print(run())
