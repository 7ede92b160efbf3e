"""``study attention``: where every head looks over one text, and what it does over a corpus beside uniform attention."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.attention import KINDS, MEASURES, Looks, looks_of, text_weights
from warmstart.analysis.pieces import sampled
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.errors import ConfigError
from warmstart.evaluate.differences import holm
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.attention import close_up, grid, overview, scatter
from warmstart.storage import write_forced
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude
from warmstart.workflows.studies.wording import model_name

HEADER = ("looks at", "uniform", "most", "its weight", "more than uniform (95 %)", "past the bar")
SAID = {"same": "another of the same token", "first": "the first token", "last": "the last token"} | {
    name: f"the {name} token" for name in ("previous", "next")
}


class AttentionConfig(Config):
    """Draw where each head looks over a text, and say what heads do over a corpus, beside uniform attention."""

    model: Positional[str]
    """any model: a bundle, or a run's folder"""
    sentence: Positional[str]
    """a text whose attention is drawn; what does not fit into the model is cut"""
    text: tuple[str, ...] = ()
    """files or folders of text: the heads' figures are taken over its passages; default: over the one text"""
    passages: int = Field(200, gt=1)
    """so many passages of it, drawn at random"""
    bar: float = Field(0.2, gt=0, lt=1)
    """a head counts as one that looks at something if it surely puts so much more weight there than uniform attention"""
    out: str = "runs/attention"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""


