"""The measured tables of the documents: each is written by one command, from the results of the command lines beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from benchmarks import command, overview
from benchmarks.__main__ import lines_of, measure_table
from benchmarks.catalogue import TABLES
from benchmarks.command import measure, words_of
from benchmarks.few_labels import REFUSED, few_labels
from benchmarks.render import Row, curve, language_models, lasting, printed, races, reproduction
from benchmarks.simulations import at_most, differences_to_choice, false_claims, over_splits, power, score_of_choice, shared_texts
from benchmarks.table import DOCS, Table, blocks, shell, with_block

from helpers.figures import FILE, show
from warmstart.cli import read_command
from warmstart.data.test_ledger import LedgerEntry, LedgerSummary, findings_by_task
from warmstart.storage import RECIPE_FILE, sealed

PAGES = {page: (DOCS / page).read_text(encoding="utf-8") for one in TABLES for page in one.pages}
MEASURED = re.compile(r"\d%|\(-?[\d.,]+ to [\d.,+-]+\)")
"""a percentage or an interval that was measured"""
BY_HAND = {
    "results/baselines.md": {"baseline": "the lines of Python below it"},
    "results/adaptation-results.md": {
        "comparison": "equality of imported models, by tests",
        "form": "graphs, by onnxruntime",
    },
    "results/study-results.md": {"method": "faithfulness on questions cut from their labels"},
    "docs/tutorials/attention-lab.md": {"question": "closed forms that study lab checks"},
    "results/performance.md": {
        "step": "benchmarks/attention.py, which chose a constant",
        "set": "benchmarks/shots.py, which measures run by run",
    },
    "results/other.md": {"model": "benchmarks/fixed_settings.py, which chose a default"},
}
"""tables with measured figures that the command does not write: page -> first cell -> where they come from"""
SIMULATED = {"docs/reference/statistics.md", "results/statistics.md"}
"""pages whose figures are printed by the slow tests that their rows name"""
LINES = [(one.name, line) for one in TABLES for line in one.commands]
INTERVAL = {"mean": 0.5, "low": 0.4, "high": 0.6}
TASK = {"name": "trec", "metric": "accuracy", "train": 500, "validation": 50, "test": 40}


def race(labels: int, *methods: str) -> dict[str, Any]:
    """What a race leaves in its JSON."""
    rows = [{"method": name, "over_both": INTERVAL, "seconds": 2.0, "disk": 1500 * (name != "majority")} for name in methods]
    return {"task": TASK, "labels": labels, "seeds": 5, "methods": rows, "findings": ["Use full.", "It is best."]}


def test_every_measured_table_has_its_place_and_every_place_its_table() -> None:
    """On each of its pages, once."""
    places = sorted((name, page) for page, text in PAGES.items() for name in blocks(text))
    assert places == sorted((one.name, page) for one in TABLES for page in one.pages)
    for page, text in PAGES.items():
        assert len(re.findall(r"<!-- [\w-]+ -->\n", text)) == 2 * len(blocks(text)), page
    assert len({one.name for one in TABLES}) == len(TABLES)


def test_the_overview_of_reproductions_holds_the_figures_of_their_pages() -> None:
    """Each row of every table, as the pages have it now."""
    assert overview.PAGE.read_text(encoding="utf-8") == overview.written()
    pages = {DOCS / page for one in TABLES for page in one.pages if "warmstart recipe" in one.commands[0]}
    assert pages == {overview.PAGE.parent / f"{name}.md" for name in overview.SYSTEMS}


def test_figures_that_were_measured_are_written_by_the_command() -> None:
    """A table with percentages or intervals stands in a block, unless it is named here; none is named in vain."""
    by_hand: dict[str, set[str]] = {}
    for file in [DOCS / "README.md", *sorted((DOCS / "docs").rglob("*.md")), *sorted((DOCS / "results").glob("*.md"))]:
        page = file.relative_to(DOCS).as_posix()
        outside = re.sub(r"<!-- [\w-]+ -->\n.*?<!-- end -->", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
        outside = re.sub(r"```.*?```", "", outside, flags=re.DOTALL)
        for table in re.findall(r"(?:^\|.*\n)+", outside, flags=re.MULTILINE):
            if MEASURED.search(table) and page not in SIMULATED:
                by_hand.setdefault(page, set()).add(table.split("|")[1].strip())
    assert by_hand == {page: {*tables} for page, tables in BY_HAND.items()}


@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{name}-{number}" for number, (name, _) in enumerate(LINES)])
def test_the_command_lines_of_a_table_parse(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flags exist, their values are valid, and a module of the benchmarks or a simulation exists."""
    monkeypatch.setenv("WARMSTART_DATA", "data")
    words = words_of(line, Path("runs"))
    if words[:3] == ["python", "-m", "pytest"]:
        file, test = words[3].split("::")
        assert f"def {test}(" in (DOCS / file).read_text()
        assert words[4:] == ["-m", "proofs", "-s"]
    elif words[0] == "python":
        assert (DOCS / f"{words[-1].replace('.', '/')}.py").is_file()
    else:
        assert read_command(words)


