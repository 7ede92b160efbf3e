"""``study attention``: what every head attends to in one text, and in a corpus compared with uniform attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Effectless, FileInput, ThreadsConfig
from warmstart.data.source import Source
from warmstart.errors import ConfigError
from warmstart.inspection.head_attention import MEASURES, RELATIONS, THRESHOLD, HeadTests
from warmstart.inspection.tokens import sample_passages
from warmstart.report.parts import Figure, Section, Table
from warmstart.report.result import StudyResult, finish_study
from warmstart.runs.steps import NextStep, own_text, study_step
from warmstart.stats.comparison import detection_text
from warmstart.stats.formatting import first_of, model_name
from warmstart.stats.noise import detectable_above
from warmstart.system.storage import atomic_write

if TYPE_CHECKING:
    from warmstart.inspection.attention import AttentionMeasured
    from warmstart.model.bundle import Bundle

HEADS_HEADER = ("attends to", "uniform", "strongest head", "its weight", "above uniform (95%)", "heads above threshold")
PHRASES = dict(zip(RELATIONS, (
    "itself", "the previous token", "the next token", "the first token", "the last token",
    "another occurrence of the same token", "punctuation",
), strict=True))  # fmt: skip
"""each relation, as what a token attends to"""
_LISTED = 4
"""heads that a finding names at most"""
_ENTROPY = MEASURES.index("normalized entropy")
_TOOLTIP = ("normalized entropy", "distance", "previous", "first", "itself")
"""figures shown for a head under the mouse"""


class StudyAttentionConfig(ThreadsConfig):
    """Draw the attention of each head over a text, and compare all heads with uniform attention over a corpus."""

    model: Positional[FileInput[str]]
    """any model: a bundle, or the folder of a run"""
    sentence: Positional[str]
    """the text whose attention is drawn; what does not fit into the model is cut"""
    text: FileInput[tuple[str, ...]] = ()
    """files or folders of text: the corpus over which heads are compared; default: the one text"""
    passages: int = Field(200, gt=1)
    """passages of the corpus, drawn at random"""
    out: Effectless[str] = "runs/attention"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_attention(config: StudyAttentionConfig) -> StudyResult:
    """Read, measure, print and write the page. The details are an ``AttentionMeasured``."""
    import polars as pl

    from warmstart.data.read import documents_of, given_file
    from warmstart.inspection.attention import measure_text_and_corpus
    from warmstart.interop.load import load_model
    from warmstart.runs.run import Run

    if not config.sentence.strip():
        raise ConfigError("the text whose attention is drawn must have at least one character, but is blank")
    if file := given_file([config.sentence]):
        raise ConfigError(f"the attention of one text is drawn, but {file} is a file; give a text, and files with --text")
    bundle = load_model(config.model)
    documents = documents_of([Source(path=path) for path in config.text])
    passages = sample_passages(documents, config.passages, config.seed) if config.text else []
    measured = measure_text_and_corpus(bundle, config.sentence, passages, config.seed)
    folder, tests = Run.open(config.out, config).folder, measured.tests
    _write_weights(measured, folder)
    table = pl.DataFrame(head_rows(tests)).fill_nan(None)
    figures = {"heads": tests.count, "normalized_entropy": float(np.nanmean(tests.attention.means[:, :, _ENTROPY]))}
    figures |= {f"heads_{relation}": len(tests.above_threshold(relation)) for relation in RELATIONS}
    result = StudyResult(
        f"Attention of {model_name(config.model)}", attention_findings(tests), {"heads": table}, figures,
        Table(HEADS_HEADER, relation_rows(tests)), measured, _next_step(bundle, config),
    )  # fmt: skip
    (depth, heads, *_), kind = measured.weights.shape, "causal" if measured.causal else "bidirectional"
    tiles = [("layers x heads", f"{depth} x {heads}"), ("attention", kind), ("passages", f"{len(tests.attention.sums):,}")]
    return finish_study(result, [one_text_section(measured), all_heads_section(tests)], config, folder, tiles=tiles)


def _next_step(bundle: Bundle, config: StudyAttentionConfig) -> NextStep | None:
    """The ablation of a language model's heads, or the explanation of a prediction."""
    from warmstart.heads.language_modeling import LMHead
    from warmstart.inspection.explanations import is_explainable

    if config.text and isinstance(bundle.model.head, LMHead):
        return study_step("ablate", "How much the model needs each head", config.model, "--text", *config.text)
    text = own_text([config.sentence]) if is_explainable(bundle) else None
    return study_step("explain", "Which words its prediction depends on", config.model, text) if text else None


