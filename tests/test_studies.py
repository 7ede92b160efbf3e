"""Results of studies in words and plain numbers; the lab matches closed forms, and each explanation its definition."""

from __future__ import annotations

import json
import math
import warnings
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bundles import bundle_with
from helpers.curves import curve_of
from helpers.fits import quickstart_result
from helpers.models import SENTENCES, make_backbone
from helpers.results import continual_result
from helpers.tasks import write_task
from warmstart.backbone.taps import tapped
from warmstart.baselines import baselines_for
from warmstart.baselines.choice import fitted_baseline, run_baseline
from warmstart.cli import main
from warmstart.config import Config
from warmstart.data.budget import label_budget
from warmstart.data.pool import task_pool
from warmstart.errors import ModelError
from warmstart.generation.generate import continue_prompts
from warmstart.generation.settings import GenerateConfig
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig, MultilabelHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.inspection.attention_lab import (
    measure_averaging,
    measure_copying,
    measure_module,
    measure_noisy_keys,
    measure_projections,
    orthonormal_vectors,
    run_experiments,
    softmax_weights,
)
from warmstart.inspection.explanations import (
    ExplainedText,
    Explanation,
    Phrase,
    area_between,
    erase_phrases,
    erase_words,
    explain_text,
    explain_texts,
    gradient_times_input,
    integrated_gradients,
    perturbation_curves,
    prepare_text,
)
from warmstart.model.bundle import Bundle, Calibration, Language
from warmstart.model.files import save
from warmstart.model.fitted import FittedBaseline
from warmstart.model.inference import embed
from warmstart.model.model import Model, fresh_head
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.objectives.config import ObjectiveConfig
from warmstart.report.parts import Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.report.study_charts import heat_chart
from warmstart.studies.explain import explain_result, explainer, heat_text, printed
from warmstart.studies.lab import finding, lab_result
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.types import Batch


@given(st.floats(0, 15), st.integers(3, 20), st.integers(0, 99))
@settings(deadline=None, max_examples=30)
def test_copying_and_averaging_match_their_closed_forms(beta: float, width: int, seed: int) -> None:
    """For any length of the query, any number of keys up to the width, any directions."""
    for measure in (measure_copying, measure_averaging):
        assert measure([beta], max(5, width - 1), width + 4, seed).checks[0].difference < 1e-9


def test_attention_is_torchs() -> None:
    """The lab's softmax equals torch's fused attention with scale 1."""
    keys, values = orthonormal_vectors(5, 6, 0) * 2, orthonormal_vectors(5, 6, 1)
    query = np.linspace(-1, 1, 6)
    ours = softmax_weights(query, keys) @ values
    q, k, v = (torch.from_numpy(x)[None] for x in (query[None], keys, values))
    assert ours == pytest.approx(F.scaled_dot_product_attention(q, k, v, scale=1.0)[0, 0].numpy())


def test_noisy_keys_follow_their_distribution() -> None:
    """Mean and spread lie within what 4,000 draws allow; two heads swing less than one."""
    for beta in (2.0, 10.0, 30.0):
        checks = {check.name: check for check in measure_noisy_keys(beta, samples=4000, seed=1).checks}
        for name, check in checks.items():
            assert check.difference < 0.03, (beta, name)
        assert checks["two heads: standard deviation"].measured < 0.7 * checks["one head: standard deviation"].measured


@given(st.floats(1.0, 4.0), st.integers(4, 12), st.integers(0, 50))
@settings(deadline=None, max_examples=30)
def test_hand_built_matrices_give_what_is_wanted(beta: float, width: int, seed: int) -> None:
    """Weights and the small errors of the outputs are those of the closed form."""
    assert max(check.difference for check in measure_projections(beta, width, seed).checks) < 1e-9


def test_the_module_that_trains_gives_the_same() -> None:
    """Copying, equivariance without positions, a synthesizer's blindness: to 1e-5."""
    for seed in range(3):
        experiment = measure_module(seed=seed)
        assert experiment.largest_difference < 1e-5
        assert min(experiment.figures.values()) > 0.005, "with rotary positions, and by dot products, order and other tokens matter"


