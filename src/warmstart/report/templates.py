"""The HTML templates of pages."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2


@functools.cache
def page_template(name: str) -> jinja2.Template:
    """A template of this folder by its file name. It escapes everything that is put into it."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return environment.get_template(name)