def _write_weights(measured: AttentionMeasured, folder: Path) -> None:
    """``weights.safetensors`` (L, H, T, T) float32, and ``tokens.json``."""
    from safetensors.numpy import save

    atomic_write(folder / "weights.safetensors", save({"weights": measured.weights}))
    pairs = zip(measured.ids, measured.tokens, strict=True)
    listed = [{"position": i, "id": int(number), "token": token} for i, (number, token) in enumerate(pairs)]
    atomic_write(folder / "tokens.json", json.dumps(listed, ensure_ascii=False, indent=1).encode(errors="replace"))


def head_name(layer: int, head: int) -> str:
    """``(1, 3)`` -> ``"2.4"``: layers and heads count from 1 in everything that is printed."""
    return f"{layer + 1}.{head + 1}"


def attention_findings(tests: HeadTests) -> list[str]:
    """Sentences about the heads that differ from uniform attention, their targets, and their focus."""
    relations = [sentence for relation in RELATIONS if (sentence := _relation_finding(tests, relation))]
    entropy = tests.attention.means[:, :, _ENTROPY]
    layer, head = np.unravel_index(np.nanargmin(entropy), entropy.shape)
    name = head_name(int(layer), int(head))
    focus = (
        f"The mean normalized entropy of attention is {np.nanmean(entropy):.2f} (1 is uniform); the most focused is head {name} "
        f"with {entropy[layer, head]:.2f}."
    )
    heads = {relation: tests.above_threshold(relation) for relation in RELATIONS}
    most, some = max(RELATIONS, key=lambda relation: len(heads[relation])), len({head for many in heads.values() for head in many})
    first = f"No head seeks one kind of token; the most focused is head {name}."
    if some:
        seek = "head seeks" if tests.count == 1 else "heads seeks" if some == 1 else "heads seek"
        first = f"{some} of {tests.count} {seek} one kind of token, most often {PHRASES[most]}."
    if not tests.is_corpus:
        one_text = "These figures are of one text; only a corpus (--text) shows whether they hold for other texts."
        return [f"In this text, {first[0].lower()}{first[1:]}", *relations, focus, one_text]
    significant = int((np.nan_to_num(tests.p, nan=1.0) < 0.05).any(axis=2).sum())
    differ = (
        f"Over {len(tests.attention.sums):,} passages, {significant} of {tests.count} heads differ significantly from uniform "
        f"attention in what they attend to (5%, Holm's correction over all heads and {len(RELATIONS)} relations between tokens)."
    )
    size = (
        "Heads with random weights differ a little too, so the size of the difference counts: a head attends to something if it "
        f"puts at least {THRESHOLD:.2f} more weight there than uniform attention."
    )
    return [first, differ, size, *relations, focus]


def _relation_finding(tests: HeadTests, relation: str) -> str:
    """The heads that attend to a relation, or the strongest one; nothing if no token has this relation to another."""
    if (best := tests.strongest(relation)) is None:
        return ""
    heads, what = tests.above_threshold(relation), PHRASES[relation]
    weight, uniform = tests.value(relation, *best)
    strongest = f"the strongest is head {head_name(*best)} with {weight:.2f} (uniform attention: {uniform:.2f})"
    if tests.is_corpus and not tests.is_tested(relation):
        return f"Whether heads attend to {what} cannot be tested, as only one passage has such tokens; {strongest}."
    if not heads:
        return f"No head attends to {what}; {strongest}{_detection_limit(tests, relation)}."
    listed = first_of([f"{head_name(*head)} ({tests.value(relation, *head)[0]:.2f})" for head in heads], _LISTED)
    verb = "attends" if len(heads) == 1 else "attend"
    return f"{len(heads)} of {tests.count} heads {verb} to {what}: {listed} (uniform attention: {uniform:.2f})."


def _detection_limit(tests: HeadTests, relation: str) -> str:
    """A clause about the additional weight on a relation that would put a head's whole interval above the threshold."""
    if not tests.is_corpus:
        return ""
    m = MEASURES.index(relation)
    widest = float(np.nanmax(tests.high[:, :, m] - tests.low[:, :, m]))
    size = detectable_above(THRESHOLD + widest / 2, 0.0, widest)
    return f"; of any head, {detection_text([size], '{:.2f}'.format, ' more weight than uniform attention')}"


