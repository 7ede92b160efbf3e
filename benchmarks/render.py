"""Results of commands as Markdown: one function for each kind of table. All figures are formatted by ``stats.formatting``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.harness import table
from benchmarks.table import Render, paragraph

from warmstart.stats.formatting import file_size, percent, percent_interval, sentence_case

Result = Mapping[str, Any]


def score(interval: Mapping[str, float | None]) -> str:
    """A score with its interval; a single run has none."""
    mean, low, high = (interval[key] for key in ("mean", "low", "high"))
    assert mean is not None
    return percent(mean) if low is None or high is None else percent_interval(mean, low, high)


def findings(result: Result, title: str = "") -> str:
    """What a command found, as a paragraph."""
    return paragraph(f"{f'**{title}.** ' if title else ''}{' '.join(lasting(result))}")


def lasting(result: Result) -> list[str]:
    """The findings without those of the ledgers: how often this machine has scored the test split, and what is wrong with them.

    Results with several test splits name the task before each finding.
    """
    ledgers = [result.get("test_split", {}), *result.get("test_splits", ())]
    passing = tuple(sentence for ledger in ledgers for sentence in ledger.get("findings", ()))
    return [sentence for sentence in result["findings"] if not sentence.endswith(passing)]


def races(results: Sequence[Result]) -> str:
    """Methods by numbers of labels: scores, then seconds and bytes per task of the run with the most labels that a method has."""
    sizes = [_labels(result) for result in results]
    found = [{row["method"]: row for row in result["methods"]} for result in results]
    names = sorted(dict.fromkeys(name for methods in found for name in methods), key=lambda name: _place(name, found))
    rows = []
    for name in names:
        last = next(methods[name] for methods in reversed(found) if name in methods)
        cells = [score(methods[name]["over_both"]) if name in methods else "" for methods in found]
        rows.append((name, *cells, f"{last['seconds']:.1f}", file_size(last["disk"]) if last["disk"] else "-"))
    header = (results[0]["task"]["name"], *sizes, "seconds per run", "disk per task")
    sentences = [findings(result, sentence_case(size)) for result, size in zip(results, sizes, strict=True)]
    return "\n\n".join([table(header, rows), paragraph(_budget(results)), *sentences])


def _labels(result: Result) -> str:
    """``100 labels``, or ``all 4,882``."""
    every = result["labels"] == result["task"]["train"]
    return f"all {result['labels']:,}" if every else f"{result['labels']:,} labels"


def _place(name: str, found: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Methods that ran with more numbers of labels first, then the highest mean score."""
    means = [methods[name]["over_both"]["mean"] for methods in found if name in methods]
    return -len(means), -sum(means) / len(means)


def _budget(results: Sequence[Result]) -> str:
    """What the scores are, and what chose beside the labels counted; of each column, where columns differ."""
    task, seeds = results[0]["task"], ", ".join(dict.fromkeys(str(result["seeds"]) for result in results))
    same = len({bool(result.get("drawn")) for result in results}) == 1
    if same:
        chose = sentence_case(_what_chose(results[0], "a column"))
    else:
        chose = " ".join(f"{sentence_case(_labels(result))}: {_what_chose(result, 'this column')}" for result in results)
    return (
        f"{sentence_case(task['metric'].replace('_', ' '))} on {task['test']:,} test texts: mean and 95% interval over seeds "
        f"({seeds}) and test texts. {chose}"
    )


def _what_chose(result: Result, column: str) -> str:
    """Whether more than the labels counted was looked at, as a sentence without a capital."""
    if result.get("drawn"):
        return f"the labels of {column} are everything labelled that anything looked at; each seed drew its own."
    texts = f"{result['task']['validation']:,} labelled validation texts"
    return f"beyond the labels that {column} counts, {texts} chose learning rates, epochs and methods."


def curve(results: Sequence[Result]) -> str:
    """Methods by numbers of labels, from one curve."""
    (result,) = results
    sizes = [*result["methods"][0]["over_both"]]
    rows = [(row["method"], *(score(row["over_both"][size]) for size in sizes)) for row in result["methods"]]
    header = (result["task"]["name"], *(f"{size} labels" for size in sizes))
    seeds = len(result["methods"][0]["scores"][sizes[0]])
    return "\n\n".join([table(header, rows), paragraph(_budget([{**result, "seeds": seeds}])), findings(result)])


