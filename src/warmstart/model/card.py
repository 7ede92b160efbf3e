"""The model card: the README.md of a saved model, written from the model alone (Mitchell et al. 2019).

What the model is, how to use it, its scores beside those of baselines, the data with the findings of the audit, how it was made,
and its limits. It is for people: nothing reads it back, and it may be edited.
"""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from warmstart.errors import UncheckedWarning
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.head import TaskHead
from warmstart.heads.language_modeling import LMHead
from warmstart.model.bundle import Bundle
from warmstart.model.fitted import FittedBaseline
from warmstart.model.history import DataRecord, Record, imported, recorded_tasks
from warmstart.model.rows import VectorRows, WordRows
from warmstart.model.stack import Member, Stack
from warmstart.stats.formatting import percent

MAX_LABELS = 30
"""no more labels than this are listed"""
LIMITS = (
    "It was measured on the texts named above only; results on other texts may differ.",
    "The licence and the terms of use of the texts that it learned from are not recorded.",
)
"""limits of every model"""
OVERSIGHT = (
    "It is no ground by itself for a decision about a person: somebody who may decide otherwise must see the text. Let people look "
    "at what it is unsure of (`warmstart predict FOLDER --file TABLE --target-error 0.05`), and each month at some predictions "
    "that are drawn at random: `warmstart evaluate FOLDER TABLE` says how many of these are right."
)
"""advice to whoever uses a model that predicts"""
WORDS_KEPT = (
    "It keeps words, pairs of words or parts of words of the texts that it learned from, in `baseline.json`, where two independent "
    "texts have them: names that recur are among them."
)
"""warning on the card of a model that keeps words of its texts"""


def card(model: Bundle | Stack) -> str:
    """The card in Markdown, with the header that the Hugging Face hub reads."""
    parts = _of_network(model) if isinstance(model, Bundle) else _of_stack(model)
    limits = [*(_limits(model) if isinstance(model, Bundle) else LIMITS), _licences(model)]
    parts += ["## Intended use and oversight", _intended(model), *history_sections(model.history)]
    return "\n\n".join([*parts, "## Limits", "\n".join(f"- {line}" for line in limits)]) + "\n"


def written_card(model: Bundle | Stack) -> bytes:
    """The card for ``README.md``; if it fails, the reason: a model is never lost to its description."""
    try:
        return card(model).encode(errors="backslashreplace")
    except Exception as error:
        warnings.warn(f"the model card cannot be written: {error!r}; the model itself is complete", UncheckedWarning, stacklevel=2)
        return f"The card of this model could not be written: {error!r}\n".encode(errors="backslashreplace")


def _of_network(bundle: Bundle) -> list[str]:
    return [_header(_tag(bundle)), f"# {_title(bundle)}", _description(bundle), "## Use", _usage(bundle)]


def _of_stack(stack: Stack) -> list[str]:
    several = len(stack.members) > 1
    what = (
        f"The mean of the calibrated probabilities of {len(stack.members)} models, with these weights."
        if several
        else "A model without a network of its own, as a stack of one."
    )
    total, example = sum(member.weight for member in stack.members), "TABLE" if stack.beside else '"a text"'
    rows = [
        (number, member.name, _kind(member), f"{member.temperature:.4g}", percent(member.weight / total, 0))
        for number, member in enumerate(stack.members, 1)
    ]
    return [
        _header("text-classification"),
        f"# {stack.names if several else stack.members[0].name}",
        what,
        markdown_table(("folder in members/", "method", "kind", "temperature", "weight"), rows),
        *([WORDS_KEPT] if any(isinstance(getattr(member.model, "rows", None), WordRows) for member in stack.members) else []),
        *([_label_names(stack.labels)] if stack.labels else []),
        *([f"Beside the text it reads the columns {', '.join(map(code, stack.beside.names))} of a table."] if stack.beside else []),
        "## Use",
        f"```sh\nwarmstart doctor FOLDER\nwarmstart predict FOLDER {example}\n"
        "warmstart export FOLDER --to onnx --out EXPORTED\n```",
    ]


