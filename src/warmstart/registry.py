"""Tables of named parts: a new objective, head or scheme is one file and one row; contract tests go through the table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from warmstart.errors import ConfigError, suggest

Row = TypeVar("Row")


class Registry(Mapping[str, Row], Generic[Row]):
    """A read-only mapping from names to parts. A missing name is a ``ConfigError`` with a suggestion, for ``get`` too."""

    def __init__(self, noun: str, rows: Mapping[str, Row]) -> None:
        self.noun = noun
        self._rows = dict(rows)

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            raise ConfigError(f"unknown {self.noun} '{name}'; {suggest(name, self._rows)}")
        return self._rows[name]

    def known(self, name: str) -> str:
        """The name itself if it is in the table, else ``ConfigError``: a validator for settings."""
        self[name]
        return name

    def __contains__(self, name: object) -> bool:
        return name in self._rows  # the inherited one calls ``__getitem__`` and would pass its error on

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)
