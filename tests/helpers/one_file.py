"""A model as the scripts of a page compute with it, in a browser, without the page around it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from warmstart.model.bundle import Bundle
from warmstart.serve.one_file.contents import page_contents
from warmstart.serve.one_file.document import joined_scripts

_RUN = """async ({ script, facts, weights, work, given }) => {
    for (const [id, text] of [["facts", facts], ["weights", weights]]) {
        const part = document.createElement("script");
        Object.assign(part, { id, type: "text/plain", textContent: text });
        document.body.append(part);
    }
    const model = await new Function(`${script}; return module_api.ready`)();
    return await new Function("model", "given", `return (async () => { ${work} })()`)(model, given);
}"""


def in_browser(page: Any, bundle: Bundle, work: str, given: Any) -> Any:
    """What JavaScript makes of ``given`` with the ``model``; ``page`` is an empty one."""
    contents = page_contents(bundle, "hf:none", "tested")
    packed = base64.b64encode(contents.weights).decode()
    page.goto("about:blank")
    return page.evaluate(
        _RUN,
        {"script": joined_scripts("api.js"), "facts": json.dumps(contents.facts), "weights": packed, "work": work, "given": given},
    )


def browser_probabilities(page: Any, bundle: Bundle, texts: Sequence[str]) -> Any:
    """(N, C) what the scripts predict for N texts."""
    return in_browser(page, bundle, "return given.map((text) => model.probabilities(text));", list(texts))
