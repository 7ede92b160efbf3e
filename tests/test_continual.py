"""Continual learning: the strategies are the papers' formulas, forgetting is measured as published, and runs can be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.multitask import multitask_model, task_settings, write_inputs
from helpers.results import continual_result
from warmstart.commands.continual.command import ContinualConfig, continual
from warmstart.commands.continual.result import ContinualResult, forgetting_metrics
from warmstart.data.encode import Encoded
from warmstart.finetuning.continual import EwcAnchor, ewc_penalty, fisher_information
from warmstart.model.files import load_bundle
from warmstart.seeding import seed_torch
from warmstart.stats.splits import THIS_SPLIT
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


def test_fisher_is_the_mean_of_squared_gradients_text_by_text() -> None:
    """Against a plain loop with the same drawn labels."""
    model = multitask_model()
    rows = Encoded(tuple(np.random.default_rng(1).integers(5, 60, (4, 5))), np.zeros(4, dtype=np.int64))
    fisher = fisher_information(model, 0, rows, 0, seed=3)
    torch.manual_seed(0)
    seed_torch(3, "fisher", 0)
    expected = {name: torch.zeros_like(p) for name, p in model.backbone.named_parameters()}
    for row in rows.rows:
        model.zero_grad()
        logits = model.heads[0](model.backbone(torch.tensor(row)[None], causal=False).last_hidden_state)
        drawn = torch.multinomial(logits.detach().softmax(dim=-1), 1)[:, 0]
        torch.nn.functional.cross_entropy(logits, drawn).backward()
        for name, p in model.backbone.named_parameters():
            if p.grad is not None:
                expected[name] += p.grad.square() / 4
    for name, value in expected.items():
        torch.testing.assert_close(fisher[name], value)


def test_the_ewc_penalty_and_its_gradient() -> None:
    """strength / 2 sum F (w - w*)^2, over every anchor; at the anchor it is 0."""
    model = multitask_model()
    fisher = {name: torch.rand_like(p) for name, p in model.backbone.named_parameters()}
    anchors = [EwcAnchor.at(model, fisher), EwcAnchor.at(model, fisher)]
    penalty = ewc_penalty(model, anchors, 10.0)
    assert penalty().item() == 0
    with torch.no_grad():
        for p in model.backbone.parameters():
            p.add_(0.5)
    expected = 2 * 5.0 * sum(float((fisher[name] * 0.25).detach().sum()) for name in fisher)
    assert penalty().item() == pytest.approx(expected, rel=1e-4)
    penalty().backward()
    name, p = next(iter(model.backbone.named_parameters()))
    torch.testing.assert_close(p.grad, 2 * 10.0 * fisher[name] * 0.5, rtol=1e-4, atol=1e-5)


def test_forgetting_by_hand() -> None:
    """Three tasks: the first falls from 0.9 to 0.6 by way of 0.95, the second rises from 0.8 to 0.85."""
    metrics = forgetting_metrics([[0.9], [0.95, 0.8], [0.6, 0.85, 0.7]])
    assert metrics.average == pytest.approx((0.6 + 0.85 + 0.7) / 3)
    assert metrics.after_learning == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert metrics.backward_transfer == pytest.approx((-0.3 + 0.05) / 2)
    assert metrics.forgetting == pytest.approx((0.35 - 0.05) / 2)


def test_metrics_are_stated_over_seeds_and_texts() -> None:
    """Resample by resample with the same formulas; seeds alone beside them; what was tested stands in one table."""
    result = continual_result({"none": 0.6, "replay": 0.75})
    metric, run = result.metric("none", "forgetting"), result.runs["none"][2]
    scores = [[float(one[7]) for one in row] for row in run.resampled]
    assert metric.resampled[2][7] == pytest.approx(forgetting_metrics(scores).forgetting)
    assert metric.scores[2] == run.metrics.forgetting
    average = result.metric("none", "average")
    both, seeds = average.over_both, average.over_seeds
    assert both.high - both.low > seeds.high - seeds.low
    first_rows = [row[:3] for row in result.table()[:2]]
    assert first_rows == [("none", "seeds and texts", str(both)), ("none", "seeds alone", seeds.ends)]
    first = (
        "the score on a fell",
        "the score on b did not change",
        "Replay is better than no strategy",
        "model loss rose",
        THIS_SPLIT,
    )
    assert all(part in sentence for part, sentence in zip(first, result.findings, strict=True))
    tested = result.tested()
    assert len(tested) == 2 * 2 + 2 + 2
    assert all(len(row) == len(result.TESTED_HEADER) for row in tested)
    assert [row[6] for row in tested] == ["yes", "no", "yes", "no", "yes", "no", "yes", "yes"]
    assert [row[7].split()[-1] for row in tested] == ["points"] * 6 + ["nats"] * 2
    assert {row[7] for row in continual_result({"none": 0.6, "replay": 0.75}, seeds=1).tested()} == {"-"}


@pytest.fixture
def inputs(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    return write_inputs(tmp_path, tokenizer)


def run(inputs: Path, out: str, **changes: object) -> ContinualResult:
    return continual(ContinualConfig.build(task_settings(inputs, out=str(inputs / out), **changes)))


def test_continual_learning_from_end_to_end(inputs: Path) -> None:
    """Every strategy, every stage, the language-model loss, bundles that share one backbone, JSON and the page."""
    result = run(inputs, "run", text=str(inputs / "text.txt"), replay_texts=10, fisher_texts=10)
    assert set(result.runs) == {"none", "replay", "ewc"}
    for runs in result.runs.values():
        assert [len(row) for row in runs[0].scores] == [1, 2]
        assert len(runs[0].language_losses) == 3
        assert runs[0].language_losses[0] == result.runs["none"][0].language_losses[0]
    assert len({runs[0].scores[0] for runs in result.runs.values()}) == 1, "at the first task there is nothing to forget"
    one, two = (load_bundle(inputs / "run" / "bundles" / "replay" / name).model.backbone.state_dict() for name in ("cats", "who"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    compared = [sentence for sentence in result.findings if sentence.startswith(("Average over tasks", "Score on each new task"))]
    assert len(compared) == 2
    assert all("the test texts" in sentence or "No difference" in sentence for sentence in compared)
    assert sum(" nats" in sentence for sentence in result.findings) == 1
    assert all(sentence.endswith(".") for sentence in result.findings)
    assert result.findings.count(THIS_SPLIT) == 1
    page = (inputs / "run" / "report.html").read_text()
    assert all(word in page for word in ("What was forgotten", "Strategy: ewc", "Backward transfer"))
    stored = json.loads((inputs / "run" / "continual.json").read_text())
    assert (stored["tasks"], stored["findings"]) == (["cats", "who"], result.findings)


def test_a_strategy_without_strength_is_none(inputs: Path) -> None:
    """No stored texts, or no penalty: the same scores as without a strategy; and a repeat is the same."""
    plain, again = run(inputs, "a", strategies=["none"]), run(inputs, "b", strategies=["none"])
    expected = plain.runs["none"][0].scores
    assert again.runs["none"][0].scores == expected
    assert run(inputs, "c", strategies=["replay"], replay_texts=0).runs["replay"][0].scores == expected
    assert run(inputs, "d", strategies=["ewc"], ewc_strength=0.0).runs["ewc"][0].scores == expected
