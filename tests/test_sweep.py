"""Sweeps: what is saved, ranked and reported, and where trials run; on a tiny backbone or on made-up results."""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import polars
import pytest

from helpers.tasks import cats, curve_config, race_config, write_race_inputs
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.data.audit import audit
from warmstart.data.scorings import read_ledger
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment import execution, inputs
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.execution import run_trial
from warmstart.experiment.ranking import Ranking, rank, rank_method
from warmstart.experiment.stack import combine, stackable_trials
from warmstart.experiment.store import SweepContext, TrialPredictions, find_result, read_predictions, result_file
from warmstart.experiment.sweep import check_sweep, estimate_only, open_sweep
from warmstart.experiment.trial import Method, SweepRuns, Trial, TrialResult
from warmstart.finetuning import features as features_file
from warmstart.finetuning.config import FineTuneConfig
from warmstart.system import backends
from warmstart.system.backends import spread_calls
from warmstart.system.locks import releasing_locks
from warmstart.tasks.load import load_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    return write_race_inputs(tmp_path, tokenizer)


def context_of(place: Path, tune: FineTuneConfig = FineTuneConfig()) -> SweepContext:  # noqa: B008
    """What trials on the task of that folder share."""
    return SweepContext.of(load_task(place / "task"), str(place / "task"), place, tune, drop_leaks=False)


def result(test: float, validation: float, seconds: float = 1.0) -> TrialResult:
    """Scores without uncertainty over texts."""
    return TrialResult(test, (test,) * 50, seconds, validation, (validation,) * 50)


def full_and_probe(*seeds: int) -> tuple[list[Trial], dict[Trial, TrialResult]]:
    """Two methods with equal scores on every seed, at one rate; the middle seed has drawn hard texts."""
    hard = {0: 0.8, 1: 0.7, 2: 0.8}
    methods = [Method(name=name, family="adapted", backbone_digest=name, scheme=name) for name in ("full", "probe")]
    trials = [Trial(method=method, seed=seed, learning_rates=(1e-3,), labels=100) for seed in seeds for method in methods]
    return trials, {trial: result(hard[trial.seed], hard[trial.seed]) for trial in trials}


def ranked(trials: list[Trial], results: dict[Trial, TrialResult]) -> Ranking:
    """The methods of these trials."""
    return rank(list(dict.fromkeys(trial.method for trial in trials)), SweepRuns(tuple(trials), results))


def raced(trials: list[Trial], results: dict[Trial, TrialResult]) -> Comparison:
    """The result of a race with these trials."""
    return Comparison(cats(), 60, 20, ranked(trials, results), audit(cats()), 0.5)


def test_methods_of_the_same_name_stay_apart() -> None:
    """Two backbones may give a method the same display name: no result gets lost."""
    full = Method(name="full", family="adapted", scheme="full")
    methods = [full.model_copy(update={"backbone": f"{name}/lm", "backbone_digest": name}) for name in "ab"]
    trials = [Trial(method=method, seed=0, learning_rates=(1e-3,), labels=100) for method in methods]
    assert len({str(trial) for trial in trials}) == 1
    results = {trial: result(0.7 + i / 5, 0.7 + i / 5) for i, trial in enumerate(trials)}
    found = raced(trials, results)
    assert [(one.method, one.test_scores.scores) for one in found.ranking.methods] == [
        (methods[1], (pytest.approx(0.9),)), (methods[0], (pytest.approx(0.7),)),
    ]  # fmt: skip
    values = found.to_dict()
    assert [one["id"] for one in values["methods"]] == ["adapted/full/b", "adapted/full/a"]
    assert (values["recommended_id"], values["against_choice"][0]["id"]) == ("adapted/full/b", "adapted/full/a")
    sizes = {}
    for labels in (8, 16):
        scores = {trial.model_copy(update={"labels": labels}): one for trial, one in results.items()}
        sizes[labels] = ranked(list(scores), scores).methods
    curved = CurveResult(cats(), sizes, (), {}, None, audit(cats()))
    assert [(one["id"], one["scores"]["8"]) for one in curved.to_dict()["methods"]] == [
        ("adapted/full/b", [pytest.approx(0.9)]), ("adapted/full/a", [pytest.approx(0.7)]),
    ]  # fmt: skip


