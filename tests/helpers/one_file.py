"""A model as the scripts of a page compute with it, in a browser, without the page around it."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

import torch

from helpers.models import SENTENCES, make_backbone
from helpers.mutants import LABELS
from warmstart.app.one_file.contents import PageContents, model_facts
from warmstart.app.one_file.document import as_in_page, joined_scripts
from warmstart.app.one_file.parts import taken_apart
from warmstart.app.one_file.weights import pack_tensors
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import HeadConfig
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.model import Model, fresh_head
from warmstart.model.stack import Stack
from warmstart.tokenizer.tokenizer import Tokenizer

_RUN = """async ({ script, facts, weights, work, given }) => {
    for (const [id, text] of [["facts", facts], ["weights", weights]]) {
        const part = document.createElement("script");
        Object.assign(part, { id, type: "text/plain", textContent: text });
        document.body.append(part);
    }
    const model = await new Function(`${script}; return module_api.ready`)();
    return await new Function("model", "given", `return (async () => { ${work} })()`)(model, given);
}"""


def contents_of(model: Bundle | Stack) -> PageContents:
    """What the scripts compute with, of a model that is nowhere saved."""
    layout, packed = pack_tensors((parts := taken_apart(model)).tensors)
    return PageContents(model_facts(model, parts) | {"weights": layout, "replies": {}}, packed)


def in_browser(page: Any, bundle: Bundle | Stack, work: str, given: Any) -> Any:
    """What JavaScript makes of ``given`` with the ``model``; ``page`` is an empty one."""
    contents = contents_of(bundle)
    packed = base64.b64encode(contents.weights).decode()
    page.goto("about:blank")
    return page.evaluate(
        _RUN,
        {"script": joined_scripts("api.js"), "facts": json.dumps(contents.facts), "weights": packed, "work": work, "given": given},
    )


def browser_probabilities(page: Any, bundle: Bundle | Stack, texts: Sequence[str]) -> Any:
    """(N, C) what the scripts predict for N texts."""
    return in_browser(page, bundle, "return given.map((text) => model.probabilities(text));", list(texts))


def labelled(
    tokenizer: Tokenizer, head: HeadConfig | None = None, labels: tuple[str, ...] = LABELS, *, causal: bool = False, **switches: Any
) -> Bundle:
    """A model with random weights; those of its head are large, so that it is sure of what it says."""
    settings = {"width": 48, "heads": 4, "feedforward": 96, **switches}
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **settings)
    model = Model(backbone, fresh_head(head or ClassificationHeadConfig(classes=len(labels)), backbone, 0), causal=causal)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("head.") or name.endswith("bias"):
                parameter.normal_(std=0.5)
    return Bundle(model.eval(), tokenizer, labels, calibration=Calibration(temperature=1.3))


def made_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of known words in random order, some too long, some odd."""
    words, draw = " ".join(SENTENCES).split(), random.Random(seed)
    texts = [" ".join(draw.choices(words, k=draw.randrange(1, 40))) for _ in range(count - 4)]
    return [*texts, "[MASK] [EOS]", "ﬁ ①\u0301 שלום 字", "x" * 200, "."]


def rounded(bundle: Bundle | Stack) -> Any:
    """With the weights that a page computes with."""
    return as_in_page(bundle, contents_of(bundle))