def test_the_result_has_every_number_and_a_finding_for_each_experiment() -> None:
    """The first finding covers all experiments, and tells exact numbers from those of random keys, which the seed decides."""
    experiments = run_experiments(0, samples=200)
    result = lab_result(experiments)
    assert len(result.findings) == 1 + len(experiments)
    assert "over 200 random keys they differ by at most" in result.findings[0]
    assert result.tables["checks"].height == sum(len(experiment.checks) for experiment in experiments)
    assert "% of the draws" in finding(experiments[2])
    again, other = (run_experiments(seed, samples=200)[2].checks[0].measured for seed in (0, 1))
    assert experiments[2].checks[0].measured == again != other


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers in the terminal, pictures on the page, a table beside it; a run is never overwritten."""
    out = tmp_path / "lab"
    assert main(["study", "lab", "--out", str(out), "--samples", "200", "--keys", "5"]) == 0
    assert f"{math.exp(1) / (math.exp(1) + 4):.6f}" in capsys.readouterr().err
    assert (out / "figures" / "copying.svg").exists()
    assert (out / "figures" / "noisy-keys.svg").exists()
    assert (out / "checks.csv").exists()
    assert "The attention lab" in (out / "report.html").read_text()
    assert main(["study", "lab", "--out", str(out)]) == 2


RESULT = StudyResult(
    "A <study>",
    ["It works.", "It is fast & small."],
    {"scores": pl.DataFrame({"name": ["a", "b"], "score": [0.5, float("nan")]})},
    {"best": np.float32(0.5)},  # type: ignore[dict-item]
    Table(("name", "score"), [("a", "50.0%"), ("<b>", "-")]),
    details=(1, 2),
)


def test_a_result_is_plain_json() -> None:
    """Missing numbers become null, NumPy's numbers become Python's."""
    plain = json.loads(json.dumps(RESULT.to_dict(), allow_nan=False))
    assert plain["findings"] == ["It works.", "It is fast & small."]
    assert plain["figures"] == {"best": 0.5}
    assert plain["tables"]["scores"] == [{"name": "a", "score": 0.5}, {"name": "b", "score": None}]


def test_findings_are_whole_sentences() -> None:
    """A result without findings, or with one that has no full stop, is a mistake of the study."""
    with pytest.raises(AssertionError, match="at least one finding"):
        StudyResult("x", [])
    with pytest.raises(AssertionError, match="full stop"):
        StudyResult("x", ["no end"])


def test_finishing_prints_writes_and_returns_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first finding is the headline; every table becomes a CSV file; key figures and sections are on the page."""
    shown = finish_study(RESULT, [Section("Details", ("A paragraph.",))], Config(), tmp_path, tiles=[("best", "50.0%")])
    printed = capsys.readouterr().err
    assert "It works.\nIt is fast & small.\n" in printed
    assert pl.read_csv(tmp_path / "scores.csv")["name"].to_list() == ["a", "b"]
    html = (tmp_path / "report.html").read_text()
    assert [section.title for section in shown.sections] == ["Details"]
    assert "<h1>It works.</h1>" in html
    assert "<h2>Findings</h2>" in html
    assert "A paragraph." in html
    assert "<dt>best</dt><dd>50.0%</dd>" in html


METHODS = ("erasure", "gradient x input", "integrated gradients")
LABELS = ("animals", "rivers", "years")
TEXT = SENTENCES[0]


def classifier_of(tokenizer: Tokenizer, pooling: str = "mean", **switches: object) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, max_length=64, **switches)
    head = fresh_head(ClassificationHeadConfig(classes=3, pooling=pooling), backbone, 0)
    torch.nn.init.normal_(head.score.weight)  # type: ignore[union-attr, arg-type]
    return Bundle(Model(backbone, head, causal=pooling == "last").eval(), tokenizer, LABELS)


def test_erasure_is_the_drop_without_a_word(tokenizer: Tokenizer) -> None:
    """By a plain loop over words, whose tokens are deleted or masked; the tokens that frame the text stay."""
    for pooling, by in (("mean", "delete"), ("mean", "mask"), ("last", "mask"), ("appended", "delete")):
        bundle = classifier_of(tokenizer, pooling)
        prepared = prepare_text(bundle, TEXT, "rivers", by)  # type: ignore[arg-type]
        values = erase_words(prepared)
        assert prepared.words == tuple(TEXT.replace(".", " .").split()) or " ".join(prepared.words).replace(" .", ".") == TEXT

        def log_probability(row: np.ndarray, bundle: Bundle = bundle) -> float:
            with torch.no_grad():
                return float(bundle.model(torch.from_numpy(row)[None])[0].log_softmax(dim=-1)[1])

        for word in range(len(prepared.words)):
            inside = prepared.owner == word
            row = prepared.row[~inside] if by == "delete" else np.where(inside, tokenizer.specials.mask, prepared.row)
            assert values[word] == pytest.approx(log_probability(prepared.row) - log_probability(row), abs=1e-5), (pooling, by)


