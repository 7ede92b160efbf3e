"""Multiple choice by overlap: the alternative that shares most words with the text."""

from __future__ import annotations

import numpy as np

from warmstart.baselines.baseline import NO_WORDS, BaselineResult
from warmstart.baselines.majority import majority
from warmstart.data.task import Task


def tfidf_overlap(task: Task) -> BaselineResult:
    """The cosine of the text's TF-IDF and that of each alternative. Only the weights of words are learned."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer, parts = TfidfVectorizer(sublinear_tf=True), [part for text in task.train.texts for part in text]
    if not any(map(vectorizer.build_analyzer(), parts)):
        constant = majority(task)
        return BaselineResult(constant.predictions, f"{NO_WORDS}; {constant.note}")
    vectorizer.fit(parts)
    cosines = np.zeros((len(task.test), len(task.test.texts[0]) - 1))
    for index, text in enumerate(task.test.texts):
        rows = vectorizer.transform(text)
        cosines[index] = (rows[1:] @ rows[0].T).toarray()[:, 0]
    return BaselineResult(cosines, "most words in common; no label is used")
