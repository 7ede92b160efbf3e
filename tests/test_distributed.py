"""Several processes take the same steps as one, up to the order of sums; ``torchrun``, as users start it."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import Tensor
from torch.testing import assert_close

from helpers.models import SENTENCES, make_language_model
from helpers.processes import run_processes
from helpers.settings import in_file
from helpers.training import job, ragged_batch
from warmstart.backbone.config import BackboneConfig
from warmstart.cli import main
from warmstart.commands.pretrain.command import pretrain, pretrain_on
from warmstart.commands.settings import PretrainConfig
from warmstart.corpora.store import TokenText
from warmstart.corpora.write import tokenized_text
from warmstart.data.source import Source
from warmstart.dropout import RowRange
from warmstart.errors import ConfigError, StorageError, WarmstartError
from warmstart.objectives.config import ObjectiveConfig
from warmstart.objectives.registry import OBJECTIVES
from warmstart.runs.run import Run
from warmstart.system.stopping import Terminated, termination_raises
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.distributed import World, is_lost_connection, share_of, store_of_attempt, world
from warmstart.training.loop import train
from warmstart.types import Batch

Trained = tuple[list[float], dict[str, Tensor]]
OPTIMIZERS = {"adamw": {"optimizer": "adamw", "learning_rate": 1e-3}, "muon": {"optimizer": "muon", "learning_rate": 1e-3}}


@pytest.fixture
def store(tokenizer: Tokenizer, tmp_path: Path) -> TokenText:
    """A small text."""
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(SENTENCES * 10 + [f"{word} {SENTENCES[0]}" for word in ["a", "bc", "def", "ghij"]]))
    return tokenized_text([Source(path=str(file))], tokenizer, tmp_path / "store")


def pretrained(tokenizer: Tokenizer, store: TokenText, objective: dict[str, Any], **changes: Any) -> Trained:
    """The held-out metrics and the weights of the model that ``pretrain`` saves; five rows are no multiple of two processes."""
    settings = {**OPTIMIZERS["adamw"], "steps": 8, "batch": 5, "accumulate": 2, "precision": "float32"} | changes
    config = PretrainConfig(
        objective=ObjectiveConfig.build(objective), backbone=tiny(depth=2, dropout=0.2), train=PretrainTrainConfig.build(settings)
    )
    result = pretrain_on((store, store), tokenizer, config, None)
    return [*result.metrics.values()], {name: tensor.detach().clone() for name, tensor in result.bundle.model.weights().items()}


def assert_same_run(one: Trained | None, other: Trained | None) -> None:
    """Equal up to the order of sums."""
    assert one[0] == pytest.approx(other[0], rel=1e-4)
    assert one[1].keys() == other[1].keys()
    for name, tensor in one[1].items():
        torch.testing.assert_close(tensor, other[1][name], atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.fixture
def exact_muon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Muon rounds gradients to bfloat16, where a last bit more or less of a sum can become a step of 1/256."""
    monkeypatch.setattr(Tensor, "bfloat16", Tensor.clone)


CASES = [(name, {}) for name in OBJECTIVES] + [("causal", {"rows": "documents"}), ("span", {"form": "prefix-suffix"})]


@pytest.mark.journeys
@pytest.mark.parametrize(("name", "changes"), CASES, ids=["-".join([name, *changes.values()]) for name, changes in CASES])
def test_two_processes_pretrain_as_one_by_every_objective(
    name: str, changes: dict[str, str], tokenizer: Tokenizer, store: TokenText, tmp_path: Path, exact_muon: None
) -> None:
    """With each optimiser in turn, dropout, accumulation, and rows that they do not divide."""
    optimizer = [*OPTIMIZERS.values()][CASES.index((name, changes)) % 2]
    work = partial(pretrained, tokenizer, store, {"name": name, **changes}, **optimizer)
    first, other = run_processes(2, tmp_path, work)
    assert_same_run(work(), first)
    assert all(torch.equal(tensor, first[1][key]) for key, tensor in other[1].items())


def few_rows(step: int) -> list[Batch]:
    """One batch of a single row, and one of three."""
    return [ragged_batch(step, 0, 1), ragged_batch(step, 1, 3)]


def few_rows_trained(settings: Mapping[str, Any]) -> Trained:
    """A run whose batches have fewer rows than there are processes."""
    model = make_language_model(dropout=0.2)
    output = train(model, job(batches=few_rows), TrainConfig.build({"precision": "float32", **settings}))
    return [row["loss"] for row in output.log], dict(model.weights())


@pytest.mark.journeys
def test_a_process_without_rows_takes_part(tmp_path: Path, exact_muon: None) -> None:
    """It contributes zero: four processes with one and three rows take the same steps as one."""
    for optimizer, settings in OPTIMIZERS.items():
        (folder := tmp_path / optimizer).mkdir()
        for found in run_processes(4, folder, partial(few_rows_trained, settings)):
            assert_same_run(few_rows_trained(settings), found)


