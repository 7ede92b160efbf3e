"""The model card: a bundle's README.md, written from what the bundle itself knows (Mitchell et al. 2019).

It says what the model is and how to use it, what it scored beside what, on which data and with which findings of the audit, what
made it, and where its limits are. It is for people: nothing reads it back, and it may be edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warmstart.model.bundle import Bundle

TAGS = {
    "language": "text-generation",
    "classify": "text-classification",
    "several": "text-classification",
    "regress": "text-classification",
    "choose": "multiple-choice",
    "tag": "token-classification",
    "span": "question-answering",
    "embed": "sentence-similarity",
}
"""what the hub of Hugging Face calls the job of each kind of head"""
JOBS = {
    "classify": "gives each text one of {classes} labels",
    "several": "says of each of {classes} labels whether a text has it",
    "regress": "gives each text a number",
    "choose": "chooses among {alternatives} alternatives",
    "tag": "gives each word one of {classes} tags",
    "span": "finds the answer to a question in a passage",
    "embed": "gives each text a vector",
}
FEW = 3
"""seeds below which results say little"""
CLASSES = 30
"""labels that are listed at most"""


def card(bundle: Bundle) -> str:
    """The card in Markdown, with the hub's header."""
    history = bundle.history
    parts = [_header(bundle), f"# {_title(bundle)}", _what(bundle), "## Use", _use(bundle)]
    for title, body in (
        ("Results", [_results(entry) for entry in history]),
        ("Data", [_data(entry) for entry in history]),
        ("How it was made", [_made(entry) for entry in history]),
    ):
        if said := [text for text in body if text]:
            parts += [f"## {title}", *said]
    parts += ["## Limits", "\n".join(f"- {line}" for line in _limits(bundle))]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table in Markdown; what would end a cell is written so that it does not."""
    cells = [[str(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in (header, ["---"] * len(header), *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _header(bundle: Bundle) -> str:
    return f"---\nlibrary_name: warmstart\npipeline_tag: {_tag(bundle)}\n---"


def _tag(bundle: Bundle) -> str:
    kind = bundle.model.head.config.kind
    return "fill-mask" if kind == "language" and not bundle.generates else TAGS[kind]


def _title(bundle: Bundle) -> str:
    names = [entry["task"]["name"] for entry in bundle.history if isinstance(entry.get("task"), Mapping)]
    return f"A model for {names[-1]}" if names else "A language model" if _speaks(bundle) else "A model for texts"


def _speaks(bundle: Bundle) -> bool:
    return bundle.model.head.config.kind == "language"


def _what(bundle: Bundle) -> str:
    model, shape = bundle.model, bundle.model.backbone.config
    if bundle.answers:
        job = "answers questions in writing"
    elif _speaks(bundle):
        job = "writes text from left to right" if bundle.generates else "says which token stands in a gap"
    else:
        job = JOBS[model.head.config.kind].format(**model.head.config.plain())
    count = sum(parameter.numel() for parameter in model.parameters())
    lines = [
        f"A Transformer that {job}: width {shape.width}, {shape.depth} blocks, {shape.heads} heads, {count:,} parameters, "
        f"{bundle.tokenizer.vocab_size:,} tokens."
    ]
    if bundle.labels:
        more = f" … ({len(bundle.labels)} in all)" if len(bundle.labels) > CLASSES else ""
        lines.append(f"Labels: {', '.join(f'`{name}`' for name in bundle.labels[:CLASSES])}{more}.")
    return "\n\n".join(lines)


def _use(bundle: Bundle) -> str:
    task = not _speaks(bundle) and bundle.model.head.config.kind != "embed"
    command = "predict" if task or bundle.answers else "generate" if bundle.generates else ""
    lines = ["warmstart doctor FOLDER                # is it whole, and does it say what it said when it was saved?"]
    lines += [f'warmstart {command} FOLDER "a text"'] if command else []
    call = "ws.ask(bundle, texts)" if task else "" if _speaks(bundle) else "ws.embed(bundle, texts)"
    call = 'ws.generate(bundle, "a text")' if command == "generate" else call
    python = f'\n\n```python\nimport warmstart as ws\n\nbundle = ws.load("FOLDER")\n{call}\n```' if call else ""
    return "```sh\n" + "\n".join(lines) + "\n```" + python


def _results(entry: Mapping[str, Any]) -> str:
    """What was measured when this was made; empty where nothing was."""
    said = []
    if comparison := entry.get("comparison"):
        metric, rows = comparison["metric"], sorted(comparison["rows"], key=lambda row: -row["mean"])
        cells = [[row["name"], _score(row), len(row["scores"]), row["note"]] for row in rows]
        said += [table(("method", f"{metric} on test texts (95 % interval over seeds)", "runs", "note"), cells)]
        said += ["\n".join(f"- {sentence}" for sentence in comparison["sentences"])] if comparison["sentences"] else []
    if classes := entry.get("test", {}).get("per_class"):
        cells = [
            [row["name"], *(f"{row[name]:.3f}" for name in ("precision", "recall", "f1")), row["support"]]
            for row in classes[:CLASSES]
        ]
        said += ["Each label, of the run that is saved here:", table(("label", "precision", "recall", "F1", "test texts"), cells)]
    if figures := entry.get("held_out"):
        cells = [[name.replace("_", " "), f"{value:.4g}"] for name, value in figures.items() if isinstance(value, int | float)]
        said += ["As a language model, on held-out text:", table(("figure", "value"), cells)]
    if verdict := entry.get("verdict"):
        said += [f"Going on with pretraining: {verdict}."]
    return "\n\n".join(said)


def _score(row: Mapping[str, Any]) -> str:
    mean = f"{100 * row['mean']:.1f} %"
    return mean if row["low"] is None else f"{mean} ({100 * row['low']:.1f} to {100 * row['high']:.1f})"


def _data(entry: Mapping[str, Any]) -> str:
    said = []
    if isinstance(task := entry.get("task"), Mapping):
        sizes = [f"{task[name]:,} for {name}" for name in ("train", "validation", "test") if name in task]
        said.append(f"`{task['name']}`: {', '.join(sizes)}.")
    if "corpus" in entry:
        said.append(f"Text: {entry['tokens']:,} tokens read, of a corpus with the fingerprint `{entry['corpus'][:16]}`.")
    if "audit" in entry:
        found = [f"- {severity}: {sentence}" for severity, sentence in entry["audit"]]
        said.append("\n".join(["The audit of the data found:", "", *found]) if found else "The audit of the data found nothing.")
    return "\n\n".join(said)


def _made(entry: Mapping[str, Any]) -> str:
    """One line of what was done: the command, when and where."""
    where = entry.get("provenance", {})
    name = entry.get("command", "made by hand") + (f" ({entry['family']})" if "family" in entry else "")
    details = [f"seed {entry['seed']}"] if "seed" in entry else []
    details += [f"{entry['seconds']:.0f} s"] if "seconds" in entry else []
    details += [where[key] for key in ("date", "machine") if key in where]
    details += [f"warmstart {where['warmstart']}"] if "warmstart" in where else []
    line = f"**{name}**" + (f": {', '.join(details)}" if details else "")
    return f"{line}\n\n```sh\n{where['command']}\n```" if "command" in where else line


def _limits(bundle: Bundle) -> Iterator[str]:
    shape = bundle.model.backbone.config
    yield f"It reads at most {shape.max_tokens:,} tokens; what is longer loses its end."
    yield "It was measured on the texts named above only; texts of another kind may fare otherwise."
    comparisons = [entry["comparison"] for entry in bundle.history if entry.get("comparison")]
    if comparisons and len(comparisons[-1]["rows"][0]["scores"]) < FEW:
        yield "It was trained with too few seeds to say how much chance there is in its score."
    if bundle.labels and _tag(bundle) == "text-classification":
        proved = bundle.calibration and bundle.calibration.held_out
        yield (
            "`warmstart predict --target-error 0.05` keeps silent where it is not sure enough."
            if proved
            else "How sure it is was not proved on texts kept for that; adapt with `--calibration` to be promised a target error."
        )
    if _speaks(bundle):
        yield "It may repeat what its training text holds, and says what is likely there, not what is true."
    yield "Who may use the texts that it learned from, and for what, is not known here."
