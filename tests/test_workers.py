"""Several workers of one sweep: every trial is run by one of them, whatever becomes of the others, with the same numbers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from helpers.crew import Crew
from helpers.tasks import cats, curve_config, race_config, write_race_inputs
from warmstart import __version__
from warmstart.cli import main, read_command
from warmstart.commands import recipe as recipe_file
from warmstart.commands.curve.command import curve
from warmstart.commands.race.command import _with_frozen, race
from warmstart.commands.runs.command import RunsConfig, list_runs
from warmstart.errors import StorageError
from warmstart.locks import releasing_locks
from warmstart.run_state import SWEEP_FILE, RunState, sealed_values
from warmstart.sweep import claims as claims_file
from warmstart.sweep import execution, record
from warmstart.sweep.claims import FREE, Claims, LostClaimError, check_claim
from warmstart.sweep.sweep import open_sweep
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")
SEEDS = range(round(3 * float(os.environ.get("CHAOS", "1"))))
"""of the kills: 3, or 20 and more with CHAOS"""
SMALL = {"schemes": [], "seeds": 2, "learning_rates": [5e-3]}
"""a race of baselines, probe, scalar-mix and from scratch"""
TIMES = ("second", "memory", "backbone", "digest", "predictions")
"""parts of the keys of what no two runs of a trial share"""


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    """A folder with a task and a tiny language model."""
    return write_race_inputs(tmp_path, tokenizer)


@pytest.fixture
def stopwatch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A stopwatch that only we move, and other processes all on machines of their own; no counter advances by itself."""
    watch = SimpleNamespace(now=0.0)
    monkeypatch.setattr(claims_file.time, "monotonic", lambda: watch.now)
    monkeypatch.setattr(claims_file, "_is_gone", lambda values: False)
    monkeypatch.setattr(claims_file, "BEAT", 1e6)
    return watch


# ---------------------------------------------------------------------------------------------------- claims


def test_one_of_two_has_a_trial(tmp_path: Path) -> None:
    """Until it is done; then nothing is left of the claim."""
    mine, yours = Claims(tmp_path), Claims(tmp_path)
    assert yours.takeable("a") == FREE
    with mine.claim("a", FREE, "probe, seed 1") as ours:
        assert ours
        assert yours.takeable("a") is None
        with yours.claim("a", FREE, "probe, seed 1") as theirs:
            assert not theirs
        (line,) = yours.lines()
        assert (line.trial, line.worker.rsplit(":", 1)[1]) == ("probe, seed 1", str(os.getpid()))
    assert not [*tmp_path.iterdir()]


def test_a_claim_that_is_given_up_is_free_at_once(tmp_path: Path) -> None:
    """Its number is never used again, so that nobody who looked before can take it."""
    with pytest.raises(KeyboardInterrupt), Claims(tmp_path).claim("a", FREE, "probe"):
        raise KeyboardInterrupt
    others = Claims(tmp_path)
    assert others.takeable("a") == 0
    assert not others.lines()
    with others.claim("a", FREE, "probe") as ours:
        assert not ours, "by one who believes that there is no claim"
    with others.claim("a", 0, "probe") as ours:
        assert ours
        assert [file.name for file in sorted(tmp_path.iterdir())] == ["a.0", "a.1"]


def test_a_lease_is_judged_by_the_observers_own_stopwatch(tmp_path: Path, stopwatch: SimpleNamespace) -> None:
    """A counter that stands still for a lease belongs to a dead worker, whatever the clocks of both machines say."""
    with Claims(tmp_path).claim("a", FREE, "probe"):
        observer, late = Claims(tmp_path), Claims(tmp_path)
        os.utime(tmp_path / "a.0", (4e9, 4e9))
        assert observer.takeable("a") is None
        stopwatch.now += claims_file.LEASE
        assert observer.takeable("a") is None
        claim = claims_file._current.get()
        assert claim is not None
        claim.values["beat"] += 1
        claim._write()
        stopwatch.now += 1
        assert observer.takeable("a") is None, "it has moved"
        os.utime(tmp_path / "a.0", (0, 0))
        stopwatch.now += claims_file.LEASE + 1
        assert observer.takeable("a") == 0
        assert late.takeable("a") is None, "one who has just come has seen nothing stand still"


def test_the_claim_of_a_finished_trial_does_not_outlive_the_sweep(tmp_path: Path) -> None:
    """Its owner, on another machine, was killed after saving the result; a trial that runs keeps its claim, and the folder."""
    folder = tmp_path / "claims"
    claims = Claims(folder)
    done, runs = (claims.claim(key, FREE, "probe") for key in ("done", "runs"))
    with runs:
        assert done.__enter__()
        claims.clear(lambda key: key == "done")
        assert [file.name for file in folder.iterdir()] == ["runs.0"]
        done.__exit__(None, None, None)
    claims.clear(lambda key: False)
    assert not folder.exists()


