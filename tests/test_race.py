"""The race and the curve on a tiny backbone: fair, saved, resumed, honest about which method is best, which can be saved."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest
import torch
import yaml

from helpers.bundles import language_bundle
from helpers.tasks import cats, curve_config, race_config, write_race_inputs
from warmstart.baselines import baselines_for, choice
from warmstart.cli import main
from warmstart.commands.race.command import race
from warmstart.data import pool
from warmstart.errors import ConfigError, DataError, ModelError, UncheckedWarning
from warmstart.experiment import execution
from warmstart.experiment.comparison import Comparison
from warmstart.experiment.config import RaceConfig, duration_seconds
from warmstart.experiment.estimate import SweepEstimate
from warmstart.experiment.methods import learning_rates_for
from warmstart.experiment.refit import refit
from warmstart.experiment.store import SweepContext, find_result, read_predictions, result_file
from warmstart.experiment.sweep import open_sweep, run_sweep
from warmstart.experiment.trial import Method, SweepRuns, Trial, TrialResult
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.estimate import RunCost
from warmstart.finetuning.finetune import FineTuning
from warmstart.interop.load import load
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.stack import Stack
from warmstart.stats.calibration import apply_temperature
from warmstart.stats.formatting import file_size, list_sizes
from warmstart.tasks.load import load_task, save_task
from warmstart.tasks.predict import raw_predictions, read
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    return write_race_inputs(tmp_path, tokenizer)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every trial that is really run."""
    run, ran = execution.run_trial, list[str]()
    monkeypatch.setattr(execution, "run_trial", lambda trial, context: (ran.append(str(trial)), run(trial, context))[1])
    return ran


SHORT = {"train": {"steps": 4, "batch": 8}}


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, few_baselines: None) -> tuple[Path, Comparison]:
    """A folder with a race on forty labels, which no test changes, and its result."""
    place = write_race_inputs(tmp_path_factory.mktemp("raced"), tokenizer)
    return place, race(race_config(place, labels=40, tune=SHORT))


Runs = tuple[RaceConfig, SweepContext, SweepRuns]


@pytest.fixture(scope="module")
def runs_of(raced: tuple[Path, Comparison]) -> Runs:
    """The settings and the runs of that race."""
    config = race_config(raced[0], labels=40, tune=SHORT)
    sweep = open_sweep(config.model_copy(update={"schemes": ("probe", "scalar-mix", "full")}))
    return config, sweep.context, run_sweep(sweep, 40)


def test_a_race_from_end_to_end(raced: tuple[Path, Comparison]) -> None:
    """Every method has scores and costs; the tidy table has a row per run; the page and the figures are there."""
    place, found = raced
    trained = {"probe", "scalar-mix", "full", "from scratch"}
    assert {s.name for s in found.ranking.methods} == {*baselines_for(found.task, pool=True, vectors=True), *trained, "stack"}
    assert found.ranking.seeds == 2
    assert all(len(s.runs) == 2 for s in found.ranking.methods)
    assert [p < 0.05 for p in found.choice.no_signal] == [True, True]
    assert found.choice.permuted in (place / "race" / "report.html").read_text()
    assert {run.threads for s in found.ranking.methods for run in s.runs} == {torch.get_num_threads()}
    count = len(found.ranking.methods)
    assert len(polars.read_csv(place / "race" / "runs.csv")) == 2 * count
    by_name = {s.name: s.runs[0] for s in found.ranking.methods}
    assert by_name["probe"].trainable == by_name["probe"].new < by_name["scalar-mix"].new < by_name["full"].trainable
    assert by_name["probe"].disk == 4 * by_name["probe"].new
    assert by_name["full"].disk > 100 * by_name["probe"].disk
    page = (place / "race" / "report.html").read_text()
    assert all(word in page for word in ("Restarts", "Learning rates", "Significant differences", "Costs"))
    assert (place / "race" / "figures" / "restarts.svg").exists()
    saved = json.loads((place / "race" / "race.json").read_text())
    assert saved["recommended"] == found.recommended.name
    compared = len(saved["against_choice"])
    assert count - 1 <= compared <= count, "every method is compared with what each draw chose, which may be one of them"
    assert (len(found.table), len(found.differences)) == (count, compared)
    assert found.table["validation"].to_list() == [one["validation"] for one in saved["methods"]]


