"""Ablation: what is erased is erased and nothing else, changes come with their noise, and pruned models are what they should be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conftest import SENTENCES, make_language_model
from test_kinds import language_bundle, tune, write_task
from warmstart.analysis.ablate import Part, erased, losses, means_of, parts_of, passages_of, shuffled, zero
from warmstart.cli import main
from warmstart.data.batch import Encoded
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.evaluate.differences import Gap, Judged
from warmstart.heads import EmbedHeadConfig
from warmstart.inserts import LoraConfig, insert
from warmstart.model import Bundle, Model, load, parameter_counts, save, swap_head
from warmstart.model.prune import prune_heads
from warmstart.tokenizer import Tokenizer
from warmstart.types import IGNORE
from warmstart.workflows.adapt import AdaptConfig, adapt
from warmstart.workflows.studies import ablate as study
from warmstart.workflows.studies.ablate import AblateConfig, ablate
from warmstart.workflows.studies.effects import Effect, Found
from warmstart.workflows.studies.yardstick import Yardstick, yardstick_for

IDS = torch.tensor([[5, 9, 2, 11, 7], [8, 3, 6, 0, 0]])
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
SHAPES: dict[str, dict[str, object]] = {
    "rotary": {"width": 24, "heads": 3},
    "learned": {"width": 24, "heads": 3, "positions": "learned", "bias": False},
    "BERT": {"width": 24, "heads": 3, "positions": "learned", "norm": "post", "embedding_norm": True, "types": 2},
    "wide": {"width": 24, "heads": 3, "head_width": 4, "qk_norm": True, "qkv_bias": True, "bias": False, "kv_heads": 3},
}


def part(model: Model, name: str) -> Part:
    return next(one for one in parts_of(model.backbone.config, 6) if one.name == name)


def said(model: Model, mask: Tensor | None = MASK) -> Tensor:
    with torch.no_grad():
        out: Tensor = model(IDS, mask)
    return out if mask is None else out[mask]


def without(model: Model, *names: str) -> Tensor:
    with erased(model, [part(model, name) for name in names], zero):
        return said(model)


def changed(model: Model, edit: Callable[[Model], object]) -> Tensor:
    """What a copy says whose weights were edited by hand."""
    copy = make_language_model(causal=model.causal, **model.backbone.config.plain())
    copy.load_state_dict(model.state_dict())
    with torch.no_grad():
        edit(copy)
    return said(copy)


def silence(module: nn.Linear, columns: slice = slice(None)) -> None:
    """These inputs of a linear layer do nothing; all of them: nor does its bias."""
    module.weight[:, columns] = 0
    if module.bias is not None and columns == slice(None):
        module.bias.zero_()


@pytest.mark.parametrize("causal", [True, False])
def test_zero_is_a_model_with_weights_of_zero(causal: bool) -> None:
    """A head: its columns of ``out``; a branch: all of its last layer; dimensions: columns of the embedding without positions."""
    model = make_language_model(causal=causal, heads=4)
    whole, blocks = said(model), model.backbone.blocks
    wanted = {
        "block 2, head 3": lambda m: silence(m.backbone.blocks[1].attention.out, slice(8, 12)),
        "block 1, attention": lambda m: silence(m.backbone.blocks[0].attention.out),
        "block 2, feed-forward": lambda m: silence(m.backbone.blocks[1].feedforward.out),
        "block 1": lambda m: [silence(b.out) for b in (m.backbone.blocks[0].attention, m.backbone.blocks[0].feedforward)],
    }
    for name, edit in wanted.items():
        got = without(model, name)
        assert torch.allclose(got, changed(model, edit), atol=1e-5), name
        assert not torch.allclose(got, whole, atol=1e-3), name
    assert torch.equal(said(model), whole), "a hook was left behind"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in blocks.modules())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_block_erased_is_a_block_left_out(norm: str) -> None:
    """By a backbone that does not have it, also where norms stand after the sums."""
    model = make_language_model(depth=3, norm=norm, positions="learned")
    got = without(model, "block 2")
    del model.backbone.blocks[1]
    assert torch.equal(got, said(model))


def test_the_mean_is_that_of_real_tokens() -> None:
    """By a plain hook that writes down what goes into ``out``, and one that puts the mean there; padding does not count."""
    model, seen = make_language_model(causal=False, heads=4), list[Tensor]()
    out = model.backbone.blocks[0].attention.out
    hook = out.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0][MASK]))
    said(model)
    hook.remove()
    mean = torch.cat(seen)[:, 4:8].mean(dim=0)

    def put(_module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()
        x[..., 4:8] = mean
        return (x,)

    hook = out.register_forward_pre_hook(put)
    wanted = said(model)
    hook.remove()
    one = part(model, "block 1, head 2")
    with means_of(model, parts_of(model.backbone.config)) as means:
        whole = said(model)
    assert torch.equal(whole, said(model))
    with erased(model, [one], means):
        assert torch.allclose(said(model), wanted, atol=1e-6)


def test_another_token_s_states_stand_in() -> None:
    """The same states in another order, those of padding where they were; the same draw gives the same."""
    model = make_language_model(causal=False)
    states, mask = torch.randn(2, 5, 3), MASK
    one = part(model, "block 1, head 2")
    got = shuffled(0, 0)(one, states, mask)
    assert isinstance(got, Tensor)
    assert not torch.equal(got, states)
    assert torch.equal(got[~mask], states[~mask])
    assert {tuple(row) for row in got[mask].tolist()} == {tuple(row) for row in states[mask].tolist()}
    assert torch.equal(got, shuffled(0, 0)(one, states, mask))
    assert not torch.equal(got, shuffled(0, 1)(one, states, mask))


def test_parts_have_names_and_cover_the_model() -> None:
    """Counted from 1; dimensions come in groups of neighbours that cover the width once, at most one a dimension."""
    config = make_language_model().backbone.config  # 2 blocks of 2 heads, 16 wide
    names = [one.name for one in parts_of(config)]
    assert names[:5] == ["block 1, head 1", "block 1, head 2", "block 1, attention", "block 1, feed-forward", "block 1"]
    assert len(names) == 10
    assert [one.name for one in parts_of(config, 3)][10:] == ["dimensions 1 to 6", "dimensions 7 to 11", "dimensions 12 to 16"]
    assert [one.name for one in parts_of(config, 99)][-1] == "dimension 16"
    assert len(parts_of(config, 99)) == 26


@pytest.mark.parametrize("causal", [True, False])
def test_losses_are_those_of_a_plain_loop(causal: bool, tokenizer: Tokenizer) -> None:
    """Row by row; causal rows predict every token of the text, masked ones 15 % of it, drawn once."""
    bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal), tokenizer)
    passages = passages_of(bundle, [*SENTENCES, " ".join(SENTENCES * 3)], 99, 0)
    got = losses(bundle.model, passages, tokenizer.specials.pad)
    for place, (row, targets) in enumerate(zip(passages.encoded.rows, passages.targets, strict=True)):
        with torch.no_grad():
            scores = bundle.model(torch.from_numpy(row)[None])[0]
        wanted = F.cross_entropy(scores, torch.from_numpy(targets), ignore_index=IGNORE, reduction="sum")
        assert got[place] == pytest.approx(float(wanted), rel=1e-4)
    spelled = tokenizer.encode([*SENTENCES, " ".join(SENTENCES * 3)])
    if causal:
        assert np.concatenate(passages.targets).tolist() == [token for ids in spelled for token in ids]
    else:
        assert (passages.counts >= 1).all()
        assert all(
            np.array_equal(a, b) for a, b in zip(passages.targets, passages_of(bundle, SENTENCES, 4, 0).targets, strict=False)
        )
    assert len(passages_of(bundle, SENTENCES, 2, 0).encoded) == 2


def test_a_model_is_asked_for_language_as_it_learned_it(tokenizer: Tokenizer) -> None:
    """A hybrid model token after token, as one that only looks back; one that learned spans behind sentinels not at all."""
    hybrid = {"objective": {"name": "hybrid"}, "generates": True}
    backward, both = (make_language_model(vocab_size=tokenizer.vocab_size, causal=causal) for causal in (True, False))
    bundle = Bundle(both, tokenizer, history=(hybrid,))
    passages = passages_of(bundle, SENTENCES, 99, 0)
    plain = passages_of(Bundle(backward, tokenizer), SENTENCES, 99, 0)
    pad = tokenizer.specials.pad
    np.testing.assert_array_equal(losses(both, passages, pad), losses(backward, plain, pad))
    assert bundle.likelihood == "causal"
    assert Bundle(both, tokenizer).likelihood == "masked"
    spans = Bundle(backward, tokenizer, history=({"objective": {"name": "span"}, "generates": False},))
    with pytest.raises(ModelError, match="learned only spans behind sentinels"):
        passages_of(spans, SENTENCES, 99, 0)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_pruned_model_is_the_whole_one_with_heads_at_zero(shape: str, causal: bool) -> None:
    """Whatever the positions and biases; the count falls by what these heads had, and the whole model stays as it was."""
    model = make_language_model(causal=causal, depth=2, **SHAPES[shape])
    config, whole = model.backbone.config, said(model)
    pruned = prune_heads(model, [[0, 2], [1, 2]])
    assert torch.allclose(said(pruned), without(model, "block 1, head 2", "block 2, head 1"), atol=1e-5)
    assert torch.equal(said(model), whole)
    smaller = pruned.backbone.config
    assert (smaller.heads, smaller.head_width, smaller.width) == (2, config.per_head, config.width)
    biased = config.bias if config.qkv_bias is None else config.qkv_bias
    gone = 2 * config.per_head * (4 * config.width + 3 * biased)
    assert parameter_counts(model)["total"] - parameter_counts(pruned)["total"] == gone


def test_what_cannot_be_pruned_is_said() -> None:
    """Each with its reason, and what to do."""
    plain = make_language_model(heads=4)
    for keep, why in (
        ([[0], [1, 2]], "would keep 1, 2"),
        ([[], []], "at least one of 4 heads"),
        ([[0, 1]], "each of the 2 blocks"),
        ([[0, 4], [0, 1]], "from 0 to 3"),
        ([[0, 0], [0, 1]], "different numbers"),
    ):
        with pytest.raises(ModelError, match=why):
            prune_heads(plain, keep)
    for model, why in (
        (make_language_model(heads=4, kv_heads=2), "4 heads share 2"),
        (make_language_model(attention="synthesizer", positions="learned"), "synthesizer"),
    ):
        with pytest.raises(ModelError, match=why):
            prune_heads(model, [[0], [0]])
    insert(plain.backbone, LoraConfig(), 0)
    with pytest.raises(ModelError, match=r"inserted modules \(lora\).*merge"):
        prune_heads(plain, [[0], [0]])


@pytest.fixture
def trained(tokenizer: Tokenizer, tmp_path: Path, no_second_process: None) -> Path:
    """A causal model that has learned its text by heart; the first head of its first block does nothing."""
    model = make_language_model(vocab_size=tokenizer.vocab_size, heads=4, width=32, max_tokens=40)
    passages = passages_of(Bundle(model, tokenizer), SENTENCES, 4, 0)
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
    history = ({"objective": {"name": "causal"}, "generates": True},)
    return save(Bundle(model.eval(), tokenizer, history=history), tmp_path / "lm")


def test_the_command_finds_what_matters_and_prunes(
    trained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does nothing changes nothing and stands last among heads; what is learned by heart breaks without the last block."""
    words = [str(trained), "--text", str(text), "--first", "40", "--by", "zero", "--dimensions", "2", "--prune", "1"]
    assert main(["study", "ablate", *words, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    table = pl.read_csv(tmp_path / "run" / "parts.csv")
    assert len(table) == 16
    assert table["worse"].is_sorted(descending=True)
    heads = table.filter(pl.col("kind") == "head")
    nothing = heads.row(-1, named=True)
    assert (nothing["part"], nothing["worse"], nothing["p"], nothing["seen"]) == ("block 1, head 1", 0.0, 1.0, False)
    assert table.row(0, named=True)["seen"]
    assert f"{table.row(0, named=True)['part'].capitalize()} matters most: without it loss is worse by" in said
    assert "of 8 heads can be erased one at a time" in said
    assert "2 heads out for good" in said
    assert "effects need not add up" in said
    page = (tmp_path / "run" / "report.html").read_text()
    assert "pale: not seen to differ" in page
    assert (tmp_path / "run" / "figures" / "grid.svg").exists()
    pruned = load(tmp_path / "run" / "bundle", selftest=True)
    assert pruned.model.backbone.config.heads == 3
    assert pruned.generates
    assert 0 not in pruned.history[-1]["kept_heads"][0]
    stick = yardstick_for(pruned, None, [str(text)], 40, 0)
    whole = yardstick_for(load(trained), None, [str(text)], 40, 0)
    gone = [one for one in parts_of(load(trained).model.backbone.config) if one.kind == "head"]
    gone = [one for one in gone if one.head not in pruned.history[-1]["kept_heads"][one.block or 0]]
    model = load(trained).model
    with erased(model, gone, zero):
        assert stick.judge(pruned.model).scores[0] == pytest.approx(whole.judge(model).scores[0], abs=1e-5)


def test_what_matters_is_what_is_seen_to_matter() -> None:
    """The greatest change of those seen is named, though another is greater by chance; what is seen to help does not matter."""
    encoded = Encoded((np.zeros(5, dtype=np.int64),) * 100, np.zeros(100, dtype=np.int64))
    stick = Yardstick("accuracy", "points", 2, False, encoded, lambda _: (1.0, np.ones(10)))
    judged = Judged("one", (1.0,), np.ones((1, 10)))
    loud = Effect(Part("block 1", "block", "blocks.0", block=0), judged, Gap(5, -1, 11, 3, 0.1), 0.2)
    seen = Effect(Part("block 1, head 1", "head", "blocks.0.attention.out", block=0, head=0), judged, Gap(4, 3, 5, 0.5, 1e-8), 1e-7)
    other = Part("block 1, head 2", "head", "blocks.0.attention.out", block=0, head=1)
    helps = Effect(other, judged, Gap(-4, -5, -3, 0.5, 1e-8), 1e-7)
    said = Found(stick, judged, [loud, seen, helps], 4, 1.0).sentences()
    assert said[0].startswith("block 1, head 1 matters most of what is seen to matter: without it accuracy is worse by 4.00 points")
    assert said[1] == "block 1 costs more, 5.00 points (-1.00 to 11.00), but is not told from no change"
    assert Found(stick, judged, [loud, helps], 3, 1.0).sentences()[0].startswith("no part is seen to matter on 100 texts: block 1")


@pytest.mark.parametrize("by", ["mean", "resample"])
def test_other_ways_to_erase(by: str, trained: Path, text: Path, tmp_path: Path) -> None:
    """A head that does nothing has no change whatever stands in; draws of others' states are repeated and their spread is told."""
    given = {"model": str(trained), "text": (str(text),), "first": 31, "by": by, "out": str(tmp_path / "run")}
    found = ablate(AblateConfig.build(given))
    (nothing,) = (one for one in found.heads if one.part.name == "block 1, head 1")
    assert nothing.gap.mean == pytest.approx(0, abs=1e-6)
    assert not nothing.seen
    assert found.effects[0].seen
    assert found.passes == (1 + 14 if by == "mean" else 1 + 3 * 12 + 2)
    spread = pl.read_csv(tmp_path / "run" / "parts.csv")["spread_over_repeats"]
    assert spread.null_count() == (len(spread) if by == "mean" else 2)


def test_a_pruned_model_that_is_not_right_is_not_saved(
    trained: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever went wrong: here other heads are taken out than were named."""
    monkeypatch.setattr(study, "prune_heads", lambda model, keep: prune_heads(model, [[0, 1, 2]] * len(keep)))
    given = {"model": str(trained), "text": (str(text),), "first": 8, "prune": 1, "by": "zero", "out": str(tmp_path / "run")}
    with pytest.raises(ModelError, match="it is not saved"):
        ablate(AblateConfig.build(given))
    assert not (tmp_path / "run" / "bundle").exists()


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("kind", ["label", "number", "tags"])
def test_adapted_models_are_measured_by_their_task(kind: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In points of its metric on test texts, against the same texts with the whole model; pruned too."""
    manifest = write_task(tmp_path / kind, kind)
    save(language_bundle(tokenizer), tmp_path / "lm")
    given = {"model": str(tmp_path / "lm"), "task": str(manifest), "out": str(tmp_path / "run"), "seeds": 1, "scratch": False}
    outcome = adapt(AdaptConfig.build(given | {"tune": tune(epochs=8)}))
    asked = {"model": str(tmp_path / "run"), "task": str(manifest), "out": str(tmp_path / "study"), "prune": 1}
    found = ablate(AblateConfig.build(asked))
    assert found.whole.scores[0] == pytest.approx(100 * outcome.best.test.score(outcome.task.metric))
    assert found.effects[0].gap.mean == pytest.approx(found.whole.scores[0] - found.effects[0].judged.scores[0])
    assert "intervals over as few as 16 texts are too narrow" in " ".join(found.sentences())
    smaller = load(tmp_path / "study" / "bundle", selftest=True)
    assert smaller.labels == load(tmp_path / "run" / "bundle").labels
    assert smaller.calibration is None
    assert len(yardstick_for(smaller, str(manifest), (), 7, 0).encoded) == 7
    with pytest.raises(ConfigError, match="measured on its task"):
        yardstick_for(smaller, None, (), 7, 0)
    with pytest.raises(ConfigError, match="leave --text out"):
        yardstick_for(smaller, str(manifest), ("a.txt",), 7, 0)


def test_mistakes_are_found_before_the_run(trained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be measured or pruned leaves no folder behind."""
    (tmp_path / "short.txt").write_text("She\n")
    for words, why in (
        ([], "a language model is measured on text"),
        (["task.yaml"], "a task came"),
        (["--text", str(text), "--prune", "4"], "at least one of 4 heads must stay"),
        (["--text", str(tmp_path / "short.txt")], "at least two passages"),
    ):
        assert main(["study", "ablate", str(trained), *words, "--out", str(tmp_path / "run")]) == 2
        assert why in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "run").exists()
    with pytest.raises(DataError):
        passages_of(load(trained), ["She"], 5, 0)
    model = swap_head(load(trained).model, EmbedHeadConfig(), 0)
    with pytest.raises(ModelError, match="adapt it to a task first"):
        yardstick_for(Bundle(model, load(trained).tokenizer), None, (str(text),), 5, 0)
