"""Results of commands as Markdown: one function for each kind of table. All figures are formatted by ``stats.formatting``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    return paragraph(f"{f'**{title}.** ' if title else ''}{' '.join(result['findings'])}")


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
    """What the scores are, and what chose beside the labels counted."""
    task, seeds = results[0]["task"], ", ".join(dict.fromkeys(str(result["seeds"]) for result in results))
    return (
        f"{sentence_case(task['metric'].replace('_', ' '))} on {task['test']:,} test texts: mean and 95% interval over seeds "
        f"({seeds}) and test texts. Beyond the labels that a column counts, {task['validation']:,} labelled validation texts chose "
        "learning rates, epochs and methods."
    )


def curve(results: Sequence[Result]) -> str:
    """Methods by numbers of labels, from one curve."""
    (result,) = results
    sizes = [*result["methods"][0]["over_both"]]
    rows = [(row["method"], *(score(row["over_both"][size]) for size in sizes)) for row in result["methods"]]
    header = (result["task"]["name"], *(f"{size} labels" for size in sizes))
    seeds = len(result["methods"][0]["scores"][sizes[0]])
    return "\n\n".join([table(header, rows), paragraph(_budget([{**result, "seeds": seeds}])), findings(result)])


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
