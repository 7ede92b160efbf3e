"""Replaced-token detection: what is replaced and how it is labelled, who learns from which loss, and what the bundle can do."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from helpers.bundles import make_task
from helpers.models import SENTENCES, VOCABULARY, make_backbone
from warmstart.cli import main
from warmstart.commands.pretrain.command import PretrainConfig
from warmstart.cost.cost import cost_of
from warmstart.cost.workload import Workload
from warmstart.data.pretraining_rows import PretrainingRows, split_by_length
from warmstart.data.source import Source
from warmstart.data.token_store import prepare_store
from warmstart.errors import ConfigError
from warmstart.heads.per_token import DetectionHead, DetectionHeadConfig
from warmstart.inspection.sentence_scores import score_sentences
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle
from warmstart.model.generator import WithGenerator
from warmstart.model.model import Model, fresh_head
from warmstart.objectives import OBJECTIVES
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.detect import replaced_batch, sample_replacements
from warmstart.seeding import rng
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.held_out import held_out_metrics
from warmstart.types import IGNORE, Batch

QUICK = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "64", "--batch", "4"]
QUICK += ["--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "16", "--objective", "detect", "--steps", "3"]


def make_trained(vocab_size: int = 60, *, size: float = 0.5, **switches: object) -> WithGenerator:
    """A tiny model that detects, with its generator."""
    backbone = make_backbone(vocab_size=vocab_size, **switches)
    model = Model(backbone, fresh_head(DetectionHeadConfig(), backbone, 0), causal=False)
    return WithGenerator(model, ObjectiveConfig(name="detect", generator_size=size), 0).eval()


def make_batch(lengths: tuple[int, ...] = (25, 25, 25, 25), seed: int = 0) -> Batch:
    rows = rng(seed, "rows").integers(5, 60, (len(lengths), 25))
    config = ObjectiveConfig(name="detect", mask_rate=0.3)
    return OBJECTIVES["detect"].make(rows, np.array(lengths), rng(seed, "test"), VOCABULARY, config)


def test_a_sample_that_equals_the_original_is_original() -> None:
    """By literal numbers: of two sampled tokens the one that differs is labelled, no padding counts; all chosen were masked."""
    masked = make_batch()
    assert (masked.ids[masked.targets != IGNORE] == VOCABULARY.specials.mask).all()
    ids, targets = torch.tensor([[5, 3, 7, 3, 0]]), torch.tensor([[IGNORE, 6, IGNORE, 8, IGNORE]])
    batch = Batch(ids, targets, ids > 0, causal=False, count=2)
    replaced = replaced_batch(batch, torch.tensor([9, 8]))
    assert replaced.ids.tolist() == [[5, 9, 7, 8, 0]]
    assert replaced.targets.tolist() == [[0, 1, 0, 0, IGNORE]]
    assert (replaced.count, replaced.causal) == (4, False)


def test_samples_follow_the_softmax() -> None:
    """Evenly spaced draws give each token its probability, in every chunk and also at the ends of the interval."""
    torch.manual_seed(0)
    states, weight, bias = torch.randn(1, 8), torch.randn(7, 8), torch.randn(7)
    draws = torch.linspace(0, 1 - 2**-24, 4000)
    sampled = sample_replacements(states.expand(4000, -1), weight, bias, draws)
    expected = (states @ weight.T + bias).softmax(dim=-1)[0]
    torch.testing.assert_close(sampled.bincount(minlength=7) / 4000, expected, atol=1e-3, rtol=0)
    assert len(sample_replacements(states[:0], weight, bias, draws[:0])) == 0


def test_detection_teaches_the_generator_nothing() -> None:
    """The gradients of its own parameters are those of the masked loss alone, to the bit; the shared embedding's are not."""
    gradients = []
    for detection in (True, False):
        trained = make_trained()
        (trained.loss(make_batch()) if detection else trained.replace(make_batch())[1]).backward()
        gradients.append({name: parameter.grad for name, parameter in trained.generator.named_parameters()})
    for name in gradients[0]:
        same = torch.equal(gradients[0][name], gradients[1][name])
        assert same == (name != "backbone.embedding.embedding.weight"), name


