"""The templates of pages."""

from __future__ import annotations

import functools
from pathlib import Path

import jinja2


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this folder; everything put into it is escaped."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    engine = jinja2.Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    return engine.get_template(name)
