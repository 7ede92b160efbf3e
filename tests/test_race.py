"""The race and the curve, on a tiny backbone: fair, kept, resumed, spread, and honest about who wins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import joblib
import polars
import pytest

from helpers.bundles import language_bundle
from helpers.tasks import cats, race_config
from warmstart.baselines import baselines_for
from warmstart.cli import main
from warmstart.commands.curve.command import CurveConfig, curve
from warmstart.commands.curve.result import listed
from warmstart.commands.race.command import race
from warmstart.errors import ConfigError, DataError
from warmstart.finetuning.config import FineTuneConfig
from warmstart.model.files import save
from warmstart.stats.formatting import file_size
from warmstart.sweep import sweep as heats
from warmstart.sweep import trial as cells_file
from warmstart.sweep.ranking import choose_rate, stand
from warmstart.sweep.store import Cell, Entrant, Ground, Result, file_of, find, ground_of
from warmstart.sweep.sweep import seconds_of
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    return tmp_path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every cell that is really run."""
    run, ran = cells_file.run_cell, list[str]()
    monkeypatch.setattr(cells_file, "run_cell", lambda cell, ground: (ran.append(str(cell)), run(cell, ground))[1])
    return ran


def test_a_race_from_end_to_end(place: Path, counted: list[str]) -> None:
    """Every method stands with its costs; the tidy table has a row a run; the page and the figures are there."""
    found = race(race_config(place, labels=40))
    assert {s.name for s in found.standings} == {*baselines_for(found.task), "probe", "scalar-mix", "full", "from scratch"}
    assert found.seeds == 2
    assert all(len(s.runs) == 2 for s in found.standings)
    table = polars.read_csv(place / "race" / "runs.csv")
    assert len(table) == len(counted) == 3 * 2 + 2 * (2 + 1) + 2 * (4 + 1)  # frozen ones try twice as many rates
    assert table.filter(polars.col("chosen")).group_by("method").len()["len"].to_list() == [2] * 7
    by_name = {s.name: s.runs[0] for s in found.standings}
    assert by_name["probe"].trainable == by_name["probe"].new < by_name["scalar-mix"].new < by_name["full"].trainable
    assert by_name["probe"].disk == 4 * by_name["probe"].new
    assert by_name["full"].disk > 100 * by_name["probe"].disk
    page = (place / "race" / "report.html").read_text()
    assert all(word in page for word in ("Restarts", "Learning rates", "Can a difference be seen?", "What it costs"))
    assert (place / "race" / "figures" / "restarts.svg").exists()
    kept = json.loads((place / "race" / "race.json").read_text())
    assert kept["best"] == found.best.name
    assert len(kept["against_best"]) == 6


def test_a_race_goes_on_where_it_stopped(place: Path, counted: list[str]) -> None:
    """Nothing is run twice; more seeds run only the new ones; a damaged result is run again; scores stay the same."""
    first = race(race_config(place))
    done = len(counted)
    again = race(race_config(place))
    assert len(counted) == done
    assert again.to_dict() == first.to_dict()
    race(race_config(place, seeds=3))
    assert len(counted) == done + 4
    file = next(file for file in (place / "race" / "cells").glob("*.json") if '"kind": "adapted"' in file.read_text())
    file.write_text(file.read_text()[:-20])
    repaired = race(race_config(place))
    assert len(counted) == done + 5
    assert [s.judged.scores for s in repaired.standings] == [s.judged.scores for s in first.standings]


def test_other_texts_other_weights_and_other_settings_are_other_cells(place: Path, tokenizer: Tokenizer) -> None:
    """A result is found only under all that it depends on; what the method is called, or where files lie, is no part of it."""
    ground = ground_of(cats(), "task", place, FineTuneConfig(), without_leaks=False)
    cell = Cell(entrant=Entrant(name="full", kind="adapted", origin="a", scheme="full"), seed=0, rate=1e-3)
    (place / "cells").mkdir()
    name = file_of
    others = [
        (cell.model_copy(update={"seed": 1}), ground),
        (cell.model_copy(update={"rate": 2e-3}), ground),
        (cell.model_copy(update={"labels": 20}), ground),
        (cell.model_copy(update={"entrant": cell.entrant.model_copy(update={"origin": "b"})}), ground),
        (cell.model_copy(update={"entrant": cell.entrant.model_copy(update={"scheme": "lora"})}), ground),
        (cell.model_copy(update={"entrant": cell.entrant.model_copy(update={"kind": "scratch"})}), ground),
        (cell, ground_of(cats(1), "task", place, FineTuneConfig(), without_leaks=False)),
        (cell, ground_of(replace(cats(), metric="macro_f1"), "task", place, FineTuneConfig(), without_leaks=False)),
        (cell, ground_of(cats(), "task", place, FineTuneConfig(pooling="last"), without_leaks=False)),
    ]
    names = [name(cell, ground), *(name(*other) for other in others)]
    assert len(set(names)) == len(names)
    renamed = cell.model_copy(update={"entrant": cell.entrant.model_copy(update={"name": "x", "backbone": "elsewhere"})})
    moved = ground_of(cats(), "other/path", place, FineTuneConfig(), without_leaks=False)
    assert name(renamed, moved) == name(cell, ground)
    assert find(cell, ground) is None