def relation_rows(tests: HeadTests) -> list[tuple[str, ...]]:
    """One row per relation under ``HEADS_HEADER``."""
    rows = list[tuple[str, ...]]()
    for relation in RELATIONS:
        if (best := tests.strongest(relation)) is None:
            continue
        m = MEASURES.index(relation)
        weight, uniform = tests.value(relation, *best)
        low, high = tests.low[(*best, m)], tests.high[(*best, m)]
        ends = "-" if np.isnan(low) else f"{low:+.3f} to {high:+.3f}"
        difference = f"{weight - uniform:+.3f}" + (f" ({ends})" if tests.is_corpus else "")
        above = "-" if tests.is_corpus and not tests.is_tested(relation) else str(len(tests.above_threshold(relation)))
        rows.append((PHRASES[relation], f"{uniform:.3f}", head_name(*best), f"{weight:.3f}", difference, above))
    return rows


def head_rows(tests: HeadTests) -> list[dict[str, Any]]:
    """One row per head and measure; layers and heads count from 1."""
    attention, rows = tests.attention, list[dict[str, Any]]()
    for i, j, m in np.ndindex(*tests.p.shape):
        of_head = (attention.difference, tests.low, tests.high, tests.p)
        numbers = (attention.means[i, j, m], attention.uniform[i, m], *(figures[i, j, m] for figures in of_head))
        named = zip(("value", "uniform", "difference", "low", "high", "p_holm"), numbers, strict=True)
        rows.append({"layer": i + 1, "head": j + 1, "measure": MEASURES[m]} | {name: float(value) for name, value in named})
    return rows


def one_text_section(measured: AttentionMeasured) -> Section:
    """The attention of every head over the one text, and of one head token by token."""
    from warmstart.report.study_charts import attention_maps_chart, head_chart

    means = measured.text.means
    figures_of = [[{name: float(head[MEASURES.index(name)]) for name in _TOOLTIP} for head in layer] for layer in means]
    entropy = np.nan_to_num(means[:, :, _ENTROPY], nan=1.0)
    layer, head = (int(i) for i in np.unravel_index(np.argmin(entropy), entropy.shape))
    text = [f"{len(measured.tokens)} tokens; weights.safetensors holds every weight and tokens.json the tokens, beside this page."]
    if measured.cut:
        text.append(f"The text was cut: its last {measured.cut} tokens do not fit into the model.")
    all_heads = "Every head: attending tokens downwards, attended tokens to the right; the shade is the square root of the weight."
    one_head = (
        f"The strongest weights of one head, at first {head_name(layer, head)}, the most focused one. Choose layer and head below; "
        "drag to move, shift and wheel to zoom, double-click to reset."
    )
    figures = (
        Figure("heads", all_heads, attention_maps_chart(measured.weights, figures_of)),
        Figure("head", one_head, head_chart(measured.weights, measured.tokens, (layer + 1, head + 1))),
    )
    return Section("One text", text, figures)


def all_heads_section(tests: HeadTests) -> Section:
    """Differences of each head from uniform attention, over the corpus."""
    from warmstart.report.study_charts import differences_chart, entropy_chart

    rows = [row for row in head_rows(tests) if row["measure"] not in ("entropy", "distance") and not np.isnan(row["difference"])]
    points = [
        {"layer": i + 1, "head": j + 1}
        | {name.split()[-1]: tests.value(name, i, j)[0] for name in ("normalized entropy", "distance")}
        for i, j in np.ndindex(tests.p.shape[:2])
    ]
    measures = "What each head does more than uniform attention: normalized entropy, then the weight on each kind of token."
    figures = (
        Figure("measures", measures, differences_chart(rows)),
        Figure("entropy", "How focused a head is, and how far away the tokens are that it attends to.", entropy_chart(points)),
    )
    by = "the lower end of its 95% interval over passages" if tests.is_corpus else "the difference"
    text = (
        "A weight is the mean over tokens that can attend to at least two tokens, one of them of the kind in question. A head is "
        f"above the threshold if {by} is at least {THRESHOLD:.2f} more than uniform attention; a dash means that fewer than "
        "two passages have such tokens. Layers and heads count from 1."
    )
    return Section("What heads attend to", (text,), (*figures, Table(HEADS_HEADER, relation_rows(tests))))