def test_with_a_number_of_labels_every_seed_chooses_within_its_own(raced: tuple[Path, Comparison]) -> None:
    """Each seed draws its labels, tries every learning rate by cross-validation on them, and looks at no other label."""
    _, found = raced
    full = next(one for one in found.ranking.methods if one.name == "full")
    assert [len(run.tried) for run in full.runs] == [2, 2]
    assert {run.budget for run in full.runs} == {"40 labels: all of them learn, and 5-fold cross-validation on them chooses."}
    assert found.ranking.drawn


@pytest.mark.usefixtures("no_pages")
def test_a_pool_is_compared_with_the_scored_texts_once(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep looks whether a file has any text that may be read; the trials read the same."""
    file, sizes = place / "pool.txt", list[int]()
    file.write_text("\n".join(f"We found a cat in {year}." for year in range(1900, 1940)))
    compare = pool.documents_with
    monkeypatch.setattr(
        pool, "documents_with", lambda texts, others, *rest: (sizes.append(len(others)), compare(texts, others, *rest))[1]
    )
    found = race(race_config(place, schemes=[], seeds=1, scratch=False, labels=20, pool=str(file)))
    assert any("40 texts without labels" in one.runs[0].note for one in found.ranking.methods)
    assert sizes == [40]


def test_an_estimate_runs_and_writes_nothing(
    raced: tuple[Path, Comparison], place: Path, counted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """``--estimate`` counts the trials that the race then runs, prints minutes and sizes, and stops."""
    done, found = raced
    baselines = len(baselines_for(found.task, pool=True, vectors=True))
    planned = race(race_config(place, labels=40, estimate=True))
    assert planned.planned.total() == 2 * (baselines + 4) == len([*(done / "race" / "trials").glob("*.json")]) - 2, "and two stacks"
    assert planned.seconds > 0
    assert planned.saved == 4 * planned.trained > 4 * 1000
    assert f"Estimate: {planned.planned.total()} trials on cats take about" in " ".join(capsys.readouterr().err.split())
    assert race(curve_config(place, labels=[4, 8], estimate=True)).planned.total() > 0
    assert not (place / "race").exists()
    assert not (place / "curve").exists()
    left = race(race_config(done, labels=40, tune=SHORT, estimate=True, seeds=3))
    assert left.planned.total() == baselines + 2 + 2, "one more seed: the baselines, the frozen schemes, full and from scratch"
    assert counted == []


def test_the_time_left_follows_the_trials_that_ran() -> None:
    """Before any trial the measured steps speak; then a method's own seconds, and the steps corrected by how wrong they were."""
    fast, slow = (Method(name=name, family="adapted", backbone="lm", scheme=name) for name in ("probe", "full"))
    trials = [Trial(method=method, seed=seed) for method in (fast, slow) for seed in (0, 1)]
    places = [(method.id_over_tasks, None, 0) for method in (fast, slow)]
    costs = {places[0]: RunCost(1.0, 4.0, 10), places[1]: RunCost(10.0, 0.0, 30)}
    estimate = SweepEstimate(costs, Counter(places * 2), 4.0, 1, "cats")
    assert (estimate.seconds, estimate.trained, estimate.saved) == (26.0, 30, 120)
    result = TrialResult(score=0.5, resampled=(), seconds=5.0, seconds_saved=3.0, validation=0.5)
    estimate.finish(trials[0], result)
    assert estimate.left == "about 42 seconds left", "2 of the probe's own, and twice what was expected of the rest"
    estimate.finish(trials[1], result)
    estimate.finish(trials[2], replace(result, seconds=9.0, seconds_saved=0.0))
    assert estimate.left == "about 9 seconds left"


def test_a_pool_without_texts_ends_the_race_before_any_trial(
    place: Path, counted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One of test texts only, as ``unlabelled`` of the manifest or as a file; exit code 2."""
    file, manifest = place / "pool.txt", place / "task" / "task.yaml"
    words = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--labels", "20", "--out", str(place / "race")]
    file.write_text("\n\n".join(cats().test.texts[:9]))
    assert main([*words, "--pool", str(file)]) == 2
    assert "pool must hold no test text" in " ".join(capsys.readouterr().err.split())
    manifest.write_text(manifest.read_text().replace("unlabelled: []", f"unlabelled: [{file}]"))
    assert main(words) == 2
    assert "must have texts that are not in test or validation" in " ".join(capsys.readouterr().err.split())
    assert counted == []
    assert not (place / "race").exists()


@pytest.mark.usefixtures("no_pages")
def test_a_race_continues_where_it_stopped(place: Path, counted: list[str]) -> None:
    """Nothing is run twice; more seeds run only the new ones; a damaged result is run again; scores stay the same.

    With all labels a run of its own chooses the learning rate, by its validation score: the test split never sees it, and the seeds
    that are scored use what it chose.
    """
    first = race(race_config(place))
    done = len(counted)
    again = race(race_config(place))
    assert len(counted) == done
    assert again.to_dict() == first.to_dict()
    found = race(race_config(place, seeds=3))
    assert len(counted) == done + 4
    assert yaml.safe_load((place / "race" / "config.yaml").read_text())["seeds"] == 3, "the saved settings are the latest"
    full = next(one for one in found.ranking.methods if one.name == "full")
    search = full.search or pytest.fail("two learning rates were named")
    assert dict(search.tried)[search.learning_rate] == max(score for _, score in search.tried)
    assert (len(search.tried), math.isnan(search.score), full.tried) == (2, True, dict(search.tried))
    assert (full.seeds, {run.learning_rate for run in full.runs}) == ((1, 2, 3), {search.learning_rate})
    assert full.seconds_of_search > search.seconds
    assert "at the edge of those tried" in full.note
    trained = [one for one in found.ranking.methods if one.method.fine_tunes or one.method.combines]
    assert found.ledger.scorings >= 3 * len(trained) + len(found.ranking.methods) - len(trained)
    trials = {file: json.loads(file.read_text())["trial"] for file in (place / "race" / "trials").glob("*.json")}
    file = next(file for file, trial in trials.items() if trial["method"]["family"] == "adapted" and trial["seed"] == 0)
    file.write_text(file.read_text()[:-20])
    repaired = race(race_config(place))
    assert len(counted) == done + 5
    assert [s.test_scores.scores for s in repaired.ranking.methods] == [s.test_scores.scores for s in first.ranking.methods]


def test_other_texts_other_weights_and_other_settings_are_other_trials(place: Path) -> None:
    """A result is found only under all that it depends on; not what the method is called, nor where files are."""
    context = SweepContext.of(cats(), "task", place, FineTuneConfig(), drop_leaks=False)
    trial = Trial(method=Method(name="full", family="adapted", backbone_digest="a", scheme="full"), seed=0, learning_rates=(1e-3,))
    methods = [trial.method.model_copy(update=one) for one in ({"backbone_digest": "b"}, {"scheme": "lora"}, {"family": "scratch"})]
    changes = [{"seed": 1}, {"learning_rates": (2e-3,)}, {"labels": 20}, {"selection": "none"}]
    changes += [{"method": one} for one in methods]
    others = [(trial.model_copy(update=one), context) for one in changes]
    for task, tune in ((cats(1), {}), (replace(cats(), metric="macro_f1"), {}), (cats(), {"pooling": "last"})):
        others.append((trial, SweepContext.of(task, "task", place, FineTuneConfig(**tune), drop_leaks=False)))
    stack = Trial(method=Method(name="stack", family="stack"), seed=0, learning_rates=(1e-3,))
    frozen = Trial(method=Method(name="frozen vectors", family="frozen", backbone_digest="a"), seed=0)
    expectation = Trial(method=Method(name="naive Bayes + EM", family="baseline"), seed=0)
    pooled = context.model_copy(update={"pool": "texts.txt", "pool_digest": "1"})
    others += [(one, where) for one in (stack, expectation) for where in (context, pooled)]
    others += [(one, SweepContext.of(cats(), "task", place, FineTuneConfig(pooling="last"))) for one in (stack, frozen)]
    others += [(frozen, context), (stack.model_copy(update={"learning_rates": (2e-3,)}), context)]
    names = [result_file(trial, context), *(result_file(*other) for other in others)]
    assert len(set(names)) == len(names)
    words = Trial(method=Method(name="NBSVM", family="baseline"), seed=0)
    for one in (trial, frozen, words):  # they read no pool
        assert result_file(one, pooled) == result_file(one, context)
    renamed = trial.model_copy(update={"method": trial.method.model_copy(update={"name": "x", "backbone": "elsewhere"})})
    moved = SweepContext.of(cats(), "other/path", place, FineTuneConfig(), drop_leaks=False)
    assert result_file(renamed, moved) == result_file(trial, context)
    assert find_result(trial, context) is None


def test_a_frozen_backbone_also_tries_larger_learning_rates() -> None:
    """Ten times each, nearest to their own default first; all others the same rates, a large backbone the lower; baselines none."""
    made = {name: Method(name=name, family="adapted", scheme=name) for name in ("probe", "scalar-mix", "full", "lora+scalar-mix")}
    rates = {name: learning_rates_for(method, (1e-4, 1e-3)) for name, method in made.items()}
    assert rates["probe"] == rates["scalar-mix"] == (1e-3, 1e-2, 1e-4)
    assert learning_rates_for(made["probe"], (3e-4, 3e-3)) == (3e-3, 3e-4, 3e-2)  # ten times the first is the second, exactly
    assert rates["full"] == rates["lora+scalar-mix"] == (1e-3, 1e-4)
    large = made["full"].model_copy(update={"backbone_parameters": 22_000_000})
    assert learning_rates_for(large, (1e-4, 5e-4, 1e-3)) == (5e-4, 1e-4, 1e-3)
    assert learning_rates_for(Method(name="majority", family="baseline"), (1e-4,)) == ()
    assert learning_rates_for(Method(name="from scratch", family="scratch"), (1e-4,)) == (1e-4,)


def test_too_few_labels_to_choose_a_method_are_refused_before_anything_is_trained(place: Path) -> None:
    """Settings may be fixed, but the race chooses among methods; of any seed."""
    with pytest.raises(ConfigError, match="--labels 2: cross-validation needs two independent texts of one class"):
        race(race_config(place, labels=2, selection="none"))
    task = cats()
    copies = tuple(task.train.texts[i % 2 if i < 58 else i] for i in range(60))
    save_task(task.with_train(replace(task.train, texts=copies)), place / "task")
    with pytest.raises(ConfigError, match="--labels 4: cross-validation needs"):
        race(race_config(place, labels=4, seeds=60))
    assert not (place / "race").exists()


@pytest.mark.usefixtures("no_pages")
def test_a_budget_leaves_the_rest_for_the_next_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trial begins after the deadline; what is done is reported, what is missing is named, and the same command continues."""
    with pytest.raises(DataError, match="the budget of 0s is too short for one trial of one model; use a longer --budget"):
        race(race_config(place, budget="0s"))
    run, stop = execution._fine_tune, "probe"

    def slow(trial: Trial, context: SweepContext) -> TrialResult:
        result = run(trial, context)
        if trial.method.name == stop and not trial.chooses_rate:
            monkeypatch.setattr(execution.time, "time", lambda: 4e9)  # long after any deadline
        return result

    monkeypatch.setattr(execution, "_fine_tune", slow)
    short = race(race_config(place, budget="1h"))
    assert [method.name for method in short.ranking.missing] == ["scalar-mix", "full", "from scratch"]
    assert short.ranking.seeds == 1
    assert "The time was too short for scalar-mix, full, from scratch; run the same command again to continue." in short.findings
    monkeypatch.undo()
    assert race(race_config(place)).ranking.missing == ()


@pytest.mark.usefixtures("no_pages")
def test_if_the_time_is_too_short_networks_that_cannot_win_are_not_run_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one seed, are named, and are not in the ranking; whoever is significantly ahead has all.

    With more time they run, and the stacks are combined anew from all.
    """

    def combined() -> set[int]:
        runs = [json.loads(file.read_text()) for file in (place / "race" / "trials").glob("*.json")]
        return {len(one["candidates"]) for one in runs if one["candidates"]}

    monkeypatch.setattr(SweepEstimate, "seconds", property(lambda _: 1e6))
    found = race(race_config(place, budget="1h"))
    assert [method.name for method in found.ranking.stopped] == ["scalar-mix"]
    assert {"full", "from scratch"} <= {one.name for one in found.ranking.methods if one.seeds == (1, 2)}
    assert any("significantly behind on the texts that choose: scalar-mix." in sentence for sentence in found.findings)
    before = combined()
    monkeypatch.undo()
    race(race_config(place))
    assert combined() == {count + 1 for count in before}


def test_what_depends_on_no_seed_is_compared_over_the_test_texts(place: Path) -> None:
    """If all networks diverge: baselines and frozen vectors are ranked and compared, and each network is named."""
    found = race(race_config(place, learning_rates=[1e30], seeds=3, schemes=[]))
    assert (found.ranking.seeds, {one.method.family for one in found.ranking.methods}) == (0, {"baseline", "frozen", "stack"})
    assert {one.name for one in (*found.ranking.missing, *found.ranking.diverged)} == {"probe", "scalar-mix", "from scratch"}
    assert "No method that is ranked depends on a seed: they are compared over the test texts alone." in found.findings
    assert any("over the test texts" in sentence for sentence in found.findings)
    assert any("probe at every learning rate" in sentence for sentence in found.findings)
    assert not any("seeds" in sentence for sentence in found.findings if "depends on a seed" not in sentence)
    assert any(row.significant for row in found.differences), "the majority label is worse"
    page = (place / "race" / "report.html").read_text()
    assert "paired by test text, over test texts" in page
    assert "One seed says nothing" not in page


MISTAKES = {
    "--scheme lora": "there is no flag --scheme; did you mean --schemes?",
    "--learning-rate 1e-4": "there is no flag --learning-rate; did you mean --learning-rates?",
    "--schemes lorra": "unknown scheme 'lorra'; did you mean 'lora'?",
    "--budget soon": "must be a time such as 90s, 30m or 2h; got 'soon'",
    "--labels 4000": "there are 60 training texts, but 4,000 labels should learn",
    "--learning-rates 0": "--learning-rates must be greater than 0",
    "--labels 8 4": "must be increasing numbers from 2 on; got 8 4",
    "--labels 8 600": "--labels 600: there are 60 training texts",
    "--rates 1e-3": "there is no flag --rates; did you mean --learning-rates?",
    "--jobs 0": "jobs",
    "--backend spark": "must be processes or dask://HOST:PORT",
    "--backend dask://": "must be processes or dask://HOST:PORT",
    "--backend tcp://a:1": "must be processes or dask://HOST:PORT",
}


def test_mistakes_are_explained(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, a sentence that says what to do, and no traceback."""
    base = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--out", str(place / "race")]
    for words, message in MISTAKES.items():
        try:
            code = main([*base, *words.split()])
        except SystemExit as stop:
            code = stop.code
        assert code == 2, words
        assert message in capsys.readouterr().err.replace("\n", " "), words


@pytest.mark.usefixtures("no_pages")
def test_backbones_have_different_names(place: Path, tokenizer: Tokenizer) -> None:
    """Two of them get names of their own; the same one twice is refused."""
    save(language_bundle(tokenizer), place / "other" / "bundle")
    two = [str(place / "lm"), str(place / "other")]
    found = race(race_config(place, backbones=two, schemes=["full"], learning_rates=[1e-3], seeds=1))
    assert {"full · lm", "full · other", "from scratch · lm"} <= {s.name for s in found.ranking.methods}
    with pytest.raises(ConfigError, match="each backbone must be named once"):
        race(race_config(place, backbones=[two[0], two[0]]))


def test_a_curve_from_end_to_end(place: Path) -> None:
    """Every method at every size, sentences on what labels are worth, and a page."""
    config = curve_config(place, learning_rates=[5e-3], labels=[4, 8, 16, 32], schemes=["probe"], target=0.9, tune=SHORT)
    raced = race(config)
    found = raced.curve
    assert raced.labels == 32
    assert list(found.rankings) == [4, 8, 16, 32]
    trained = {"probe", "scalar-mix", "from scratch", "stack"}
    assert {one.name for one in found.methods} == {*baselines_for(found.task, pool=True, vectors=True)} - {"majority"} | trained
    findings = " ".join(found.findings)
    assert "the strongest rival without pretraining" in findings
    assert "90.0%" in findings
    assert "Tried on what is known: the smaller numbers of labels foretell" in findings
    fixed = "cross-validation on them chooses the method and the settings of baselines; a network's settings are fixed."
    assert f"4 labels: all of them learn. 4-fold {fixed} Larger numbers of labels likewise." in findings
    page = (place / "curve" / "report.html").read_text()
    assert "chosen by 5-fold cross-validation" in page, "the notes of the methods"
    count = len(found.methods)
    assert (len(found.to_dict()["methods"]), len(found.extrapolations)) == (count, count)
    assert (place / "curve" / "figures" / "curve.svg").exists()
    trials = [*(place / "curve" / "trials").glob("*.json")]
    assert raced.ledger.scorings == 2 * raced.ledger.settings == len(trials), "every number of labels is a setting of its own"
    assert raced.ledger.sentence in page
    assert len(polars.read_csv(place / "curve" / "runs.csv")["labels"].unique()) == 4
    assert json.loads((place / "curve" / "race.json").read_text())["labels"] == 32, "the ranking is that with the most labels"


def test_small_things() -> None:
    """Times and sizes for people; of numbers of labels only neighbours are taken together."""
    of_sizes = {(16,): "16", (16, 32, 64): "16 to 64", (16, 64, 128): "16 and 64 to 128", (16, 64, 256): "16, 64 and 256"}
    assert [list_sizes([*places], [16, 32, 64, 128, 256]) for places in of_sizes] == [*of_sizes.values()]
    assert [duration_seconds(text) for text in ("90s", "30m", "2h", "1.5")] == [90, 1800, 7200, 90]
    assert [file_size(size) for size in (12, 6200, 21_000_000, 3.2e9)] == ["12 B", "6.2 KB", "21.0 MB", "3.2 GB"]


def test_a_backbone_that_knows_the_labels_is_named(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An adapted model that learns the same task again, or races for it, says nothing about few labels; the audit reports it."""
    base = ["--steps", "3", "--seeds", "1", "--no-scratch"]
    task = str(place / "task" / "task.yaml")
    assert main(["adapt", str(place / "lm"), task, *base, "--no-baselines", "--out", str(place / "first")]) == 0
    assert "was already trained on labels of" not in capsys.readouterr().err
    assert main(["adapt", str(place / "first"), task, *base, "--no-baselines", "--out", str(place / "again")]) == 0
    assert "was already trained on labels of" in capsys.readouterr().err
    words = ["--backbones", str(place / "first"), "--schemes", "probe", "--learning-rates", "1e-3", "--out", str(place / "raced")]
    assert main(["race", task, *words, *base]) == 0
    assert "audit (error)" in capsys.readouterr().err
    assert "was already trained on labels of" in (place / "raced" / "report.html").read_text()


def test_every_method_predicts_from_its_folder_what_was_scored(runs_of: Runs, tmp_path: Path) -> None:
    """Baselines, classifiers on frozen vectors, fine-tuned networks and their stack: the same probabilities, then a temperature."""
    config, context, runs = runs_of
    task = load_task(config.task)
    methods = list({trial.method.name: trial.method for trial in runs.trials}.values())
    assert {method.family for method in methods} == {"baseline", "frozen", "adapted", "scratch", "stack"}
    for number, method in enumerate(methods):
        fitted = refit(method, runs, context)
        saved = load(fitted.save(tmp_path / str(number)))
        assert isinstance(saved, Bundle if method.family in ("adapted", "scratch") else Stack), method
        assert (len(saved.members) > 1) == method.combines if isinstance(saved, Stack) else saved.labels
        scored = read_predictions(fitted.trial, context)
        assert fitted.trial.seed == 0
        expected = apply_temperature(scored.test, saved.calibration.temperature)
        np.testing.assert_allclose(raw_predictions(saved, task.test.texts), expected, atol=2e-5, err_msg=method.name)
        assert fitted.difference < 1e-5, method
        typical = read(saved, task.test.texts).typicality
        np.testing.assert_array_equal(typical, read(fitted.model, task.test.texts).typicality)
        assert (typical is not None) >= (method.family == "frozen"), method.name
        assert "It predicts what was scored: " in fitted.sentence


def test_a_baseline_takes_one_more_fit(runs_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the setting that its trial chose; no fold is run again."""
    _, context, runs = runs_of
    fit, settings = choice._Learner.fit, list[float]()
    monkeypatch.setattr(choice._Learner, "fit", lambda self, indices, one: settings.append(one) or fit(self, indices, one))
    trial = next(one for one in runs.trials if one.method.name.startswith("TF-IDF"))
    refit(trial.method, runs, context)
    assert settings == [runs.results[trial].setting]


def test_a_network_takes_one_more_fit(runs_of: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many steps as the trial's last fit; no fold is run again."""
    _, context, runs = runs_of
    fit, fits = FineTuning.run, list[int]()
    monkeypatch.setattr(FineTuning, "run", lambda run, model: fits.append(1) or fit(run, model))
    trial = next(trial for trial in runs.trials if trial.method.name == "full")
    found = refit(trial.method, SweepRuns((trial,), {trial: runs.results[trial]}), context)
    assert found.difference < 1e-6
    assert len(fits) == 1


def test_what_diverged_is_the_constant_that_was_scored(runs_of: Runs) -> None:
    """The constant prediction stands for it in the scores, and so in the model."""
    _, context, runs = runs_of
    trial = next(trial for trial in runs.trials if trial.method.name == "full")
    found = refit(trial.method, SweepRuns((trial,), {trial: replace(runs.results[trial], diverged=True)}), context)
    assert raw_predictions(found.model, ["a", "b"]) == pytest.approx(np.full((2, 2), 0.5))
    assert found.difference > 0.01, "here it had not diverged"


def test_a_model_that_differs_from_what_was_scored_is_said_to(runs_of: Runs, tmp_path: Path) -> None:
    """Saved all the same, because the race may have taken hours; the command then ends with exit code 1."""
    _, context, runs = runs_of
    trial = next(trial for trial in runs.trials if trial.method.name == "NBSVM")
    found = replace(refit(trial.method, runs, context), difference=0.2)
    with pytest.warns(UncheckedWarning, match="differ by up to 0.2 from those that were scored"):
        found.save(tmp_path / "saved")
    assert "It does not predict what was scored: before calibration, predictions differ by at most 0.2." in found.sentence
    assert isinstance(load(tmp_path / "saved"), Stack)


@pytest.mark.usefixtures("no_pages")
def test_a_race_saves_what_it_recommends(runs_of: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Also after it was run; every command finds the model in the folder of the race."""
    config, _, _ = runs_of
    for name, kind in (("recommended", None), ("stack", Stack), ("full", Bundle), ("NBSVM", Stack)):
        result = race(config.model_copy(update={"save": name}))
        saved = load(Path(config.out) / "bundle")
        assert kind is None or isinstance(saved, kind)
        printed = " ".join(capsys.readouterr().err.split())
        assert f"Saved {result.recommended.name if name == 'recommended' else name}, fitted again to its labels" in printed
    assert main(["predict", config.out, "She holds the cat."]) == 0
    assert '"label": "' in capsys.readouterr().out
    assert main(["evaluate", config.out, config.task]) == 0
    assert main(["doctor", config.out]) == 0


def test_what_cannot_be_saved_is_refused(runs_of: Runs) -> None:
    """An unknown name before anything runs."""
    config, context, runs = runs_of
    with pytest.raises(ConfigError, match="no method of this race has this name; did you mean 'stack'"):
        race(config.model_copy(update={"save": "stak"}))
    with pytest.raises(ModelError, match="majority ignores the texts"):
        race(config.model_copy(update={"save": "majority"}))
    method = Method(name="later", family="adapted")
    with pytest.raises(ModelError, match="later has no finished run"):
        refit(method, runs, context)
    trial = runs.trials[0].model_copy(update={"seed": 99})
    with pytest.raises(ModelError, match="must be compared with the predictions that were scored"):
        refit(trial.method, SweepRuns((trial,), {trial: next(iter(runs.results.values()))}), context)