@dataclass(frozen=True)
class Heads:
    """What came of it."""

    looks: Looks
    low: np.ndarray
    """(L, H, M) of the differences to uniform attention; nan where fewer than two passages hold what is asked about"""
    high: np.ndarray
    p: np.ndarray
    """(L, H, M) Holm's, over all heads and all kinds that are looked at; nan for other measures, and where the interval is"""
    bar: float

    def past(self, kind: str) -> list[tuple[int, int]]:
        """Heads (layer, head, from 0) that look at this kind surely, most first; without a corpus, on this text."""
        place = MEASURES.index(kind)
        found = self.low[:, :, place] if self.known else self.looks.difference[:, :, place]
        rows = np.argwhere(np.nan_to_num(found) >= self.bar)
        return [(int(i), int(j)) for i, j in sorted(rows, key=lambda row: -found[row[0], row[1]])]

    @property
    def known(self) -> bool:
        """There were passages enough to say how sure it is."""
        return len(self.looks.sums) > 1

    def told(self, kind: str) -> bool:
        """Two passages or more hold something of this kind: one alone does not say how sure it is."""
        return bool((self.looks.seen[:, MEASURES.index(kind)] > 1).any())

    def strongest(self, kind: str) -> tuple[int, int] | None:
        """The head that looks at this kind most; None where no token sees one."""
        found = self.looks.difference[:, :, MEASURES.index(kind)]
        if np.isnan(found).all():
            return None
        layer, head = np.unravel_index(np.nanargmax(found), found.shape)
        return int(layer), int(head)

    def sentences(self) -> list[str]:
        """What was found, and how sure it is."""
        even = self.looks.means[:, :, MEASURES.index("evenness")]
        layer, head = np.unravel_index(np.nanargmin(even), even.shape)
        pointed = (
            f"attention is {np.nanmean(even):.2f} as even as uniform attention on average (entropy over entropy); "
            f"the most pointed head is {name_of(int(layer), int(head))} with {even[layer, head]:.2f}"
        )
        kinds = [sentence for kind in KINDS for sentence in self._of(kind)]
        if not self.known:
            return [pointed, *kinds, "this is of one text: without a corpus (--text) nothing says how far it holds for others"]
        sure = int((np.nan_to_num(self.p, nan=1.0) < 0.05).any(axis=2).sum())
        first = (
            f"over {len(self.looks.sums):,} passages, {sure} of {even.size} heads surely differ from uniform attention in what "
            f"they look at (Holm's correction over all heads and {len(KINDS)} kinds of tokens, 5 %); random heads do so too, a "
            f"little: what counts is how much, and the bar is {self.bar:.2f} of the weight"
        )
        return [first, *kinds, pointed]

    def _of(self, kind: str) -> list[str]:
        if (best := self.strongest(kind)) is None:
            return []
        found, what, sure = self.past(kind), SAID.get(kind, kind), "surely " if self.known else ""
        weight, even = self.of(kind, *best)
        if self.known and not self.told(kind):
            return [
                f"nothing says how surely heads look at {what}: only one passage has a token that sees it; "
                f"most has {name_of(*best)}: {weight:.2f}, where uniform is {even:.2f}"
            ]
        if not found:
            return [
                f"no head {sure}puts {self.bar:.2f} more weight on {what} than uniform attention; "
                f"most has {name_of(*best)}: {weight:.2f}, where uniform is {even:.2f}"
            ]
        listed = ", ".join(f"{name_of(*head)} ({self.of(kind, *head)[0]:.2f})" for head in found[:4])
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        return [
            f"{len(found)} of {self.p.shape[0] * self.p.shape[1]} heads {sure}look at {what}: {listed}{more}; uniform is {even:.2f}"
        ]

    def of(self, measure: str, layer: int, head: int) -> tuple[float, float]:
        """A head's figure, and that of uniform attention."""
        place = MEASURES.index(measure)
        return float(self.looks.means[layer, head, place]), float(self.looks.baseline[layer, place])

    def rows(self) -> list[tuple[str, ...]]:
        """One row a kind."""
        rows = list[tuple[str, ...]]()
        for kind in KINDS:
            if (best := self.strongest(kind)) is None:
                continue
            place = MEASURES.index(kind)
            weight, even = self.of(kind, *best)
            low, high = self.low[(*best, place)], self.high[(*best, place)]
            ends = "-" if np.isnan(low) else f"{low:+.3f} to {high:+.3f}"
            found = f"{weight - even:+.3f}" + (f" ({ends})" if self.known else "")
            past = "-" if self.known and not self.told(kind) else str(len(self.past(kind)))
            rows.append((kind, f"{even:.3f}", name_of(*best), f"{weight:.3f}", found, past))
        return rows

    def table(self) -> list[dict[str, Any]]:
        """One row for each head and measure; layers and heads from 1."""
        depth, heads, _ = self.p.shape
        return [
            {
                "layer": i + 1,
                "head": j + 1,
                "measure": measure,
                "value": float(self.looks.means[i, j, m]),
                "uniform": float(self.looks.baseline[i, m]),
                "difference": float(self.looks.difference[i, j, m]),
                "low": float(self.low[i, j, m]),
                "high": float(self.high[i, j, m]),
                "p_holm": float(self.p[i, j, m]),
            }
            for i in range(depth)
            for j in range(heads)
            for m, measure in enumerate(MEASURES)
        ]


def name_of(layer: int, head: int) -> str:
    """``(1, 3)`` -> ``"2.4"``: both count from 1 for people."""
    return f"{layer + 1}.{head + 1}"


def attention(config: AttentionConfig) -> Heads:
    """Read, measure, print and write the page; the ``study attention`` command."""
    if not config.sentence.strip():
        raise ConfigError("the text whose attention is drawn must hold at least one character, but is blank")
    bundle = load_model(config.model)
    documents = documents_of([Source(path=path) for path in config.text])
    passages = sampled(documents, config.passages, config.seed) if config.text else []
    weights, encoded = text_weights(bundle, config.sentence)
    here, _ = looks_of(bundle, [config.sentence])
    folder = open_run(config.out, config, resume=False)
    tokens = [bundle.tokenizer.token(int(one)) for one in encoded.rows[0]]
    _keep(weights, tokens, encoded.rows[0], folder)
    looks = looks_of(bundle, passages)[0] if passages else here
    found = judged(looks, config)
    sections = (_drawn(weights, tokens, here, int(encoded.cut[0])), _measured(found))
    data = {"heads": pl.DataFrame(found.table()).fill_nan(None)}
    conclude(
        Study(
            f"Attention of {model_name(config.model)}",
            found.sentences(),
            sections,
            data,
            _tiles(bundle, found),
            (found.rows(), HEADER),
        ),
        config,
        folder,
        [config.model],
    )
    return found