def _intended(model: Bundle | Stack) -> str:
    """What the model is for, by what it has learned from, and how people oversee it."""
    if isinstance(model, Bundle) and not model.generates and (_is_language_model(model) or not recorded_tasks(model.history)):
        return "It is a beginning for models that `warmstart adapt` makes of it, and for research; it decides nothing."
    if isinstance(model, Bundle) and model.generates and not model.max_answer_tokens:
        return "It writes text for teaching and research. What it writes may be false or hurtful: nobody should read it as a fact."
    tasks = recorded_tasks(model.history)
    learned = (
        ", ".join(f"{code(task.name)} ({task.sizes.get('train', 0):,} texts that it learned from)" for task in tasks) or "its task"
    )
    return f"It is for texts like those of {learned}, in their language and of their time. {OVERSIGHT}"


def _licences(model: Bundle | Stack) -> str:
    """The licence of the weights that the model began from, as far as it is known."""
    parts = [model] if isinstance(model, Bundle) else [*(member.model for member in model.members), *model.backbones]
    networks = [part for part in parts if isinstance(part, Bundle)]
    origins = [settings for network in networks if (settings := imported(network.history))]
    known = {f"{code(settings['source'])} has the licence {settings['licence']}" for settings in origins if "licence" in settings}
    if len(known) < len(origins):
        return "It began from weights of others; their licence is not recorded here."
    return f"Of the weights that it began from, {' and '.join(sorted(known))}." if known else "Its weights are of its maker alone."


def _kind(member: Member) -> str:
    model = member.model
    if isinstance(model, Bundle):
        return "a fine-tuned network (a bundle)"
    assert isinstance(model, FittedBaseline)
    if isinstance(model.rows, WordRows):
        words = f"words{' and word pairs' if model.rows.word_pairs else ''}"
        return f"{len(model.rows.vocabulary):,} {'character n-grams' if model.rows.characters else words}"
    return "vectors of a frozen backbone" if isinstance(model.rows, VectorRows) else "the same prediction for every text"


def history_sections(history: Sequence[Record]) -> Iterator[str]:
    """Results, data and commands of all steps, under a title each; a title without a text is left out."""
    for title, section in (("Results", _results), ("Data", _data), ("How it was made", _origin)):
        if texts := [text for record in history if (text := section(record))]:
            yield from (f"## {title}", *texts)


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


def _header(tag: str) -> str:
    return f"---\nlibrary_name: warmstart\npipeline_tag: {tag}\n---"


def _tag(bundle: Bundle) -> str:
    return "fill-mask" if _is_language_model(bundle) and not bundle.generates else bundle.model.head.hub_task


def _title(bundle: Bundle) -> str:
    tasks = recorded_tasks(bundle.history)
    if tasks:
        return f"A model for {escaped(tasks[-1].name)}"
    return "A language model" if _is_language_model(bundle) else "A text model"


def _is_language_model(bundle: Bundle) -> bool:
    return isinstance(bundle.model.head, LMHead)


def _description(bundle: Bundle) -> str:
    model, config = bundle.model, bundle.model.backbone.config
    if bundle.max_answer_tokens:
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
        lines.append(_label_names(bundle.labels))
    return "\n\n".join(lines)


def _label_names(labels: Sequence[str]) -> str:
    more = f" … ({len(labels)} in all)" if len(labels) > MAX_LABELS else ""
    return f"Labels: {', '.join(map(code, labels[:MAX_LABELS]))}{more}."


