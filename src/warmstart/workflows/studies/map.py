"""``study map``: what lies near what in a representation, in the embedding and in context."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field
from tyro.conf import Positional, UseAppendAction

from warmstart.analysis.activations import layer_names
from warmstart.analysis.lexicon import Lexicon, lexicon_of_text, lexicon_of_vocabulary, static_states
from warmstart.analysis.neighbours import covered
from warmstart.analysis.occurrences import Occurrences, find_occurrences, read_occurrences
from warmstart.analysis.projection import FEWEST
from warmstart.config import Config
from warmstart.data import Source, documents_of
from warmstart.data.analogies import Analogy, read_analogies
from warmstart.errors import ConfigError, DataError
from warmstart.model import Bundle
from warmstart.seeding import rng
from warmstart.workflows.run import load_model, open_run
from warmstart.workflows.studies.conclude import Study, conclude, joined
from warmstart.workflows.studies.map_parts import Seen, View, analogies_part, map_part, near_part, word_part
from warmstart.workflows.studies.wording import model_name

LEXICON = 30_000
"""words of a text among which analogies are answered"""
CANDIDATES = 3000
"""words of a text among which neighbours are sought"""
LETTERS = 3
"""that a word of the map has at least"""
CONTEXTS, FEW = 200, 3
"""occurrences of one word that are looked at, at most and at least"""
RANDOM = 500
"""words that stand for any word, one occurrence each"""


class MapConfig(Config):
    """Draw what lies near what: the words of a text by their embedding and in context, as maps, neighbours and analogies."""

    model: Positional[str]
    """any model: a bundle, or a run's folder"""
    text: tuple[str, ...] = ()
    """files or folders whose words are drawn, also as they stand in context; default: the vocabulary's words, without context"""
    words: int = Field(300, ge=FEWEST, le=2000)
    """so many of the most frequent words of three letters or more are on the map"""
    layer: int | None = Field(None, ge=0)
    """layer of the states in context; default: the middle one (the first hold the token alone, the last serve the head)"""
    occurrences: int = Field(10, gt=0)
    """a word in context is the mean of at most so many of its occurrences, taken at random"""
    word: UseAppendAction[tuple[str, ...]] = ()
    """map the contexts of this word, and say how contextual it is layer by layer; may be given several times"""
    near: UseAppendAction[tuple[str, ...]] = ()
    """list what is nearest to this word; may be given several times"""
    analogies: str | None = None
    """a file of analogies like questions-words.txt, to be answered in the embedding"""
    seed: int = Field(0, ge=0)
    """start of every random choice"""
    out: str = "runs/map"
    """folder of the run"""


@dataclass(frozen=True)
class _Plan:
    """What is to be looked at, checked before anything is read or written."""

    lexicon: Lexicon
    shown: np.ndarray
    """places of the words on the map"""
    layer: int
    asked: dict[str, int]
    """place of each word whose contexts are mapped"""
    found: Occurrences | None
    questions: list[Analogy]
    """those that are covered"""
    all_questions: int


def study_map(config: MapConfig) -> Study:
    """Read, project, print and write the page; the ``study map`` command."""
    bundle = load_model(config.model)
    plan = _planned(bundle, config)
    folder = open_run(config.out, config, resume=False)
    view = _looked(bundle, plan, config.seed)
    near = near_part(view, {word: plan.lexicon.known[word] for word in config.near}, config.seed)
    answered = analogies_part(view, plan.questions, plan.all_questions, config.seed)
    contexts, drawn = word_part(view, config.seed), map_part(view, config.seed)
    study = joined(f"Map: {model_name(config.model)}", [near, answered, contexts, drawn])
    conclude(study, config, folder, [config.model])
    return study


def _planned(bundle: Bundle, config: MapConfig) -> _Plan:
    depth = bundle.model.backbone.config.depth
    layer = (depth + 1) // 2 if config.layer is None else config.layer
    if layer > depth:
        raise ConfigError(f"--layer must be at most {depth}, the model's number of blocks (0 is the embedding), but is {layer}")
    if config.word and not config.text:
        raise ConfigError("the contexts of a word come from a text: give --text beside --word")
    questions = read_analogies(config.analogies) if config.analogies else []
    sources = [Source(path=path, document="sentence") for path in config.text]
    texts, asked = list(documents_of(sources)), list(dict.fromkeys((*config.word, *config.near)))
    if config.text:
        lexicon = lexicon_of_text(bundle.tokenizer, texts, LEXICON, asked)
    else:
        lexicon = lexicon_of_vocabulary(bundle.tokenizer, asked)
    shown = [place for place, word in enumerate(lexicon.words) if len(word) >= LETTERS][: config.words]
    if len(shown) < FEWEST:
        held, hint = ("text", "more text") if config.text else ("vocabulary", "a text (--text)")
        raise DataError(f"a map needs at least {FEWEST} words of {LETTERS} letters, but the {held} has {len(shown)}; give {hint}")
    answerable = covered(lexicon, questions)
    if questions and not answerable:
        raise DataError(
            f"none of the {len(questions):,} questions of {config.analogies} has its four words among the {len(lexicon):,} known "
            "ones; give a text (--text) that has them"
        )
    words = {word: lexicon.known[word] for word in config.word}
    found = None
    if config.text:
        candidates = [*range(min(CANDIDATES, len(lexicon))), *(lexicon.known[word] for word in config.near)]
        wanted = dict.fromkeys([*shown, *(candidates if config.near else ())], config.occurrences)
        found = find_occurrences(bundle, texts, lexicon, wanted | dict.fromkeys(words.values(), CONTEXTS), config.seed)
        _check(found, lexicon, words, shown)
    return _Plan(lexicon, np.array(shown), layer, words, found, answerable, len(questions))


def _check(found: Occurrences, lexicon: Lexicon, words: dict[str, int], shown: list[int]) -> None:
    """Raise ``DataError`` where too little of the text fits into the model."""
    for word, place in words.items():
        if (count := len(found.of(place))) < FEW:
            raise DataError(
                f"'{word}' must stand in the text at least {FEW} times where it fits into the model, but does {count} times "
                f"(of {lexicon.counts[place]}); give more text"
            )
    if (count := len(np.intersect1d(found.word, shown))) < FEWEST:
        raise DataError(f"at least {FEWEST} words must fit into the model in context, but {count} do; give a text of shorter words")


def _looked(bundle: Bundle, plan: _Plan, seed: int) -> View:
    """Run the model over what was planned."""
    static = static_states(bundle, plan.lexicon)
    view = View(plan.lexicon, static, plan.shown, plan.layer, layer_names(bundle))
    if plan.found is None:
        return view
    draw, met = rng(seed, "random words"), np.unique(plan.found.word)
    chosen = draw.permutation(met)[:RANDOM]
    random = np.array([draw.choice(plan.found.of(word)) for word in chosen])
    rows = [random, *(plan.found.of(place) for place in plan.asked.values())]
    deep = read_occurrences(bundle, plan.found, np.concatenate(rows), range(len(view.layers)))
    first, *others = np.split(deep, np.cumsum([len(row) for row in rows])[:-1])
    states = read_occurrences(bundle, plan.found, np.arange(len(plan.found.word)), [plan.layer])[:, 0]
    means = np.stack([states[plan.found.of(word)].mean(axis=0) for word in met])
    seen = Seen(plan.found, met, means, first, dict(zip(plan.asked, others, strict=True)), plan.asked)
    return replace(view, seen=seen)