def test_an_interrupted_race_compares_the_same_seeds() -> None:
    """One method has run seeds 0 and 2, the other 0 and 1, as after a kill with --jobs 2: both are compared on seed 0 alone."""
    trials, results = full_and_probe(0, 1, 2)
    finished = {t: one for t, one in results.items() if (t.method.name, t.seed) not in {("full", 1), ("probe", 2)}}
    ranking = ranked(trials, finished)
    assert [(one.seeds, one.test_scores.scores) for one in ranking.methods] == [((0,), (0.8,))] * 2
    assert (ranking.missing, ranking.diverged, ranking.seeds) == ((), (), 1)


def test_a_learning_rate_that_diverges_does_not_end_the_race(place: Path) -> None:
    """It is never chosen, is not run again, and is named in the findings, the notes and the report."""
    config = race_config(place, learning_rates=[1e-3, 1e4], seeds=1)
    found = race(config)
    full = next(s for s in found.ranking.methods if s.name == "full")
    assert (full.learning_rates, full.diverged, list(full.tried)) == ((1e-3,), (1e4,), [1e-3])
    assert "diverged at learning rate 10000" in full.note
    assert any("full at 10000" in sentence for sentence in found.findings)
    page = (place / "race" / "report.html").read_text()
    assert "full at 10000" in page
    assert not polars.read_csv(place / "race" / "runs.csv")["diverged"].any()
    assert race(config).to_dict() == found.to_dict()


def test_a_later_seed_that_diverges_counts_as_a_run_that_learned_nothing() -> None:
    """It lowers the mean like any collapsed run, and is named; leaving it out would flatter the method."""
    trials, done = full_and_probe(0, 1, 2)
    trial = next(trial for trial in trials if (trial.method.name, trial.seed) == ("full", 1))
    done[trial] = replace(done[trial], score=0.5, collapsed=True, diverged=True, diverged_rates=(1e-3,))
    found = raced(trials, done)
    full = next(s for s in found.ranking.methods if s.name == "full")
    assert full.test_scores.scores == (0.8, 0.5, 0.8)
    assert "diverged at learning rate 0.001" in full.note
    assert any("full at its chosen learning rate (1 of 3 runs)" in sentence for sentence in found.findings)


def test_another_mistake_of_a_model_names_its_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only divergence is a result; any other error ends the race, and names the trial."""

    def unfit(*_: object, **__: object) -> None:
        raise ModelError("too long")

    monkeypatch.setattr(execution, "fine_tune_within", unfit)
    with pytest.raises(ModelError, match="probe, seed 0, choice of a rate: too long"):
        race(race_config(place, seeds=1))


@pytest.mark.usefixtures("no_pages")
def test_a_curve_without_its_pretrained_method_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another scheme with no time left is a clear error; an incomplete size is named and left out."""
    shared: dict[str, object] = {"learning_rates": [5e-3], "labels": [4, 8], "seeds": 1}
    race(curve_config(place, **shared, schemes=["probe"]))
    with pytest.raises(DataError, match="budget of 0s is too short for all methods at one number of labels; use a longer --budget"):
        race(curve_config(place, **shared, schemes=["full"], budget="0s"))
    run = execution.run_trial

    def in_time(trial: Trial, context: SweepContext) -> TrialResult | None:
        return run(trial, context) if trial.labels == 4 or trial.method.name != "full" else None

    monkeypatch.setattr(execution, "run_trial", in_time)
    found = race(curve_config(place, **shared, schemes=["full"]))
    assert (list(found.curve.rankings), found.curve.incomplete) == ([4], (8,))


def test_cheap_races_have_ten_seeds_and_others_five(place: Path) -> None:
    """Heads on frozen backbones are cheap, a backbone that is fine-tuned or still to be pretrained is not; a named one counts."""
    frozen = {"schemes": ["probe", "scalar-mix"], "scratch": False, "labels": 8, "seeds": None}
    for changes, seeds in (
        ({}, 10),
        ({"schemes": ["probe", "lora"]}, 5),
        ({"scratch": True}, 5),
        ({"scratch": True, "methods": ["probe"]}, 10),
        ({"backbones": ["pool"]}, 5),
        ({"seeds": 4}, 4),
    ):
        config, *_ = check_sweep(race_config(place, **frozen | changes))
        assert config.seeds == seeds, changes
    config = race_config(place, **frozen, out=str(place / "ten"))
    trials = [estimate_only(config).planned.total(), estimate_only(config.model_copy(update={"seeds": 5})).planned.total()]
    assert trials[0] == 2 * trials[1], "the estimate counts them"


