"""The page as one file: styles, scripts, facts and weights in HTML, with a content security policy; and the same read back.

The scripts are those of the server's page, but for ``api.js``, which asks the model in the page instead of a server. They are
written as modules, and joined here into one: each file is a function that returns what it exports. The policy allows that one
script and that one style sheet by their hashes and nothing else: no network, no ``eval``, no script in a label.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

from warmstart.app.one_file.contents import (
    PageContents,
    page_contents,
    refuse_unable,
    rounding_effect,
)
from warmstart.app.one_file.parts import with_page_weights
from warmstart.app.one_file.weights import unpack_tensors
from warmstart.errors import BundleError
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.report.templates import COMMON_STYLE, VERDICT_STYLE, page_template
from warmstart.runs.verdict import verdict_of
from warmstart.system.limits import refused_if_malformed
from warmstart.system.outputs import remember_output
from warmstart.system.storage import atomic_file, require_format, sealed, sha256, unsealed
from warmstart.version import __version__

_SERVED = Path(__file__).parents[1] / "page"
"""files of the server's page"""
_OWN = Path(__file__).parent / "page"
"""files of this page alone; they take the place of those of the same name"""
_PANELS = {"classify": ("Classify", {"predict"}), "write": ("Write", {"generate"}), "checks": ("File checks", {"card"})}
"""id -> title, and the abilities of which a model needs one"""
_IMPORT = re.compile(r'^import \{ (.*?) \} from "\./(.*?)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_PART = r'<script type="{kind}" id="{id}">(.*?)</script>'
VALUES = 50_000_000
"""values in the facts of a page, at most"""


def write_model_page(model: Bundle | Stack, path: str, name: str, file: Path) -> float:
    """Write the model at ``path`` as a page, which is read back before it is put in its place.

    Returns how far the rounded weights change the outputs for a few texts, as a fraction of the largest output. Raises
    ``ModelError`` for a model that cannot run in a page.
    """
    refuse_unable(model)
    page = page_html(page_contents(model, path, name))
    with atomic_file(file, "the page") as aside:
        aside.write_bytes(page)
        contents = read_page(aside)
        remember_output(file, page)
    return rounding_effect(model, as_in_page(model, contents))


def as_in_page(model: Bundle | Stack, contents: PageContents) -> Bundle | Stack:
    """A model with the rounded weights of its page."""
    tensors = unpack_tensors(contents.facts["weights"], contents.weights)
    return with_page_weights(model, {name: tensor for name, (tensor, _) in tensors.items()})


def page_html(contents: PageContents) -> bytes:
    """The whole file."""
    model = contents.facts["model"]
    abilities = set(model["abilities"])
    panels = {panel: (title, [model]) for panel, (title, needed) in _PANELS.items() if needed & abilities}
    script, style = (
        joined_scripts("page.js"),
        "".join(file.read_text(encoding="utf-8") for file in (COMMON_STYLE, VERDICT_STYLE, _SERVED / "page.css")),
    )
    plain = json.loads(json.dumps(contents.facts, allow_nan=False))  # as they are read back: keys are strings
    facts = json.dumps(sealed(plain)).replace("<", "\\u003c")
    template = page_template("one_file.html.jinja", _SERVED)
    text = template.render(
        panels=panels, labels="", verdict=verdict_of(plain["verdict"]) if plain["verdict"] else None,
        facts=contents.facts, facts_json=facts, script=script, style=style, policy=security_policy(script, style),
        weights=base64.b64encode(contents.weights).decode(),
    )  # fmt: skip
    return text.encode(errors="backslashreplace")


def security_policy(script: str, style: str) -> str:
    """The rights of a page in the browser: to run this script, apply this style sheet, and show images that are in the page."""
    return (
        f"default-src 'none'; script-src '{source_hash(script)}'; style-src '{source_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def source_hash(text: str) -> str:
    """A script or a style sheet as a policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def joined_scripts(name: str) -> str:
    """A module and all that it imports as one, in the order of need.

    ``export function f`` of ``a.js`` becomes ``f`` of ``const a = (() => { … return { f }; })();``, an import takes it from there.
    """
    parts: dict[str, str] = {}

    def add(file: str) -> None:
        if file in parts:
            return
        place = _OWN / file if (_OWN / file).is_file() else _SERVED / file
        text = place.read_text(encoding="utf-8")
        for _, needed in _IMPORT.findall(text):
            add(needed)
        exported = ", ".join(_EXPORT.findall(text))
        body = _EXPORT.sub("", _IMPORT.sub(lambda match: f"const {{ {_renamed(match[1])} }} = {_variable(match[2])};", text))
        parts[file] = f"const {_variable(file)} = (() => {{\n{body}\nreturn {{ {exported} }};\n}})();\n"

    add(name)
    return "\n" + "\n".join(parts.values())


def _renamed(names: str) -> str:
    """``setUp as classify, run`` -> ``setUp: classify, run``."""
    return names.replace(" as ", ": ")


def _variable(file: str) -> str:
    return "module_" + file.removesuffix(".js")


def read_page(file: Path) -> PageContents:
    """Facts and weights of a page. Raises ``BundleError`` for a file that is none, is damaged, or was changed.

    A page of this version must be what this version writes of these facts and weights: then its script, its policy and all else in
    it are ours. What another version wrote cannot be compared.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"cannot read {file}: {error}; give a page that `warmstart export --to page` wrote") from None
    parts = {id: _part(text, kind, id) for id, kind in (("facts", "application/json"), ("weights", "text/plain"))}
    if missing := [id for id, part in parts.items() if part is None]:
        raise BundleError(
            f"{file} must be a page that `warmstart export --to page` wrote, but it has no part '{missing[0]}'; give another file"
        )
    with refused_if_malformed(BundleError, f"{file} must hold a sound page", "export it again"):
        contents = _contents(file, str(parts["facts"]), str(parts["weights"]))
        if of_this_version(contents) and text != (wanted := page_html(contents).decode()):
            lines = enumerate(zip_longest(text.split("\n"), wanted.split("\n")), 1)
            raise BundleError(
                f"script, policy and page of {file} must be those that warmstart {__version__} writes, but differ from line "
                f"{next(number for number, (line, other) in lines if line != other)} on; do not open it, and export it again"
            )
    return contents


def of_this_version(contents: PageContents) -> bool:
    """True if this version of warmstart wrote a page."""
    return bool(contents.facts["warmstart"] == __version__)


def _contents(file: Path, facts: str, weights: str) -> PageContents:
    """Both as their hashes say that they were written."""
    known = _facts(file, facts)
    try:
        packed = base64.b64decode(weights, validate=True)
    except ValueError:
        packed = b""
    if sha256(packed) != known["weights"]["sha256"]:
        raise BundleError(f"the weights in {file} are damaged: their hash is not the one in the page; copy or export it again")
    return PageContents(known, packed)


def _part(text: str, kind: str, id: str) -> str | None:
    part = re.search(_PART.format(kind=kind, id=id), text, re.DOTALL)
    return part[1] if part else None


def _facts(file: Path, text: str) -> dict[str, Any]:
    try:
        facts = unsealed(text, values=VALUES)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{file} is damaged or was edited: {error}; copy or export it again") from None
    require_format(facts, file, BundleError)
    return facts