def _usage(bundle: Bundle) -> str:
    head, command, call = bundle.model.head, "", ""
    if isinstance(head, TaskHead):
        example = head.example()
        single = isinstance(example, str)
        command = f'predict FOLDER "{example}"' if single else "predict FOLDER --file FILE"
        call = f'ws.predict(bundle, "{example}")' if single else f"ws.predict(bundle, [{example}])"
    elif isinstance(head, EmbeddingHead):
        call = 'ws.embed(bundle, "a text")'
    elif bundle.max_answer_tokens:
        command = 'predict FOLDER "a question"'
    elif bundle.generates:
        command, call = 'generate FOLDER "a text"', 'ws.generate(bundle, "a text")'
    lines = ["warmstart doctor FOLDER                # is it complete, and does it reproduce its stored outputs?"]
    lines += [f"warmstart {command}"] if command else []
    python = f'\n\n```python\nimport warmstart as ws\n\nbundle = ws.load("FOLDER")\nprint({call})\n```' if call else ""
    return "```sh\n" + "\n".join(lines) + "\n```" + python


def _results(record: Record) -> str:
    """Scores, tables and notes of one step; empty if there are none."""
    parts = []
    if record.scores:
        cells = [[name.replace("_", " "), f"{value:.4g}"] for name, value in record.scores.items()]
        parts += [f"After {escaped(record.command)}:", markdown_table(("metric", "value"), cells)]
    for table in record.tables:
        parts += [f"{escaped(table.title)}:", markdown_table(table.header, table.rows[:MAX_LABELS])]
    if record.notes:
        parts.append("\n".join(f"- {escaped(sentence)}" for sentence in record.notes))
    return "\n\n".join(parts)


def _data(record: Record) -> str:
    """The data that one step read, and the findings of its audit."""
    parts = [_sizes(data) for data in record.data if not data.source]
    for source in dict.fromkeys(data.source for data in record.data if data.source):
        names = ", ".join(data.name for data in record.data if data.source == source)
        parts.append(f"Before it was imported, it has read {escaped(names)}, says {escaped(source)}.")
    for findings in (data.audit for data in record.data if data.audit is not None):
        lines = [f"- {finding.severity}: {escaped(finding.sentence)}" for finding in findings]
        parts.append("\n".join(["Findings of the audit:", "", *lines]) if lines else "The audit of the data found nothing.")
    return "\n\n".join(parts)


def _sizes(data: DataRecord) -> str:
    """A data set and what was read of it: ``"`cats`: 48 for train, 30 for test."``."""
    read = [f"{count:,} {'for ' * data.with_labels}{name}" for name, count in data.sizes.items()]
    read += [f"with the digest `{data.digest[:16]}`"] if data.digest else []
    return f"{code(data.name)}{', without labels' * (not data.with_labels)}: {', '.join(read) or 'not counted'}."


def _origin(record: Record) -> str:
    """One line on this step: the command, its duration, when and where it ran."""
    origin = record.provenance
    details = [f"seed {record.seed}"] if record.seed is not None else []
    details += [f"{record.seconds:.0f} s"] if record.seconds is not None else []
    details += [origin.date, origin.machine, f"warmstart {origin.warmstart}"] if origin else []
    family = f" ({record.settings['family']})" if "family" in record.settings else ""
    line = f"**{escaped(record.command + family)}**" + (f": {', '.join(details)}" if details else "")
    return f"{line}\n\n```sh\n{origin.command}\n```" if origin else line


def _limits(bundle: Bundle) -> Iterator[str]:
    config, settings = bundle.model.backbone.config, bundle.model.head.config.window_settings
    if settings.windows != "none":
        most = f", at most {settings.max_windows} of a text; what follows is cut" if settings.max_windows else ""
        yield f"It reads texts of more than {config.max_length:,} tokens in windows of so many, joined by {settings.windows}{most}."
    else:
        yield f"It reads at most {config.max_length:,} tokens; longer texts are cut at the end."
    yield LIMITS[0]
    if bundle.labels and _tag(bundle) == "text-classification":
        yield (
            "With `warmstart predict --target-error 0.05` it abstains when its confidence is too low."
            if bundle.calibration and bundle.calibration.held_out
            else "Its confidence was not checked on held-out texts; adapt with `--calibration-fraction` to get a guarantee."
        )
    if _is_language_model(bundle):
        yield "It may repeat its training text, and it generates what is likely there, not what is true."
    yield LIMITS[1]
