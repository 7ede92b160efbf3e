"""Prints the tiers of tests beside `make test` that the last day's commits touched, one a line; on standard error, why.

Everything, if it cannot tell: no history, or a file of src that no row of the table names.
"""

import re
import subprocess
import sys
from pathlib import Path

TIERS = ("proofs", "journeys", "chaos")
TABLE = {  # the first row that a path begins with decides; where none does, `make test` is enough
    **dict.fromkeys(["stats", "baselines", "inspection"], "proofs"),
    **dict.fromkeys(["labelling", "experiment", "commands"], "proofs journeys chaos"),
    **dict.fromkeys(["finetuning", "studies"], "proofs journeys"),
    **dict.fromkeys(["serve", "system", "training", "runs"], "journeys chaos"),
    **dict.fromkeys(["report", "objectives"], "journeys"),
    **dict.fromkeys(["data", "corpora", "tokenizer", "model", "stack", "interop"], "chaos"),
    **dict.fromkeys(["tasks", "heads", "backbone", "adapters", "generation", "cost", "estimators"], ""),
    **{file.name: "journeys chaos" for file in Path("src/warmstart").glob("*.*")},
}
ROWS = {
    **{f"src/warmstart/{name}": tiers for name, tiers in TABLE.items()},
    **dict.fromkeys(["notebooks", "recipes", "benchmarks", "packaging", "pyproject.toml", "constraints.txt"], "journeys"),
    **dict.fromkeys(["src", "tests/conftest"], " ".join(TIERS)),
}


def tiers_of(path: str) -> list[str]:
    """Of one changed file. A test's are its marks; those of a helper, the marks of the tests that import it."""
    if re.match(r"tests/(helpers/|test_)", path):
        name, texts = Path(path).stem, {file.stem: file.read_text() for file in Path("tests").glob("test_*.py")}
        users = [text for stem, text in texts.items() if stem == name or f"helpers.{name} " in text]
        return [tier for tier in TIERS if any(f"mark.{tier}" in text.replace("IN_A_BROWSER", "mark.journeys") for text in users)]
    return next((tiers.split() for prefix, tiers in ROWS.items() if path.startswith(prefix)), [])


def output(command: str) -> str:
    """What git says; nothing if it fails."""
    return subprocess.run(command.split(), capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """The last day's commits against the table."""
    paths = sorted({*output("git log --since=1.day --name-only --format=").split("\n")} - {""})
    cannot_tell = not paths or output("git rev-parse --is-shallow-repository") != "false"
    for tier in TIERS:
        why = ["no history of the last day"] if cannot_tell else [path for path in paths if tier in tiers_of(path)]
        more = f" and {len(why) - 3} more" if len(why) > 3 else ""
        print(f"{tier}: {', '.join(why[:3])}{more}" if why else f"{tier}: not touched", file=sys.stderr)
        if why:
            print(tier)


main()