def judged(looks: Looks, config: AttentionConfig) -> Heads:
    """Intervals over passages, and probabilities corrected for the number of heads and kinds."""
    low, high = looks.interval(config.seed)
    p, asked = np.full_like(looks.means, np.nan), looks.chances()
    tested = ~np.isnan(asked) & np.isin(MEASURES, KINDS)
    p[tested] = holm(asked[tested].tolist())
    return Heads(looks, low, high, p, config.bar)


def _keep(weights: np.ndarray, tokens: list[str], ids: np.ndarray, folder: Path) -> None:
    """``weights.safetensors`` (L, H, T, S) float32, and ``tokens.json``."""
    from safetensors.numpy import save

    write_forced(folder / "weights.safetensors", save({"weights": weights}))
    listed = [{"place": i, "id": int(one), "token": token} for i, (one, token) in enumerate(zip(ids, tokens, strict=True))]
    write_forced(folder / "tokens.json", json.dumps(listed, ensure_ascii=False, indent=1).encode(errors="replace"))


def _tiles(bundle: Bundle, found: Heads) -> list[tuple[str, str]]:
    config = bundle.model.backbone.config
    return [
        ("layers x heads", f"{config.depth} x {config.heads}"),
        ("looking", "back only" if bundle.model.causal else "both ways"),
        ("passages", f"{len(found.looks.sums):,}"),
    ]


def _drawn(weights: np.ndarray, tokens: list[str], here: Looks, cut: int) -> Section:
    names = ("evenness", "distance", "previous", "first", "itself")
    places = [MEASURES.index(name) for name in names]
    tips = [[{n: float(row[p]) for n, p in zip(names, places, strict=True)} for row in layer] for layer in here.means]
    even = here.means[:, :, MEASURES.index("evenness")]
    layer, head = np.unravel_index(np.argmin(np.nan_to_num(even, nan=1.0)), even.shape)
    said = [f"{len(tokens)} tokens; weights.safetensors holds every weight and tokens.json the tokens, beside this page."]
    if cut:
        said.append(f"The text was cut: its last {cut} tokens do not fit into the model.")
    all_heads = "Every head: tokens asking downwards, tokens seen to the right, the square root of the weight as shade."
    one_head = (
        f"One head, its strongest weights: {name_of(int(layer), int(head))} at first, the most pointed one. Choose layer and head "
        "below; drag to move, shift and wheel to zoom, double click to go back."
    )
    figures = (
        Figure("heads", all_heads, overview(weights, tips)),
        Figure("head", one_head, close_up(weights, tokens, (int(layer) + 1, int(head) + 1))),
    )
    return Section("One text", said, figures)


def _measured(found: Heads) -> Section:
    rows = [row for row in found.table() if row["measure"] != "entropy" and row["measure"] != "distance"]
    points = [
        {"layer": i + 1, "head": j + 1} | {name: found.of(name, i, j)[0] for name in ("evenness", "distance")}
        for i, j in np.ndindex(found.p.shape[:2])
    ]
    figures = (
        Figure(
            "measures",
            "What each head does more than uniform attention: evenness, then shares of weight.",
            grid([r for r in rows if not np.isnan(r["difference"])]),
        ),
        Figure("evenness", "How even a head's attention is, and how far it looks.", scatter(points)),
    )
    sure = ", by the lower end of the 95 % interval over passages" if found.known else ""
    way = (
        "A share is the mean over tokens that see one of the kind and have a choice. Past the bar: "
        f"{found.bar:.2f} more than uniform attention{sure}; a dash stands where fewer than two passages hold one of the kind. "
        "Layers and heads count from 1."
    )
    return Section("What heads look at", (way,), (*figures, Table(HEADER, found.rows())))
