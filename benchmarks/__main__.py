"""All tables, or those that are named: ``python -m benchmarks training writing``; with ``--write`` into docs/performance.md."""

from __future__ import annotations

import datetime
import importlib
import re
import sys
from pathlib import Path

import torch

from warmstart.engine import describe_machine

TABLES = (
    "training", "compiling", "limit", "profile", "sizes", "threads", "finetuning", "reading", "scoring", "writing", "preparing",
    "starting", "fewshot", "reaching", "recipe", "hiding",
)  # fmt: skip
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def written(page: str, name: str, found: str) -> str:
    """The page with a table in its place, between ``<!-- name -->`` and ``<!-- end -->``."""
    where = f"{describe_machine(torch.device('cpu'))}, {datetime.date.today().isoformat()}, `python -m benchmarks {name}`"
    body = f"<!-- {name} -->\n\n{found}\n\n{where}\n\n<!-- end -->"
    return re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _: body, page, flags=re.DOTALL)


def main(words: list[str]) -> None:
    """Run and print; each table is written as soon as it is there."""
    for name in [word for word in words if word != "--write"] or TABLES:
        found = importlib.import_module(f"benchmarks.{name}").run()
        print(found, end="\n\n", flush=True)
        if found and "--write" in words:
            PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), name, found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
