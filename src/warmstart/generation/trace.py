"""Why each token was generated: the most probable tokens at every step, and what followed in a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, overload

from torch import Tensor

from warmstart.generation.decoding import sampling_probabilities
from warmstart.generation.generate import continue_prompts
from warmstart.generation.ngram_counts import NextTokenCounts, NgramCounts
from warmstart.generation.settings import GenerateConfig
from warmstart.model.bundle import Bundle
from warmstart.notebook import Shown
from warmstart.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Step:
    """One generated token. Probabilities are the model's own, before temperature, top-k and top-p."""

    token: str
    probability: float
    sampling_probability: float
    """probability of the token after temperature, top-k and top-p; 1 for greedy decoding"""
    entropy: float
    """entropy of the model's probabilities, in nats"""
    candidates: tuple[tuple[str, float], ...]
    """the most probable tokens with their probabilities, in descending order"""
    corpus: NextTokenCounts | None = None
    """counts of the tokens that followed in the corpus, if there is one"""


@dataclass(frozen=True)
class Trace(Shown, view="report.notebook:trace_view"):
    """A prompt and how it was continued. The last step is the token that ended it, ``[EOS]``, unless ``max_new_tokens`` did."""

    prompt: str
    text: str
    steps: tuple[Step, ...]

    def to_dict(self) -> dict[str, Any]:
        """Prompt, text and steps as plain values, fit for JSON."""
        return asdict(self)


@overload
def trace(  # type: ignore[overload-overlap]  # see ``generate``
    bundle: Bundle, prompts: str, config: GenerateConfig | None = None, k: int = 6, counts: NgramCounts | None = None
) -> Trace: ...
@overload
def trace(
    bundle: Bundle, prompts: Sequence[str], config: GenerateConfig | None = None, k: int = 6, counts: NgramCounts | None = None
) -> list[Trace]: ...
def trace(
    bundle: Bundle,
    prompts: str | Sequence[str],
    config: GenerateConfig | None = None,
    k: int = 6,
    counts: NgramCounts | None = None,
) -> Trace | list[Trace]:
    """Continue a prompt, or each of several, as ``generate`` does, and note the ``k`` most probable tokens of every step.

    With the ``counts`` of a corpus, each step also says what followed there. Raises ``ModelError`` if the model does not generate
    text.
    """
    if isinstance(prompts, str):
        return trace(bundle, [prompts], config, k, counts)[0]
    config = config or GenerateConfig()
    tokenizer = bundle.tokenizer
    steps: list[list[Step]] = [[] for _ in prompts]
    read = [[tokenizer.specials.begin, *ids] for ids in tokenizer.encode(prompts)]

    def note(row: int, log_probabilities: Tensor, chosen: int) -> None:
        step = step_of(tokenizer, log_probabilities, chosen, config, most_probable(log_probabilities, k))
        steps[row].append(replace(step, corpus=counts.after(read[row], log_probabilities, k)) if counts else step)
        read[row].append(chosen)

    decoded = continue_prompts(bundle, prompts, config, note)
    return [
        Trace(prompt, tokenizer.decode(row.ids), tuple(noted)) for prompt, row, noted in zip(prompts, decoded, steps, strict=True)
    ]


def step_of(tokenizer: Tokenizer, log_probabilities: Tensor, chosen: int, config: GenerateConfig, candidates: Tensor) -> Step:
    """The step at which ``chosen`` was generated, from ``log_probabilities`` (V,) and the most probable tokens, (k,)."""
    probabilities = log_probabilities.double().exp()
    return Step(
        token=tokenizer.token(chosen),
        probability=float(probabilities[chosen]),
        sampling_probability=1.0 if config.greedy else float(sampling_probabilities(log_probabilities, config)[chosen]),
        entropy=float(-(probabilities * log_probabilities.double()).nan_to_num(0.0).sum()),
        candidates=tuple((tokenizer.token(i), float(probabilities[i])) for i in candidates.tolist()),
    )


def most_probable(log_probabilities: Tensor, k: int) -> Tensor:
    """(k,) the tokens of the largest of (V,) log-probabilities, in descending order; of equal ones the first."""
    return log_probabilities.sort(descending=True, stable=True).indices[:k]
