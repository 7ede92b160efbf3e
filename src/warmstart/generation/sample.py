"""A sentence that shows what a language model has learned: how it goes on from held-out text, or what it puts into a gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from warmstart.corpora.store import TokenText
from warmstart.data.encode import encode
from warmstart.generation.generate import generate
from warmstart.model.bundle import Bundle
from warmstart.tokenizer.tokenizer import Tokenizer

DOCUMENTS, DOCUMENT_TOKENS = 50, 40
"""documents, and tokens of the beginning of each, of which one is taken"""
PROMPT_WORDS, WRITTEN_CHARACTERS, LIKELY = 4, 240, 3
BLANK = "____"


class TextSample(NamedTuple):
    """One sentence about a text."""

    sentence: str
    text: str
    """text of the held-out documents: the prompt, or the text with the gap"""


def beginnings(tokenizer: Tokenizer, store: TokenText) -> Iterator[str]:
    """The beginnings of some documents, as text."""
    numbers = np.arange(min(DOCUMENTS, store.documents))
    blocks, counts = store.documents_block(numbers, DOCUMENT_TOKENS, tokenizer.specials.pad)
    return (tokenizer.decode(row[:count]) for row, count in zip(blocks, counts, strict=True))


def sample_of(bundle: Bundle, text: str) -> TextSample | None:
    """A model's continuation of a text, or its words for a gap; None if it neither writes nor fills gaps, or has no such word."""
    if bundle.generates:
        prompt = " ".join(text.split()[:PROMPT_WORDS])
        return TextSample(f"It writes: {_quoted(prompt, '→', generate(bundle, prompt))}", prompt)
    filled = _filled(bundle, text) if bundle.likelihood == "masked" else None
    return TextSample(filled, text) if filled else None


def _quoted(*parts: str) -> str:
    """Texts on one line, in quotation marks, with a full stop; a long one is cut."""
    line = " ".join(" ".join(parts).split())
    return f'"{line if len(line) <= WRITTEN_CHARACTERS else line[:WRITTEN_CHARACTERS].rpartition(" ")[0] + " …"}".'


@torch.inference_mode()
def _filled(bundle: Bundle, text: str) -> str | None:
    """The likeliest words for the longest word of a text that is one token, other than the first; None if there is none."""
    tokenizer, model = bundle.tokenizer, bundle.model
    [ids] = encode(tokenizer, [text], model.backbone.config.max_length).rows
    row, starts = ids.tolist(), tokenizer.vocabulary().word_starts[ids]
    words = [i for i in range(2, len(row) - 1) if starts[i] and starts[i + 1] and tokenizer.token(row[i]).strip().isalpha()]
    if not words:
        return None
    place = max(words, key=lambda i: len(tokenizer.token(row[i])))
    masked = torch.tensor(ids)
    masked[place] = tokenizer.specials.mask
    logits = model.head(model.backbone(masked[None], causal=False).last_hidden_state[0, place])
    logits[bundle.never_generated] = -torch.inf
    likely = [tokenizer.decode([token]).strip() for token in logits.topk(LIKELY).indices.tolist()]
    before, after = (tokenizer.decode(part).strip() for part in (row[:place], row[place + 1 :]))
    fillings = " or ".join(f'"{word}"' for word in likely)
    return f'It fills in "{before} {BLANK} {after}" with {fillings}; the text has "{tokenizer.decode([row[place]]).strip()}".'