def test_what_a_table_needs_comes_first() -> None:
    """The models it names are made by the tables that it needs, each earlier in the list."""
    made = {
        name: words_of(line, Path("runs")) for name, line in LINES if line.startswith(("warmstart pretrain", "warmstart import"))
    }
    folders = {words[words.index("--out") + 1]: name for name, words in made.items()}
    names = [one.name for one in TABLES]
    for one in TABLES:
        used = {folders[word] for line in one.commands for word in words_of(line, Path("runs")) if word in folders}
        assert used - {one.name} <= {*one.needs}, one.name
        assert all(names.index(other) < names.index(one.name) for other in one.needs)


def test_a_race_becomes_methods_by_labels() -> None:
    """A method that ran with some numbers of labels only has empty cells; what chose is said."""
    text = races([race(100, "full", "majority"), race(500, "full")])
    assert "| trec | 100 labels | all 500 | seconds per run | disk per task |" in text
    assert "| full | 50.0% (40.0 to 60.0) | 50.0% (40.0 to 60.0) | 2.0 | 1.5 KB |" in text
    assert "| majority | 50.0% (40.0 to 60.0) |  | 2.0 | - |" in text
    assert "50 labelled validation texts chose" in " ".join(text.split())
    assert "**100 labels.** Use full. It is best." in text


def test_each_column_says_what_chose_if_they_differ() -> None:
    """Where the labels of one column are everything that was looked at, and validation texts chose beside those of another."""
    drawn = [race(labels, "full") | {"drawn": True} for labels in (100, 200)]
    mixed, same = (" ".join(races(found).split()) for found in ([drawn[0], race(500, "full")], drawn))
    looked_at = "are everything labelled that anything looked at; each seed drew its own."
    assert f" 100 labels: the labels of this column {looked_at} All 500: beyond the labels that this column counts, 50 " in mixed
    assert f" The labels of a column {looked_at}" in same
    assert "validation" not in same


def test_a_curve_becomes_methods_by_labels() -> None:
    """From a single result."""
    row = {"method": "full", "over_both": {"32": INTERVAL, "64": INTERVAL}, "scores": {"32": [0.5, 0.5]}}
    text = curve([{"task": TASK, "methods": [row], "findings": ["It helps."]}])
    assert "| full | 50.0% (40.0 to 60.0) | 50.0% (40.0 to 60.0) |" in text
    assert text.endswith("It helps.")


def test_pretraining_and_an_evaluation_become_losses() -> None:
    """The held-out text of the first command, and the text of the second."""
    figures = {"loss": 3.9, "perplexity": 49.4, "word_perplexity": 1234.5, "bits_per_byte": 1.4}
    text = language_models(validation=0, test=1)([{"held_out": figures, "tokens": 6000, "seconds": 60.0}, figures])
    assert "| validation | 3.900 | 49.4 | 1,234.5 | 1.400 |" in text
    assert "6,000 tokens in 1.0 minutes" in text


def test_what_a_command_prints_becomes_a_table_with_findings() -> None:
    """Without the columns that are empty."""
    shown = {"header": ["method", "note", "score"], "rows": [["full", "", "50.0%"], ["majority", "-", "20.0%"]]}
    text = printed([{"printed": shown, "findings": ["Full is better."]}])
    assert text == "| method | score |\n| --- | --- |\n| full | 50.0% |\n| majority | 20.0% |\n\n- Full is better."