def test_what_stays_frozen_also_tries_larger_rates() -> None:
    """Ten times each, nearest to the usual rate first; all others the same rates; baselines none."""
    made = {name: Entrant(name=name, kind="adapted", scheme=name) for name in ("probe", "scalar-mix", "full", "lora+scalar-mix")}
    rates = {name: heats.rates_of(entrant, (1e-4, 1e-3), 5e-4) for name, entrant in made.items()}
    assert rates["probe"] == rates["scalar-mix"] == [1e-3, 1e-4, 1e-2]
    assert heats.rates_of(made["probe"], (3e-4, 3e-3), 5e-4) == [3e-4, 3e-3, 3e-2]  # ten times the first is the second, exactly
    assert rates["full"] == rates["lora+scalar-mix"] == [1e-3, 1e-4]
    assert heats.rates_of(Entrant(name="majority", kind="baseline"), (1e-4,), 5e-4) == [0.0]
    assert heats.rates_of(Entrant(name="from scratch", kind="scratch"), (1e-4,), 5e-4) == [1e-4]


def test_the_rate_is_chosen_on_validation_alone() -> None:
    """The highest validation score wins, whatever the test says; of equals, the one nearest to the usual rate."""
    entrant = Entrant(name="full", kind="adapted")
    cells = [Cell(entrant=entrant, seed=seed, rate=rate) for seed, rate in ((0, 1e-4), (0, 1e-3), (1, 1e-3))]
    done = {
        str(cell): Result(score=test, resampled=(test, test), seconds=2.0, validation=valid)
        for cell, test, valid in zip(cells, (0.9, 0.5, 0.6), (0.7, 0.8, 0.8), strict=True)
    }
    found = stand(entrant, cells, done, 5e-4)
    assert found
    assert (found.rate, found.judged.scores, found.search) == (1e-3, (0.5, 0.6), 2.0)
    assert "at the edge of those tried" in found.note
    assert choose_rate({1e-4: 0.8, 6e-4: 0.8, 1e-2: 0.8}, 5e-4) == 6e-4


def test_a_budget_leaves_the_rest_for_the_next_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell begins after the deadline; what is done is reported, what is missing is named, and the same command goes on."""
    with pytest.raises(DataError, match="the budget of 0s did not suffice for one run of one model; give more"):
        race(race_config(place, budget="0s"))
    run = cells_file._tuned

    def slow(cell: Cell, ground: Ground) -> Result:
        result = run(cell, ground)
        if cell.entrant.name == "scalar-mix":
            monkeypatch.setattr(cells_file.time, "time", lambda: 4e9)  # long after any deadline
        return result

    monkeypatch.setattr(cells_file, "_tuned", slow)
    short = race(race_config(place, budget="1h"))
    assert short.missing == ("full", "from scratch")
    assert short.seeds == 1
    assert any("the time did not suffice for full, from scratch" in sentence for sentence in short.sentences())
    monkeypatch.undo()
    assert race(race_config(place)).missing == ()


@pytest.mark.slow
def test_workers_change_no_result(place: Path) -> None:
    """Two processes give the scores that one gives."""
    alone = race(race_config(place, out=str(place / "alone")))
    shared = race(race_config(place, out=str(place / "shared"), jobs=2))
    scores = [{s.name: (s.judged.scores, s.rate, s.validation) for s in found.standings} for found in (alone, shared)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scheme", "lora"], "give --schemes lora, not --scheme"),
        (["--learning-rate", "1e-4"], "give --rates 0.0001, not --learning-rate"),
        (["--schemes", "lorra"], "unknown scheme 'lorra'; did you mean 'lora'?"),
        (["--budget", "soon"], "must be a time such as 90s, 30m or 2h; got 'soon'"),
        (["--labels", "4000"], "at most all 60 examples; got 4000"),
        (["--rates", "0"], "rates"),
        (["--jobs", "0"], "jobs"),
    ],
)
def test_mistakes_are_told(words: list[str], said: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, a sentence that says what to do, and no traceback."""
    base = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--out", str(place / "race")]
    try:
        code = main([*base, *words])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert said in capsys.readouterr().err.replace("\n", " ")


