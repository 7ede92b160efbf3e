"""``study pairs``: minimal pairs of grammar, group by group, against chance and a trigram."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput
from warmstart.data.minimal_pairs import read_minimal_pairs
from warmstart.data.source import Source
from warmstart.data.token_store import documents_of
from warmstart.errors import DataError
from warmstart.interop.load import load_model
from warmstart.report.result import StudyResult
from warmstart.report.study import finish_study
from warmstart.runs.run import ThreadsConfig, open_run
from warmstart.stats.formatting import percent, percent_range
from warmstart.studies.pairs.measure import measure_pairs
from warmstart.studies.pairs.page import pairs_section
from warmstart.studies.pairs.result import pairs_result


class StudyPairsConfig(ThreadsConfig):
    """Test a language model on minimal pairs: of each pair, the right sentence should score higher."""

    model: Positional[FileInput[str]]
    """a language model: a bundle, or the folder of a run"""
    pairs: Positional[FileInput[str]]
    """a file or folder of minimal pairs: BLiMP's, Marvin and Linzen's, Gulordava's, Linzen's, or a table of good and bad"""
    out: Effectless[str] = "runs/pairs"
    """folder of the run"""
    limit: int | None = Field(None, gt=0)
    """use only the first pairs of each group, up to this number; default: all"""
    per_token: Advanced[bool] = False
    """compare log-probabilities per token, for pairs whose sentences differ in length"""
    text: FileInput[tuple[str, ...]] = ()
    """files or folders of text: a trigram model of it judges the pairs too, as a baseline"""


def study_pairs(config: StudyPairsConfig) -> StudyResult:
    """Score, judge, print and write the page. The details are a ``PairsMeasured``."""
    bundle, pairs = load_model(config.model), read_minimal_pairs(config.pairs, config.limit)
    documents = _documents(config)
    folder = open_run(config.out, config, resume=False)
    measured = measure_pairs(bundle, pairs, documents, per_token=config.per_token)
    result = pairs_result(Path(config.pairs).name, measured)
    accuracy, low, high = (result.figures[name] for name in ("accuracy", "low", "high"))
    tiles = [("accuracy", percent(accuracy)), ("95% interval", percent_range(low, high))]
    return finish_study(result, [pairs_section(measured)], config, folder, models=[config.model], tiles=tiles)


def _documents(config: StudyPairsConfig) -> list[str]:
    """The documents of ``--text``. Raises ``DataError`` if it is given but holds none."""
    documents = list(documents_of([Source(path=path) for path in config.text]))
    if config.text and not documents:
        raise DataError(f"--text must hold at least one document that is not empty, but has none: {', '.join(config.text)}")
    return documents
