"""The ``generate`` command: text, and why each word of it was chosen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator
from rich.console import Console
from tyro.conf import Positional, arg

from warmstart.config import Config
from warmstart.data import Document, Source, documents_of
from warmstart.generation import Counts, GenerateConfig, trace
from warmstart.generation import generate as write
from warmstart.report.trace import print_trace, write_trace
from warmstart.storage import write_forced
from warmstart.workflows.pages import footer
from warmstart.workflows.run import load_model


class GenerateCommand(Config):
    """Continue prompts with a language model, and show for every word which others it might have been."""

    model: Positional[str]
    """a pretrained model: a bundle, or a run's folder"""
    prompts: Positional[tuple[str, ...]] = ("",)
    """texts to continue; none: begin a new text"""
    options: Annotated[GenerateConfig, arg(name="")] = GenerateConfig()
    trace: int = Field(0, ge=0, le=100)
    """how many of the likeliest tokens to show at every step; 0: only the text"""
    trace_html: str | None = None
    """also write the trace as a page"""
    trace_data: str | None = None
    """also write the trace as JSON"""
    truth: str | None = None
    """the text the model learned from: beside each step, what followed the same words there"""
    truth_document: Document = "paragraph"
    """what one document of that text is"""
    truth_order: int = Field(3, gt=0)
    """how many tokens before are looked at"""

    @model_validator(mode="after")
    def _traced(self) -> GenerateCommand:
        asked = [name for name in ("trace_html", "trace_data", "truth") if getattr(self, name)]
        if asked and not self.trace:
            raise ValueError(f"{asked[0]} belongs to a trace; say how many tokens to show, for instance --trace 6")
        return self


def generate(config: GenerateCommand) -> None:
    """Each prompt with its continuation, or its trace."""
    bundle = load_model(config.model)
    if not config.trace:
        for prompt, text in zip(config.prompts, write(bundle, config.prompts, config.options), strict=True):
            sys.stdout.write(prompt + text + "\n")
        return
    counts = None
    if config.truth:
        documents = documents_of([Source(path=config.truth, document=config.truth_document)])
        counts = Counts(bundle.tokenizer, documents, config.truth_order)
    traces = trace(bundle, config.prompts, config.options, config.trace, counts)
    for one in traces:
        print_trace(one, Console())
    if config.trace_html:
        write_trace(traces, Path(config.trace_html), footer())
    if config.trace_data:
        data = [one.plain() for one in traces]
        write_forced(Path(config.trace_data), json.dumps(data, ensure_ascii=False, indent=1).encode(), "the trace")
