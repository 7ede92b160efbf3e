"""``study pairs``: minimal pairs of grammar, group by group, against what a trigram of some text knows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import Field
from tyro.conf import Positional

from warmstart.analysis.ngram import Trigram
from warmstart.analysis.pairs import Judgement, judge, lead, overall, score
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.data.pairs import Pair, read_pairs
from warmstart.errors import DataError
from warmstart.evaluate.differences import holm
from warmstart.model import Bundle
from warmstart.report import Figure, Section, Table
from warmstart.report.pairs import pairs_chart
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude

MODEL, FLOOR = "model", "trigram"
HEADER = ("group", "pairs", "right (95 % interval over pairs)", "trigram")


class PairsConfig(Config):
    """Ask a language model which sentence of each pair it finds likelier: the right one, or the wrong one."""

    model: Positional[str]
    """a language model: a bundle, or a run's folder"""
    pairs: Positional[str]
    """a file or folder of minimal pairs: BLiMP's, Marvin and Linzen's, Gulordava's, Linzen's, or a table of good and bad"""
    out: str = "runs/pairs"
    """folder of the run"""
    first: int | None = Field(None, gt=0)
    """so many pairs of each group; default: all"""
    per_token: bool = False
    """compare log-probabilities per token, where the sentences of a pair differ in length"""
    text: tuple[str, ...] = ()
    """files or folders of text: a trigram model of it is judged beside, as a floor"""


@dataclass(frozen=True)
class Found:
    """What came of it."""

    groups: list[Judgement]
    floor: list[Judgement]
    """the same of the trigram; empty where no text was given"""
    causal: bool

    def sure(self) -> tuple[int, int]:
        """How many groups are above chance and how many below, by exact tests that Holm corrects for the number of groups."""
        corrected = holm([one.p() for one in self.groups])
        above = [one.share > 0.5 for one, p in zip(self.groups, corrected, strict=True) if p < 0.05]
        return sum(above), len(above) - sum(above)

    def sentences(self) -> list[str]:
        """What was found, and how sure it is."""
        mean, low, high = overall(self.groups)
        count = sum(len(one.right) for one in self.groups)
        way = "log-probability" if self.causal else "pseudo-log-likelihood"
        said = [
            f"by {way}, {100 * mean:.1f} % ({100 * low:.1f} to {100 * high:.1f}) of {count:,} pairs are judged rightly, the mean "
            f"over {len(self.groups)} groups; chance is 50 %"
        ]
        above, below = self.sure()
        said.append(
            f"{above} of {len(self.groups)} groups are surely above chance, {below} surely below (exact tests, corrected for their "
            "number by Holm)"
        )
        if self.floor:
            gap, (floor, *_) = lead(self.groups, self.floor), overall(self.floor)
            verb = {1: "better than", -1: "worse than", 0: "not seen to differ from"}[gap.sign]
            said.append(
                f"it is {verb} a trigram of the text, which has {100 * floor:.1f} %: {100 * gap.mean:+.1f} points "
                f"({100 * gap.low:.1f} to {100 * gap.high:.1f})"
            )
        return said


def pairs(config: PairsConfig) -> Found:
    """Score, judge, print and write the page; the ``study pairs`` command."""
    bundle, given = load_model(config.model), read_pairs(config.pairs, config.first)
    documents = _documents(config)
    folder = open_run(config.out, config, resume=False)
    sentences = [pair.good for pair in given] + [pair.bad for pair in given]
    scored = score(bundle, sentences)
    groups = judge(given, scored.by(per_token=config.per_token))
    found = Found(groups, _floor(bundle, given, documents, config), bundle.likelihood == "causal")
    values = scored.by(per_token=config.per_token)
    columns = {"group": [p.group for p in given], "good": [p.good for p in given], "bad": [p.bad for p in given]}
    table = pl.DataFrame(columns | {"score_good": values[: len(given)], "score_bad": values[len(given) :]})
    conclude(_study(found, table, config), config, folder, [config.model])
    return found


def rows_of(found: Found) -> list[tuple[str, str, str, str]]:
    """One row a group, best first."""
    floor = {one.name: f"{100 * one.share:.1f} %" for one in found.floor}
    rows = []
    for one in sorted(found.groups, key=lambda one: -one.share):
        low, high = one.ends()
        said = f"{100 * one.share:.1f} % ({100 * low:.1f} to {100 * high:.1f})"
        rows.append((one.name, f"{len(one.right):,}", said, floor.get(one.name, "-")))
    return rows


def _documents(config: PairsConfig) -> list[str]:
    """Of the text beside; raises ``DataError`` where it holds none."""
    documents = list(documents_of([Source(path=path) for path in config.text]))
    if config.text and not documents:
        raise DataError(f"--text must hold at least one document that is not empty, but found none: {', '.join(config.text)}")
    return documents


def _floor(bundle: Bundle, given: list[Pair], documents: list[str], config: PairsConfig) -> list[Judgement]:
    """The trigram of the documents under the model's own tokenizer, on the same pairs."""
    if not documents:
        return []
    begin, tokenizer = bundle.tokenizer.specials.begin, bundle.tokenizer
    trigram = Trigram(([begin, begin, *ids] for ids in tokenizer.encode(documents)), tokenizer.vocab_size)
    rows = tokenizer.encode([pair.good for pair in given] + [pair.bad for pair in given])
    values = np.array([trigram.log_probability([begin, begin, *ids]) for ids in rows])
    lengths = np.array([max(1, len(ids)) for ids in rows])
    return judge(given, values / lengths if config.per_token else values)


def _study(found: Found, table: pl.DataFrame, config: PairsConfig) -> Study:
    mean, low, high = overall(found.groups)
    methods = {MODEL: found.groups} | ({FLOOR: found.floor} if found.floor else {})
    points = [(name, one.name, one.share, *one.ends()) for name, groups in methods.items() for one in groups]
    caption = "Share of pairs of which the right sentence is likelier; dashed: chance."
    about = "Of two sentences that differ in one thing, the right one should be likelier."
    return Study(
        f"Minimal pairs: {Path(config.pairs).name}",
        found.sentences(),
        (Section("Groups", (about,), (Figure("pairs", caption, pairs_chart(points)), Table(HEADER, rows_of(found)))),),
        {"pairs": table},
        (("right", f"{100 * mean:.1f} %"), ("interval", f"{100 * low:.1f} to {100 * high:.1f}")),
        (rows_of(found), HEADER),
    )
