"""The model card: written with every bundle, from what the bundle knows, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conftest import make_language_model
from test_kinds import tune, write_task
from test_schemes import language_bundle
from warmstart.kinds import KINDS
from warmstart.model import Bundle, load, save
from warmstart.model.card import JOBS, TAGS, card, table
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.adapt import AdaptConfig, adapt

pytestmark = pytest.mark.usefixtures("no_second_process")


def test_it_says_what_an_adaptation_found(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Labels, intervals beside baselines, findings of the audit, the command, and too few seeds as a limit."""
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {"model": str(tmp_path / "lm"), "task": str(write_task(tmp_path / "label", "label")), "out": str(tmp_path / "run")}
    outcome = adapt(AdaptConfig.build(given | {"seeds": 2, "tune": tune(epochs=1)}))
    text = (tmp_path / "run" / "bundle" / "README.md").read_text(encoding="utf-8")
    for name in (
        "`cats`",
        "from scratch",
        "TF-IDF",
        "majority",
        "`label`: 48 for train",
        "too few seeds",
        "adapt with `--calibration`",
    ):
        assert name in text
    for row in outcome.comparison.rows:
        assert f"{100 * row.interval.mean:.1f} %" in text
    assert "The audit of the data found nothing." in text
    assert text.startswith("---\nlibrary_name: warmstart\npipeline_tag: text-classification\n---\n")


def test_every_kind_of_head_has_words() -> None:
    """A new kind of head cannot be saved without them, so it is seen here first."""
    heads = {kind.head_kind for kind in KINDS.values()}
    assert heads <= set(JOBS)
    assert heads | {"language", "embed"} == set(TAGS)


def test_what_the_audit_found_is_told(tokenizer: Tokenizer) -> None:
    """With its severity."""
    entry = {"command": "adapt", "audit": [("error", "3 texts stand in both splits")]}
    assert "- error: 3 texts stand in both splits" in card(
        Bundle(make_language_model(vocab_size=tokenizer.vocab_size), tokenizer, history=(entry,))
    )


@pytest.mark.parametrize("history", [(), ({},), ({"command": "mine", "anything": object()},)])
@pytest.mark.parametrize("causal", [True, False])
def test_no_history_is_in_its_way(history: tuple[dict, ...], causal: bool, tokenizer: Tokenizer) -> None:
    """Bundles made in Python say little, but they say it."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, causal=causal)
    assert "## Limits" in card(Bundle(model, tokenizer, history=history))


def test_names_cannot_break_a_table() -> None:
    """Bars and new lines stay in their cell."""
    assert table(("a", "b"), [["x|y", "1\n2"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |"


def test_nothing_reads_it_back(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It may be edited, or removed, and the bundle is as whole as before."""
    bundle = language_bundle(tokenizer)
    place = save(bundle, tmp_path / "b")
    (place / "README.md").write_text("mine")
    load(place, selftest=True)
    (place / "README.md").unlink()
    again = load(place, selftest=True)
    assert torch.equal(again.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)
