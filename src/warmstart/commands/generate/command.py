"""``generate``: continue prompts, and show why each token was chosen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator
from rich.console import Console
from tyro.conf import Positional, arg

from warmstart.commands.generate.page import print_trace, write_trace
from warmstart.config import Advanced, Config, FileInput
from warmstart.data.source import Document, Source
from warmstart.generation.settings import GenerateConfig
from warmstart.system.outputs import free_output, write_output

LONGEST_CONTEXT = 3
"""tokens of the longest context that is counted in a corpus: longer ones occur once"""


class GenerateCommandConfig(Config):
    """Continue prompts with a language model, and show for every token which others were probable."""

    model: Positional[FileInput[str]]
    """a pretrained model: a bundle, or the folder of a run"""
    prompts: Positional[tuple[str, ...]] = ("",)
    """texts to continue; none: begin a new text"""
    options: Annotated[GenerateConfig, arg(name="")] = GenerateConfig()
    trace: int = Field(0, ge=0, le=100)
    """show this many of the most probable tokens at every step; 0: only the text"""
    trace_html: str | None = None
    """also write the trace as a page"""
    trace_json: Advanced[str | None] = None
    """also write the trace as JSON"""
    corpus: FileInput[str | None] = None
    """text that the model was trained on: show beside each step what follows the same context there"""
    corpus_document: Advanced[Document] = "paragraph"
    """one document of the corpus"""

    @model_validator(mode="after")
    def _needs_trace(self) -> GenerateCommandConfig:
        given = [name for name in ("trace_html", "trace_json", "corpus") if getattr(self, name)]
        if given and not self.trace:
            raise ValueError(f"{given[0]} needs a trace; set how many tokens to show, for instance --trace 6")
        if self.trace_html and self.trace_json and Path(self.trace_html).resolve() == Path(self.trace_json).resolve():
            raise ValueError(f"trace_html and trace_json need a file each, but both are {self.trace_html}; name another")
        return self


def generate(config: GenerateCommandConfig) -> list[dict[str, Any]]:
    """Print each prompt with its continuation, or its trace; the ``generate`` command."""
    from warmstart.data.read import documents_of
    from warmstart.generation.generate import generate as generate_texts
    from warmstart.generation.ngram_counts import NgramCounts
    from warmstart.generation.trace import trace
    from warmstart.interop.load import load_model
    from warmstart.report.sections import footer
    from warmstart.runs.made_of import input_paths

    for file, flag in ((config.trace_html, "--trace-html"), (config.trace_json, "--trace-json")):
        if file:
            free_output(file, input_paths(config), flag)
    bundle = load_model(config.model)
    if not config.trace:
        texts = [*zip(config.prompts, generate_texts(bundle, config.prompts, config.options), strict=True)]
        sys.stdout.write("".join(f"{prompt}{text}\n" for prompt, text in texts))
        return [{"prompt": prompt, "text": text} for prompt, text in texts]
    counts = None
    if config.corpus:
        documents = documents_of([Source(path=config.corpus, document=config.corpus_document)])
        counts = NgramCounts(bundle.tokenizer, documents, LONGEST_CONTEXT)
    traces = trace(bundle, config.prompts, config.options, config.trace, counts)
    for prompt_trace in traces:
        print_trace(prompt_trace, Console(markup=False, emoji=False))
    if config.trace_html:
        write_trace(traces, Path(config.trace_html), footer())
    data = [prompt_trace.to_dict() for prompt_trace in traces]
    if config.trace_json:
        write_output(Path(config.trace_json), json.dumps(data, ensure_ascii=False, indent=1).encode(), "the trace")
    return data
