"""The texts to label: from files with a text on each line, or tables with a column ``text``; and those of a task.

Their vectors, which the learner reads, are of a frozen model, or of latent semantic analysis of the pool itself.

Letters: N texts, D width.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from warmstart.app.learner import standardised_vectors
from warmstart.app.tables import MOST_TEXT_BYTES, check_text
from warmstart.data.annotations import Annotation
from warmstart.data.pool import pool_unlike
from warmstart.data.read import mail_text, open_prose, source_files
from warmstart.data.source import PROSE, LabelledTableFlags, Source
from warmstart.data.tables import read_table, reading_alike, source_format
from warmstart.data.task import Task
from warmstart.data.text_key import plain_text, text_key
from warmstart.errors import ConfigError, DataError
from warmstart.system.console import unsaid
from warmstart.system.storage import atomic_write, sha256
from warmstart.tasks.load import load_task

if TYPE_CHECKING:
    from warmstart.app.project import Project
    from warmstart.model.bundle import Bundle

TASK_PERSON = "task"
"""person whose answers the labels of a task are"""


@dataclass(frozen=True)
class PoolTexts:
    """Texts to label."""

    texts: tuple[str, ...]
    """each once"""
    repeated: int = 0
    """further copies of them"""
    left_out: int = 0
    """texts that are equal to a test or validation text of the task, or nearly the same"""


def task_to_label(path: str | Path, flags: Mapping[str, Any] | None = None) -> Task:
    """The task of a manifest or a table; rows of a table that have no label are its pool, texts that are still to be labelled.

    ``flags`` say how a table is read; a manifest says that itself.
    """
    place = Path(path)
    if place.suffix in (".yaml", ".yml") or (place / "task.yaml").is_file():
        return load_task(place)
    return load_task(place, flags=LabelledTableFlags.build({**(flags or {})}))


def held_out_texts(project: Project) -> list[str]:
    """The test and validation texts of the project's task, which nobody may label here."""
    if not project.task:
        return []
    return [plain_text(text) for split in task_to_label(project.task, project.table).held_out().values() for text in split.texts]


def refuse_held_out(project: Project, text: str) -> None:
    """Raise ``DataError`` if a text is one of those that test models."""
    with unsaid():
        held_out = held_out_texts(project)
    if text_key(text) in map(text_key, held_out):
        raise DataError("this is one of the texts that are held out to test models, which nobody labels here; its label is known")


def read_pool(paths: Sequence[str], task: Task | None = None, reading: Mapping[str, Any] | None = None) -> PoolTexts:
    """The texts of files, without those like a test or validation text of the task; without files, the task's own pool.

    ``reading`` are settings of a ``Source``, such as the column; without them files are read as those of the task were. Blank texts
    are left out.

    Raises ``DataError`` that names file and line of a text that is too long or not Unicode.
    """
    alike = task.reading if task else {}
    files = [Source.build({"path": path, "document": "line"} | reading_alike(alike, path, reading or {})) for path in paths]
    sources = files or list(task.unlabelled if task else ())
    texts = [text for source in sources for file in source_files(source) for text in _texts(source, file)]
    if task and not files:
        texts += [text for passage in task.unlabelled_texts for text in _checked(passage, f"{passage[:80]!r} of '{task.name}'")]
    different = tuple(dict.fromkeys(texts))
    if task is None:
        return PoolTexts(different, len(texts) - len(different))
    kept = pool_unlike(different, tuple(plain_text(text) for split in task.held_out().values() for text in split.texts))
    return PoolTexts(kept.texts, len(texts) - len(different), kept.left_out)


def task_answers(task: Task) -> list[Annotation]:
    """The training texts of a task, as answers of ``TASK_PERSON``; texts with a word that holds white space cannot be shown.

    Raises ``ConfigError`` for a task that is neither classification of single texts nor tagging.
    """
    wrong = "pairs of texts" if any(not isinstance(text, str) for text in task.train.texts) else ""
    if task.type not in ("classification", "tagging") or (task.type == "classification" and wrong):
        raise ConfigError(
            f"labels are given to single texts (classification) or words (tagging), but '{task.name}' is a task of "
            f"{task.type}{f' of {wrong}' if wrong else ''}; name another task"
        )
    rows = []
    for number, (text, label) in enumerate(zip(task.train.texts, task.train.labels, strict=True), 1):
        where = f"training text {number} of '{task.name}'"
        if isinstance(text, str):
            rows.append(Annotation(where, text, TASK_PERSON, task.labels[int(label)]))
        elif all(word.split() == [word] for word in text):
            rows.append(Annotation(where, " ".join(text), TASK_PERSON, tuple(task.labels[int(tag)] for tag in label)))
    return [row for row in rows if row.text.strip()]