def test_backbones_are_told_apart(place: Path, tokenizer: Tokenizer) -> None:
    """Two of them get names of their own; the same one twice is refused."""
    save(language_bundle(tokenizer), place / "other" / "bundle")
    two = [str(place / "lm"), str(place / "other")]
    found = race(race_config(place, backbones=two, schemes=["full"], rates=[1e-3], seeds=1))
    assert {"full · lm", "full · other", "from scratch · lm"} <= {s.name for s in found.standings}
    with pytest.raises(ConfigError, match="each backbone must be named once"):
        race(race_config(place, backbones=[two[0], two[0]]))


def test_a_curve_from_end_to_end(place: Path) -> None:
    """Every method at every size, sentences on what labels are worth, a page; and it goes on where it stopped."""
    config = CurveConfig.build(
        race_config(place, rates=[5e-3], out=str(place / "curve")).to_dict()
        | {"labels": [4, 8, 16, 32], "schemes": ["probe"], "target": 0.9}
        | {}
    )
    found = curve(config)
    assert list(found.stood) == [4, 8, 16, 32]
    assert set(found.names) == {"probe", "from scratch", "TF-IDF + logistic regression", "TF-IDF + linear SVM"}
    said = " ".join(found.sentences())
    assert "probe against from scratch" in said or "between probe and from scratch" in said
    assert "90.0%" in said
    assert "checked in hindsight" in said
    assert (place / "curve" / "figures" / "curve.svg").exists()
    assert len(polars.read_csv(place / "curve" / "runs.csv")["labels"].unique()) == 4
    assert curve(config).to_dict() == found.to_dict()


def test_a_curve_needs_rising_numbers_that_the_task_has(place: Path) -> None:
    """Both mistakes are told before anything is trained."""
    plain = race_config(place, out=str(place / "curve")).to_dict()
    with pytest.raises(ConfigError, match="must be rising numbers from 2 on; got 8 4"):
        CurveConfig.build(plain | {"labels": [8, 4]})
    with pytest.raises(ConfigError, match="--labels 600: .* at most all 60 examples"):
        curve(CurveConfig.build(plain | {"labels": [8, 600]}))


@pytest.mark.parametrize(
    ("places", "said"),
    [([16], "16"), ([16, 32, 64], "16 to 64"), ([16, 64, 128], "16 and 64 to 128"), ([16, 64, 256], "16, 64 and 256")],
)
def test_only_neighbouring_sizes_are_taken_together(places: list[int], said: str) -> None:
    """A size between two others is not claimed with them."""
    assert listed(places, [16, 32, 64, 128, 256]) == said


def test_small_things() -> None:
    """Times and sizes for people."""
    assert [seconds_of(text) for text in ("90s", "30m", "2h", "1.5")] == [90, 1800, 7200, 90]
    assert [file_size(size) for size in (12, 6200, 21_000_000, 3.2e9)] == ["12 B", "6.2 KB", "21.0 MB", "3.2 GB"]


@pytest.mark.slow
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
def test_a_cluster_changes_no_result(place: Path) -> None:
    """The same call inside joblib's Dask backend spreads over a local cluster, and gives the same scores."""
    distributed = pytest.importorskip("distributed", reason="pip install 'dask[distributed]' to run this test")
    alone = race(race_config(place, out=str(place / "alone")))
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config(backend="dask"):
        spread = race(race_config(place, out=str(place / "spread"), jobs=2))
    scores = [{s.name: (s.judged.scores, s.rate) for s in found.standings} for found in (alone, spread)]
    assert scores[0] == scores[1]


def test_a_backbone_that_knows_the_labels_is_named(place: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    """An adapted model that learns the same task again, or races for it, says nothing of few labels; the audit says so."""
    base = ["--steps", "3", "--seeds", "1", "--no-scratch"]
    task = str(place / "task" / "task.yaml")
    assert main(["adapt", str(place / "lm"), task, *base, "--no-baselines", "--out", str(place / "first")]) == 0
    assert "was already trained on labels of" not in capsys.readouterr().err
    assert main(["adapt", str(place / "first"), task, *base, "--no-baselines", "--out", str(place / "again")]) == 0
    assert "was already trained on labels of" in capsys.readouterr().err
    words = ["--backbones", str(place / "first"), "--schemes", "probe", "--rates", "1e-3", *base, "--out", str(place / "raced")]
    assert main(["race", task, *words]) == 0
    assert "audit (error)" in capsys.readouterr().err
    assert "was already trained on labels of" in (place / "raced" / "report.html").read_text()
