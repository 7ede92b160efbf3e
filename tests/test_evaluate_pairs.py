"""Minimal pairs: groups are judged with ties and intervals, against chance and another model."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers.models import make_language_model
from warmstart.cli import main
from warmstart.commands.evaluate.result import count_significant, pairs_result
from warmstart.data.minimal_pairs import MinimalPair
from warmstart.inspection.measured_pairs import PairsMeasured
from warmstart.inspection.minimal_pairs import PairGroup, by_phenomenon, judge_pairs, mean_accuracy
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.seeding import rng
from warmstart.tokenizer.tokenizer import Tokenizer


def groups_of(*rights: object) -> list[PairGroup]:
    return [PairGroup(str(number), "", np.array(right, dtype=float)) for number, right in enumerate(rights)]


def measured(groups: list[PairGroup], other: list[PairGroup] | None = None) -> PairsMeasured:
    """Made-up verdicts of a causal model."""
    count = sum(len(group.right) for group in groups)
    return PairsMeasured([MinimalPair("a", "b")] * count, np.zeros(2 * count), groups, {"other": other} if other else {}, "causal")


def test_ties_count_half_and_groups_count_alike() -> None:
    """The mean is over groups, not over pairs."""
    pairs = [MinimalPair("a", "b", "one")] * 2 + [MinimalPair("a", "b", "two")]
    groups = judge_pairs(pairs, np.array([-1.0, -2.0, -3.0, -2.0, -2.0, -1.0]))
    assert [(group.name, group.accuracy.value) for group in groups] == [("one", 0.75), ("two", 0.0)]
    assert mean_accuracy(groups).value == pytest.approx(0.375)


def test_chance_is_seldom_called_significant() -> None:
    """Of studies that toss a coin, few find a group that differs from it; a real difference is found."""
    draw = rng(0, "coins")
    claims = [sum(count_significant(groups_of(*(draw.random((67, 100)) < 0.5)))) for _ in range(20)]
    assert sum(claim > 0 for claim in claims) <= 2
    result = pairs_result("pairs", measured(groups_of([1] * 20, [0] * 20, [0.5] * 20, [1, 0] * 10)))
    assert (result.figures["groups_above_chance"], result.figures["groups_below_chance"]) == (1, 1)
    assert result.findings[1] == (
        "1 of 4 groups are significantly above chance and 1 significantly below (exact binomial tests, Holm's correction). "
        "In groups without a significant difference, 34.2 points from chance would have been detected with 80% power."
    )


def test_findings_are_read_as_sentences() -> None:
    """Accuracy with its interval, and another model by a verdict that interval and sign test agree on."""
    result = pairs_result("pairs", measured(groups_of([1] * 10), groups_of([0] * 10)))
    assert (
        result.findings[0]
        == "By log-probability, the right sentence scores higher in 100.0% (72.2 to 100.0) of 10 pairs (chance is 50%)."
    )
    assert result.findings[2].startswith("The model is better than other, which reaches 0.0%: +100.0 points (")
    same = pairs_result("pairs", measured(groups_of([1, 0] * 100), groups_of([1] * 100 + [0] * 100)))
    assert same.findings[2].startswith("The model is not significantly different from other")
    assert same.findings[2].endswith("; 14.0 points would have been detected with 80% power.")


def test_paradigms_of_one_phenomenon_are_joined() -> None:
    """The terminal shows phenomena where groups have one in common, the page and ``groups.csv`` all groups; others keep theirs."""
    rights = {"island_1": [1.0, 1.0], "island_2": [0.0, 1.0], "binding_1": [0.0, 0.0]}
    groups = [PairGroup(name, name.split("_")[0], np.array(right)) for name, right in rights.items()]
    result = pairs_result("blimp", measured(groups, groups))
    assert [row[:2] + row[3:] for row in result.summary.rows] == [("island", "4", "75.0%"), ("binding", "2", "0.0%")]
    assert result.tables["groups"]["other"].to_list() == [1.0, 0.5, 0.0]
    assert by_phenomenon(groups_of([1, 0], [1])) == by_phenomenon(groups[1:]) == []


def test_the_command_judges_two_models(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups, a row per pair, and a page."""
    save(Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_length=64), tokenizer), tmp_path / "lm")
    lines = [f"{group}\tShe holds the cat{i}.\tShe hold the cat{i}." for group in ("one", "two") for i in range(6)]
    (tmp_path / "p.tsv").write_text("group\tgood\tbad\n" + "\n".join(lines))
    shutil.copytree(tmp_path / "lm", tmp_path / "other")
    words = [
        "--against",
        str(tmp_path / "other"),
        "--out",
        str(tmp_path / "run"),
        "--limit",
        "5",
    ]
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "p.tsv"), *words]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "of 10 pairs (mean over 2 groups; chance is 50%)" in printed
    assert "lm is not significantly different from other, which reaches" in printed
    assert len((tmp_path / "run" / "pairs.csv").read_text().splitlines()) == 11
    assert "right sentence scores higher" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "other").rename(tmp_path / "accuracy")
    words = ["--against", str(tmp_path / "accuracy"), "--out", str(tmp_path / "again")]
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "p.tsv"), *words]) == 0
    columns = (tmp_path / "again" / "groups.csv").read_text().splitlines()[0]
    assert columns == "phenomenon,group,pairs,accuracy,low,high,accuracy (against)", "no model's column replaces another"
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "none")]) == 2
    assert main(["evaluate", str(tmp_path / "lm")]) == 2
    assert "name a task or a text that it is scored on" in " ".join(capsys.readouterr().err.split())
