"""Ablation: exactly the named component is replaced, and effects are told from noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.bundles import language_bundle, unread_model
from helpers.models import SENTENCES, make_language_model
from helpers.tasks import tune, write_task
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data.encode import Encoded
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment.config import AdaptConfig
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.inspection.ablation import (
    AblationMeasurement,
    AblationMetric,
    Component,
    ComponentEffect,
    ablated,
    components_of,
    language_passages,
    passage_losses,
    recorded_means,
    resampled_states,
    zero_states,
)
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, swap_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.stats.differences import Difference, MethodScores
from warmstart.studies.ablate import StudyAblateConfig, ablation_findings, choose_metric, study_ablate
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import IGNORE

IDS = torch.tensor([[5, 9, 2, 11, 7], [8, 3, 6, 0, 0]])
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])


def component(model: Model, name: str) -> Component:
    return next(one for one in components_of(model.backbone.config) if one.name == name)


def output(model: Model, mask: Tensor | None = MASK) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(IDS, mask)
    return out if mask is None else out[mask]


def without(model: Model, name: str) -> Tensor:
    with ablated(model, component(model, name), zero_states):
        return output(model)


def changed(model: Model, edit: Callable[[Model], object]) -> Tensor:
    """The output of a copy whose weights were edited by hand."""
    copy = make_language_model(causal=model.causal, **model.backbone.config.to_dict())
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        edit(copy)
    return output(copy)


def silence(module: nn.Linear, columns: slice = slice(None)) -> None:
    """Set these input columns of a linear layer to zero; if all of them, its bias too."""
    module.weight[:, columns] = 0
    if module.bias is not None and columns == slice(None):
        module.bias.zero_()


def test_zero_ablation_equals_weights_of_zero() -> None:
    """For a head its columns of ``out``, for an attention or feed-forward layer all of its last layer."""
    expected = {
        "block 2, head 3": lambda m: silence(m.backbone.blocks[1].attention.out, slice(8, 12)),
        "block 1, attention": lambda m: silence(m.backbone.blocks[0].attention.out),
        "block 2, feed-forward": lambda m: silence(m.backbone.blocks[1].feedforward.out),
        "block 1": lambda m: [silence(b.out) for b in (m.backbone.blocks[0].attention, m.backbone.blocks[0].feedforward)],
    }
    for causal in (True, False):
        model = make_language_model(causal=causal, heads=4)
        full = output(model)
        for name, edit in expected.items():
            got = without(model, name)
            assert torch.allclose(got, changed(model, edit), atol=1e-5), name
            assert not torch.allclose(got, full, atol=1e-3), name
        assert torch.equal(output(model), full), "a hook was left behind"
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.backbone.blocks.modules())


def test_an_ablated_block_is_skipped() -> None:
    """The output is that of a backbone without the block, with norms before or after the residual sums."""
    for norm in ("pre", "post"):
        model = make_language_model(depth=3, norm=norm, positions="learned")
        got = without(model, "block 2")
        del model.backbone.blocks[1]
        assert torch.equal(got, output(model)), norm


def test_mean_ablation_uses_the_mean_of_real_tokens() -> None:
    """By a plain hook that records the input of ``out``, and one that replaces it by the mean; padding does not count."""
    model, seen = make_language_model(causal=False, heads=4), list[Tensor]()
    out = model.backbone.blocks[0].attention.out
    hook = out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][MASK]))
    output(model)
    hook.remove()
    mean = torch.cat(seen)[:, 4:8].mean(dim=0)

    def put(_module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()
        x[..., 4:8] = mean
        return (x,)

    hook = out.register_forward_pre_hook(put)
    expected = output(model)
    hook.remove()
    one = component(model, "block 1, head 2")
    with recorded_means(model, components_of(model.backbone.config)) as means:
        full = output(model)
    assert torch.equal(full, output(model))
    with ablated(model, one, means):
        assert torch.allclose(output(model), expected, atol=1e-6)


def test_resample_ablation_permutes_the_states_of_real_tokens() -> None:
    """The same states in another order, those of padding unchanged; the same seed gives the same order."""
    model = make_language_model(causal=False)
    states, mask = torch.randn(2, 5, 3), MASK
    one = component(model, "block 1, head 2")
    got = resampled_states(0, 0)(one, states, mask)
    assert isinstance(got, Tensor)
    assert not torch.equal(got, states)
    assert torch.equal(got[~mask], states[~mask])
    assert {tuple(row) for row in got[mask].tolist()} == {tuple(row) for row in states[mask].tolist()}
    assert torch.equal(got, resampled_states(0, 0)(one, states, mask))
    assert not torch.equal(got, resampled_states(0, 1)(one, states, mask))


def test_components_have_names_and_cover_the_model() -> None:
    """Names count from 1, block by block."""
    config = make_language_model().backbone.config  # 2 blocks of 2 heads, 16 wide
    names = [one.name for one in components_of(config)]
    assert names[:5] == ["block 1, head 1", "block 1, head 2", "block 1, attention", "block 1, feed-forward", "block 1"]
    assert len(names) == 10


def test_losses_match_a_plain_loop(tokenizer: Tokenizer) -> None:
    """Row by row; causal models predict every token of the text, masked ones 15% of it, masked once."""
    texts = [*SENTENCES, " ".join(SENTENCES * 3)]
    for causal in (True, False):
        bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal), tokenizer)
        passages = language_passages(bundle, texts, 99, 0)
        got = passage_losses(bundle.model, passages, tokenizer.specials.pad)
        for number, (row, targets) in enumerate(zip(passages.encoded.rows, passages.targets, strict=True)):
            with torch.no_grad():
                scores = bundle.model(torch.from_numpy(row)[None])[0]
            expected = F.cross_entropy(scores, torch.from_numpy(targets), ignore_index=IGNORE, reduction="sum")
            assert got[number] == pytest.approx(float(expected), rel=1e-4), causal
        if causal:
            assert np.concatenate(passages.targets).tolist() == [token for ids in tokenizer.encode(texts) for token in ids]
        else:
            assert (passages.counts >= 1).all()
            again = language_passages(bundle, SENTENCES, 4, 0).targets
            assert all(np.array_equal(a, b) for a, b in zip(passages.targets, again, strict=False))
        assert len(language_passages(bundle, SENTENCES, 2, 0).encoded) == 2


def test_a_language_model_is_evaluated_as_it_was_trained(tokenizer: Tokenizer) -> None:
    """A hybrid model is evaluated from left to right, like a causal one; one trained on sentinel spans only is refused."""
    hybrid = Language(objective=ObjectiveConfig(name="hybrid"), generates=True)
    backward, both = (make_language_model(vocab_size=tokenizer.vocab_size, causal=causal) for causal in (True, False))
    bundle = Bundle(both, tokenizer, language=hybrid)
    passages = language_passages(bundle, SENTENCES, 99, 0)
    plain = language_passages(Bundle(backward, tokenizer), SENTENCES, 99, 0)
    pad = tokenizer.specials.pad
    np.testing.assert_array_equal(passage_losses(both, passages, pad), passage_losses(backward, plain, pad))
    assert bundle.likelihood == "causal"
    assert Bundle(both, tokenizer).likelihood == "masked"
    spans = Bundle(backward, tokenizer, language=Language(objective=ObjectiveConfig(name="span")))
    with pytest.raises(ModelError, match="trained on sentinel spans only"):
        language_passages(spans, SENTENCES, 99, 0)


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model that has memorised its text; the first head of its first block does nothing."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, heads=4, width=32, max_length=40)
    passages = language_passages(Bundle(model, tokenizer), SENTENCES, 4, 0)
    out, work = model.backbone.blocks[0].attention.out, torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        with torch.no_grad():
            out.weight[:, :8] = 0
        work.zero_grad()
        for row, targets in zip(passages.encoded.rows, passages.targets, strict=True):
            F.cross_entropy(model(torch.from_numpy(row)[None])[0], torch.from_numpy(targets)).backward()
        work.step()
    with torch.no_grad():
        out.weight[:, :8] = 0
    language = Language(objective=ObjectiveConfig(name="causal"), generates=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        return save(Bundle(model.eval(), tokenizer, language=language), tmp_path_factory.mktemp("trained") / "lm")


def test_the_command_ranks_components(trained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A head that does nothing has no effect and comes last among heads."""
    words = [str(trained), "--text", str(text), "--limit", "40", "--ablation", "zero"]
    assert main(["study", "ablate", *words, "--out", str(tmp_path / "run")]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    table = pl.read_csv(tmp_path / "run" / "components.csv")
    assert len(table) == 14
    assert table["effect"].is_sorted(descending=True)
    nothing = table.filter(pl.col("type") == "head").row(-1, named=True)
    assert (nothing["component"], nothing["effect"], nothing["p"], nothing["significant"]) == ("block 1, head 1", 0.0, 1.0, False)
    first = table.row(0, named=True)
    assert first["significant"]
    assert f"The model needs {first['component']} most: without it loss is worse by " in printed
    assert "of 8 heads can be ablated one at a time" in printed
    assert "pale: not significant" in (tmp_path / "run" / "report.html").read_text()
    assert (tmp_path / "run" / "figures" / "grid.svg").exists()


def test_only_significant_effects_matter() -> None:
    """The largest significant effect is named, even if another is larger by chance; a component that hurts the model is not."""
    encoded = Encoded((np.zeros(5, dtype=np.int64),) * 100, np.zeros(100, dtype=np.int64))
    metric = AblationMetric("accuracy", "points", 2, False, encoded, lambda _: (1.0, np.ones(10)))
    scores = MethodScores("one", (1.0,), np.ones((1, 10)))

    def findings(*effects: ComponentEffect) -> list[str]:
        return ablation_findings(AblationMeasurement(metric, scores, effects, 4, 1.0))

    heads = [Component(f"block 1, head {i + 1}", "head", "blocks.0.attention.out", block=0, head=i) for i in range(2)]
    noisy = ComponentEffect(Component("block 1", "block", "blocks.0", block=0), scores, Difference(5, -1, 11, 3, 0.1), 0.2)
    harmful = ComponentEffect(heads[0], scores, Difference(4, 3, 5, 0.5, 1e-8), 1e-7)
    helpful = ComponentEffect(heads[1], scores, Difference(-4, -5, -3, 0.5, 1e-8), 1e-7)
    first, second, *_ = findings(noisy, harmful, helpful)
    assert first.startswith("The model needs block 1, head 1 most: without it accuracy is worse by 4.00 points")
    larger = "Block 1 has a larger effect, 5.00 points (-1.00 to 11.00), but it is not significant"
    assert second == f"{larger}; 9.91 points would have been detected with 80% power."
    one, *_ = findings(noisy, helpful)
    assert one.startswith("No part of the model is shown to be needed on 100 texts: the largest effect is that of block 1")
    assert "1.57 to 9.44 points would have been detected with 80% power." in one
    of_heads = findings(noisy, replace(harmful, p=0.3))[2]
    assert of_heads.startswith(
        "Of the heads, block 1, head 1 has the largest effect in this sample, which is not significant: 4.00"
    )


def test_mean_and_resample_ablation(trained: Path, text: Path, tmp_path: Path) -> None:
    """A head that does nothing has no effect; resample ablation is repeated and its standard deviation reported."""
    for ablation in ("mean", "resample"):
        out = tmp_path / ablation
        given = {"model": str(trained), "text": (str(text),), "limit": 31, "ablation": ablation, "out": str(out)}
        measured = study_ablate(StudyAblateConfig.build(given)).details
        (nothing,) = (one for one in measured.heads if one.component.name == "block 1, head 1")
        assert nothing.difference.mean == pytest.approx(0, abs=1e-6)
        assert not nothing.significant
        assert measured.effects[0].significant
        assert measured.passes == (1 + 14 if ablation == "mean" else 1 + 3 * 12 + 2)
        deviations = pl.read_csv(out / "components.csv")["std_over_repeats"]
        assert deviations.null_count() == (len(deviations) if ablation == "mean" else 2)


@pytest.mark.parametrize("name", ["classification", "tagging"])
def test_adapted_models_are_evaluated_on_their_task(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """By its metric in points on test texts, compared with the full model on the same texts."""
    manifest = write_task(tmp_path / name, name)
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {"model": str(tmp_path / "lm"), "task": str(manifest), "out": str(tmp_path / "run"), "seeds": 1}
    given |= {"scratch": False, "baselines": False}
    outcome = adapt(AdaptConfig.build(given | {"tune": tune(epochs=3)}))
    settings = {"model": str(tmp_path / "run"), "task": str(manifest), "out": str(tmp_path / "study")}
    result = study_ablate(StudyAblateConfig.build(settings))
    full, first = result.details.full, result.details.effects[0]
    assert full.scores[0] == pytest.approx(100 * outcome.best_scores.score(outcome.task.metric))
    assert first.difference.mean == pytest.approx(full.scores[0] - first.scores.scores[0])
    assert "Intervals over only 16 texts are too narrow" in " ".join(result.findings)
    adapted = load_bundle(tmp_path / "run" / "bundle")
    assert len(choose_metric(adapted, str(manifest), (), 7, 0).encoded) == 7
    with pytest.raises(ConfigError, match="evaluated on its task"):
        choose_metric(adapted, None, (), 7, 0)
    with pytest.raises(ConfigError, match="leave it out"):
        choose_metric(adapted, str(manifest), ("a.txt",), 7, 0)


def test_mistakes_are_found_before_the_run(trained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be evaluated leaves no folder behind."""
    (tmp_path / "short.txt").write_text("She\n")
    for words, why in (
        ([], "a language model is evaluated on text"),
        (["task.yaml"], "got a task"),
        (["--text", str(tmp_path / "short.txt")], "at least two passages"),
    ):
        assert main(["study", "ablate", str(trained), *words, "--out", str(tmp_path / "run")]) == 2
        assert why in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "run").exists()
    with pytest.raises(DataError):
        language_passages(load_bundle(trained), ["She"], 5, 0)
    model = swap_head(load_bundle(trained).model, EmbeddingHeadConfig(), 0)
    with pytest.raises(ModelError, match="adapt it to a task first"):
        choose_metric(Bundle(model, load_bundle(trained).tokenizer), None, (str(text),), 5, 0)