def test_the_loss_is_that_of_the_paper() -> None:
    """Mean masked loss + 50 x mean detection loss, from logits computed at once; the mask rate stands for the ratio of counts."""
    trained, batch = make_trained(), make_batch((25, 20, 12, 9))
    replaced, masked_loss = trained.replace(batch)
    logits = trained.generator(batch.ids, batch.attention_mask)
    expected = F.cross_entropy(logits.transpose(1, 2), batch.targets, ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(masked_loss, expected)
    real = batch.attention_mask
    scores = trained.model(replaced.ids, real)[..., 0]
    detection = F.binary_cross_entropy_with_logits(
        scores[real],
        (replaced.ids != torch.where(batch.targets == IGNORE, batch.ids, batch.targets))[real].float(),
        reduction="sum",
    )
    torch.testing.assert_close(trained.loss(batch), masked_loss + 50 * 0.15 * detection)


def test_the_head_is_that_of_transformers() -> None:
    """Same weights, same hidden states: the same logits and loss as ``ElectraForPreTraining``."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.ElectraForPreTraining(
        transformers.ElectraConfig(vocab_size=60, embedding_size=16, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    ).eval()
    head = DetectionHead(DetectionHeadConfig(), 16)
    predictions = theirs.discriminator_predictions
    head.dense.load_state_dict(predictions.dense.state_dict())
    head.score.load_state_dict(predictions.dense_prediction.state_dict())
    ids, mask = torch.randint(60, (2, 6)), torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    labels = torch.randint(2, (2, 6))
    with torch.no_grad():
        output = theirs(ids, attention_mask=mask, labels=labels, output_hidden_states=True)
        logits = head(output.hidden_states[-1])
        torch.testing.assert_close(logits[..., 0], output.logits)
        targets = labels.masked_fill(mask == 0, IGNORE)
        torch.testing.assert_close(head.loss(logits, targets) / mask.sum(), output.loss)


def test_the_generator_is_small_and_shares_the_embedding() -> None:
    """Its blocks have the stated part of the width; its embedding and its logits are those of the model, and saved once."""
    for size, switches in (
        (0.25, {"heads": 4, "kv_heads": 2}),
        (0.5, {"head_width": 6}),
        (1.0, {"norm": "post", "positions": "learned"}),
    ):
        trained = make_trained(size=size, **switches)
        config, small = trained.model.backbone.config, trained.generator.backbone.config
        assert small.width == config.width * small.heads // config.heads
        assert small.heads == max(1, round(config.heads * size))
        assert (small.depth, small.per_head) == (config.depth, config.per_head)
        weight = trained.model.backbone.embedding.weight
        assert trained.generator.head.weight is weight
        assert any(parameter is weight for parameter in trained.generator.backbone.parameters())
        assert sum(tensor is weight for tensor in trained.weights().values()) == 1
        assert math.isfinite(float(trained.loss(make_batch()).detach()))


def test_replacements_depend_on_the_batch_alone() -> None:
    """Not on the state of torch's random numbers, nor on batch mates: parts of a batch have the same summed loss."""
    trained, batch = make_trained(), make_batch((25, 20, 12, 9))
    parts = [
        Batch(
            *(part[i : i + 1] for part in (batch.ids, batch.targets, batch.attention_mask)),
            causal=False,
            draws=batch.draws[i : i + 1],
        )
        for i in range(4)
    ]
    with torch.no_grad():
        whole = trained.loss(batch)
        torch.rand(3)
        assert torch.equal(trained.loss(batch), whole)
        torch.testing.assert_close(sum(trained.loss(row) for part in parts for row in split_by_length(part, 16)), whole)


def test_held_out_figures_are_named_plainly(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Losses, accuracy, and the fraction of tokens that are replaced, which accuracy must be read beside."""
    (tmp_path / "text.txt").write_text("\n".join(SENTENCES * 5))
    store = prepare_store([Source(path=str(tmp_path / "text.txt"), document="line")], tokenizer, tmp_path / "cache")
    trained = make_trained(tokenizer.vocab_size)
    figures = held_out_metrics(trained, PretrainingRows(store, tokenizer.vocabulary(), trained.objective, 24))
    assert list(figures) == ["detection loss", "detection accuracy", "replaced fraction", "generator masked loss", "total loss"]
    assert figures["total loss"] == pytest.approx(figures["generator masked loss"] + 50 * figures["detection loss"])
    assert 0 < figures["replaced fraction"] < 0.2


def test_a_sentence_scores_by_how_original_it_is(tokenizer: Tokenizer) -> None:
    """The sum of log-probabilities that each token between the frame is original, read one sentence at a time."""
    bundle = Bundle(make_trained(tokenizer.vocab_size).model, tokenizer)
    scores = score_sentences(bundle, SENTENCES)
    assert scores.kind == "detection"
    for sentence, score in zip(SENTENCES, scores.log_probabilities, strict=True):
        ids = torch.tensor([[tokenizer.specials.eos, *tokenizer.encode([sentence])[0], tokenizer.specials.eos]])
        with torch.no_grad():
            expected = F.logsigmoid(-bundle.model(ids)[0, 1:-1, 0]).sum()
        assert score == pytest.approx(float(expected), rel=1e-4)


def test_the_generator_costs_in_training_only() -> None:
    """FLOPs equal torch's count; parameters beside the shared embedding are a part of their own; memory is more."""
    trained = make_trained(size=0.5)
    ids = torch.randint(5, 60, (4, 16))
    targets = ids.clone()
    targets[:, 4:] = IGNORE
    batch = Batch(ids, targets, causal=False, count=16, draws=torch.rand(4, 16))
    with FlopCounterMode(display=False) as counter:
        trained.loss(batch).backward()
    workload = Workload(batch=4, tokens=16, target_fraction=0.25)
    cost, alone = cost_of(trained.model, workload, trained.generator), cost_of(trained.model, workload)
    assert cost.flops.training * 64 == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert cost.flops.forward == alone.flops.forward
    totals = cost.parameters.totals
    assert totals["total"] == alone.parameters.totals["total"]
    assert totals["total"] + totals["generator"] == sum(parameter.numel() for parameter in trained.parameters())
    assert ("generator, not kept in the bundle", f"{totals['generator']:,}", "", "counted only") in cost.parameters.table()
    assert cost.training_memory.peak > alone.training_memory.peak
    assert cost.inference_memory == alone.inference_memory


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a model that learned to detect, with accumulated gradients."""
    folder = tmp_path_factory.mktemp("pretrained")
    text, out = folder / "text.txt", folder / "run"
    text.write_text("\n\n".join(SENTENCES * 30))
    assert main(["pretrain", str(text), "--out", str(out), "--accumulate", "2", *QUICK]) == 0
    return out


def test_it_refuses_what_it_cannot(pretrained: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, and what to do; settings without effect too."""
    for command, message in (
        ("evaluate", "predicts none, so a text has no perplexity"),
        ("generate", "does not generate text"),
        ("predict", "adapt it to a task first"),
    ):
        assert main([command, str(pretrained), str(text)]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ConfigError, match="for a language head, but detect trains a detection head; remove them"):
        PretrainConfig.build({"objective": {"name": "detect"}, "head": {"tied": False}})


def test_its_bundle_holds_no_generator_and_serves_like_any(pretrained: Path, tmp_path: Path) -> None:
    """It is adapted to a task, and judges minimal pairs."""
    bundle = load_bundle(pretrained / "bundle")
    assert isinstance(bundle.model.head, DetectionHead)
    assert not any("generator" in name for name in bundle.model.weights())
    assert "detection accuracy" in (pretrained / "report.html").read_text()
    task = str(save_task(make_task(), tmp_path / "task"))
    assert main(["adapt", str(pretrained), task, "--out", str(tmp_path / "adapted"), "--seeds", "1", "--steps", "2"]) == 0
    (tmp_path / "pairs.tsv").write_text("good\tbad\nShe holds the cat.\tShe hold the cat.\n")
    assert main(["evaluate", str(pretrained), "--pairs", str(tmp_path / "pairs.tsv"), "--out", str(tmp_path / "study")]) == 0
    assert "By log-probability that every token is original" in (tmp_path / "study" / "report.html").read_text()


def test_pretraining_goes_on_from_it(pretrained: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its own head, or with a new language head; the generator is new."""
    for objective, head in (("detect", "and detection head"), ("masked", "with a new language head")):
        go_on = ["--init-from", str(pretrained), "--steps", "2", "--objective", objective]
        assert main(["pretrain", str(text), "--out", str(tmp_path / objective), *go_on]) == 0
        assert f"saved backbone {head}" in " ".join(capsys.readouterr().err.split())


def test_the_command_counts_the_generator(
    pretrained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of settings and of a saved model, but not for fine-tuning."""
    monkeypatch.setattr("warmstart.system.console.console.width", 160)
    saved = str(pretrained)
    for flags, counts in ((["--objective", "detect"], True), ([saved], True), ([saved, "--classes", "2"], False)):
        assert main(["cost", *flags]) == 0
        assert ("generator, not kept in the bundle" in capsys.readouterr().err) == counts
