"""Data sets that pretrained models of known families have read, by name, from their cards and papers.

A model that has read a task's texts, or even its labels as words of a prompt, is ahead of one that has not, and its score on that
task says less about other texts. What a family is not known to have read, it may have read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from warmstart.model.history import DataRecord, Record


def _sets(source: str, labelled: Sequence[str] = (), texts: Sequence[str] = ()) -> tuple[DataRecord, ...]:
    """Data sets that a model has read with their labels in words, and those that it has read without."""
    with_labels = (DataRecord(name=name, with_labels=True, source=source) for name in labelled)
    return (*with_labels, *(DataRecord(name=name, source=source) for name in texts))


FAMILIES_READ: Mapping[str, tuple[DataRecord, ...]] = {
    "multilingual-e5": _sets(
        labelled=(
            "AG News", "Amazon", "App Reviews", "DBpedia", "IMDb", "MRPC", "PAWS", "Quora", "Rotten Tomatoes", "TREC", "Yelp",
            "NLI", "SQuAD", "HotpotQA", "FEVER",
        ),
        texts=(
            "MS MARCO", "Natural Questions", "TriviaQA", "ELI5", "MIRACL", "Mr. TyDi", "DuReader", "Wikipedia", "CC-News", "mC4",
            "Reddit", "Stack Exchange", "S2ORC", "NLLB",
        ),
        source="Wang et al. 2024 (arXiv 2402.05672); of its part xP3: Muennighoff et al. 2023 (arXiv 2211.01786)",
    ),
    "all-(minilm|mpnet)": _sets(
        labelled=("NLI", "Quora"),
        texts=(
            "Reddit", "S2ORC", "WikiAnswers", "PAQ", "Stack Exchange", "MS MARCO", "GooAQ", "Yahoo Answers", "CodeSearchNet",
            "COCO", "SPECTER", "SearchQA", "ELI5", "Flickr30k", "Sentence Compression", "WikiHow", "Altlex", "Simple Wikipedia",
            "Natural Questions", "SQuAD", "TriviaQA", "Amazon QA",
        ),
        source="the cards of all-MiniLM-L6-v2 and all-mpnet-base-v2",
    ),
    "universal-sentence-encoder-multilingual": _sets(
        labelled=("NLI",),
        texts=("Reddit", "Stack Overflow", "Yahoo Answers"),
        source="Yang et al. 2020 (arXiv 1907.04307), which also reads pairs of translations from the web",
    ),
    "smollm2": _sets(
        texts=("FineWeb-Edu", "DCLM", "The Stack", "UltraFeedback"), source="the card of SmolLM2-135M-Instruct"
    ),
}  # fmt: skip
"""pattern in the names of a family's models, in lower case -> what they have read"""
_OTHER_NAMES = {
    "sst": "rottentomatoes", "sst2": "rottentomatoes", "mr": "rottentomatoes", "sentencepolarity": "rottentomatoes",
    "mrsentencepolarity": "rottentomatoes", "qqp": "quora", "mnli": "nli", "snli": "nli", "multinli": "nli",
    "nq": "naturalquestions", "cls": "amazon", "clsbooks": "amazon",
}  # fmt: skip
"""data sets under another name, or made of the sentences of another one"""


def read_by(name: str) -> tuple[DataRecord, ...]:
    """The data sets that the model of this name (of a folder or file, or on the hub) has read; empty: unknown."""
    return next((sets for part, sets in FAMILIES_READ.items() if re.search(part, name.lower())), ())


def already_read(history: Iterable[Record], model: str, task: str) -> tuple[str, ...]:
    """A sentence, if the name of a task is that of a data set that the model has read; else none."""
    known = {data.name: data for record in history for data in record.data if data.source}
    data = known.get(named_in(known, task))
    if data is None:
        return ()
    how = "with its labels in words" if data.with_labels else "without its labels"
    sentence = (
        f"{model} has read {data.name} {how} before ({data.source}), so it may do better on '{task}' than on new texts; "
        "methods that read only your texts are not ahead in this way."
    )
    return (sentence,)


def named_in(names: Iterable[str], task: str) -> str:
    """The data set that a task is called after, as in ``trec-6`` or ``my_imdb_sample``; empty if there is none."""
    known, words = {_key(name): name for name in names}, re.findall(r"[a-z0-9]+", task.lower())
    runs = ["".join(words[start:end]) for start in range(len(words)) for end in range(len(words), start, -1)]
    return next((known[spelling] for run in runs for spelling in (run, _OTHER_NAMES.get(run, "")) if spelling in known), "")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
