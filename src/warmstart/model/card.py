"""The model card: a bundle's README.md, written from the bundle alone (Mitchell et al. 2019).

What the model is, how to use it, its scores beside those of baselines, the data with the findings of the audit, how it was made,
and its limits. It is for people: nothing reads it back, and it may be edited.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from typing import Any

from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.head import TaskHead
from warmstart.heads.language_modeling import LMHead
from warmstart.model.bundle import Bundle
from warmstart.model.history import (
    AdaptRecord,
    AnswersRecord,
    ComparisonRecord,
    ContinualRecord,
    PretrainRecord,
    Record,
    TaskRecord,
)
from warmstart.stats.formatting import percent, percent_interval, percent_range
from warmstart.stats.intervals import FEW_SEEDS

MAX_LABELS = 30
"""no more labels than this are listed"""


def card(bundle: Bundle) -> str:
    """The card in Markdown, with the header that the Hugging Face hub reads."""
    parts = [_header(bundle), f"# {_title(bundle)}", _description(bundle), "## Use", _usage(bundle)]
    for title, body in (
        ("Results", [_results(record) for record in bundle.history]),
        ("Data", [_data(record) for record in bundle.history]),
        ("How it was made", [_origin(record) for record in bundle.history]),
    ):
        if texts := [text for text in body if text]:
            parts += [f"## {title}", *texts]
    parts += ["## Limits", "\n".join(f"- {line}" for line in _limits(bundle))]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown; what a cell holds is escaped."""
    cells = [[escaped(str(cell)).replace("|", "\\|") for cell in row] for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def escaped(text: str) -> str:
    """A sentence that may quote data, on one line and without HTML, links and pictures of its own."""
    return re.sub(r"([\[\]])", r"\\\1", html.escape(" ".join(text.split()), quote=False))


def code(name: str) -> str:
    """A name as code: on one line, and quotation marks for the marks that would end it."""
    return f"`{' '.join(name.split()).replace('`', chr(39))}`"


def _header(bundle: Bundle) -> str:
    return f"---\nlibrary_name: warmstart\npipeline_tag: {_tag(bundle)}\n---"


def _tag(bundle: Bundle) -> str:
    return "fill-mask" if _is_language_model(bundle) and not bundle.generates else bundle.model.head.hub_task


def _title(bundle: Bundle) -> str:
    tasks = [task.name for record in bundle.history if (task := _task(record))]
    return f"A model for {escaped(tasks[-1])}" if tasks else "A language model" if _is_language_model(bundle) else "A text model"


def _task(record: Record) -> TaskRecord | None:
    """The labelled task of a step, if it has one."""
    return record.task if isinstance(record, AdaptRecord | AnswersRecord | ContinualRecord) else None


def _comparison(record: Record) -> ComparisonRecord | None:
    return record.comparison if isinstance(record, AdaptRecord | AnswersRecord) else None


def _is_language_model(bundle: Bundle) -> bool:
    return isinstance(bundle.model.head, LMHead)


def _description(bundle: Bundle) -> str:
    model, config = bundle.model, bundle.model.backbone.config
    if bundle.answers_record:
        job = "generates answers to questions"
    elif _is_language_model(bundle):
        job = "generates text from left to right" if bundle.generates else "predicts masked tokens"
    else:
        job = model.head.description()
    count = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"A Transformer that {job}: width {config.width}, {config.depth} blocks, {config.heads} heads, {count:,} parameters, "
        f"a vocabulary of {bundle.tokenizer.vocab_size:,} tokens."
    ]
    if bundle.labels:
        more = f" … ({len(bundle.labels)} in all)" if len(bundle.labels) > MAX_LABELS else ""
        lines.append(f"Labels: {', '.join(map(code, bundle.labels[:MAX_LABELS]))}{more}.")
    return "\n\n".join(lines)


def _usage(bundle: Bundle) -> str:
    head, command, call = bundle.model.head, "", ""
    if isinstance(head, TaskHead):
        example = head.example()
        single = isinstance(example, str)
        command = f'predict FOLDER "{example}"' if single else "predict FOLDER --file FILE"
        call = f'ws.predict(bundle, "{example}")' if single else f"ws.predict(bundle, [{example}])"
    elif isinstance(head, EmbeddingHead):
        call = 'ws.embed(bundle, "a text")'
    elif bundle.answers_record:
        command = 'predict FOLDER "a question"'
    elif bundle.generates:
        command, call = 'generate FOLDER "a text"', 'ws.generate(bundle, "a text")'
    lines = ["warmstart doctor FOLDER                # is it complete, and does it reproduce its stored outputs?"]
    lines += [f"warmstart {command}"] if command else []
    python = f'\n\n```python\nimport warmstart as ws\n\nbundle = ws.load("FOLDER")\nprint({call})\n```' if call else ""
    return "```sh\n" + "\n".join(lines) + "\n```" + python