def test_with_few_labels_settings_are_fixed_unless_rates_are_named() -> None:
    """Whoever names several learning rates wants a choice among them; a curve chooses as its smallest number of labels does."""
    given = {"task": "task.yaml", "backbones": ["runs/lm"]}
    rates: dict[str, object] = {"learning_rates": [1e-3, 5e-3]}
    for changes, labels, selection in (
        ({}, 299, "none"),
        ({}, 300, "cross-validation"),
        ({}, None, "holdout"),
        ({"learning_rates": [1e-3]}, 100, "none"),
        (rates, 100, "cross-validation"),
        ({"selection": "holdout"}, 100, "holdout"),
    ):
        assert RaceConfig.build(given | changes).selection_with(labels) == selection, (changes, labels)
    for sizes, selection in (((16, 512), "none"), ((300, 600), "cross-validation")):
        config = RaceConfig.build(given | {"labels": sizes})
        assert {config.selection_with(number) for number in sizes} == {selection}


@pytest.mark.usefixtures("no_pages")
def test_one_text_can_choose(place: Path) -> None:
    """Of seven labels a holdout has one: its error is unknown, which is no warning of numpy."""
    found = race(race_config(place, schemes=[], seeds=2, scratch=False, labels=7, selection="holdout"))
    assert "Only 1 label chooses, which is few." in found.findings


def test_texts_that_change_during_a_race_are_an_error(place: Path) -> None:
    """No worker saves a result of other texts under the name of those that the race started with."""
    context = context_of(place)
    file = place / "task" / "test.ndjson"
    file.write_text("\n".join(file.read_text().splitlines()[:4]))
    trial = Trial(method=Method(name="majority", family="baseline"), seed=0)
    with pytest.raises(DataError, match="changed while trials were running; start again"):
        run_trial(trial, context)
    assert find_result(trial, context) is None


def test_the_threads_of_a_trial_are_fixed_by_the_sweep(place: Path) -> None:
    """They are recorded, and kept when the sweep goes on with other jobs; a number that is named counts."""
    config = race_config(place, schemes=[], seeds=1, scratch=False)
    for changes, threads in (({"threads": 3}, 3), ({"jobs": 4}, 3), ({"threads": 2}, 2)):
        with releasing_locks():
            assert open_sweep(config.model_copy(update=changes)).context.threads == threads, changes


def test_runs_at_different_speeds_are_named() -> None:
    """Seconds decide the recommendation: if runs had different numbers of threads or jobs, one sentence says so."""
    trials, done = full_and_probe(0, 1, 2)
    sentence = "Seconds are not comparable, because runs had 0 threads with 1 at once or 4 threads with 2 at once."
    assert sentence not in raced(trials, done).findings
    key = next(iter(done))
    done[key] = replace(done[key], threads=4, jobs=2)
    assert sentence in raced(trials, done).findings


@pytest.mark.usefixtures("no_pages")
def test_validation_scores_are_saved_for_every_run(place: Path) -> None:
    """Baselines and models: the score at the kept weights, and on resamples; a result without them is run again."""
    config = race_config(place, schemes=["full"], learning_rates=[5e-3], seeds=1, scratch=False)
    context = context_of(place, config.fine_tuning)
    full = Method(name="full", family="adapted", backbone=str(place / "lm"), backbone_digest="lm", scheme="full")
    for method in (Method(name="majority", family="baseline"), Method(name="NBSVM", family="baseline"), full):
        trial = Trial(method=method, seed=0, learning_rates=(5e-3,) if method is full else ())
        found = run_trial(trial, context)
        assert np.mean(found.resampled_validation) == pytest.approx(found.validation, abs=0.02)
        assert np.mean(found.resampled) == pytest.approx(found.score, abs=0.02)
        assert find_result(trial, context) == found
        assert (method.name == "majority") == (found.validation == 0.5)
    file = result_file(trial, context)
    values = json.loads(file.read_text())
    values.pop("resampled_validation")
    file.write_text(json.dumps(values))
    assert find_result(trial, context) is None


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_flipped_bit_never_changes_a_result(suffix: str, place: Path) -> None:
    """Nor the predictions, which would otherwise leave the stack in silence: the trial is run again."""
    trial, context = Trial(method=Method(name="majority", family="baseline"), seed=0), context_of(place)
    found, predictions = run_trial(trial, context), read_predictions(trial, context)
    file = result_file(trial, context).with_suffix(suffix)
    data, chance = file.read_bytes(), np.random.default_rng(0)
    for bit in chance.integers(0, 8 * len(data), 100):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        again = find_result(trial, context)
        assert again is None or (suffix == ".json" and again == found)
    assert run_trial(trial, context) == found or find_result(trial, context)
    kept = read_predictions(trial, context)
    assert np.array_equal(kept.test, predictions.test)


