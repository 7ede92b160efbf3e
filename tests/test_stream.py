"""Several tasks on one backbone: what each loss is, what is remembered, what was forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import SENTENCES, make_backbone
from test_race import cats
from test_schemes import language_bundle
from warmstart.cli import main
from warmstart.data import Split, Task, save_task
from warmstart.data.batch import Encoded, collate
from warmstart.errors import ConfigError
from warmstart.evaluate.forgetting import forgetting_of
from warmstart.heads import ClassifyHeadConfig
from warmstart.model import fresh_head, load, save
from warmstart.schemes.several import Anchor, Several, TaskBatch, elastic, fisher, shares, whose_turn
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.multitask import MultitaskConfig, multitask
from warmstart.workflows.stream import Stream, StreamConfig, stream

pytestmark = pytest.mark.usefixtures("no_second_process")


def several(classes: tuple[int, ...] = (2, 3)) -> Several:
    backbone = make_backbone()
    heads = [fresh_head(ClassifyHeadConfig(classes=count), backbone, place) for place, count in enumerate(classes)]
    return Several(backbone, heads, causal=False)


def batch(task: int, labels: list[int], seed: int = 0) -> TaskBatch:
    rows = list(np.random.default_rng(seed).integers(5, 60, (len(labels), 6)))
    return TaskBatch.of(collate(rows, np.array(labels), 0, causal=False), task)


def test_each_task_is_read_by_its_own_head() -> None:
    """The loss is the cross-entropy under that head alone, and no other head gets a gradient."""
    model = several()
    made = batch(1, [0, 2])
    states = model.backbone(made.ids, causal=False).last
    expected = torch.nn.functional.cross_entropy(model.heads[1](states), made.targets, reduction="sum")
    loss = model.loss(made)
    assert torch.allclose(loss, expected)
    loss.backward()
    assert all(p.grad is None for p in model.heads[0].parameters())


def test_fisher_is_the_mean_of_squared_gradients_text_by_text() -> None:
    """Against a plain loop with the same drawn labels."""
    model = several()
    rows = Encoded(tuple(np.random.default_rng(1).integers(5, 60, (4, 5))), np.zeros(4, dtype=np.int64))
    found = fisher(model, 0, rows, 0, seed=3)
    torch.manual_seed(0)
    from warmstart.seeding import seed_torch

    seed_torch(3, "fisher", 0)
    expected = {name: torch.zeros_like(p) for name, p in model.backbone.named_parameters()}
    for row in rows.rows:
        model.zero_grad()
        logits = model.heads[0](model.backbone(torch.tensor(row)[None], causal=False).last)
        drawn = torch.multinomial(logits.detach().softmax(dim=-1), 1)[:, 0]
        torch.nn.functional.cross_entropy(logits, drawn).backward()
        for name, p in model.backbone.named_parameters():
            if p.grad is not None:
                expected[name] += p.grad.square() / 4
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_the_elastic_penalty_and_its_gradient() -> None:
    """strength / 2 sum F (w - w*)^2, over every anchor; at the anchor it is nothing."""
    model = several()
    weight = {name: torch.rand_like(p) for name, p in model.backbone.named_parameters()}
    anchors = [Anchor.at(model, weight), Anchor.at(model, weight)]
    penalty = elastic(model, anchors, 10.0)
    assert penalty().item() == 0
    with torch.no_grad():
        for p in model.backbone.parameters():
            p.add_(0.5)
    expected = 2 * 5.0 * sum(float((weight[name] * 0.25).detach().sum()) for name in weight)
    assert penalty().item() == pytest.approx(expected, rel=1e-4)
    penalty().backward()
    name, p = next(iter(model.backbone.named_parameters()))
    torch.testing.assert_close(p.grad, 2 * 10.0 * weight[name] * 0.5, rtol=1e-4, atol=1e-5)


@given(st.lists(st.integers(1, 500), min_size=2, max_size=6), st.floats(0, 1), st.integers(1, 400))
def test_turns_come_as_often_as_was_settled(sizes: list[int], alpha: float, steps: int) -> None:
    """Each task's count is within one of its share, and all turns are taken."""
    wanted = shares(sizes, alpha)
    counts = np.bincount(whose_turn(wanted, steps, 0), minlength=len(sizes))
    assert counts.sum() == steps
    assert (abs(counts - wanted * steps) <= 1).all()


def test_turns_by_hand() -> None:
    """By size, by its root, all alike."""
    assert shares([300, 100], 1).tolist() == [0.75, 0.25]
    assert shares([400, 100], 0.5) == pytest.approx([2 / 3, 1 / 3])
    assert shares([400, 100], 0).tolist() == [0.5, 0.5]
    assert sorted(whose_turn(np.array([0.75, 0.25]), 4, 0)) == [0, 0, 0, 1]


def test_forgetting_by_hand() -> None:
    """Three tasks: the first falls from 0.9 to 0.6 with a stop at 0.95, the second rises from 0.8 to 0.85."""
    found = forgetting_of([[0.9], [0.95, 0.8], [0.6, 0.85, 0.7]])
    assert found.average == pytest.approx((0.6 + 0.85 + 0.7) / 3)
    assert found.learned == pytest.approx((0.9 + 0.8 + 0.7) / 3)
    assert found.backward == pytest.approx((-0.3 + 0.05) / 2)
    assert found.forgetting == pytest.approx((0.35 - 0.05) / 2)