def _results(record: Record) -> str:
    """The results measured at this step; empty if there are none."""
    parts = []
    if comparison := _comparison(record):
        several = any(len(method.scores) > 1 for method in comparison.methods)
        over_texts = any(method.over_texts for method in comparison.methods)
        sources = " and ".join(["seeds"] * (several or not over_texts) + ["test texts"] * over_texts)
        header = ("method", f"{comparison.metric} on the test split (95% interval over {sources})", "over seeds", "runs", "note")
        methods = sorted(comparison.methods, key=lambda method: -method.mean)
        rows = [
            (
                method.name,
                percent(method.mean)
                if method.low is None or method.high is None
                else percent_interval(method.mean, method.low, method.high),
                percent_range(*method.over_seeds) if method.over_seeds else "-",
                len(method.scores),
                method.note,
            )
            for method in methods
        ]
        parts += [markdown_table(header, rows)]
        parts += ["\n".join(f"- {escaped(sentence)}" for sentence in comparison.findings)] if comparison.findings else []
    if isinstance(record, AdaptRecord) and record.test and record.test.per_class:
        cells = [
            [row.name, *(f"{value:.3f}" for value in (row.precision, row.recall, row.f1)), row.support]
            for row in record.test.per_class[:MAX_LABELS]
        ]
        columns = ("label", "precision", "recall", "F1", "test texts")
        chosen = ", whose seed did best on the texts that choose; another seed would do worse on average" * record.chosen
        parts += [f"Each label, for the run that is saved here{chosen}:", markdown_table(columns, cells)]
    if isinstance(record, PretrainRecord) and record.held_out:
        cells = [[name.replace("_", " "), f"{value:.4g}"] for name, value in record.held_out.items()]
        words = f" of {record.held_out_words:,} words including line ends" if record.held_out_words else ""
        parts += [f"As pretrained, on held-out text{words}:", markdown_table(("metric", "value"), cells)]
    return "\n\n".join(parts)


def _data(record: Record) -> str:
    parts = []
    if task := _task(record):
        sizes = {"train": task.train, "validation": task.validation, "test": task.test}
        parts.append(f"{code(task.name)}: {', '.join(f'{size:,} for {name}' for name, size in sizes.items() if size is not None)}.")
    if isinstance(record, AdaptRecord) and record.budget:
        parts.append(escaped(" ".join(record.budget)))
    if isinstance(record, PretrainRecord) and record.corpus:
        parts.append(f"Text: {record.tokens:,} tokens were read, from a corpus with the digest `{record.corpus[:16]}`.")
    if isinstance(record, PretrainRecord) and (domain := record.domain):
        more = f", and {domain.passages:,} passages of other text that are like them" if domain.passages else ""
        parts.append(f"The text was chosen for {code(domain.task)}: {domain.texts:,} texts of its own, without labels{more}.")
    if isinstance(record, AdaptRecord) and record.audit is not None:
        findings = [f"- {finding.severity}: {escaped(finding.sentence)}" for finding in record.audit]
        parts.append("\n".join(["Findings of the audit:", "", *findings]) if findings else "The audit of the data found nothing.")
    return "\n\n".join(parts)


def _origin(record: Record) -> str:
    """One line on this step: the command, its duration, when and where it ran."""
    origin = record.provenance
    seed, seconds = getattr(record, "seed", None), getattr(record, "seconds", None)
    details = [f"seed {seed}"] if seed is not None else []
    details += [f"{seconds:.0f} s"] if seconds is not None else []
    details += [origin.date, origin.machine, f"warmstart {origin.warmstart}"] if origin else []
    line = f"**{record.title}**" + (f": {', '.join(details)}" if details else "")
    return f"{line}\n\n```sh\n{origin.command}\n```" if origin else line


def _limits(bundle: Bundle) -> Iterator[str]:
    config, settings = bundle.model.backbone.config, bundle.model.head.config.window_settings
    if settings.windows != "none":
        most = f", at most {settings.max_windows} of a text; what follows is cut" if settings.max_windows else ""
        yield f"It reads texts of more than {config.max_length:,} tokens in windows of so many, joined by {settings.windows}{most}."
    else:
        yield f"It reads at most {config.max_length:,} tokens; longer texts are cut at the end."
    yield "It was measured on the texts named above only; results on other texts may differ."
    comparisons = [comparison for record in bundle.history if (comparison := _comparison(record))]
    if comparisons and len(comparisons[-1].methods[0].scores) < FEW_SEEDS:
        yield f"It was trained with fewer than {FEW_SEEDS} seeds, too few to estimate how much its score varies."
    if bundle.labels and _tag(bundle) == "text-classification":
        yield (
            "With `warmstart predict --target-error 0.05` it abstains when its confidence is too low."
            if bundle.calibration and bundle.calibration.held_out
            else "Its confidence was not checked on held-out texts; adapt with `--calibration-fraction` to get a guarantee."
        )
    if _is_language_model(bundle):
        yield "It may repeat its training text, and it generates what is likely there, not what is true."
    yield "The licence and the terms of use of its training texts are not recorded."