def test_the_next_token_of_a_language_model_is_explained(tokenizer: Tokenizer) -> None:
    """The most probable one if none is given; the row does not end with an end-of-text token."""
    bundle = bundle_with(tokenizer, LMHeadConfig(), causal=True, max_length=64)
    prepared = prepare_text(bundle, TEXT)
    with torch.no_grad():
        logits = bundle.model(torch.tensor([[tokenizer.specials.begin, *tokenizer.encode([TEXT])[0]]]))[0, -1]
    logits[sorted(tokenizer.specials.all() - {tokenizer.specials.eos})] = -torch.inf  # these are never generated
    assert prepared.target == int(logits.argmax())
    assert prepared.log_probabilities([prepared.row])[0] == pytest.approx(float(logits.log_softmax(dim=-1).max()), abs=1e-5)
    named = prepare_text(bundle, TEXT, tokenizer.token(prepared.target))
    assert named.target == prepared.target


@given(st.sampled_from(["mean", "last"]), st.sampled_from(SENTENCES), st.sampled_from(LABELS))
@settings(max_examples=8, deadline=None)
def test_integrated_gradients_are_complete(tokenizer: Tokenizer, pooling: str, text: str, label: str) -> None:
    """Their sum is the difference between the text and empty embeddings to a hundredth, or what is missing is reported."""
    bundle = classifier_of(tokenizer, pooling, activation="gelu")
    prepared = prepare_text(bundle, text, label)
    values, missing, points = integrated_gradients(prepared)
    end = bundle.model.backbone.embedding.weight.detach()[torch.from_numpy(prepared.row)]
    start = torch.where(torch.from_numpy(prepared.owner >= 0)[:, None], torch.zeros_like(end), end)
    whole = (_through(prepared, end[None]) - _through(prepared, start[None])).item()
    assert abs(values.sum() - whole) == pytest.approx(missing * abs(whole), abs=1e-4)
    assert missing <= 0.01 or points == 512


def test_both_gradients_match_captum(tokenizer: Tokenizer) -> None:
    """The reference implementation, on the same embeddings and the same path."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from captum.attr import InputXGradient, IntegratedGradients
    prepared = prepare_text(classifier_of(tokenizer), TEXT, "years")
    end = prepared.bundle.model.backbone.embedding.weight.detach()[torch.from_numpy(prepared.row)][None]
    start = torch.where(torch.from_numpy(prepared.owner >= 0)[None, :, None], torch.zeros_like(end), end)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return _through(prepared, x)

    theirs = InputXGradient(forward).attribute(end.clone().requires_grad_()).sum(dim=-1)[0]
    assert gradient_times_input(prepared) == pytest.approx(_by_word(prepared, theirs), abs=1e-5)
    theirs = IntegratedGradients(forward).attribute(end, start, n_steps=64).sum(dim=-1)[0]
    assert integrated_gradients(prepared)[0] == pytest.approx(_by_word(prepared, theirs), abs=0.02)


def test_phrases_are_erased_whole(tokenizer: Tokenizer) -> None:
    """A phrase of one word has the word's own value; every run up to the longest is there, the most important first."""
    prepared = prepare_text(classifier_of(tokenizer), "She holds the cat", "animals")
    single, phrases = erase_words(prepared), erase_phrases(prepared, 3)
    values = {(a, b): value for a, b, value in phrases}
    assert set(values) == {(a, b) for a in range(4) for b in range(a + 1, min(4, a + 3) + 1)}
    assert [values[a, a + 1] for a in range(4)] == pytest.approx(list(single), abs=1e-5)
    assert [abs(value) for *_, value in phrases] == sorted((abs(value) for *_, value in phrases), reverse=True)


