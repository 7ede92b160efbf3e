"""``predict``: label texts, or answer questions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeGuard

import numpy as np

from warmstart.commands.settings import PredictConfig
from warmstart.data.answered_table import WRITTEN, AnsweredTable, beside_row, cell_of, file_of
from warmstart.data.files import without_compression
from warmstart.data.read import documents_of, files_as_texts, given_file
from warmstart.data.source import TABLE_FORMATS, Source
from warmstart.data.tables import Tables, reading_alike, source_format
from warmstart.data.text_key import is_blank
from warmstart.data.written import require_room
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.calibration import threshold_for
from warmstart.interop.load import load_predictor
from warmstart.json_output import for_standard_output
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.runs.made_of import input_paths
from warmstart.runs.tally import Recorder
from warmstart.system.console import console
from warmstart.system.outputs import free_output, write_output
from warmstart.system.storage import STANDARD_OUTPUT
from warmstart.tasks import TASK_TYPES, task_type_for
from warmstart.tasks.answers import answer_questions, answer_threshold
from warmstart.tasks.predict import confidences_of
from warmstart.tasks.predict import predict as predictions_of
from warmstart.tasks.shares import share_lines, shares
from warmstart.tasks.trained_on import known_texts_sentence, reading_of_model, unseen_names
from warmstart.tasks.unknown import NONE_OF_THESE, drift_sentence, texts_compared, unknown_sentence

_STARTS = {b"PK\3\4": ".xlsx", b"PAR1": ".parquet", b"\x1f\x8b": ".txt.gz"}
"""first bytes of standard input that is no text -> the ending of such files"""
_PLACES = ("file", "row", "text")
"""columns that say to which text a prediction belongs"""
_COUNTED = 5
"""labels whose number of texts is said"""


def predict(config: PredictConfig) -> list[dict[str, Any]]:
    """The ``predict`` command."""
    if config.file is None and (file := config.texts[0] if config.texts == (STANDARD_OUTPUT,) else given_file(config.texts)):
        config = config.model_copy(update={"file": file, "texts": ()})
    if STANDARD_OUTPUT in config.texts:
        raise ConfigError(f"'{STANDARD_OUTPUT}' is no text; given alone, it reads texts or a table from standard input")
    if config.file != STANDARD_OUTPUT:
        return _predicted(config)
    with TemporaryDirectory() as folder:
        return _predicted(config.model_copy(update={"file": str(_standard_input(Path(folder)))}))


def _standard_input(folder: Path) -> Path:
    """What stands in standard input, as a file whose ending says what it is: a table is known by what it holds."""
    data = sys.stdin.buffer.read()
    ending = next((ending for start, ending in _STARTS.items() if data.startswith(start)), ".txt")
    (file := folder / f"standard-input{ending}").write_bytes(data)
    return file


def _predicted(config: PredictConfig) -> list[dict[str, Any]]:
    """The predictions for texts or a file, which are written."""
    if out := None if config.out in (None, STANDARD_OUTPUT) else Path(config.out):
        _check_ending(out)
        free_output(out, input_paths(config))
    bundle = load_predictor(config.model)
    source = _source_of(bundle, config, tables := Tables())
    texts, table = _inputs_of(bundle, config, source, tables), _table(source, tables)
    if config.shares:
        return _shares(bundle, texts, config, out, table.frame.fill_nan(None).rows(named=True) if table else [])
    if out and out.suffix.lower() == ".xlsx":  # before hours of predictions
        require_room(table.rows() if table else [{"text": text} for text in texts], out)
    if known := known_texts_sentence(bundle, texts, "texts", "what it predicts for them says little about new ones"):
        console.print(known)
    rows = [*(_answers(bundle, texts, config) if _answers_questions(bundle) else _labels(bundle, texts, config))]
    if source:  # what a table of results is joined on
        typed, files = len(config.texts), files_as_texts(source)
        root = Path(source.path) if Path(source.path).is_dir() else Path(source.path).parent
        names = [file.relative_to(root).as_posix() for file in files] or range(1, 1 + len(rows) - typed)
        key = "file" if files else "row"
        rows[typed:] = [{key: name} | row for name, row in zip(names, rows[typed:], strict=True)]
    if blank := sum(is_blank(text) for text in texts):
        verb = "is blank, and gets" if blank == 1 else "are blank, and get"
        console.print(f"{blank:,} of the {len(texts):,} texts {verb} no label")
    data, blank_rows = _written(rows, out, table, given=len(config.texts))
    if out:
        write_output(out, data)
        console.print(_written_sentence(rows, out, blank_rows))
    else:
        sys.stdout.write(for_standard_output(data.decode()))
    return rows


def _shares(
    model: Bundle | Stack, texts: Sequence[Any], config: PredictConfig, out: Path | None, table: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The shares of the labels: printed as a table with a bar for each, and written if ``out`` is a file."""
    if config.by and (not table or config.by not in table[0]):
        names = f"its columns are {', '.join(map(repr, table[0]))}" if table else "the texts are no table"
        raise DataError(f"--by must name a column of the table, but there is no column '{config.by}': {names}")
    counted = shares(model, texts, [row[config.by] for row in table] if config.by else None, Recorder(config.model).count)
    data = file_of(counted.rows, out) if out else b""
    for line in (f"{counted.sentence}.", *(f"{note}." for note in counted.notes)):
        console.print(line)
    if out:
        write_output(out, data)
        console.print(f"shares written to {out}")
    else:
        sys.stdout.write(for_standard_output("".join(f"{line}\n" for line in share_lines(counted))))
    return counted.rows


