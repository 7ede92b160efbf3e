"""Other columns of a table beside the text: read where they help, never where they give the label away, wanted again by predict."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest

import warmstart as ws
from helpers.figures import repeats
from warmstart.app.models import ServedModel, with_columns_left_out
from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.export import export_model
from warmstart.commands.fit.command import fit_data, read_labelled
from warmstart.commands.predict import predict
from warmstart.commands.settings import EvaluateConfig, ExportConfig, PredictConfig
from warmstart.data.cells import RowText, cell_matrix, column_forms, other_columns
from warmstart.data.task import Split
from warmstart.errors import BundleError, ConfigError, DataError
from warmstart.experiment.beside import OtherColumns, try_columns
from warmstart.experiment.config import FitConfig
from warmstart.model.bundle import Calibration
from warmstart.model.stack import Stack
from warmstart.runs.verdict import Verdict
from warmstart.seeding import rng

Frame = dict[str, list[Any]]
WORDS = {"tea": "leaf pot steep", "milk": "cow churn cream"}
OTHER = [f"word{number}" for number in range(25)]


def tickets(count: int, seed: int = 0, *, told: bool = True) -> Frame:
    """Texts that tell tea from milk in three of four rows; a price that tells it, too, if it is ``told``."""
    chance = rng(seed, "tickets")
    labels = [["tea", "milk"][number % 2] for number in range(count)]
    shown = [label if chance.random() < 0.6 else ["tea", "milk"][chance.integers(2)] for label in labels]
    words = [WORDS[label].split()[chance.integers(3)] for label in shown]
    return {
        "number": [*range(5000, 5000 + count)],
        "opened": [f"2026-0{1 + chance.integers(9)}-1{chance.integers(9)}" for _ in labels],
        "price": [round(20 + 4 * (label == "milk") * told + 3 * chance.normal(), 2) for label in labels],
        "country": [["DE", "FR", None][chance.integers(3)] for _ in labels],
        "text": [" ".join([*chance.choice(OTHER, 9), word]) for word in words],
        "label": labels,
    }


def part(frame: Frame, *rows: int) -> Frame:
    return {name: cells[slice(*rows)] for name, cells in frame.items()}


def written(frame: Frame, place: Path, **drop: None) -> str:
    polars.DataFrame({name: cells for name, cells in frame.items() if name not in drop}, strict=False).write_csv(place)
    return str(place)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Frame, Stack]:
    """A folder with a saved model that reads a price, new rows, and the model."""
    folder, frame = tmp_path_factory.mktemp("columns"), tickets(400)
    table = written(part(frame, 150), folder / "tickets.csv")
    found = fit_data(FitConfig(data=table, out=str(folder / "run"), encoders=(), schemes=(), minutes=1))
    assert found.columns
    assert found.best.name.endswith("+ columns")
    assert isinstance(found.model, Stack)
    return folder, part(frame, 150, 400), found.model


# ------------------------------------------------------------------------------------------------ cells as numbers


def rows_of(frame: Frame) -> list[RowText]:
    others = [name for name in frame if name not in ("text", "label")]
    return [RowText(text, {name: frame[name][row] for name in others}) for row, text in enumerate(frame["text"])]


def test_cells_become_numbers_whatever_wrote_them() -> None:
    prices, days = ["1,5", "2.5", "9.90 €", "80%", ""], ["2026-03-02", "02.03.2026", "2026-03-02T12:00", "", "2026-03-09"]
    rows = [RowText("a", {"price": price, "day": day}) for price, day in zip(prices, days, strict=True)]
    forms = column_forms(rows, ("price", "day"))
    assert [form.kind for form in forms] == ["number", "date"]
    cells = cell_matrix(forms, rows)
    assert cells[:, 0].tolist() == [1.5, 2.5, 9.9, 80, np.median([1.5, 2.5, 9.9, 80])]
    assert cells[:, 1].tolist() == [0, 0, 0, 0, 1], "blank"
    assert cells[0, 2] == cells[1, 2] == cells[2, 2] - 0.5 == cells[4, 2] - 7, "days"
    assert cells[0, 3] == 0, "a Monday"


def test_texts_names_and_lists_are_no_columns() -> None:
    count = 40
    frame = polars.DataFrame({
        "text": [f"a text of row {row}" for row in range(count)],
        "note": [f"another text of row {row}" for row in range(count)],
        "customer": [f"c{row}x" for row in range(count)],
        "tags": [["a"]] * count,
        "same": ["x"] * count,
        "blank": [None] * count,
        "stars": [row % 5 for row in range(count)],
        "urgent": [row % 2 == 0 for row in range(count)],
        "product": [["tea", "Milk", ""][row % 3] for row in range(count)],
    })  # fmt: skip
    assert other_columns(frame, ("text",)) == ("stars", "urgent", "product")


def test_values_that_are_new_and_blank_cells_are_read_by_what_the_labelled_rows_had() -> None:
    rows = [RowText("a", {"product": ["tea", "milk", None][row % 3]}) for row in range(30)]
    (form,) = column_forms(rows, ("product",))
    assert form.levels == ("", "milk", "tea")
    new = [RowText("a", {"product": cell}) for cell in ("TEA", "water", "n/a")]
    assert cell_matrix([form], new).tolist() == [[0, 0, 1], [0, 0, 0], [1, 0, 0]]


def test_a_text_keeps_its_cells_when_it_is_copied() -> None:
    row = pickle.loads(pickle.dumps(RowText("tea", {"price": 3})))
    assert row == "tea"
    assert row.cells == {"price": 3}


# ------------------------------------------------------------------------------------------------ what they add


def answers_to(labels: np.ndarray, classes: int, chance: np.random.Generator, quality: float = 1.2) -> np.ndarray:
    logits = quality * (chance.normal(size=(len(labels), classes)) + quality * np.eye(classes)[labels])
    raised = np.exp(logits)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))


def tried(classes: int, count: int, told: float, seed: int) -> tuple[OtherColumns, float, float]:
    """What is found of columns that tell the label so much; the accuracy on new texts without them, and with them."""
    chance, new = rng(seed, f"{classes} {count} {told}"), 2000
    labels = chance.integers(0, classes, count + new)
    means, frequencies = told * chance.normal(size=classes), chance.dirichlet(np.full(4, 1 / told if told else 1e6), classes)
    rows = [
        RowText(f"text {number}", {
            "price": float(chance.normal(means[label], 1)), "place": "abcd"[chance.choice(4, p=frequencies[label])],
            "noise": float(chance.normal()), "kind": "xyz"[chance.integers(3)],
        })
        for number, label in enumerate(labels)
    ]  # fmt: skip
    answers = answers_to(labels, classes, chance)
    split = Split(tuple(rows[:count]), labels[:count], drawn=None)
    vars(split)["units"] = np.arange(count)
    found = try_columns(split, answers[:count], Calibration())
    assert found
    alone = float(np.mean(answers[count:].argmax(axis=1) == labels[count:]))
    if found.model is None:
        return found, alone, alone
    both = found.model(answers[count:], rows[count:])
    np.testing.assert_allclose(both.sum(axis=1), 1)
    return found, alone, float(np.mean(both.argmax(axis=1) == labels[count:]))


@pytest.mark.proofs
@pytest.mark.parametrize(("classes", "count"), [(2, 200), (4, 200), (10, 300)])
def test_columns_help_where_they_tell_and_do_no_harm_where_they_are_noise(classes: int, count: int) -> None:
    """Noise costs at most half a point and is seldom read; columns that tell gain, about as much as is promised."""
    for told in (0.0, 1.0):
        found = [one for seed in range(repeats(60, 12)) if not (one := tried(classes, count, told, seed))[0].leaky]
        read = float(np.mean([one.model is not None for one, *_ in found]))
        gains, promises = [both - alone for _, alone, both in found], [one.gain for one, *_ in found]
        gain, promised = 100 * float(np.mean(gains)), 100 * float(np.mean(promises))
        print(f"{classes} labels, {count} texts, signal {told}: read {read:.2f}, gain {gain:+.1f}, promised {promised:+.1f} points")
        if told:
            assert gain > 3
            assert promised < gain + 3
            names = [name for one, *_ in found if one.model for name in one.model.names]
            assert names.count("price") + names.count("place") > 3 * (names.count("noise") + names.count("kind"))
        else:
            assert gain > -0.5
            assert read < 0.2
            assert promised < 0.5


@pytest.mark.parametrize("leak", ["copy", "after", "order"])
def test_a_column_that_gives_the_label_away_is_named_and_left_out(leak: str) -> None:
    chance, labels = rng(1, leak), np.arange(120) * 3 // 120
    cells = {
        "copy": [["red", "green", "blue"][label] for label in labels],
        "after": [float(label == 2) * chance.uniform(1, 9) + 20 * (label == 1) for label in labels],
        "order": [1000 + row for row in range(120)],
    }[leak]
    rows = tuple(RowText(f"text {row}", {leak: cell, "price": float(chance.normal())}) for row, cell in enumerate(cells))
    split, answers = Split(rows, labels), answers_to(labels, 3, chance)
    found = try_columns(split, answers, Calibration())
    assert found
    assert [name for name, _ in found.leaky] == [leak]
    assert leak in found.away
    assert leak not in found.tried
    asked = try_columns(split, answers, Calibration(), (leak,))
    assert asked
    assert asked.model
    assert asked.model.names == (leak,)


def test_how_frequent_labels_are_is_no_gain_of_columns_whose_cells_are_noise() -> None:
    """Answers that take labels as equally likely stay as they are, where nine of ten texts have one label."""
    chance = rng(0, "frequent")
    labels = (chance.random(400) < 0.1).astype(np.int64)
    rows = tuple(RowText(f"text {row}", {"price": float(chance.normal())}) for row in range(400))
    answers = answers_to(labels, 2, chance, quality=0.6)
    learned = try_columns(Split(rows, labels), answers, Calibration(), ("price",))
    equal = try_columns(Split(rows, labels), answers, Calibration(), ("price",), equal=True)
    assert learned
    assert learned.model, "frequencies are learned as if the column told them"
    assert equal
    assert equal.model is None


def test_several_labels_have_trees_of_their_own() -> None:
    chance = rng(0, "several")
    labels = (chance.random((200, 3)) < 0.4).astype(np.int64)
    rows = tuple(RowText(f"text {row}", {"price": float(10 * label[1] + chance.normal())}) for row, label in enumerate(labels))
    answers = np.clip(0.5 + 0.3 * (labels - 0.5) + 0.1 * chance.normal(size=labels.shape), 0.01, 0.99)
    found = try_columns(Split(rows, labels), answers, Calibration(), ("price",))
    assert found
    assert found.model
    probabilities = found.model(answers, rows)
    assert ((probabilities[:, 1] > 0.5) == labels[:, 1]).mean() > 0.95


# ------------------------------------------------------------------------------------------------ a model that reads them


def test_fit_reads_the_column_that_helps_and_says_so(fitted: tuple[Path, Frame, Stack]) -> None:
    folder, new, model = fitted
    assert model.beside
    assert model.beside.names == ("price",)
    texts, truth = new["text"], np.array(new["label"])
    both, alone = (
        np.mean([row["label"] for row in ws.predict(one, given)] == truth)
        for one, given in ((model, new), (model.text_alone, texts))
    )
    assert both > alone + 0.02
    assert "Beside the text, price adds" in (folder / "run/report.html").read_text()


def test_a_saved_model_predicts_the_same_and_refuses_other_trees(fitted: tuple[Path, Frame, Stack], tmp_path: Path) -> None:
    _, new, model = fitted
    place = ws.save(model, tmp_path / "model")
    loaded = ws.load(place)
    assert [*ws.predict(loaded, new)] == [*ws.predict(model, new)]
    assert "reads the columns `price`" in (place / "README.md").read_text()
    (place / "beside.json").write_bytes((place / "beside.json").read_bytes().replace(b"price", b"prise"))
    with pytest.raises(BundleError, match="beside.json is damaged"):
        ws.load(place)


def test_predict_and_evaluate_want_the_columns_again(fitted: tuple[Path, Frame, Stack], tmp_path: Path) -> None:
    folder, new, _ = fitted
    table = written(new, tmp_path / "new.csv")
    out = tmp_path / "out.csv"
    predict(PredictConfig(model=str(folder / "run"), file=table, out=str(out)))
    kept = polars.read_csv(out)
    assert kept.columns[:4] == ["number", "opened", "price", "country"]
    evaluate(EvaluateConfig(model=str(folder / "run"), task=table))
    with pytest.raises(DataError, match="lacks price"):
        predict(PredictConfig(model=str(folder / "run"), file=written(new, tmp_path / "lack.csv", price=None)))
    words = written(new | {"price": ["cheap"] * len(new["text"])}, tmp_path / "words.csv")
    with pytest.raises(DataError, match="'price' must hold numbers"):
        predict(PredictConfig(model=str(folder / "run"), file=words))
    with pytest.raises(DataError, match="must come with the columns"):
        predict(PredictConfig(model=str(folder / "run"), texts=("send the tea",)))


def test_where_there_is_a_text_alone_the_model_says_what_it_leaves_out(
    fitted: tuple[Path, Frame, Stack], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _, model = fitted
    served = ServedModel.of(model, "tickets")
    assert ws.predict(served.model, ["bring the pot"])[0]["label"] == "tea"
    assert "without price" in with_columns_left_out(Verdict("", "", 1, ""), served.model).use[0]
    capsys.readouterr()
    export_model(ExportConfig(model=str(folder / "run"), to="page", out=str(tmp_path / "page.html")))
    assert "without price" in capsys.readouterr().err


def test_columns_are_named_or_none_are_read(tmp_path: Path) -> None:
    table = written(tickets(40), tmp_path / "tickets.csv")

    def cells(**settings: Any) -> list[str]:
        text = read_labelled(FitConfig(data=table, **settings)).train.texts[0]
        return [*text.cells] if isinstance(text, RowText) else []

    assert cells() == ["number", "opened", "price", "country"]
    assert cells(columns=("price",)) == ["price"]
    assert cells(no_columns=True) == []
    with pytest.raises(ConfigError, match="--no-columns"):
        cells(columns=("price",), no_columns=True)
    with pytest.raises(DataError, match="no column 'prize'; did you mean"):
        cells(columns=("prize",))
    with pytest.raises(ConfigError, match="other columns than those of texts"):
        cells(columns=("label",))


def test_a_manifest_names_columns(tmp_path: Path) -> None:
    written(tickets(40), tmp_path / "tickets.csv")
    task = tmp_path / "task.yaml"
    task.write_text("name: t\ntrain: tickets.csv\ntest: 0.2\nsource: {columns: [price]}\n")
    text = read_labelled(FitConfig(data=str(task))).train.texts[0]
    assert isinstance(text, RowText)
    assert [*text.cells] == ["price"]
    with pytest.raises(ConfigError, match="--columns goes with a table"):
        read_labelled(FitConfig(data=str(task), columns=("price",)))
