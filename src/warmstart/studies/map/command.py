"""``study map``: which words are near which in a representation, in the embedding and in context."""

from __future__ import annotations

import numpy as np
from pydantic import Field
from tyro.conf import Positional, UseAppendAction

from warmstart.config import Advanced, Effectless, FileInput
from warmstart.data.analogies import read_analogies
from warmstart.data.source import Source
from warmstart.data.token_store import documents_of
from warmstart.errors import ConfigError, DataError
from warmstart.inspection.lexicon import Lexicon, lexicon_from_text, lexicon_from_vocabulary
from warmstart.inspection.neighbours import covered_analogies
from warmstart.inspection.occurrences import Occurrences, find_occurrences
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.report.result import StudyResult
from warmstart.report.study import LinkedConfig, finish_study
from warmstart.runs.run import Run
from warmstart.stats.formatting import model_name
from warmstart.studies.map.measure import MIN_POINTS, MapInputs, measure_map
from warmstart.studies.map.page import map_sections, map_tiles
from warmstart.studies.map.result import map_result

_LEXICON = 30_000
"""words of a text among which analogies are answered"""
_CANDIDATES = 3000
"""words of a text among which neighbours are searched"""
_MIN_LETTERS = 3
_MAX_CONTEXTS, _MIN_CONTEXTS = 200, 3
"""occurrences of a word whose contexts are mapped"""


class StudyMapConfig(LinkedConfig):
    """Map the words of a text by their embedding and in context; list nearest neighbours; answer analogies."""

    model: Positional[FileInput[str]]
    """any model: a bundle, or the folder of a run"""
    text: FileInput[tuple[str, ...]] = ()
    """files or folders whose words are mapped, also in context; default: the words of the vocabulary, without context"""
    words: int = Field(300, ge=MIN_POINTS, le=2000)
    """number of words on the map: the most frequent ones of three letters or more"""
    layer: Advanced[int | None] = Field(None, ge=0)
    """layer of the hidden states in context; default: the middle one (lower ones hold the token, upper ones serve the head)"""
    occurrences: Advanced[int] = Field(10, gt=0)
    """a word in context is the mean over at most this many occurrences, drawn at random"""
    contexts_of: UseAppendAction[tuple[str, ...]] = ()
    """map the contexts of this word, and measure how similar its occurrences are at each layer; repeat for more words"""
    neighbours_of: UseAppendAction[tuple[str, ...]] = ()
    """list the nearest neighbours of this word; repeat for more words"""
    analogies: FileInput[str | None] = None
    """a file of analogies in the format of questions-words.txt, answered in the embedding"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""
    out: Effectless[str] = "runs/map"
    """folder of the run"""


def study_map(config: StudyMapConfig) -> StudyResult:
    """Measure, print the findings and write the page; the ``study map`` command."""
    bundle = load_model(config.model)
    inputs = _inputs(bundle, config)
    folder = Run.open(config.out, config).folder
    result = map_result(measure_map(bundle, inputs, config.seed), model_name(config.model), config.seed)
    return finish_study(result, map_sections(result), config, folder, models=[config.model], tiles=map_tiles(result))


def _inputs(bundle: Bundle, config: StudyMapConfig) -> MapInputs:
    """Read and check everything before a folder is made."""
    layer = _layer(bundle, config)
    if config.contexts_of and not config.text:
        raise ConfigError("--contexts-of needs a text in which the word occurs; give --text too")
    questions = read_analogies(config.analogies) if config.analogies else []
    texts = list(documents_of([Source(path=path, document="sentence") for path in config.text]))
    required = list(dict.fromkeys((*config.contexts_of, *config.neighbours_of)))
    if config.text:
        lexicon = lexicon_from_text(bundle.tokenizer, texts, _LEXICON, required)
    else:
        lexicon = lexicon_from_vocabulary(bundle.tokenizer, required)
    shown = _shown(lexicon, config)
    covered = covered_analogies(lexicon, questions)
    if questions and not covered:
        raise DataError(
            f"none of the {len(questions):,} questions of {config.analogies} has its four words among the {len(lexicon):,} known "
            "ones; give a text (--text) that contains them"
        )
    contexts_of = {word: lexicon.index[word] for word in config.contexts_of}
    neighbours_of = {word: lexicon.index[word] for word in config.neighbours_of}
    occurrences = None
    if config.text:
        candidates = [*range(min(_CANDIDATES, len(lexicon))), *neighbours_of.values()] if neighbours_of else []
        limits = dict.fromkeys([*shown, *candidates], config.occurrences) | dict.fromkeys(contexts_of.values(), _MAX_CONTEXTS)
        occurrences = find_occurrences(bundle, texts, lexicon, limits, config.seed)
        _check_occurrences(occurrences, lexicon, contexts_of, shown)
    return MapInputs(lexicon, np.array(shown), layer, contexts_of, neighbours_of, occurrences, covered, len(questions))


def _layer(bundle: Bundle, config: StudyMapConfig) -> int:
    depth = bundle.model.backbone.config.depth
    layer = (depth + 1) // 2 if config.layer is None else config.layer
    if layer > depth:
        raise ConfigError(f"--layer must be at most {depth}, the model's number of blocks (0 is the embedding), but is {layer}")
    return layer


def _shown(lexicon: Lexicon, config: StudyMapConfig) -> list[int]:
    """The words on the map, as indices into the lexicon."""
    shown = [index for index, word in enumerate(lexicon.words) if len(word) >= _MIN_LETTERS][: config.words]
    if len(shown) < MIN_POINTS:
        source, hint = ("text", "more text") if config.text else ("vocabulary", "a text (--text)")
        raise DataError(
            f"a map needs at least {MIN_POINTS} words of {_MIN_LETTERS} letters, but the {source} has {len(shown)}; give {hint}"
        )
    return shown


def _check_occurrences(occurrences: Occurrences, lexicon: Lexicon, contexts_of: dict[str, int], shown: list[int]) -> None:
    """Raise ``DataError`` if too little of the text fits into the model's context."""
    for word, index in contexts_of.items():
        if (count := len(occurrences.of(index))) < _MIN_CONTEXTS:
            raise DataError(
                f"'{word}' must occur in the text at least {_MIN_CONTEXTS} times within the model's context, but occurs {count} "
                f"times (of {lexicon.counts[index]}); give more text"
            )
    if (count := len(np.intersect1d(occurrences.words, shown))) < MIN_POINTS:
        raise DataError(
            f"at least {MIN_POINTS} words must fit into the model's context, but {count} do; give a text of shorter words"
        )
