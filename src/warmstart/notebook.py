"""What a notebook shows of a value: the tables and charts of its report, drawn when they are asked for.

This file imports nothing, so that any class may use it; ``report.notebook`` does the work.
"""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar


class Shown:
    """A value that a notebook shows as a report.

    ``class Comparison(Shown, view="commands.race.page:race_view")`` names the function that makes the report of a value. It is
    looked up as late as the names of ``warmstart`` itself, so that a value knows no chart until it is shown.
    """

    _view: ClassVar[str]

    def __init_subclass__(cls, *, view: str | None = None) -> None:
        if view is not None:
            cls._view = view

    def _repr_html_(self) -> str:
        module, _, function = self._view.partition(":")
        html: str = import_module(".report.notebook", __package__).fragment(
            getattr(import_module(f".{module}", __package__), function)(self)
        )
        return html
