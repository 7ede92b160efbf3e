"""The HTML templates of pages."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2


@functools.cache
def page_template(name: str, folder: Path = Path(__file__).parent) -> jinja2.Template:
    """A template of a folder, this one by default, by its file name. It escapes everything that is put into it."""
    loader = jinja2.FileSystemLoader(folder)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)
