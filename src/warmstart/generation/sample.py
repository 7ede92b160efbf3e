"""Text in, text out: a bundle continues prompts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from warmstart.errors import ModelError
from warmstart.generation.choose import GenerateConfig
from warmstart.generation.writing import Watch, Written, write
from warmstart.model import Bundle


def generate(bundle: Bundle, prompts: Sequence[str], config: GenerateConfig | None = None) -> list[str]:
    """Continue each prompt; returns the continuations alone. They end at an end-of-text token or after ``config.tokens``.

    A prompt's continuation does not depend on the prompts beside it. Raises ``ModelError`` where the model does not write.
    """
    return [bundle.tokenizer.decode(one.ids) for one in continue_prompts(bundle, prompts, config or GenerateConfig())]


def continue_prompts(bundle: Bundle, prompts: Sequence[str], config: GenerateConfig, watch: Watch | None = None) -> list[Written]:
    """The same as token ids with their log-probabilities; ``watch`` sees every choice."""
    if not bundle.generates:
        raise ModelError(
            "this bundle does not write text: it needs a language head pretrained with the objective causal, span or hybrid; "
            "pretrain one, or use `warmstart predict` if it was adapted to labels"
        )
    specials = bundle.tokenizer.specials
    rows = [[specials.begin, *ids] for ids in bundle.tokenizer.encode(prompts)]
    return write(bundle.model, rows, config, banned=torch.tensor(bundle.unwritten), stop={specials.eos}, watch=watch)