def _texts(source: Source, file: Path) -> Iterator[str]:
    """The texts of one file that are not blank, checked."""
    form = source_format(source, file)
    if form == "eml":
        yield from _checked(mail_text(file), str(file))
        return
    if form in (*PROSE, "pattern"):
        with open_prose(source, file, "text") as lines:
            number = 0
            while line := lines.readline(MOST_TEXT_BYTES + 2):  # a longer line is refused before all of it is in memory
                number += 1
                yield from _checked(line.rstrip("\r\n"), f"line {number} of {file}")
        return
    table = read_table(source, file, form)
    for number, text in enumerate(table.strings(table.text_name(source)), 1):
        yield from _checked(text, f"row {number} of {file}")


def _checked(text: str, where: str) -> Iterator[str]:
    if text.strip():
        check_text(text, where)
        yield text


_DIMENSIONS = 100
"""dimensions of latent semantic analysis, at most"""


def pool_vectors(texts: Sequence[str], model: str, folder: Path, loaded: Bundle | None = None) -> np.ndarray:
    """(N, D) standardised vectors; those of a model are kept in the folder, since a large one takes minutes.

    ``model`` is a bundle, which may be ``loaded`` already; empty: latent semantic analysis. Raises ``ModelError`` if it cannot be
    loaded.
    """
    if not model:
        return standardised_vectors(_latent_semantic_vectors(texts))
    return standardised_vectors(_kept_vectors(texts, model, folder, loaded))


class NameVectors:
    """Label id -> vector (D,) of what it means in words, for the labels that stand; standardised as those of the pool.

    The words are those of the project's task, else those of the name. What is new since the last call is computed.
    """

    def __init__(self, project: Project, loaded: Bundle | None = None) -> None:
        self._project, self._loaded = project, loaded
        self._said, self._known = _label_descriptions(project.task), dict[str, np.ndarray]()

    def __call__(self) -> dict[int, np.ndarray]:
        """As they are now; a label whose name has no letter is missing."""
        from warmstart.data.task import words_of_name

        words = {label.id: self._said.get(label.name) or words_of_name(label.name) for label in self._project.labels()}
        if new := [name for name in dict.fromkeys(words.values()) if name and name not in self._known]:
            about = (self._project.settings.vectors, self._project.folder, self._loaded)
            pool, vectors = (_kept_vectors(texts, *about) for texts in (self._project.texts, new))
            self._known |= zip(new, standardised_vectors(vectors, pool), strict=True)
        return {label: self._known[some] for label, some in words.items() if some}


def _label_descriptions(manifest: str) -> Mapping[str, str]:
    """Those of a task, if there is one that can be read."""
    from warmstart.tasks.load import read_spec

    try:
        return read_spec(manifest)[1].label_descriptions if manifest else {}
    except (ConfigError, DataError):
        return {}


def _kept_vectors(texts: Sequence[str], model: str, folder: Path, loaded: Bundle | None) -> np.ndarray:
    from warmstart.interop.encoders import find_model
    from warmstart.model.files import load_bundle
    from warmstart.model.folder import model_digest

    digest = sha256(json.dumps([model_digest(model), *texts]).encode())[:16]
    file = folder / f"vectors-{digest}.npy"
    if file.is_file():
        return np.asarray(np.load(file, allow_pickle=False))
    vectors = _frozen_vectors(texts, loaded or load_bundle(find_model(model)))
    buffer = io.BytesIO()
    np.save(buffer, vectors, allow_pickle=False)
    atomic_write(file, buffer.getvalue())
    return vectors


def _latent_semantic_vectors(texts: Sequence[str]) -> np.ndarray:
    from sklearn.decomposition import TruncatedSVD

    from warmstart.model.rows import word_vectorizer

    try:
        words = word_vectorizer(word_pairs=False, weighted=True).fit_transform(texts)
    except ValueError:  # no text has a word
        return np.zeros((len(texts), 1))
    size = min(_DIMENSIONS, min(words.shape) - 1)
    if size < 1:
        return np.asarray(words.todense())
    return np.asarray(TruncatedSVD(size, random_state=0).fit_transform(words))


def _frozen_vectors(texts: Sequence[str], bundle: Bundle) -> np.ndarray:
    from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
    from warmstart.model.bundle import Bundle
    from warmstart.model.inference import embed
    from warmstart.model.model import swap_head

    if not isinstance(bundle.model.head, EmbeddingHead):
        bundle = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="mean"), 0).eval(), bundle.tokenizer)
    return embed(bundle, list(texts)).numpy()