def test_figures_of_simulations_become_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Means and extremes over the settings that are no columns; what a simulation prints is kept if a file is named."""
    shared = {"seeds": 3, "texts": 2000, "effective": 0.1}
    monkeypatch.setenv(FILE, str(tmp_path / "figures"))
    for rivals, claimed in ((4, 0.02), (8, 0.06)):
        show("a sentence", **shared, rivals=rivals, claimed=claimed)
    assert capsys.readouterr().out == "a sentence\n" * 2
    kept = [json.loads(line) for line in (tmp_path / "figures").read_text().splitlines()]
    assert false_claims(kept).endswith("| 3 | 2,000 | 4.0% (6.0%) | 10.0% (10.0%) |")
    found = [{"seeds": n, "spread": spread, "power": n * spread} for spread in (0.0, 0.01) for n in (3, 10)]
    assert power(found).endswith("| 0 points | 0% | 0% |\n| 1 point | 3% | 10% |")
    claims = [{"seeds": 3, "false": [0.01, 0.03], "power": rate} for rate in (0.8, 0.83)]
    many = [{"splits": 5, "covered": n, "claimed": 0.05, "plain": 0.9, "plain_claimed": 0.1} for n in (0.94, 0.96)]
    assert over_splits(many).endswith("| 5 | 95% (94 to 96) | 5% (5 to 5) | 90% (90 to 90) | 10% (10 to 10) |")
    share = [{"seeds": 5, "available": count, "missed": 0.048, "claimed": 0.062} for count in (100, 300)]
    assert shared_texts(share).splitlines()[2] == "| 5 | 300 texts | 4.8% | 6.2% |"
    assert at_most(claims).endswith("| 3 | 2.0%, 3.0% | 80 to 83% |")
    choice = {"seeds": 3, "own": 0.029, "bias": -0.001, "coverage": 0.965}
    rows = [{**choice, "methods": count, "spread": 0.04} for count in (8, 3)]
    assert score_of_choice(rows).endswith("| 3 | +2.9 points | -0.1 points | 96.5% |")
    rows[0] |= {"claimed": 0.02, "claimed_by_own": 0.08}
    assert differences_to_choice(rows[:1]).endswith("| 8 | 3 | +2.9 points | -0.1 points | 96.5% | 8.0% | 2.0% |")


@pytest.mark.parametrize("seal", ["", "5ea1"])
def test_findings_of_ledgers_are_left_out(seal: str) -> None:
    """How often this machine scored a test split, sealed or not, damaged lines, and where the ledger lies."""
    entry = LedgerEntry(id="a", test="b", task="trec", time="2026-11-22T08:00:00Z", command="race", run="c", seal=seal)
    ledger = LedgerSummary((entry, entry.model_copy(update={"id": "d"})), unreadable=2, only_state=True)
    assert len(ledger.findings) == 3
    one = {"test_split": ledger.to_dict(), "findings": ["Full is better.", *ledger.findings]}
    assert lasting(one) == ["Full is better."]
    named = ["trec: Full is better.", *(f"{task}: {finding}" for task, finding in findings_by_task(["trec"], [ledger]))]
    assert lasting({"test_splits": [ledger.to_dict()], "findings": named}) == ["trec: Full is better."]
    assert lasting({"findings": named}) == named


def test_a_recipe_becomes_figures_beside_those_of_the_original() -> None:
    """Scores of methods, held-out figures, and what was not measured."""
    method = {"name": "pretrained", **INTERVAL, "seconds": 60.0}
    compared = {"comparison": {"methods": [method], "findings": ["It helps."]}, "minutes": 3.0, "last_loss": 0.5}
    steps = {"lm": {"held_out": {"loss": 3.25}, "minutes": 2.0, "last_loss": 0.6}, "tuned": compared}
    rows = (
        Row("model", "", "lm", "loss"),
        Row("last", "0.6", "lm", "last_loss"),
        Row("tuned", "0.7", "tuned", "pretrained", "8 + 2"),
    )
    text = reproduction("the lab", *rows, Row("scratch", "", "tuned", "from scratch"))([{"steps": steps}])
    assert "| model |  | 3.25 | 2.0 | - |\n| last | 0.6 | 0.60 | 2.0 | - |" in text
    assert "| tuned | 0.7 | 50.0% (40.0 to 60.0) | 1.0 a run | 8 + 2 |\n| scratch |  | not measured |  | - |" in text
    assert "- `tuned`: It helps.\n\nMinutes of the steps: `lm` 2.0, `tuned` 3.0." in text


def test_the_steps_of_a_recipe_are_read_from_its_sealed_record(tmp_path: Path) -> None:
    """With their minutes and the last loss of their training."""
    (tmp_path / RECIPE_FILE).write_text(json.dumps(sealed({"lm": {"command": "pretrain", "seconds": 90.0}})))
    (tmp_path / "lm").mkdir()
    (tmp_path / "lm" / "metrics.jsonl").write_text('{"step": 1, "loss": 3.5}\n{"step": 1, "held_out": {}}\n')
    assert command.recipe_steps(tmp_path) == {"lm": {"minutes": 1.5, "last_loss": 3.5}}


def test_a_block_is_replaced_alone() -> None:
    """The text around it and the other blocks stay as they are."""
    page = "a\n\n<!-- one -->\n\nold\n\n<!-- end -->\n\nb\n\n<!-- two -->\n\nx\n\n<!-- end -->\n"
    assert with_block(page, "one", "new") == page.replace("old", "new")
    with pytest.raises(ValueError, match="no block"):
        with_block(page, "three", "new")


def test_a_long_command_line_is_broken_before_a_flag() -> None:
    """And can still be copied."""
    line = f"warmstart race task.yaml --out {'x' * 100} --schemes {'y' * 100}"
    assert shell([line]).replace(" \\\n ", "") == f"```sh\n{line}\n```"


def test_a_result_that_exists_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless its command line has changed; a race takes up its trials again, but not to render."""
    calls: list[list[str]] = []

    def run(words: list[str], file: Path, kept: dict[str, Any]) -> None:
        calls.append(words)
        kept |= {"result": {"a": 1}, "seconds": 60.0, "date": "2026-11-22", "machine": "here"}
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(kept))

    monkeypatch.setattr(command, "_run", run)
    table = Table("t", (), ("warmstart race t.yaml --out runs/t", "warmstart audit t.yaml"), lambda found: f"{len(found)} results")
    measured = measure_table(table, tmp_path, render=False)
    assert calls == [["race", "t.yaml", "--out", str(tmp_path / "t")], ["audit", "t.yaml"]]
    measure_table(table, tmp_path, render=False)
    assert [words[0] for words in calls] == ["race", "audit", "race"]
    measure_table(table, tmp_path, render=True)
    measure("warmstart audit other.yaml", lines_of(table)[1][1], tmp_path, render=True)
    assert [words[0] for words in calls] == ["race", "audit", "race", "audit"]
    assert table.block(measured).endswith("2 results\n\nhere, 2026-11-22, 2.0 minutes, `python -m benchmarks t`")


