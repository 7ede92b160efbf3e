"""Prints all tables, or those named, as in ``python -m benchmarks training generation``.

``--write`` also puts them into docs/performance.md.
"""

from __future__ import annotations

import datetime
import importlib
import re
import sys
from pathlib import Path

import torch

from warmstart.device import describe_machine

TABLES = (
    "training", "compilation", "limit", "profile", "sizes", "threads", "finetuning", "inference", "scoring", "generation", "corpus",
    "startup", "fewshot", "convergence", "recipe", "mask_rate",
)  # fmt: skip
PAGE = Path(__file__).parent.parent / "docs" / "performance.md"


def with_table(page: str, name: str, table: str) -> str:
    """The page with its table NAME replaced, between ``<!-- name -->`` and ``<!-- end -->``."""
    where = f"{describe_machine(torch.device('cpu'))}, {datetime.date.today().isoformat()}, `python -m benchmarks {name}`"
    body = f"<!-- {name} -->\n\n{table}\n\n{where}\n\n<!-- end -->"
    return re.sub(rf"<!-- {name} -->.*?<!-- end -->", lambda _: body, page, flags=re.DOTALL)


def main(words: list[str]) -> None:
    """Run and print; each table is written as soon as it is ready."""
    for name in [word for word in words if word != "--write"] or TABLES:
        table = importlib.import_module(f"benchmarks.{name}").run()
        print(table, end="\n\n", flush=True)
        if table and "--write" in words:
            PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), name, table), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
