"""Text in, text out: a bundle continues prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch

from warmstart.errors import ModelError
from warmstart.generation.decoding import Decoded, OnToken, decode
from warmstart.generation.settings import GenerateConfig
from warmstart.model.bundle import Bundle


# a string is itself a sequence of strings, so the first signature is a case of the second one with another result
@overload
def generate(bundle: Bundle, prompts: str, config: GenerateConfig | None = None) -> str: ...  # type: ignore[overload-overlap]
@overload
def generate(bundle: Bundle, prompts: Sequence[str], config: GenerateConfig | None = None) -> list[str]: ...
def generate(bundle: Bundle, prompts: str | Sequence[str], config: GenerateConfig | None = None) -> str | list[str]:
    """Continue a prompt, or each of several; returns the continuations alone, one string for one prompt.

    A continuation ends at an end-of-text token or after ``config.max_new_tokens``. It does not depend on the other prompts. Raises
    ``ModelError`` if the model does not generate text.

    >>> ws.generate(ws.load("runs/lm"), "She holds", ws.GenerateConfig(max_new_tokens=4, greedy=True))
    ' the cat and rubs'
    """
    if isinstance(prompts, str):
        return generate(bundle, [prompts], config)[0]
    return [bundle.tokenizer.decode(row.ids) for row in continue_prompts(bundle, prompts, config or GenerateConfig())]


def continue_prompts(
    bundle: Bundle, prompts: Sequence[str], config: GenerateConfig, on_token: OnToken | None = None
) -> list[Decoded]:
    """The continuations as token ids with their log-probabilities; ``on_token`` is called for every new token."""
    if not bundle.generates:
        raise ModelError(
            "this bundle does not generate text: that takes a language head pretrained with the objective causal, span or hybrid; "
            "pretrain one, or use `warmstart predict` if it was adapted to a task"
        )
    specials = bundle.tokenizer.specials
    rows = [[specials.begin, *ids] for ids in bundle.tokenizer.encode(prompts)]
    banned = torch.tensor(bundle.never_generated)
    return decode(bundle.model, rows, config, banned=banned, stop={specials.eos}, on_token=on_token)