def test_shares_are_whole_texts() -> None:
    """Every row belongs to one process; a text with several windows or alternatives stays together."""
    rows = torch.arange(7)[:, None].expand(7, 3)
    batch = Batch(rows, torch.tensor([10, 20, 30]), windows=torch.tensor([2, 4, 1]), count=3)
    parts = [share_of(batch, World(rank, 2)) for rank in range(2)]
    assert [part.ids[:, 0].tolist() for part, _, _ in parts] == [[0, 1], [2, 3, 4, 5, 6]]
    assert [part.targets.tolist() for part, _, _ in parts] == [[10], [20, 30]]
    assert [part.windows.tolist() for part, _, _ in parts] == [[2], [4, 1]]
    choice = Batch(torch.arange(6)[:, None], torch.tensor([1, 0, 1]), count=3)
    assert [share_of(choice, World(rank, 3))[0].ids[:, 0].tolist() for rank in range(3)] == [[0, 1], [2, 3], [4, 5]]
    part, share, counts = share_of(choice, World(0, 4))
    assert (len(part.ids), share.rows, share.texts, counts) == (2, RowRange(0, 2, 6), RowRange(0, 1, 3), False)


def of_rank(rank: int, error: Exception) -> str:
    """How an error of one rank reaches this one."""

    def work() -> str:
        if world().rank == rank:
            raise error
        return "done"

    try:
        return world().together(work)
    except Exception as found:
        return f"{type(found).__name__}: {found}"


def agreements() -> list[Any]:
    """What one of several processes finds."""
    here = world()
    facts = {"the setting batch": here.rank, "the text": "same"}
    try:
        here.require_equal(facts)
        different = ""
    except ConfigError as error:
        different = str(error)
    order: list[int] = here.gather(here.in_turns(lambda: time.monotonic_ns()))
    shared = here.tensors_of_all(
        {f"of {here.rank}": torch.full((2,), here.rank), "both": torch.tensor(here.rank)}, torch.device("cpu")
    )
    return [
        of_rank(1, StorageError("disk full")), of_rank(0, OSError(28, "No space left on device")), of_rank(1, KeyError("x")),
        different, here.from_first(here.rank), here.largest(here.rank), float(here.sum(torch.tensor(1.0))), order[0] < order[1],
        {name: tensor.tolist() for name, tensor in shared.items()},
    ]  # fmt: skip


@pytest.mark.journeys
def test_processes_agree(tmp_path: Path) -> None:
    """On errors, of whichever rank; on what they begin with; on numbers and tensors. Rank 0 goes first."""
    name = f"rank 1 on {platform.node()}"
    for rank, found in enumerate(run_processes(2, tmp_path, agreements)):
        assert found[0] == f"StorageError: {name}: disk full"
        assert found[1].startswith("LostProcessError: the system: No space left on device; free some space")
        assert found[2] == ("KeyError: 'x'" if rank else f"LostProcessError: {name}: KeyError: 'x'")
        assert found[3].startswith(
            "all processes must begin alike, but the setting batch differs: 1 in rank 1, 0 in rank 0; start all"
        )
        assert found[4:] == [0, 1, 2.0, True, {"of 0": [0, 0], "both": rank, "of 1": [1, 1]}]


def terminated_while_rank_0_works(heard: Path) -> str:
    """Rank 0 works alone until the other has heard a signal."""
    here = world()
    if not here.leads:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    try:
        with termination_raises():
            here.first_alone(lambda: wait_until(heard.exists))
    except Terminated:
        heard.touch()
        return "terminated"
    except RuntimeError as error:
        return "the other is gone" if is_lost_connection(error) else str(error)
    return "done"


def wait_until(found: Callable[[], bool]) -> None:
    while not found():
        time.sleep(0.01)


@pytest.mark.journeys
def test_who_waits_for_rank_0_hears_signals(tmp_path: Path) -> None:
    """At once: not when rank 0, which can work for hours, has done its work."""
    assert run_processes(2, tmp_path, terminated_while_rank_0_works, tmp_path / "heard")[1] == "terminated"


