"""What a race and a curve keep, price, line up and say: each promise on its own, on a tiny backbone or on made-up results."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars
import pytest
import torch
import yaml

from helpers.bundles import language_bundle
from helpers.tasks import cats, race_config
from warmstart.commands.curve.command import CurveConfig, curve
from warmstart.commands.race.command import RaceConfig, race
from warmstart.commands.race.result import Race
from warmstart.data.audit import audit
from warmstart.errors import DataError, ModelError
from warmstart.finetuning import features as features_file
from warmstart.finetuning.config import FineTuneConfig
from warmstart.model.files import load_bundle, save
from warmstart.sweep import sweep as heats_file
from warmstart.sweep import trial as cells_file
from warmstart.sweep.ranking import stand
from warmstart.sweep.store import Cell, Entrant, Result, bundle_digest, file_of, find, ground_of
from warmstart.sweep.sweep import Lineup, Ran, gone_on, line_up, open_heats
from warmstart.sweep.trial import run_cell
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    save_task(cats(), tmp_path / "task")
    save(language_bundle(tokenizer), tmp_path / "lm")
    return tmp_path


def with_text(place: Path, count: int) -> RaceConfig:
    """A race with ``dapt`` whose task has so many unlabelled texts."""
    manifest = yaml.safe_load((place / "task" / "task.yaml").read_text())
    (place / "task" / "more.txt").write_text("\n\n".join(f"She holds the cat and rubs the dog {i}." for i in range(count)))
    (place / "task" / "task.yaml").write_text(yaml.safe_dump(manifest | {"unlabelled": ["more.txt"]}))
    quick = {"dapt_pilot": 0.0, "dapt_epochs": 3.0, "dapt_learning_rate": 3e-3}
    train = {"steps": 12, "batch": 8, "learning_rate": 5e-4}
    return race_config(
        place, schemes=["full", "dapt+probe"], rates=[1e-3], seeds=1, scratch=False, tune={"options": quick, "train": train}
    )


def continued(place: Path, config: RaceConfig) -> Entrant:
    """The entrant with ``dapt``, once its backbone went on with pretraining."""
    entrant = Entrant(name="dapt+probe", kind="adapted", backbone=str(place / "lm"), origin="lm", scheme="dapt+probe")
    return gone_on(entrant, load_task(config.task), config, place)


def test_another_unlabelled_text_is_another_continued_backbone(place: Path) -> None:
    """What ``dapt`` reads is mostly text that the splits do not hold: the same text is read once, another one anew."""
    first = continued(place, with_text(place, 60))
    assert continued(place, with_text(place, 60)).backbone == first.backbone
    other = continued(place, with_text(place, 90))
    assert other.origin != first.origin
    assert [load_bundle(Path(one.backbone)).history[-1].texts for one in (first, other)] == [120, 150]
    assert other.origin == bundle_digest(other.backbone)


def test_a_continued_backbone_is_part_of_what_a_task_takes(place: Path) -> None:
    """A head on a backbone that ``dapt`` moved is no small thing to keep: all that moved counts, as in full fine-tuning."""
    config = with_text(place, 60)
    entrant = continued(place, config)
    assert load_bundle(Path(entrant.backbone)).history[-1].kept
    plain = Entrant(name="probe", kind="adapted", backbone=str(place / "lm"), origin="lm", scheme="probe")
    ground = ground_of(load_task(config.task), config.task, place, config.tune, without_leaks=False)
    far, near = (run_cell(Cell(entrant=one, seed=0, rate=1e-3), ground) for one in (entrant, plain))
    assert far
    assert near
    whole = sum(tensor.numel() * tensor.element_size() for tensor in load_bundle(place / "lm").model.backbone.state_dict().values())
    assert near.disk == 4 * near.new
    assert whole / 2 < far.disk <= whole + near.disk
    assert far.new == near.new


def result(test: float, validation: float, seconds: float = 1.0) -> Result:
    """Scores without doubt of texts."""
    return Result(test, (test,) * 50, seconds, validation, (validation,) * 50)


def full_and_probe(*seeds: int) -> tuple[list[Cell], dict[str, Result]]:
    """Two methods with equal scores on every seed, at one rate; the middle seed has drawn hard texts."""
    hard = {0: 0.8, 1: 0.7, 2: 0.8}
    entrants = [Entrant(name=name, kind="adapted", origin=name, scheme=name) for name in ("full", "probe")]
    cells = [Cell(entrant=entrant, seed=seed, rate=1e-3, labels=100) for seed in seeds for entrant in entrants]
    return cells, {str(c): result(hard[c.seed], hard[c.seed]) for c in cells}


def lined(cells: list[Cell], done: dict[str, Result]) -> Lineup:
    """How the methods of these cells stand."""
    heats = SimpleNamespace(entrants=tuple(dict.fromkeys(cell.entrant for cell in cells)), middle=5e-4)
    return line_up(heats, Ran(tuple(cells), done))  # type: ignore[arg-type]


def raced(cells: list[Cell], done: dict[str, Result]) -> Race:
    """What a race with these results found."""
    line = lined(cells, done)
    return Race(cats(), 60, line.standings, line.missing, line.diverged, line.seeds, audit(cats()))


def test_an_interrupted_race_compares_the_same_seeds(place: Path) -> None:
    """One method has run seeds 0 and 2, the other 0 and 1, as after a kill with --jobs 2: both are told by seed 0 alone."""
    cells, done = full_and_probe(0, 1, 2)
    for name, seed in (("full", 1), ("probe", 2)):
        del done[next(key for key in done if key.startswith(name) and key.endswith(f"seed {seed}"))]
    line = lined(cells, done)
    assert [(s.seeds, s.judged.scores) for s in line.standings] == [((0,), (0.8,))] * 2
    assert (line.missing, line.diverged, line.seeds) == ((), (), 1)


def test_a_rate_that_diverges_is_lost_and_the_race_goes_on(place: Path) -> None:
    """It is never chosen, costs the race nothing the next time, and is named in the sentences, the notes and the report."""
    config = race_config(place, rates=[1e-3, 1e4], seeds=1)
    found = race(config)
    full = next(s for s in found.standings if s.name == "full")
    assert (full.rate, full.diverged, list(full.tried)) == (1e-3, (1e4,), [1e-3])
    assert "diverged at rate 10000" in full.note
    assert any("full at rate 10000" in sentence for sentence in found.sentences())
    page = (place / "race" / "report.html").read_text()
    assert "full at rate 10000" in page
    runs = polars.read_csv(place / "race" / "runs.csv").filter(polars.col("diverged"))
    assert set(runs["learning_rate"]) <= {1e4, 1e5}
    assert not runs["chosen"].any()
    assert race(config).to_dict() == found.to_dict()
    with pytest.raises(ModelError, match="at every rate that was tried .*full.* diverged; give lower --rates"):
        race(race_config(place, rates=[1e4], seeds=1, out=str(place / "lost")))


def test_a_later_seed_that_diverges_counts_as_a_run_that_learned_nothing(place: Path) -> None:
    """It drags the mean down as any collapsed run, and is named; leaving it out would flatter the method."""
    cells, done = full_and_probe(0, 1, 2)
    place_of = next(key for key in done if key.startswith("full") and key.endswith("seed 1"))
    done[place_of] = replace(done[place_of], score=0.5, collapsed=True, diverged=True, note="diverged at rate 0.001")
    found = raced(cells, done)
    full = next(s for s in found.standings if s.name == "full")
    assert full.judged.scores == (0.8, 0.5, 0.8)
    assert "diverged at rate 0.001" in full.note
    assert any("full at its chosen rate (1 of 3 runs)" in sentence for sentence in found.sentences())


def test_another_mistake_of_a_model_names_its_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a loss that is no number is a result; whatever else does not fit ends the race, and says where."""

    def unfit(*_: object) -> None:
        raise ModelError("too long")

    monkeypatch.setattr(cells_file, "fine_tune", unfit)
    with pytest.raises(ModelError, match="probe at 0.001, seed 0: too long"):
        race(race_config(place, seeds=1))