def printed(results: Sequence[Result]) -> str:
    """The table that each command prints, without its empty columns, and what it found."""
    parts = []
    for result in results:
        header, rows = result["printed"]["header"], result["printed"]["rows"]
        kept = [i for i, _ in enumerate(header) if any(str(row[i]) not in ("", "-") for row in rows)]
        parts += [
            table([header[i] for i in kept], [[str(row[i]) for i in kept] for row in rows]),
            points(lasting(result)),
        ]
    return "\n\n".join(parts)


def points(sentences: Iterable[str]) -> str:
    """A list with one sentence to a point."""
    return "\n".join(textwrap.indent(paragraph(sentence), "  ").replace("  ", "- ", 1) for sentence in sentences)


def thresholds(results: Sequence[Result]) -> str:
    """An adaptation's calibration: what its thresholds do on the test texts, and what was found."""
    (result,) = results
    confidence = result["confidence"]
    return "\n\n".join([table(confidence["header"], confidence["thresholds"]), points(confidence["findings"])])


class Row(NamedTuple):
    """A row of a reproduction."""

    name: str
    theirs: str
    """the figure of the original"""
    step: str
    """step of the recipe"""
    figure: str
    """a method of the step's comparison, or a figure of its held-out text"""
    labels: str = "-"
    """those that learn + those that choose"""


def reproduction(who: str, *rows: Row) -> Render:
    """Figures of a recipe's steps, or of commands by their number, beside those of the original."""

    def render(results: Sequence[Result]) -> str:
        steps: dict[str, Mapping[str, Any]] = {}
        for number, result in enumerate(results, 1):
            steps |= result.get("steps") or {str(number): result}
        cells = [(row.name, row.theirs, *_figure(steps[row.step], row.figure), row.labels) for row in rows]
        called = {row.step: f"{row.name}: " if len(results) > 1 else "" for row in reversed(rows)}  # commands, by their first row
        sentences = [
            f"{f'`{name}`: ' if 'minutes' in step else called[name]}{line}"
            for name, step in steps.items()
            if _methods(step)
            for line in step.get("notes") or step.get("comparison", {}).get("findings") or lasting(step)
        ]
        took = ", ".join(f"`{name}` {step['minutes']:.1f}" for name, step in steps.items() if "minutes" in step)
        parts = [table(("", who, "here", "minutes", "labels"), cells), points(sentences)]
        return "\n\n".join([*parts, paragraph(f"Minutes of the steps: {took}.")] if took else parts)

    return render


def _methods(step: Mapping[str, Any]) -> dict[str, tuple[str, float]]:
    """Score and seconds of every method of a race or an adaptation, or of the table in which a bundle tells of one."""
    compared = step.get("comparison") or step
    rows = compared.get("methods") or compared.get("rows") or ()
    methods = {row.get("name") or row["method"]: (score(row.get("over_both") or row), row["seconds"]) for row in rows}
    for told in step.get("tables", ()):
        if "seconds" in told["header"]:  # method, score, …
            place = told["header"].index("seconds")
            methods |= {row[0]: (row[1], 0.0 if row[place] == "-" else float(row[place].replace(",", ""))) for row in told["rows"]}
    return methods


def _figure(step: Mapping[str, Any], figure: str) -> tuple[str, str]:
    """The figure of a step, and the minutes behind it: of one run for a method, else of the step."""
    if found := _methods(step).get(figure):
        return found[0], f"{found[1] / 60:.1f} a run" if found[1] else "-"
    value = step["last_loss"] if figure == "last_loss" else (step.get("held_out") or step.get("scores", {})).get(figure)
    return ("not measured", "") if value is None else (f"{value:,.2f}", f"{step['minutes']:.1f}")


def language_models(**texts: int) -> Render:
    """Losses on several texts: name of the text -> the number of the command that read it."""

    def render(results: Sequence[Result]) -> str:
        rows = []
        for name, number in texts.items():
            figures = results[number].get("held_out", results[number])
            bits, words = f"{figures['bits_per_byte']:.3f}", f"{figures['word_perplexity']:,.1f}"
            rows.append((name, f"{figures['loss']:.3f}", f"{figures['perplexity']:.1f}", words, bits))
        took = results[0]
        speed = f"{took['tokens'] / took['seconds']:,.0f} tokens/s"
        speed = f"One seed; {took['tokens']:,} tokens in {took['seconds'] / 60:.1f} minutes of training, {speed}."
        header = ("text", "loss, nats per subword", "subword perplexity", "word-level perplexity", "bits per byte")
        return "\n\n".join([table(header, rows), speed])

    return render


def timing(results: Sequence[Result]) -> str:
    """What a module of ``benchmarks`` printed."""
    return str(results[0]["table"])