def test_one_process_needs_no_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every agreement is then with itself; of several each needs a GPU of its own, where there are GPUs."""
    alone = World()
    assert (alone.leads, alone.several, alone.share(3)) == (True, False, RowRange(0, 3, 3))
    assert (alone.from_first(7), alone.largest(7), alone.gather(7), alone.in_turns(lambda: 7)) == (7, 7, [7], 7)
    with pytest.raises(KeyError):
        alone.first_alone(lambda: {}["x"])
    taken: list[int] = []
    for name, given in (("is_available", lambda: True), ("device_count", lambda: 2), ("set_device", taken.append)):
        monkeypatch.setattr(torch.cuda, name, given)
    World(local_rank=1).take_gpus()
    assert taken == [1]
    message = r"each process needs a GPU of its own, but .* has 2; start torchrun with --nproc-per-node 2"
    with pytest.raises(ConfigError, match=message):
        World(local_rank=2).take_gpus()


def errors_of_different_processes(tokenizer: Tokenizer, stores: list[TokenText], folder: Path) -> list[str]:
    """What is said if one process has other settings, or another text."""
    rank, said = world().rank, list[str]()
    for work in (
        lambda: pretrain(PretrainConfig(text=("a.txt",), train=PretrainTrainConfig(batch=8 + rank))),
        lambda: pretrain_on((stores[rank], None), tokenizer, PretrainConfig(backbone=tiny(depth=2)), folder),
        lambda: pretrain_on((stores[0], None), tokenizer, PretrainConfig(backbone=tiny(depth=1 + rank)), folder),
        lambda: world().in_turns(lambda: Run.open(str(folder / f"run-{rank}"), tiny())),
    ):
        with pytest.raises(WarmstartError) as raised:
            work()
        said.append(str(raised.value))
    return said


def tiny(**switches: Any) -> BackboneConfig:
    return BackboneConfig(width=16, heads=2, feedforward=24, max_length=24, **switches)


@pytest.mark.journeys
def test_processes_that_begin_differently_are_refused(tokenizer: Tokenizer, store: TokenText, tmp_path: Path) -> None:
    """Every process says the same: what differs, and in which rank."""
    (tmp_path / "other.txt").write_text("\n\n".join(SENTENCES * 20))
    other = tokenized_text([Source(path=str(tmp_path / "other.txt"))], tokenizer, tmp_path / "store")
    for said in run_processes(2, tmp_path, partial(errors_of_different_processes, tokenizer, [store, other], tmp_path)):
        assert said[0].startswith("all processes must begin alike, but the setting train.batch differs: 9 in rank 1, 8 in rank 0; ")
        assert f"the training text differs: {other.digest} in rank 1, {store.digest} in rank 0" in said[1]
        assert "the weights at first differs" in said[2]
        assert "must lie on a file system that all machines share, but" in said[3]
    assert not (tmp_path / "metrics.jsonl").exists()


STEPS = 21


def trained(folder: Path, stop: int | None = None) -> Trained | None:
    """A run in a folder; None if the last of its processes is asked to end, at step ``stop``."""

    def batches(step: int) -> list[Batch]:
        if step == stop and world().rank == world().size - 1:
            signal.raise_signal(signal.SIGTERM)
        return [ragged_batch(step, 0, 5), ragged_batch(step, 1, 3)]

    model = make_language_model(dropout=0.2)
    config = TrainConfig.build({"precision": "float32", "checkpoint_every": 100})
    with suppress(Terminated):
        output = train(model, job(STEPS, batches=batches), config, folder)
        return [row["loss"] for row in output.log if "loss" in row][-1:], dict(model.weights())
    return None


@pytest.fixture
def whole(tmp_path: Path) -> Trained:
    """What one process trains."""
    (tmp_path / "whole").mkdir()
    found = trained(tmp_path / "whole")
    assert found is not None
    return found


@pytest.mark.journeys
def test_checkpoints_are_resumed_on_another_number_of_processes(tmp_path: Path, whole: Trained) -> None:
    """Three, one, two: the end is that of one process."""
    (folder := tmp_path / "run").mkdir()
    assert run_processes(3, tmp_path, partial(trained, folder, 3)) == [None] * 3
    assert trained(folder, 7) is None
    kept = folder / "checkpoints" / "step-00000008"
    assert sorted(file.name for file in kept.iterdir()) == ["state.json", "tensors.safetensors"]
    assert run_processes(2, tmp_path, partial(trained, folder, 11)) == [None] * 2
    for found in run_processes(2, tmp_path, partial(trained, folder)):
        assert_same_run(found, whole)


SECONDS = 240
"""after which a command that hangs fails its test"""
SMALL = [
    "--tokenizer.vocab-size", "300", "--width", "16", "--heads", "2", "--depth", "1", "--max-length", "16",
    "--batch", "5", "--optimizer", "adamw", "--learning-rate", "1e-3", "--precision", "float32",
]  # fmt: skip


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``warmstart WORDS`` in two processes, with flags of the launcher; what still runs in the end is killed."""
    (tmp_path / "text.txt").write_text("\n\n".join(SENTENCES * 30))
    launched: list[subprocess.Popen[str]] = []

    def start(*words: str, flags: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *flags]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONFAULTHANDLER": "1"}
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        launched.append(subprocess.Popen([*launcher, "-m", "warmstart", *words], cwd=tmp_path, env=environment, text=True, **both))
        return launched[-1]

    yield start
    for process in launched:
        end_all(process, signal.SIGKILL)