def test_curves_begin_and_end_with_the_text_or_without(tokenizer: Tokenizer) -> None:
    """Deletion goes from the whole text to none of it, insertion back; erasure's own order is better than most."""
    prepared = prepare_text(classifier_of(tokenizer), "She holds the cat", "animals")
    orders = [np.array(order) for order in permutations(range(4))]
    deletion, insertion = perturbation_curves(prepared, orders)
    whole, none = np.exp(prepared.log_probabilities([prepared.row, prepared.without(np.arange(4))]))
    assert deletion[:, 0] == pytest.approx(whole, abs=1e-6)
    assert deletion[:, -1] == pytest.approx(none, abs=1e-6)
    assert insertion[:, 0] == pytest.approx(none, abs=1e-6)
    assert insertion[:, -1] == pytest.approx(whole, abs=1e-6)
    area = area_between(deletion, insertion)
    own = np.argsort(-erase_words(prepared), kind="stable")
    mine = next(value for order, value in zip(orders, area, strict=True) if (order == own).all())
    assert mine > np.median(area)
    assert (np.abs(area) <= 1).all()


def test_a_heat_map_shades_by_sign_and_size(tokenizer: Tokenizer) -> None:
    """The most important word has the full colour, zeros have none; white space that is a word prints as Python spells it."""
    text = heat_text(["good", "bad", "so"], np.array([1.0, -0.5, 0.0]))
    assert text.plain == "good bad so "
    assert [str(span.style).split(" on ")[1] for span in text.spans] == ["rgb(86,180,233)", "rgb(242,207,128)", "rgb(255,255,255)"]
    prepared = prepare_text(classifier_of(tokenizer), "the cat\n\nthe dog")
    assert "\n" in "".join(prepared.words)
    assert "" not in prepared.words
    values = np.zeros(len(prepared.words))
    assert "\\n" in heat_text(prepared.words, values).plain
    assert "\n" not in heat_text(prepared.words, values).plain
    rows = heat_chart([*map(printed, prepared.words)], values).to_dict()["data"]["values"]
    assert all(row["word"].strip() == row["word"] != "" for row in rows)


def test_what_cannot_be_explained_is_an_error(tokenizer: Tokenizer) -> None:
    """Empty texts, long ones, unknown labels; models that neither label nor generate, as those of sentinel spans."""
    for text, outcome, match in (("", None, "nothing to explain"), ("cat " * 100, None, "must fit"), (TEXT, "rivrs", "rivers")):
        with pytest.raises(ModelError, match=match):
            prepare_text(classifier_of(tokenizer), text, outcome)
    masked, causal = (bundle_with(tokenizer, LMHeadConfig(), causal=one, max_length=64) for one in (False, True))
    with pytest.raises(ModelError, match="is bidirectional"):
        prepare_text(masked, TEXT)
    with pytest.raises(ModelError, match="fill gaps"):
        prepare_text(replace(causal, language=Language(objective=ObjectiveConfig(name="span"))), TEXT)
    assert prepare_text(replace(causal, language=Language(generates=True)), TEXT).words


def test_the_token_that_a_hybrid_model_generates_is_explained(tokenizer: Tokenizer) -> None:
    """It can read both ways but generates from left to right: target and probability are those of ``generate``."""
    both_ways = bundle_with(tokenizer, LMHeadConfig(), max_length=64)
    bundle = replace(both_ways, language=Language(generates=True))
    prepared = prepare_text(bundle, TEXT)
    (generated,) = continue_prompts(bundle, [TEXT], GenerateConfig(max_new_tokens=1, greedy=True))
    assert prepared.target == (*generated.ids, tokenizer.specials.eos)[0]
    found = prepared.log_probabilities([prepared.row, prepared.without([0])])
    assert found[0] == pytest.approx(generated.log_probabilities[0], abs=1e-5)
    values, missing, _ = integrated_gradients(prepared)
    assert np.isfinite(values).all()
    assert missing <= 0.01


def test_the_explained_probability_is_that_of_predict(tokenizer: Tokenizer) -> None:
    """With a temperature of 2 the probability is calibrated, and so are the values of words and integrated gradients."""
    for pooling in ("mean", "last", "appended"):
        bundle = replace(classifier_of(tokenizer, pooling, activation="gelu"), calibration=Calibration(temperature=2.0))
        expected = raw_predictions(bundle, [TEXT])[0]
        for label, probability in zip(LABELS, expected, strict=True):
            prepared = prepare_text(bundle, TEXT, label)
            assert np.exp(prepared.log_probabilities([prepared.row])[0]) == pytest.approx(probability, abs=1e-6)
            curves = perturbation_curves(prepared, [np.arange(len(prepared.words))])
            assert curves[0][0, 0] == pytest.approx(probability, abs=1e-6)
            assert integrated_gradients(prepared)[1] <= 0.01
        prepared = prepare_text(bundle, "She holds the cat")
        both = raw_predictions(bundle, ["She holds the cat", "She holds the"])
        assert prepared.target == int(both[0].argmax())
        assert erase_words(prepared)[-1] == pytest.approx(np.log(both[0] / both[1])[prepared.target], abs=1e-5)