def test_who_wakes_up_too_late_saves_nothing(tmp_path: Path) -> None:
    """The trial is another's now, whose claim has a higher number; the sleeper leaves it alone."""
    sleeper = Claims(tmp_path).claim("a", FREE, "probe")
    assert sleeper.__enter__()
    check_claim()
    (tmp_path / "a.1").write_text("{}")
    with pytest.raises(LostClaimError):
        check_claim()
    sleeper.__exit__(None, None, None)
    assert (tmp_path / "a.1").exists()


@pytest.mark.parametrize("asleep", [False, True], ids=["killed", "stopped"])
def test_a_dead_process_of_this_machine_is_known_at_once(asleep: bool, tmp_path: Path) -> None:
    """It takes no lease to see it; one that is only stopped keeps its trial for the length of a lease."""
    code = (
        "import sys; from pathlib import Path; from warmstart.sweep.claims import Claims\n"
        "with Claims(Path(sys.argv[1])).claim('a', -1, 'probe'): print('claimed', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        assert Claims(tmp_path).takeable("a") is None
        process.send_signal(signal.SIGSTOP if asleep else signal.SIGKILL)
        if not asleep:
            process.wait()
        assert Claims(tmp_path).takeable("a") == (None if asleep else 0)
        process.kill()


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do; no half of a claim keeps the others waiting."""

    def full(self: Any) -> bytes:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(claims_file._Claim, "content", full)
    with pytest.raises(StorageError, match="No space left on device; free some space: the same command goes on"):
        Claims(tmp_path).claim("a", FREE, "probe").__enter__()
    assert not [*tmp_path.iterdir()]


# ---------------------------------------------------------------------------------------------------- workers


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize("command", ["race", "curve"])
def test_a_worker_runs_what_the_command_then_finds(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All trials, with the numbers of a sweep alone; the command itself runs none again, and writes the report."""
    run, changes = (race, SMALL) if command == "race" else (curve, SMALL | {"labels": [8, 16], "schemes": ["probe"]})
    config = (race_config if command == "race" else curve_config)(place, **changes)
    opened = config.model_copy(update={"schemes": ("probe", "scalar-mix")}) if command == "race" else config
    with releasing_locks():
        open_sweep(opened)
        assert run(config.model_copy(update={"worker": True})) is None
    assert "no trial of" in capsys.readouterr().err
    assert not (place / command / "report.html").exists()
    ran = list[str]()
    trial = execution.run_trial
    monkeypatch.setattr(execution, "run_trial", lambda one, context: (ran.append(str(one)), trial(one, context))[1])
    with releasing_locks():
        shared = run(config)
        assert not ran
        alone = run(config.model_copy(update={"out": str(place / "alone")}))
    assert ran
    scores = [json.dumps(undisturbed(found.to_dict())) for found in (shared, alone)]
    assert scores[0] == scores[1]
    assert not (place / command / "claims").exists()
    state = RunState(place / command, command)
    assert state.done == state.planned


def undisturbed(values: Any) -> Any:
    """Values without those that differ from run to run."""
    if isinstance(values, dict):
        left_out = (*TIMES, "findings", "test_split")
        return {key: undisturbed(one) for key, one in values.items() if not any(word in key for word in left_out)}
    return [undisturbed(one) for one in values] if isinstance(values, list) else values


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("settings", r"'seeds': 3 here, 2 there"),
        ("version", rf"the version of warmstart: {__version__}, source other here, {__version__}, source [0-9a-f]{{12}} there"),
        ("data", r"the texts of the task: [0-9a-f]+ here, [0-9a-f]+ there"),
    ],
)
def test_a_worker_that_would_run_other_trials_is_refused(
    change: str, difference: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By digest, with the difference named and exit code 2; it has written nothing."""
    words = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--schemes", "full", "--seeds", "2"]
    words += ["--out", str(place / "race"), "--steps", "2"]
    _, config = read_command(words)
    with releasing_locks():
        open_sweep(_with_frozen(config, config.task))
    before = sorted((place / "race").rglob("*"))
    if change == "settings":
        words[words.index("--seeds") + 1] = "3"
    elif change == "version":
        monkeypatch.setattr(record, "source_digest", lambda: "other")
    else:
        save_task(cats(seed=5), place / "task2")
        words[1] = str(place / "task2")
    capsys.readouterr()
    assert main([*words, "--worker"]) == 2
    assert re.search(f"a worker must run the same trials .* differs from it in {difference}", capsys.readouterr().err)
    assert sorted((place / "race").rglob("*")) == before


@pytest.mark.usefixtures("no_pages")
def test_the_threads_of_a_trial_are_fixed_by_the_sweep(place: Path) -> None:
    """They are recorded, and kept when the sweep goes on with other jobs."""
    with releasing_locks():
        race(race_config(place, **SMALL, threads=2))
        assert (sealed_values(place / "race" / SWEEP_FILE) or {})["threads"] == 2
        more = race(race_config(place, **(SMALL | {"seeds": 3})))
    assert more is not None
    assert {run.threads for method in more.ranking.methods for run in method.runs if method.name != "stack"} == {2}
    torch.set_num_threads(1)


def test_a_follower_sees_a_line_for_each_worker(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its trial, and for how long."""
    (place / "race").mkdir()
    (place / "race" / "config.yaml").write_text("# race\ntask: task\n")
    with Claims(place / "race" / "claims").claim("a", FREE, "lora, seed 3"):
        list_runs(RunsConfig(folder=str(place), follow="race"))
    assert re.search(rf"worker .+:{os.getpid()}: lora, seed 3, \d+ s", capsys.readouterr().err)


@pytest.mark.usefixtures("no_pages")
def test_a_worker_of_a_recipe_helps_with_its_sweeps(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waits for steps that are none, works on the race, and leaves the record to the command itself."""
    race_step = {"command": "race", "task": str(place / "task"), "backbones": [str(place / "lm")], "schemes": []}
    race_step |= {
        "seeds": 1,
        "learning_rates": [5e-3],
        "scratch": False,
        "tune": {"train": {"steps": 4, "batch": 8, "learning_rate": 5e-4}},
    }
    audit = {"command": "audit", "task": str(place / "task")}
    file, folder = place / "small.yaml", place / "small"
    file.write_text(yaml.safe_dump({"title": "small", "steps": {"checked": audit, "raced": race_step}}))
    words = ["recipe", str(file), "--out", str(folder)]
    waited = list[float]()

    def check_it(seconds: float) -> None:
        waited.append(seconds)
        assert main([*words, "--only", "checked"]) == 0
        _, config = read_command(["race", str(place / "task"), "--backbones", str(place / "lm")])
        config = type(config).build({name: value for name, value in race_step.items() if name != "command"})
        config = config.model_copy(update={"out": str(folder / "raced")})
        with releasing_locks():
            open_sweep(_with_frozen(config, config.task))

    monkeypatch.setattr(recipe_file, "time", SimpleNamespace(sleep=check_it, monotonic=time.monotonic))
    assert main([*words, "--worker"]) == 0
    assert waited == [recipe_file.LOOK_FOR_STEP]
    assert [*(folder / "raced" / "trials").glob("*.json")]
    assert [*(sealed_values(folder / "recipe.json") or {})] == ["checked"]
    capsys.readouterr()
    assert main([*words, "--jobs", "2"]) == 0
    assert "trials are done already" in capsys.readouterr().err
    assert main([*words, "--worker"]) == 0


# ---------------------------------------------------------------------------------------------------- kills


@pytest.fixture(params=[False, True], ids=["one-machine", "many-machines"])
def crew(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crew]:
    """Workers that see each other's processes, or only each other's leases."""
    found = Crew(tmp_path, apart=request.param)
    yield found
    found.close()


@pytest.mark.chaos
@pytest.mark.parametrize("seed", SEEDS)
def test_a_sweep_survives_its_workers(seed: int, crew: Crew, place: Path) -> None:
    """Workers and the command itself are killed at random: nothing is lost, nothing is saved twice, the numbers are the same."""
    words = ["race", str(place / "task"), "--backbones", str(place / "lm"), "--schemes", "full", "--learning-rates", "0.005"]
    words += ["--seeds", "2", "--steps", "8", "--batch", "8"]
    alone, shared, chance = place / "alone", place / "shared", np.random.default_rng(seed)
    assert crew.wait(crew.start(*words, "--out", str(alone))) == 0, crew.log.read_text()
    crew.saved.unlink()
    lead, help_ = [*words, "--out", str(shared)], [*words, "--out", str(shared), "--worker"]
    running = {crew.start(*one): one for one in (lead, help_, help_)}
    for _ in range(int(chance.integers(2, 6))):
        time.sleep(float(chance.uniform(0.2, 2.0)))
        victim = int(chance.choice([*running]))
        kind = running.pop(victim)
        crew.kill(victim, chance.choice([signal.SIGKILL, signal.SIGTERM]))
        crew.wait(victim)
        running[crew.start(*kind)] = kind
    codes = {process: crew.wait(process) for process in running}
    assert set(codes.values()) == {0}, crew.log.read_text()
    assert "Traceback" not in crew.log.read_text()
    results = [
        {file.name: undisturbed(json.loads(file.read_bytes())) for file in sorted((folder / "trials").glob("*.json"))}
        for folder in (alone, shared)
    ]
    assert results[0] == results[1]
    assert (shared / "report.html").exists()
    assert not (shared / "claims").exists()
    saved = Counter(crew.saved.read_text().split())
    assert max(saved.values()) == 1, saved
    assert saved.keys() <= {Path(name).stem for name in results[0]}