def rivers() -> Task:
    """The same kind of sentences, but the question is who does it: three classes."""
    base = cats(5)

    def asked(split: Split) -> Split:
        return Split(split.texts, np.array([0 if t.startswith("She") else 1 if t.startswith("He") else 2 for t in split.texts]))

    return replace(
        base,
        name="who",
        labels=("she", "he", "they"),
        train=asked(base.train),
        validation=asked(base.validation),
        test=asked(base.test),
    )


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    save_task(cats(), tmp_path / "cats")
    save_task(rivers(), tmp_path / "who")
    save(language_bundle(tokenizer), tmp_path / "lm")
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 20))
    return tmp_path


def settings(place: Path, **changes: object) -> dict[str, object]:
    given = {
        "model": str(place / "lm"),
        "tasks": [str(place / "cats"), str(place / "who")],
        "seeds": 2,
        "out": str(place / "run"),
    }
    return given | {"train": {"epochs": 2, "batch": 8, "learning_rate": 5e-3, "precision": "float32"}} | changes


def run(place: Path, out: str, **changes: object) -> Stream:
    return stream(StreamConfig.build(settings(place, out=str(place / out), **changes)))


def test_a_stream_from_end_to_end(place: Path) -> None:
    """Every way to remember, every stage, the language loss, bundles that share one backbone, and the page."""
    found = run(place, "run", text=str(place / "text.txt"), memory_texts=10, fisher_texts=10)
    assert set(found.runs) == {"none", "replay", "ewc"}
    for runs in found.runs.values():
        assert [len(row) for row in runs[0].scores] == [1, 2]
        assert len(runs[0].language) == 3
        assert runs[0].language[0] == found.runs["none"][0].language[0]
    assert len({runs[0].scores[0] for runs in found.runs.values()}) == 1, "the first task has nothing to remember"
    one, two = (load(place / "run" / "bundles" / "replay" / name).model.backbone.state_dict() for name in ("cats", "who"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    compared = [said for said in found.sentences() if said.startswith(("the average", "the score"))]
    assert len(compared) == 4
    assert not any("and the test texts" in said for said in compared), "streams keep no resamples"
    page = (place / "run" / "report.html").read_text()
    assert all(word in page for word in ("What was forgotten", "Memory: ewc", "Backward transfer"))
    assert json.loads((place / "run" / "stream.json").read_text())["tasks"] == ["cats", "who"]


def test_remembering_nothing_is_nothing(place: Path) -> None:
    """No stored texts, or no strength: the same scores as without; and a repeat is the same."""
    plain, again = run(place, "a", memory=["none"]), run(place, "b", memory=["none"])
    assert plain.runs["none"][0].scores == again.runs["none"][0].scores
    assert run(place, "c", memory=["replay"], memory_texts=0).runs["replay"][0].scores == plain.runs["none"][0].scores
    assert run(place, "d", memory=["ewc"], strength=0.0).runs["ewc"][0].scores == plain.runs["none"][0].scores


def test_tasks_together_and_alone(place: Path) -> None:
    """Scores of both by task and seed, one bundle a task on one backbone, and a page."""
    found = multitask(MultitaskConfig.build(settings(place)))
    assert found.names == ("cats", "who")
    assert all(len(shared.together) == len(shared.alone) == 2 for shared in found.runs)
    assert len(found.sentences()) == 2
    for task, name in enumerate(found.names):
        one, other = found.rows(task)
        assert one.resampled.shape == other.resampled.shape == (2, 1000)
        assert np.allclose(one.resampled.mean(axis=1), one.scores, atol=0.02)
        assert found.sentences()[task].startswith(f"{name}: ")
    bundles = [load(place / "run" / "bundles" / name, selftest=True) for name in found.names]
    assert [bundle.labels for bundle in bundles] == [cats().labels, rivers().labels]
    one, two = (bundle.model.backbone.state_dict() for bundle in bundles)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert "together" in (place / "run" / "report.html").read_text()


@pytest.mark.parametrize("command", ["stream", "multitask"])
def test_mistakes_are_told(command: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One task, two of one name, a budget that is not epochs, a text that is not there."""
    lm, one, two = str(place / "lm"), str(place / "cats"), str(place / "who")
    cases = [
        ([lm, one, one], "each task needs a name of its own, but cats came twice"),
        ([lm, one, two, "--steps", "5"], "the length of a run of several tasks is told by --epochs"),
        ([lm, one], "tasks"),
    ]
    if command == "stream":
        cases.append(([lm, one, two, "--text", "nowhere.txt"], "there is no text at nowhere.txt"))
    for words, said in cases:
        try:
            code = main([command, *words, "--out", str(place / "run")])
        except SystemExit as stop:
            code = stop.code
        assert code == 2
        assert said in capsys.readouterr().err.replace("\n", " ")
    with pytest.raises(ConfigError, match="alpha must lie between 0"):
        shares([1, 2], 1.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--accumulate", "4"], "leave --accumulate"), (["--evaluate-every", "2"], "leave --accumulate")],
)
def test_flags_that_would_do_nothing_are_refused(
    words: list[str], said: str, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not passed over."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    tasks = []
    for name in ("one", "two"):
        tasks.append(str(save_task(replace(cats(), name=name), tmp_path / name)))
    assert main(["multitask", str(tmp_path / "lm"), *tasks, *words, "--out", str(tmp_path / "run")]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