def test_few_labels_are_compared_with_the_best_baseline_and_refused_cells_say_so() -> None:
    """What is recommended is below the best baseline in both draws alike, on one set; another has more classes than labels."""

    def case(name: str, classes: int, labels: int, *chosen: float) -> dict[str, Any]:
        scores = {"baseline/NB": [0.8, 0.82], "frozen/LR": [*chosen]}
        rows = [{"id": key, "method": key.split("/")[1], "scores": found} for key, found in scores.items()]
        task = {"name": name, "labels": [str(one) for one in range(classes)]}
        return {"task": task, "labels": labels, "methods": rows, "chosen": ["frozen/LR"] * 2, "untested": ["frozen/LR"] * 2}

    text = few_labels([case("trec", 6, 50, 0.7, 0.72), case("trec", 6, 100, 0.9, 0.7), case("r52", 52, 100, 0.9, 0.91)])
    flat = " ".join(text.split())
    assert "In 1 of 3 cases is what the draws recommend below the baseline" in flat
    assert "trec with 50 (NB: +10.0 points (10.0 to 10.0))" in flat.replace("+10.0 to +10.0", "10.0 to 10.0")
    assert f"| r52 (holds r8) | 50 | {REFUSED} | - |" in text
    assert f"| trec | 50 | {REFUSED}" not in text