def test_the_most_important_word_may_oppose_the_target() -> None:
    """It has the largest absolute value; neither words nor phrases that lose less than 0.001 nats are named."""
    for values, expected in (
        ([0.1, -0.7, 0.2, 0.0], ", mostly in spite of 'holds': without this word it would be 40.3%."),
        ([0.1, -0.2, 0.0, 0.7], ", mostly because of 'cat': without this word it would be 9.9%."),
        ([1e-6, -2e-6, 0.0, 0.0], "; no single word matters"),
    ):
        curves, phrases = np.full((6, 5), 0.2), [Phrase(0, 2, 2 * max(values, key=abs))]
        by_method = dict.fromkeys(METHODS, np.array(values))
        explanation = Explanation("rivers", ("She", "holds", "the", "cat"), by_method, 0.0, 16, curves, curves, phrases)
        findings = explain_result("model", explanation, {}, 0, 0).findings
        assert findings[0].startswith("'rivers' has a probability of 20.0%")
        assert expected in findings[0]
        assert any("most important phrase" in sentence for sentence in findings) == (max(values) > 0.01)


def test_texts_that_cannot_be_explained_are_left_out_and_counted(tokenizer: Tokenizer) -> None:
    """Empty texts, too long ones and those of one word, which has one order only: intervals are over the others."""
    bundle = classifier_of(tokenizer)
    texts = ["", "cat " * 100, "She", "dog", *SENTENCES]
    gaps = explain_texts(explainer(bundle, "delete"), texts, 2, 0)
    assert {len(values) for values in gaps.values()} == {len(SENTENCES)}
    assert all(
        (gaps[method] == values).all() for method, values in explain_texts(explainer(bundle, "delete"), SENTENCES, 2, 0).items()
    )
    first, *findings, left_out = explain_result("model", None, gaps, len(texts), 0).findings
    assert first == "Over 4 of 8 texts, erasure finds the words that matter better than chance does."
    assert all("over 4 of 8 texts" in sentence for sentence in findings)
    assert left_out.startswith("4 of 8 texts are left out: they are empty, of a single word, or too long")
    _, *everything = explain_result("model", None, gaps, 4, 0).findings
    assert ["over 4 texts" in sentence for sentence in everything] == [True] * 3
    assert everything[1].endswith(" would have been detected with 80% power.")


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_every_kind_of_model_is_explained(kind: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    """Every baseline that a race or fit can save, readouts of an encoder's vectors, networks, and all together as a stack."""
    encoder = bundle_with(tokenizer, EmbeddingHeadConfig(normalize=False), max_length=64)
    task = load_task(write_task(tmp_path / "task", kind))
    budget = label_budget(task, 16, "holdout", 0)
    pool = task_pool(task).without(budget).texts
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, max_length=64)
    head = fresh_head(
        (ClassificationHeadConfig if kind == "classification" else MultilabelHeadConfig)(classes=len(task.labels)), backbone, 0
    )
    models: dict[str, Bundle | Stack] = {"network": Bundle(Model(backbone, head, causal=False).eval(), tokenizer, task.labels)}
    for name, baseline in baselines_for(task, pool=True, vectors=True).items():
        fewer = replace(baseline, candidates=baseline.candidates[:1])
        run = run_baseline(fewer, budget, pool, lambda inputs: embed(encoder, inputs).numpy())
        with suppress(ModelError):  # what cannot be saved is no model
            models[name] = Stack((Member(name, fitted_baseline(run, encoder)),), kind, task.labels)
    assert len(models) > 6
    members = [member for one in models.values() if isinstance(one, Stack) for member in one.members]
    models["all"] = Stack(tuple(members), kind, task.labels)
    text = str(task.test.texts[0])
    for name, model in models.items():
        found = explain_text(explainer(model, "delete")(text, task.labels[1]), 2, 0)
        assert found.probability == pytest.approx(raw_predictions(model, [text])[0][1], abs=1e-5), name
        assert [one.shape for one in found.values.values()] == [(len(found.words),)] * len(found.values)
        assert explain_result(name, found, {}, 0, 0).findings[0].startswith(f"'{task.labels[1]}' has a probability of "), name
        with pytest.raises(ModelError, match="there is no label"):
            explainer(model, "delete")(text, "no such label")