def only(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Cell], bool]) -> None:
    """As if the time sufficed for these cells alone."""
    run = cells_file.run_cell
    monkeypatch.setattr(cells_file, "run_cell", lambda cell, ground: run(cell, ground) if wanted(cell) else None)


def test_a_search_that_was_cut_has_no_part_in_the_advice(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tried one of three rates is marked, named, and neither the best nor recommended, whatever its scores."""
    only(monkeypatch, lambda cell: cell.entrant.name != "full" or cell.rate == 5e-4)
    found = race(race_config(place, rates=[2e-4, 5e-4, 5e-3], seeds=1))
    full = next(s for s in found.standings if s.name == "full")
    assert "1 of 3 rates tried" in full.note
    assert any("for all rates of full (1 of 3), left out of the recommendation" in sentence for sentence in found.sentences())
    won = replace(full, runs=tuple(replace(run, score=1.0, validation=1.0, held=(1.0,) * 1000, seconds=0) for run in full.runs))
    flattered = replace(found, standings=tuple(won if s is full else s for s in found.standings))
    assert flattered.best.name != "full"
    assert "take full" not in flattered.sentences()[0]


def test_a_curve_without_its_pretrained_method_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another scheme with no time left is a clear error; a size that was cut is named and left out."""
    words = race_config(place, rates=[2e-3, 5e-3], out=str(place / "curve")).to_dict()
    curve(CurveConfig.build(words | {"labels": [4, 8], "schemes": ["probe"]}))
    with pytest.raises(DataError, match="budget of 0s did not suffice for every method at one number of labels; give more"):
        curve(CurveConfig.build(words | {"labels": [4, 8], "schemes": ["full"], "budget": "0s"}))
    only(monkeypatch, lambda cell: cell.labels == 4 or cell.rate == 2e-3)
    found = curve(CurveConfig.build(words | {"labels": [4, 8], "schemes": ["full"]}))
    assert (list(found.stood), found.missing) == ([4], (8,))


def test_the_settings_are_those_asked_last(place: Path) -> None:
    """A resumed race says in config.yaml what it was asked for, not what the first one was."""
    race(race_config(place, schemes=[], rates=[1e-3], seeds=1, scratch=False))
    race(race_config(place, schemes=[], rates=[2e-3], seeds=2, scratch=False))
    kept = yaml.safe_load((place / "race" / "config.yaml").read_text())
    assert (kept["seeds"], kept["rates"]) == (2, [2e-3])


def test_a_race_stopped_after_going_on_with_pretraining_goes_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``dapt`` runs before any cell; a folder that holds its work alone is no stranger."""
    config = with_text(place, 60)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(heats_file, "run_cells", stop)
    with pytest.raises(KeyboardInterrupt):
        race(config)
    assert [file.name for file in (place / "race").iterdir() if file.is_dir()] == ["dapt"]
    monkeypatch.setattr(heats_file, "continue_pretraining", stop)
    assert open_heats(config).folder == place / "race"


def test_texts_that_change_under_way_are_told(place: Path) -> None:
    """No worker gives a result of other texts the name of those that the race began with."""
    path = str(place / "task")
    ground = ground_of(load_task(path), path, place, FineTuneConfig(), without_leaks=False)
    file = place / "task" / "test.ndjson"
    file.write_text("\n".join(file.read_text().splitlines()[:4]))
    cell = Cell(entrant=Entrant(name="majority", kind="baseline"), seed=0)
    with pytest.raises(DataError, match="must stay as they are while runs are under way, but they changed; start again"):
        run_cell(cell, ground)
    assert find(cell, ground) is None


def test_runs_at_different_speeds_are_named(place: Path) -> None:
    """Seconds decide the advice: where runs had unlike numbers of threads or neighbours, one sentence says so."""
    cells, done = full_and_probe(0, 1, 2)
    assert not [said for said in raced(cells, done).sentences() if "do not compare well" in said]
    key = next(iter(done))
    done[key] = replace(done[key], threads=4, jobs=2)
    assert (
        "seconds do not compare well: runs had 0 threads with 1 at once or 4 threads with 2 at once"
        in raced(cells, done).sentences()
    )
    config = race_config(place, schemes=[], rates=[1e-3], seeds=1, scratch=False)
    assert {run.threads for s in race(config).standings for run in s.runs} == {torch.get_num_threads()}


def test_what_validation_says_is_kept_of_every_run(place: Path) -> None:
    """Baselines and models: the score at the kept weights, and what it is on resamples; older results are run again."""
    config = race_config(place, schemes=["full"], rates=[5e-3], seeds=1, scratch=False)
    task = load_task(config.task)
    ground = ground_of(task, config.task, place, config.tune, without_leaks=False)
    full = Entrant(name="full", kind="adapted", backbone=str(place / "lm"), origin="lm", scheme="full")
    for entrant in (Entrant(name="majority", kind="baseline"), Entrant(name="TF-IDF + linear SVM", kind="baseline"), full):
        cell = Cell(entrant=entrant, seed=0, rate=5e-3 if entrant is full else 0.0)
        found = run_cell(cell, ground)
        assert found
        assert np.mean(found.held) == pytest.approx(found.validation, abs=0.02)
        assert np.mean(found.resampled) == pytest.approx(found.score, abs=0.02)
        assert find(cell, ground) == found
        assert (entrant.name == "majority") == (found.validation == 0.5)
    file = file_of(cell, ground)
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "held"}))
    assert find(cell, ground) is None


@pytest.mark.parametrize(("test", "validation", "taken"), [(0.9, 0.6, "full"), (0.6, 0.8, "probe")])
def test_the_advice_is_chosen_on_validation(test: float, validation: float, taken: str) -> None:
    """A cheap method that is far behind there is not taken, however lucky on the test texts.

    One that is as good there is taken, and the test texts then tell how much worse it was.
    """
    cells, _ = full_and_probe(0, 1, 2)
    done = {str(c): result(0.8, 0.8, 9.0) if c.entrant.name == "full" else result(test, validation) for c in cells}
    advice = raced(cells, done).sentences()[0]
    assert advice.startswith(f"take {taken}")
    assert "; 20 validation texts chose it, which is few" in advice
    if taken == "probe":
        assert (
            "on the test texts it has 60.0 %, -20.0 points (-20.0 to -20.0) against full (80.0 %, 80.0 to 80.0 over seeds and"
            in advice
        )
    else:
        assert any("probe is better than full by 10.0 points" in said for said in raced(cells, done).sentences())


def test_one_seed_says_nothing_of_seeds() -> None:
    """The advice names what its interval is over."""
    cells, done = full_and_probe(0)
    assert "over test texts, one seed" in raced(cells, done).sentences()[0]


def test_surprises_tell_what_validation_said() -> None:
    """TF-IDF has a validation score too: where it was ahead there, the sentence does not deny it."""
    cells, _ = full_and_probe(0, 1, 2)
    tfidf = Cell(entrant=Entrant(name="TF-IDF", kind="baseline"), seed=0)
    cells = [tfidf, *(cell.model_copy(update={"labels": None}) for cell in cells)]
    for validation, said in ((0.9, "and on validation by 13.3"), (0.5, "though validation did not say so")):
        results = {str(c): result(0.95, validation) if c is tfidf else result(0.8, 0.7667) for c in cells}
        sentence = next(sentence for sentence in raced(cells, results).sentences() if "TF-IDF is better" in sentence)
        assert sentence.endswith(said)


def test_reading_is_counted_in_every_run_that_uses_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that says 100 s for each reading: the first run pays, the others count the same, also in another process."""
    config, clock = race_config(place), itertools.count(step=100.0)
    monkeypatch.setattr(features_file, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    ground = ground_of(load_task(config.task), config.task, place, config.tune, without_leaks=False)
    probe = Entrant(name="probe", kind="adapted", backbone=str(place / "lm"), origin="lm", scheme="probe")
    cells = [Cell(entrant=probe, seed=0, rate=1e-3), Cell(entrant=probe, seed=0, rate=5e-3), Cell(entrant=probe, seed=1, rate=5e-3)]
    done = {}
    for cell in cells:
        done[str(cell)] = run_cell(cell, ground) or pytest.fail("there is no deadline")
        cells_file._workshop.cache_clear()
    assert [result.spared for result in done.values()] == [0.0, pytest.approx(200), pytest.approx(200)]  # training, validation
    assert [result.seconds > 200 for result in done.values()] == [False, True, True]
    chosen = stand(probe, cells, done, 5e-4) or pytest.fail("its first seed has run")
    assert chosen.search < 200
