"""``predict``: label texts, or answer questions."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from warmstart.commands.settings import PredictConfig
from warmstart.data.files import without_compression
from warmstart.data.read import documents_of, files_as_texts, given_file
from warmstart.data.source import TABLE_FORMATS, Source
from warmstart.data.tables import Tables, dialect_of, reading_alike, source_format
from warmstart.data.text_key import is_blank
from warmstart.data.written import delimited, require_room, workbook
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.calibration import threshold_for
from warmstart.interop.load import load_predictor
from warmstart.json_output import for_standard_output
from warmstart.model.bundle import Bundle
from warmstart.model.stack import Stack
from warmstart.runs.made_of import input_paths
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

_DELIMITERS = {".csv": ",", ".tsv": "\t"}
"""ending of a table -> what stands between its cells"""
_WORKBOOK = ".xlsx"
_COUNTED = 5
"""labels whose number of texts is said"""
_LINES = ("", ".jsonl", ".ndjson")
"""endings of lines of JSON"""


def predict(config: PredictConfig) -> list[dict[str, Any]]:
    """The ``predict`` command."""
    if STANDARD_OUTPUT in config.texts:
        raise ConfigError(f"'{STANDARD_OUTPUT}' is no text, and texts are not read from standard input; write them into a file")
    if config.file is None and (file := given_file(config.texts)):
        config = config.model_copy(update={"file": file, "texts": ()})
    if out := None if config.out in (None, STANDARD_OUTPUT) else Path(config.out):
        _check_ending(out)
        free_output(out, input_paths(config))
    bundle = load_predictor(config.model)
    source = _source_of(bundle, config, tables := Tables())
    texts = _inputs_of(bundle, config, source, tables)
    if config.shares:
        return _shares(bundle, texts, config, out, _kept(source, tables))
    if out and out.suffix.lower() == _WORKBOOK:  # before hours of predictions
        require_room(_kept(source, tables) or [{"text": text} for text in texts], out)
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
    data = _written(rows, out, config, source, tables)
    if out:
        write_output(out, data)
        console.print(_written_sentence(rows, out))
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
    counted = shares(model, texts, [row[config.by] for row in table] if config.by else None)
    data = _file_of(counted.rows, out) if out else b""
    for line in (f"{counted.sentence}.", *(f"{note}." for note in counted.notes)):
        console.print(line)
    if out:
        write_output(out, data)
        console.print(f"shares written to {out}")
    else:
        sys.stdout.write(for_standard_output("".join(f"{line}\n" for line in share_lines(counted))))
    return counted.rows


def _file_of(rows: Sequence[dict[str, Any]], out: Path) -> bytes:
    """Rows of plain values as the ending promises."""
    if (ending := out.suffix.lower()) == _WORKBOOK:
        return workbook(rows, out)
    if ending in _DELIMITERS:
        return delimited(rows, _DELIMITERS[ending]).encode()
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _written(
    rows: Sequence[dict[str, Any]], out: Path | None, config: PredictConfig, source: Source | None, tables: Tables
) -> bytes:
    """The bytes of the file of predictions, as its ending promises; lines of JSON without an ending."""
    ending = out.suffix.lower() if out else ""
    if out and ending in (*_DELIMITERS, _WORKBOOK):
        table = source if not config.texts else None
        cells = _cells(rows, table, tables)
        return workbook(cells, out) if ending == _WORKBOOK else _delimited(cells, _DELIMITERS[ending], table)
    kept = [dict[str, Any]() for _ in config.texts] + (_kept(source, tables) or [{}] * (len(rows) - len(config.texts)))
    joined = (_beside(before, row, *(["text"] if "text" in before else [])) for before, row in zip(kept, rows, strict=True))
    return "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in joined).encode()


def _written_sentence(rows: Sequence[dict[str, Any]], out: Path) -> str:
    """``60 rows: sport 16, tech 9, 3 without a label; written to new.csv``: the commonest labels, where texts have one each."""
    counts = Counter(row["label"] for row in rows if "label" in row)
    none = counts.pop(None, 0)
    named = [f"{label} {count:,}" for label, count in counts.most_common(_COUNTED)]
    named += [f"{len(counts) - _COUNTED} more labels"] * (len(counts) > _COUNTED) + [f"{none:,} without a label"] * (none > 0)
    return f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'}{': ' if named else ''}{', '.join(named)}; written to {out}"


def _check_ending(out: Path) -> None:
    """Raise ``ConfigError`` for a file whose name promises what is not written."""
    if out.suffix.lower() not in (known := (*_DELIMITERS, _WORKBOOK, *_LINES)):
        raise ConfigError(f"--out must end in {', '.join(filter(None, known))}, but is {out}; a .csv opens in every spreadsheet")


def _kept(source: Source | None, tables: Tables) -> list[dict[str, Any]]:
    """The rows of the table that was read, with all their columns; none of what is no table."""
    if source is None or not (file := Path(source.path)).is_file() or source_format(source, file) not in TABLE_FORMATS:
        return []
    return tables.read(source, file).frame.fill_nan(None).rows(named=True)


def _beside(before: dict[str, Any], row: dict[str, Any], *known: str) -> dict[str, Any]:
    """A prediction behind the columns of its row, under names that these do not have, without what is ``known``."""
    return before | {_free(name, [*before]): value for name, value in row.items() if name not in known}


def _cells(rows: Sequence[dict[str, Any]], source: Source | None, tables: Tables) -> list[dict[str, Any]]:
    """The values of each row by name, behind the columns of the table that was read."""
    cells = [dict(_cell(name, value, single="label" in row) for name, value in row.items()) for row in rows]
    if not (before := _kept(source, tables)):
        return cells
    kept = [dict(_cell(*item, single=False) for item in row.items()) for row in before]
    return [_beside(*both, "row", "text") for both in zip(kept, cells, strict=True)]


def _delimited(cells: Sequence[dict[str, Any]], delimiter: str, source: Source | None) -> bytes:
    """A .csv from a .csv is written as that is: with its delimiter and its mark of order."""
    mark = ""
    if source and delimiter == "," and source_format(source, file := Path(source.path)) == "csv":
        delimiter, mark = dialect_of(source, file)
    return (mark + delimited(cells, delimiter)).encode()


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that is not taken: also by the predictions of another model."""
    return _free(f"predicted_{name}", taken) if name in taken else name


def _cell(name: str, value: Any, *, single: bool) -> tuple[str, Any]:
    """A cell of a table: the largest of the probabilities of one label, words with | between, nothing for None."""
    if single and isinstance(value, dict):
        return "probability", max(value.values())
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return name, "|".join(value)
    return name, json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else value


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
    if typicality is not None and (changed := drift_sentence(texts, typicality, texts_compared(bundle))):
        console.print(changed)
    for text, row, confidence, strange in zip(texts, predictions, confidences, unknown.tolist(), strict=True):
        abstains = is_blank(text) or (threshold is not None and confidence < threshold.threshold)
        instead = {next(iter(row)): None} if abstains else {"label": NONE_OF_THESE} if strange and config.refuse_unknown else {}
        yield row | instead | ({} if typicality is None else {"unknown": strange}) | {"text": text}


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
        yield row | ({"unseen_names": names} if names else {})


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