@pytest.mark.parametrize(("test", "validation", "recommended"), [(0.9, 0.6, "full"), (0.6, 0.81, "probe")])
def test_the_recommendation_is_made_on_validation(test: float, validation: float, recommended: str) -> None:
    """Whoever is better on the test texts; one that is better there beyond chance is named."""
    trials = [trial.model_copy(update={"labels": None}) for trial in full_and_probe(0, 1, 2)[0]]
    full = {t: result(0.8 + 1e-5 * t.seed, 0.8, 9.0) for t in trials if t.method.name == "full"}
    found = raced(trials, {t: result(test, validation) for t in trials} | full)
    assert found.findings[0] == f"Use {recommended}, the best of 2 methods on validation."
    assert "Only 20 labels choose, which is few." in found.findings
    if recommended == "full":
        assert "full reaches 80.0% (80.0 to 80.0), over 3 seeds and the test texts, in 9.0 seconds per run" in found.findings[1]
        assert "On the test texts, probe is better than full: +10.0 points (+10.0 to +10.0)." in found.findings


def test_a_stack_holds_what_lowers_the_loss_of_the_mean() -> None:
    """Two methods with different errors share the weight, one that is wrong has none; each is calibrated before the mean."""
    labels = np.array([0, 1] * 50)
    right = np.where(labels[:, None] == np.arange(2), 0.9, 0.1)
    wrong_at_times = np.where(np.arange(100)[:, None] % 4 == 0, right[:, ::-1], right)
    one = TrialPredictions(wrong_at_times, right)
    _, stacked = combine([one, one], labels)
    assert stacked.test.max() == pytest.approx(0.75, abs=1e-3), "right for three of four texts"
    assert stacked.choosing.sum(axis=1) == pytest.approx(1)
    trials = [Trial(method=Method(name=name, family="frozen", backbone_digest=name), seed=0) for name in "abcde"]
    gains = ((0.1, 0.1), (0.3, 0.1), None, (0.2, 0.1), (0.0, 0.1))
    results = {trial: replace(result(0.5, 0.5), gain=gain) for trial, gain in zip(trials, gains, strict=True)}
    assert [trial.method.name for trial in stackable_trials(results)] == ["b", "d", "a", "e"]
    kinds = {"b": "baseline", "a": "baseline", "d": "frozen", "e": "frozen"}
    results = {one.model_copy(update={"method": Method(name=one.method.name, family=kinds.get(one.method.name, "frozen"))}): found
               for one, found in results.items()}  # fmt: skip
    assert [trial.method.name for trial in stackable_trials(results)] == ["b", "d"], "the best of words, and of each encoder"
    other = TrialPredictions(np.roll(wrong_at_times, 2, axis=0), right)
    noise, wrong = (TrialPredictions(rows, right) for rows in (np.full((100, 2), 0.5), right[:, ::-1]))
    weights = {share.member: share.weight for share in combine([one, other, noise, wrong], labels)[0]}
    assert sum(weights.values()) == pytest.approx(1)
    assert min(weights[0], weights[1]) > 0.3
    assert 3 not in weights
    assert combine([one], labels)[1] is one, "so that a stack of one is no better than its only member"