def end_all(process: subprocess.Popen[str], number: int) -> None:
    """Sends a signal to what a launcher started, and kills the launcher."""
    for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
        child.send_signal(number)
    process.kill()


def ended(process: subprocess.Popen[str]) -> str:
    """What it printed; if it hangs, also where each process stands."""
    try:
        return process.communicate(timeout=SECONDS)[0]
    except subprocess.TimeoutExpired:
        end_all(process, signal.SIGABRT)
        return pytest.fail(f"it hangs\n{process.communicate(timeout=SECONDS)[0]}")


def child_of_rank(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    """One of the processes that a launcher started."""
    children = psutil.Process(process.pid).children()
    return next(child for child in children if child.environ().get("RANK") == str(rank))


def wait_for(found: Callable[[], bool]) -> None:
    """Until something has happened."""
    until = time.monotonic() + SECONDS
    while not found():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)


def assert_same_weights(folder: Path, atol: float, rtol: float) -> None:
    """The saved models of the runs ``one`` and ``two`` in a folder."""
    one, two = (load_file(folder / name / "bundle" / "weights.safetensors") for name in ("one", "two"))
    for name, tensor in one.items():
        assert_close(two[name], tensor, atol=atol, rtol=rtol, msg=lambda text, name=name: f"{name}: {text}")


def checkpoints(folder: Path) -> list[str]:
    return sorted(place.name for place in (folder / "checkpoints").glob("step-*"))


def test_replaced_processes_share_a_store_that_none_before_them_wrote_to() -> None:
    """Whoever comes first, and though the store of the launcher holds what processes of an earlier attempt said."""
    store = dist.HashStore()
    for order in [(0, 1, 2), (2, 1, 0), (1, 0, 2)]:
        with ThreadPoolExecutor(3) as pool:
            working = []
            for rank in order:
                working.append(pool.submit(store_of_attempt, store, rank, 3))
                time.sleep(0.1)
        assert not any(attempt.result().check(["an address"]) for attempt in working)
        working[0].result().set("an address", "here")
        assert all(attempt.result().check(["an address"]) for attempt in working)


@pytest.mark.journeys
def test_a_killed_process_is_replaced_and_the_run_ends_as_one_process(
    tmp_path: Path, started: Callable[..., subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under ``--max-restarts``: it goes on from the last checkpoint, and every step is in the log once. Rank 0 alone prints."""
    rare = in_file(backbone={"dropout": 0.1}, train={"checkpoint_every": 10, "evaluate_every": 75})
    words = ["pretrain", "text.txt", *SMALL, "--steps", "150", *rare]
    process = started(*words, "--out", "two", flags=("--max-restarts", "1"))
    wait_for(lambda: len(checkpoints(tmp_path / "two")) > 0)
    child_of_rank(process, 1).kill()
    said = ended(process)
    assert process.returncode == 0, said
    assert said.count("warmstart: another process of this run ended before its work was done: it was killed") == 1
    assert said.count("step 150: held-out loss") == 1
    monkeypatch.chdir(tmp_path)
    assert main([*words, "--out", "one"]) == 0
    assert_same_weights(tmp_path, atol=1e-4, rtol=1e-3)
    logs = [map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines()) for name in ("one", "two")]
    assert [row["step"] for row in logs[0]] == [row["step"] for row in logs[1]]


@pytest.mark.journeys
@pytest.mark.parametrize("whom", ["launcher", "rank 1"])
def test_sigterm_saves_and_ends_all(whom: str, tmp_path: Path, started: Callable[..., subprocess.Popen[str]]) -> None:
    """Whoever gets it: the processes finish the same step, write a checkpoint and exit with 143."""
    rare = in_file(train={"checkpoint_every": 50_000})
    process = started("pretrain", "text.txt", *SMALL, "--steps", "100000", *rare, "--out", "run")
    wait_for(lambda: (tmp_path / "run" / "metrics.jsonl").exists())
    (process if whom == "launcher" else child_of_rank(process, 1)).send_signal(signal.SIGTERM)
    said = ended(process)
    (kept,) = checkpoints(tmp_path / "run")
    assert said.count(f"A checkpoint of step {int(kept.split('-')[1])} is saved.") == 1
    assert said.count("warmstart: terminated; to go on, run `warmstart pretrain --resume run`") == 1
    if whom == "rank 1":
        assert "143" in said  # the launcher's own report


@pytest.mark.journeys
def test_commands_of_one_process_refuse_to_run_in_several(started: Callable[..., subprocess.Popen[str]]) -> None:
    """Once, before anything is done."""
    process = started("doctor", "nothing")
    said = ended(process)
    assert said.count("warmstart: `warmstart doctor` runs in one process; start it without torchrun") == 1
    assert said.count("exitcode  : 2") >= 1