@pytest.mark.journeys
def test_the_command_explains_a_stack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By erasure, without a step to heads that it has not; words cannot be masked."""
    words = WordRows(("cat", "dog"), word_pairs=False, idf=np.ones(2))
    member = Member("words", FittedBaseline(words, LinearReadout(2 * np.eye(2), np.zeros(2))))
    stack = Stack((member,), "classification", ("cat", "dog"))
    folder, command = save(stack, tmp_path / "stack"), ["study", "explain", str(tmp_path / "stack"), "a cat here"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().err
    assert "'cat' has a probability of 88.1%, mostly because of 'cat': without this word it would be 50.0%." in printed
    assert f"  warmstart serve {folder}" in printed
    assert "gradient" not in (tmp_path / "out" / "words.csv").read_text().split("\n")[0]
    assert main([*command, "--removal", "mask", "--out", str(tmp_path / "none")]) == 2
    assert "can be deleted, but not masked" in capsys.readouterr().err


@pytest.mark.journeys
def test_the_command_explains_a_text_and_a_file(tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """One text is explained, and the methods are tested over a file; an unknown label leaves no folder behind."""
    folder, out = save(classifier_of(tokenizer), tmp_path / "model"), tmp_path / "out"
    (tmp_path / "texts.txt").write_text("\n".join([*SENTENCES, "", "cat " * 90]))
    words = ["study", "explain", str(folder)]
    assert main([*words, TEXT, "--file", str(tmp_path / "texts.txt"), "--out", str(out), "--random-orders", "5"]) == 0
    output = capsys.readouterr().err
    for said in ("Integrated gradients are complete", "random orders", "over "):
        assert said in output
    assert {"words.csv", "faithfulness.csv", "report.html"} <= {file.name for file in out.iterdir()}
    assert (out / "figures" / "heat-erasure.svg").exists()
    assert main([*words, TEXT, "--target", "cats", "--out", str(tmp_path / "none")]) == 2
    assert main([*words, "--out", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def _through(prepared: ExplainedText, x: torch.Tensor) -> torch.Tensor:
    ids = torch.from_numpy(prepared.row).expand(len(x), -1)
    with tapped(prepared.bundle.model.backbone, {"embedding": lambda _: x}):
        return prepared.target_log_probability(Batch(ids, causal=prepared.causal))


def _by_word(prepared: ExplainedText, tokens: torch.Tensor) -> list[float]:
    return [tokens[torch.from_numpy(prepared.owner == word)].sum().item() for word in range(len(prepared.words))]


def test_results_say_this() -> None:
    """Sentences that answer a reader's question, word for word: they are part of the interface."""
    said = [
        (
            [quickstart_result(with_words=share).bought for share in (0.5, 0.84, 0.9)],
            "With 60 labels, pretraining bought 35 of 100: 85 are right with an encoder (83 to 87), 50 by words alone.",
            "Not clear that pretraining bought anything: 85 of 100 new texts are right with an encoder, 84 by words alone.",
            "With 60 labels, pretraining bought nothing: 90 are right by words alone (88 to 92), 85 with an encoder.",
        ),
        (
            curve_of((16, 0.1, 0.02), (64, 0.06, 0.02), (256, 0.01, 0.01)).findings,
            "With 16 to 64 labels, lp-ft is better than from scratch: +10.0 points (+7.2 to +12.8) with 16, +6.0 points (+3.2 to "
            "+8.8) with 64.",
            "Lp-ft is not expected to reach 95.0% with less than 10 times the 256 labels at hand.",
            "16 labels with lp-ft are worth about 490 with from scratch (90% interval 120 to more than 2,600).",
        ),
        (
            continual_result({"none": 0.6, "joint": 0.75}).findings,
            "With learning in turn, by the end, the score on a fell from 90.1% to 59.7% (95% interval of the change -35.9 to -24.9 "
            "points, over 5 seeds and the test texts; corrected p < 0.001).",
        ),
    ]
    assert [sentence for findings, *expected in said for sentence in expected if sentence not in findings] == []