def _written(rows: Sequence[dict[str, Any]], out: Path | None, table: AnsweredTable | None, *, given: int) -> tuple[bytes, int]:
    """The file of predictions as its ending promises, lines of JSON without an ending, and the number of its blank rows.

    The first texts are ``given``, and the others stand in the table.
    """
    if out and WRITTEN.get(out.suffix.lower(), "ndjson") != "ndjson":
        cells = [*map(_cells, rows)]
        if table is None or given:
            return file_of(cells, out), 0
        return table.written([{name: cell for name, cell in row.items() if name not in _PLACES} for row in cells], out)
    kept = [dict[str, Any]() for _ in range(given)] + (table.rows() if table else [{}] * (len(rows) - given))
    new = (
        {name: value for name, value in row.items() if name != "text" or name not in before}
        for before, row in zip(kept, rows, strict=True)
    )
    return file_of([*map(beside_row, kept, new)], out or Path()), 0


def _written_sentence(rows: Sequence[dict[str, Any]], out: Path, blank_rows: int) -> str:
    """``60 rows: sport 16, tech 9, 3 without a label; written to new.csv``: the commonest labels, where texts have one each."""
    counts = Counter(row["label"] for row in rows if "label" in row)
    none = counts.pop(None, 0)
    named = [f"{label} {count:,}" for label, count in counts.most_common(_COUNTED)]
    named += [f"{len(counts) - _COUNTED} more labels"] * (len(counts) > _COUNTED) + [f"{none:,} without a label"] * (none > 0)
    empty = f"; {blank_rows:,} empty {'row stays' if blank_rows == 1 else 'rows stay'} empty" if blank_rows else ""
    return f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}{': ' if named else ''}{', '.join(named)}{empty}; written to {out}"


def _check_ending(out: Path) -> None:
    """Raise ``ConfigError`` for a file whose name promises what is not written."""
    if out.suffix.lower() not in ("", *WRITTEN):
        raise ConfigError(f"--out must end in {', '.join(WRITTEN)}, but is {out}; a .csv opens in every spreadsheet")


