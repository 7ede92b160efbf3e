"""Writes the pages of the reference that follow from the code: every command with its flags, and every public name of Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import warmstart
from warmstart.commands import COMMANDS
from warmstart.config import Config
from warmstart.flags import Flag, all_flags, file_settings

FOLDER = "reference/generated"
STATISTICS = Path(__file__).parents[1] / "reference" / "statistics.md"
"""lists every public statistic behind the name of its module"""


def setup(app: Sphinx) -> dict[str, Any]:
    """Sphinx calls this."""
    app.connect("builder-inited", _write)
    app.connect("autodoc-process-docstring", _as_text)
    app.connect("autodoc-skip-member", _skip)
    return {"parallel_read_safe": True}


def _write(app: Sphinx) -> None:
    """Each page anew, if it has changed, so that the next build reads only those."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    pages = {f"{name.replace(' ', '-').strip('_')}.rst": _command_page(name) for name in COMMANDS}
    entries = [page.removesuffix(".rst") for page in pages]
    pages["commands.rst"] = "\n".join(
        [*_title("Every command and its flags"), ".. toctree::", "", *(f"   {one}" for one in entries), ""]
    )
    public = {name: f"warmstart.{name}" for name in warmstart.__all__ if not name.startswith("__")}
    pages |= {
        "python.rst": _names_page("warmstart", public),
        "python-statistics.rst": _names_page("warmstart.stats", _statistics()),
    }
    for file in {*folder.glob("*.rst")} - {folder / name for name in pages}:
        file.unlink()
    for name, text in pages.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def _title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def _command_page(name: str) -> str:
    """What a command does, and a table of its flags, those first that ``--help`` shows."""
    settings = COMMANDS[name].load_settings()
    flags = [*all_flags(settings)]
    lines = [*_title(f"warmstart {name}"), _escaped(inspect.getdoc(settings) or ""), "", f"*{_escaped(COMMANDS[name].help)}*", ""]
    tables = {title: [flag for flag in flags if flag.advanced is one] for title, one in (("Basic", False), ("Advanced", True))}
    for title, rows in (tables | {"No flags: keys of the file of --config": [*file_settings(settings)]}).items():
        if rows:
            lines += [f".. rubric:: {title}", "", *_table(rows)]
    return "\n".join(lines)


def _table(flags: Sequence[Flag]) -> Iterator[str]:
    yield from (
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 25 20 55",
        "",
        "   * - flag",
        "     - value",
        "     - meaning",
    )
    for flag in flags:
        default = f" Default: ``{flag.default}``." if flag.default.strip("`") else ""
        end = "" if flag.help.endswith((".", "…")) or not flag.help else "."
        yield from (f"   * - ``{flag.name}``", f"     - {_escaped(flag.values)}", f"     - {_escaped(flag.help)}{end}{default}")
    yield ""


def _statistics() -> dict[str, str]:
    """Every public statistic, and the dotted name of where it is defined."""
    cells = " ".join(re.findall(r"^- (`.+?`): ", STATISTICS.read_text(encoding="utf-8"), flags=re.MULTILINE))
    values = [getattr(import_module(f"warmstart.stats.{module}"), name) for module, name in re.findall(r"`(\w+)\.(\w+)`", cells)]
    return {value.__name__: f"{value.__module__}.{value.__name__}" for value in values}


def _names_page(title: str, names: Mapping[str, str]) -> str:
    """Every public name by its dotted name, functions first."""
    lines = _title(title)
    for kind, heading in ((inspect.isroutine, "Functions"), (inspect.isclass, "Classes")):
        lines += [heading, "-" * len(heading), ""]
        for name in sorted(names, key=str.lower):
            module, _, attribute = names[name].rpartition(".")
            found = getattr(import_module(module), attribute)
            if kind(found):
                settings = inspect.isclass(found) and issubclass(found, Config)
                directive = "autofunction" if kind is inspect.isroutine else "autoclass"
                lines += [
                    f".. {directive}:: {names[name]}",
                    *([] if directive == "autofunction" or settings else ["   :members:"]),
                    "",
                ]
    return "\n".join(lines)


def _as_text(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain English: what is indented becomes a literal block, and no character is markup but double backticks."""
    written: list[str] = []
    inside = False
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        indented = line.startswith(("    ", ">>> ")) or (inside and not line.strip())
        if indented and not inside:
            written += ["", "::", ""]
        if inside and not indented:
            written.append("")
        inside = indented
        written.append(f"    {line}" if indented else _escaped(line))
    lines[:] = [*written, ""]


def _skip(app: Sphinx, what: str, name: str, found: Any, skip: bool, options: Any) -> bool | None:
    """What pydantic adds to classes is no part of the interface."""
    return True if name.startswith("model_") else None


def _escaped(text: str) -> str:
    """Text for reStructuredText: only ``code`` in double backticks, and single backticks around code, are markup."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", " ".join(text.split()) if "\n" in text else text)
    return "".join(f"``{part.strip('`')}``" if i % 2 else re.sub(r"([\\*|_`<>])", r"\\\1", part) for i, part in enumerate(parts))
