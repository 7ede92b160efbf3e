"""Why each word was written: at every step the likeliest tokens, and what the counts of the corpus would say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from warmstart.generation.choose import GenerateConfig, keep_likeliest
from warmstart.generation.counts import Counts, Truth
from warmstart.generation.sample import continue_prompts
from warmstart.model import Bundle


@dataclass(frozen=True)
class Step:
    """One written token. Probabilities are the model's own, before temperature, top-k and top-p."""

    token: str
    probability: float
    drawn_with: float
    """its probability after temperature, top-k and top-p; 1 where the likeliest is always taken"""
    entropy: float
    """of the model's probabilities, in nats: how open the choice was"""
    candidates: tuple[tuple[str, float], ...]
    """the likeliest tokens, likeliest first"""
    truth: Truth | None = None


@dataclass(frozen=True)
class Trace:
    """A prompt and how it was continued. The step that ended it is the last one, its token ``[EOS]``."""

    prompt: str
    text: str
    steps: tuple[Step, ...]

    def plain(self) -> dict[str, Any]:
        """All of it as plain values, fit for JSON."""
        return asdict(self)


def trace(
    bundle: Bundle, prompts: Sequence[str], config: GenerateConfig | None = None, k: int = 6, counts: Counts | None = None
) -> list[Trace]:
    """Continue each prompt as ``generate`` does, noting the ``k`` likeliest tokens of every step.

    With the ``counts`` of a corpus each step says what followed there. Raises ``ModelError`` where the model does not write.
    """
    config = config or GenerateConfig()
    tokenizer = bundle.tokenizer
    steps: list[list[Step]] = [[] for _ in prompts]
    read = [[tokenizer.specials.begin, *ids] for ids in tokenizer.encode(prompts)]

    def watch(place: int, said: Tensor, chosen: int) -> None:
        best = said.sort(descending=True, stable=True)
        drawn = 1.0 if config.greedy else float(keep_likeliest(said, config)[chosen])
        shares = said.double().exp()
        steps[place].append(
            Step(
                tokenizer.token(chosen),
                float(shares[chosen]),
                drawn,
                float(-(shares * said.double()).nan_to_num(0.0).sum()),
                tuple((tokenizer.token(int(i)), float(shares[i])) for i in best.indices[:k]),
                counts.truth(read[place], said, k) if counts else None,
            )
        )
        read[place].append(chosen)

    written = continue_prompts(bundle, prompts, config, watch)
    return [
        Trace(prompt, tokenizer.decode(one.ids), tuple(noted)) for prompt, one, noted in zip(prompts, written, steps, strict=True)
    ]