@pytest.mark.usefixtures("no_pages")
def test_reading_is_counted_in_every_run_that_uses_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock of 100 s per reading of a split: the first trial pays, the others count the same, also in another process.

    A trial of several learning rates pays once.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    config, clock = race_config(place), itertools.count(step=100.0)
    monkeypatch.setattr(features_file, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    context = context_of(place, config.fine_tuning)
    probe = Method(name="probe", family="adapted", backbone=str(place / "lm"), backbone_digest="lm", scheme="probe")
    trials = [Trial(method=probe, seed=seed, learning_rates=rates) for seed, rates in ((0, (1e-3, 5e-3)), (1, (5e-3,)))]
    done = {}
    for trial in trials:
        done[trial] = run_trial(trial, context) or pytest.fail("there is no deadline")
        inputs._prepare.cache_clear()
    assert [result.seconds_saved for result in done.values()] == [0, pytest.approx(300)]
    assert not any(result.seconds < 0 for result in done.values())
    assert all(result.search_seconds < 100 for result in done.values())
    chosen = rank_method(probe, SweepRuns(tuple(trials), done)) or pytest.fail("its first seed has run")
    assert chosen.search_seconds < 200


def test_a_sweep_of_another_task_keeps_no_model(place: Path) -> None:
    """One of the same task does, with other settings."""
    model, manifest = place / "race" / "bundle" / "bundle.json", place / "task" / "task.yaml"
    config = race_config(place, schemes=[], seeds=1, scratch=False)
    for number, kept in enumerate((False, True, False)):
        if number == 2:
            manifest.write_text(manifest.read_text() + "metric: macro_f1\n")
        with releasing_locks():
            open_sweep(config.model_copy(update={"seeds": 1 + number}))
        assert model.exists() == kept
        model.parent.mkdir(exist_ok=True)
        model.write_text("{}")


SMALL = {"schemes": [], "seeds": 1, "learning_rates": [5e-3], "threads": 1, "scratch": False}


def scores(place: Path, name: str, **changes: Any) -> dict[str, Any]:
    """The scores and learning rates of a small race."""
    with releasing_locks():
        found = race(race_config(place, **SMALL, out=str(place / name), **changes))
    return {method.name: (method.test_scores.scores, method.learning_rates) for method in found.ranking.methods}


def add(one: int, other: int) -> int:
    """A call, for any backend."""
    if other < 0:
        raise ModelError("the second must not be negative")
    return one + other


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.journeys)])
def test_calls_come_back_with_their_numbers(jobs: int) -> None:
    """In this process or in others, in any order; what one raises is raised here."""
    calls = [(1, 2), (3, 4), (5, 6)]
    assert dict(spread_calls(add, calls, "processes", jobs=jobs)) == {0: 3, 1: 7, 2: 11}
    with pytest.raises(ModelError, match="must not be negative"):
        list(spread_calls(add, [(1, -1)], "processes", jobs=jobs))


def test_a_missing_library_names_the_extra(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or written."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    flags = ["--out", str(place / "race"), "--backend", "dask://here:1"]
    assert main(["race", str(place / "task"), "--backbones", str(place / "lm"), *flags]) == 2
    assert 'pip install "warmstart[dask]"' in capsys.readouterr().err
    assert not (place / "race").exists()


@pytest.mark.journeys
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the client's own making
def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """After half a minute; here sooner."""
    pytest.importorskip("distributed", reason='pip install "warmstart[dask]" to run this test')
    monkeypatch.setattr(backends, "WAIT_FOR_CLUSTER", 1)
    with pytest.raises(ConfigError, match="must be the address of a Dask scheduler, but it does not answer"):
        list(spread_calls(add, [(1, 2)], "dask://127.0.0.1:1", jobs=1))


@pytest.mark.journeys
@pytest.mark.usefixtures("no_pages")
def test_workers_change_no_result(place: Path) -> None:
    """Two processes give the scores that one gives, and write into the same ledger, each trial once."""
    shared = scores(place, "shared", jobs=2)
    ledger = read_ledger(load_task(place / "task"))
    assert (ledger.scorings, ledger.unreadable) == (len(shared), 0)
    assert shared == scores(place, "alone")


@pytest.mark.journeys
@pytest.mark.usefixtures("no_pages")
@pytest.mark.enable_socket
@pytest.mark.filterwarnings("ignore")  # of the cluster's own making
def test_dask_changes_no_result(place: Path) -> None:
    """A scheduler is named by its address, or by joblib's backend around the call; its workers run the trials."""
    distributed = pytest.importorskip("distributed", reason='pip install "warmstart[dask]" to run this test')
    local = {"host": "127.0.0.1", "protocol": "tcp", "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(n_workers=1, threads_per_worker=2, **local) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        with pytest.raises(ModelError, match="must not be negative"):
            list(spread_calls(add, [(1, -1)], address, jobs=1))
        spread = scores(place, "spread", backend=address)
        with distributed.Client(cluster), joblib.parallel_config(backend="dask"):
            inside = scores(place, "inside", jobs=2)
    assert spread == inside == scores(place, "alone")