def _table(source: Source | None, tables: Tables) -> AnsweredTable | None:
    """The table that was read; None of what is no table."""
    if source is None or not (file := Path(source.path)).is_file() or source_format(source, file) not in TABLE_FORMATS:
        return None
    return AnsweredTable(source, tables)


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a table: the largest of the probabilities of one label, and nothing for a blank text."""
    single, blank, cells = "label" in row, is_blank(row["text"]), dict[str, Any]()
    for name, value in row.items():
        name, value = ("probability", max(value.values())) if single and isinstance(value, dict) else (name, value)
        cells[name] = None if blank and name not in _PLACES else cell_of(value)
    return cells


def _answers_questions(bundle: Bundle | Stack) -> TypeGuard[Bundle]:
    return isinstance(bundle, Bundle) and bundle.max_answer_tokens is not None


def _labels(bundle: Bundle | Stack, texts: Sequence[Any], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The prediction for each text; no label if its confidence is below the threshold."""
    if config.corpus:
        raise DataError("--corpus is for models that answer questions; leave it out")
    if config.target_error and not task_type_for(bundle).one_label:
        raise DataError("--target-error is for models that answer questions or give one label per text; leave it out")
    threshold = threshold_for(bundle, config.target_error, config.confidence_level) if config.target_error else None
    if threshold:
        console.print(threshold.sentence())
    predictions = predictions_of(bundle, texts, top=config.top)
    if cut := predictions.cut:
        console.print(cut)
    if none := sum(row.get("labels") == [] for row in predictions):
        console.print(f"no label reached its threshold in {none:,} of {len(texts):,} texts")
    probabilities, typicality = predictions.probabilities, predictions.typicality
    confidences = np.ones(len(texts)) if probabilities is None else confidences_of(probabilities)
    if typicality is None and config.refuse_unknown:
        raise DataError(
            "--refuse-unknown needs a model that gives one label per text, made by fit or adapted with --calibration-fraction; "
            "leave it out"
        )
    unknown = np.zeros(len(texts), dtype=bool) if typicality is None else typicality <= config.unknown_share
    if unknown.any():
        console.print(unknown_sentence(int(unknown.sum()), len(texts), config.unknown_share))
    changed = None if typicality is None else drift_sentence(texts, typicality, texts_compared(bundle))
    if changed:
        console.print(changed)
    Recorder(config.model).count(texts, predictions, None if typicality is None else bool(changed))
    for text, row, confidence, strange in zip(texts, predictions, confidences, unknown.tolist(), strict=True):
        abstains = threshold is not None and confidence < threshold.threshold and not is_blank(text)
        no_label = abstains or is_blank(text)
        instead = {next(iter(row)): None} if no_label else {"label": NONE_OF_THESE} if strange and config.refuse_unknown else {}
        more = ({} if threshold is None else {"abstained": abstains}) | ({} if typicality is None else {"unknown": strange})
        yield row | instead | more | {"text": text}


def _answers(bundle: Bundle, texts: Sequence[str], config: PredictConfig) -> Iterator[dict[str, Any]]:
    """The answer to each question, or none if the model abstains."""
    threshold = answer_threshold(bundle, config.target_error, config.confidence_level) if config.target_error else None
    if threshold:
        console.print(threshold.sentence())
    sources = [Source(path=path) for path in config.corpus]
    unseen = unseen_names(texts, documents_of(sources)) if sources else [[] for _ in texts]
    for text, answer, names in zip(texts, answer_questions(bundle, texts), unseen, strict=True):
        answered = not is_blank(text) and (threshold is None or (answer.confidence >= threshold.threshold and not names))
        row: dict[str, Any] = {"answer": answer.text if answered else None, "confidence": round(answer.confidence, 4), "text": text}
        abstained = {} if threshold is None else {"abstained": not answered and not is_blank(text)}
        yield row | abstained | ({"unseen_names": names} if names else {})


def _source_of(bundle: Bundle | Stack, config: PredictConfig, tables: Tables) -> Source | None:
    """The file, which is read as the model's training texts were."""
    if config.file is None:
        return None
    columns = {"second": config.second} if config.second else {}
    how = reading_alike(reading_of_model(bundle), config.file, {**config.reading, **columns}, tables)
    place = Path(config.file)
    whole = place.is_dir() or without_compression(place).suffix.lower() == ".eml"
    return Source.build({"path": config.file, "document": "file" if whole else "line", **how})


def _inputs_of(bundle: Bundle | Stack, config: PredictConfig, source: Source | None, tables: Tables) -> list[Any]:
    """The texts given, then those of the file, in its order, also blank ones, so that nothing moves up."""
    task_type = TASK_TYPES["classification"] if _answers_questions(bundle) else task_type_for(bundle)
    if config.texts and config.second:
        raise DataError("pairs of texts must come from a table: give --file, and name its columns")
    inputs = [*map(task_type.parse, config.texts), *(task_type.read_inputs(source, tables) if source else [])]
    if not inputs:
        raise DataError("there is no text; give texts, or a file of texts with --file")
    return inputs
