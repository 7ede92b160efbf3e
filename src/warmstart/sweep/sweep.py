"""What a race and a curve have in common: who takes part, at which rates, with which seeds, within which time.

The learning rate of each method is chosen on the validation split with the first seed; the other seeds run at the rate that won.
The rates are the same for all, but what leaves the backbone frozen also tries ten times each: a head alone bears larger steps,
and its runs take seconds.
"""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field
from tyro.conf import Positional, arg

from warmstart.baselines import baselines_for
from warmstart.config import Config
from warmstart.console import console
from warmstart.data.audit import Audit, audit, drop_leaks
from warmstart.data.task import Task, subsample
from warmstart.errors import ConfigError
from warmstart.finetuning.compose import known_scheme, make_scheme
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.continued import continue_pretraining, pretraining_texts
from warmstart.finetuning.finetune import check_scheme
from warmstart.interop.load import load_model
from warmstart.model.files import find_bundle, load_bundle, save
from warmstart.model.history import ContinuedPretrainingRecord, seen_labels
from warmstart.run import open_run, save_settings
from warmstart.storage import sha256
from warmstart.sweep.ranking import Standing, choose_rate, stand, validated
from warmstart.sweep.store import Cell, Entrant, Ground, Result, bundle_digest, ground_of
from warmstart.sweep.trial import run_cells
from warmstart.tasks.load import load_task

FRESH = "from scratch"
RATES = (2e-4, 5e-4, 1.5e-3)


def duration(said: str) -> str:
    """The time itself if it is one: a number with s, m or h after it; a bare number means minutes."""
    if not re.fullmatch(r"\d+(\.\d+)?\s*[smh]?", said):
        raise ValueError(f"must be a time such as 90s, 30m or 2h; got {said!r}")
    return said


Scheme = Annotated[str, AfterValidator(known_scheme)]
Rate = Annotated[float, Field(gt=0)]


class HeatsConfig(Config):
    """Methods, rates, seeds and time."""

    task: Positional[str]
    """the task's manifest (YAML)"""
    backbones: Annotated[tuple[str, ...], Field(min_length=1)]
    """pretrained models: bundles, or runs' folders"""
    schemes: tuple[Scheme, ...] = ("full",)
    """ways to adapt each backbone; a+b does both"""
    out: str = "runs/heats"
    """folder of the run; the same folder goes on where it stopped"""
    rates: Annotated[tuple[Rate, ...], Field(min_length=1)] = RATES
    """learning rates that each method chooses from, on the validation split with the first seed; probe and scalar-mix also try ten
    times each"""
    seeds: int = Field(5, gt=0)
    """how many seeds; fewer than three say little"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    budget: Annotated[str, AfterValidator(duration)] | None = None
    """time for all of it, such as 30m; runs that do not fit are left for the next time"""
    jobs: int = Field(1, gt=0)
    """runs at once; each then has its share of the cores"""
    scratch: bool = True
    """also train the same network from scratch"""
    drop_leaks: bool = False
    """drop training texts that also occur in validation or test, and validation texts that occur in test"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()

    def fewest(self) -> int | None:
        """The smallest number of labelled texts that a run gets; None: all."""
        return None


@dataclass(frozen=True)
class Heats:
    """All that is settled before the first run."""

    config: HeatsConfig
    task: Task
    found: Audit
    entrants: tuple[Entrant, ...]
    ground: Ground
    folder: Path

    @property
    def middle(self) -> float:
        """The rate that of equals is preferred."""
        return self.config.tune.train.learning_rate


@dataclass(frozen=True)
class Ran:
    """The cells of one number of labels, and the results of those that the time sufficed for, by the cell written out."""

    cells: tuple[Cell, ...]
    done: dict[str, Result]


@dataclass(frozen=True)
class Lineup:
    """How all stand with one number of labels, on the seeds that all have run."""

    standings: tuple[Standing, ...]
    """best mean first"""
    missing: tuple[str, ...]
    """methods that the time did not suffice for"""
    diverged: tuple[str, ...]
    """methods that diverged at every rate"""
    seeds: int

    @property
    def whole(self) -> bool:
        """Whether every method tried all its rates."""
        return bool(self.standings) and not self.missing and all(standing.whole for standing in self.standings)


def open_heats(config: HeatsConfig) -> Heats:
    """Read, audit and check all that the runs will need, and open the folder. Nothing is trained."""
    started = time.time()
    _unambiguous(config.tune)
    task = load_task(config.task)
    task = drop_leaks(task) if config.drop_leaks else task
    entrants = enter(config, task)
    folder = open_run(config.out, config, resume=any((Path(config.out) / kept).is_dir() for kept in ("cells", "dapt")))
    save_settings(folder, config)
    entrants = [gone_on(entrant, task, config, folder) for entrant in entrants]
    ground = ground_of(task, config.task, folder, config.tune, without_leaks=config.drop_leaks)
    if config.budget:
        ground = ground.model_copy(update={"deadline": started + seconds_of(config.budget)})
    found = replace(
        audit(task),
        already_trained=tuple(path for path in config.backbones if seen_labels(load_bundle(find_bundle(path)), task.name)),
    )
    for finding in found.findings():
        console.print(f"audit ({finding.severity}): {finding.sentence}", markup=False)
    return Heats(config, task, found, tuple(entrants), ground, folder)


def enter(config: HeatsConfig, task: Task) -> list[Entrant]:
    """Who takes part, cheapest first. Raises ``ModelError`` or ``ConfigError`` where a scheme does not fit a backbone."""
    entrants = [Entrant(name=name, kind="baseline") for name in baselines_for(task)]
    for path, name in zip(config.backbones, _names(config.backbones), strict=True):
        bundle, origin = load_model(path), bundle_digest(path)
        for scheme in dict.fromkeys(config.schemes):
            check_scheme(bundle, config.tune.model_copy(update={"scheme": scheme}))
            entrants.append(Entrant(name=f"{scheme}{name}", kind="adapted", backbone=path, origin=origin, scheme=scheme))
        if config.scratch:
            entrants.append(Entrant(name=f"{FRESH}{name}", kind="scratch", backbone=path, origin=origin))
    return entrants


def gone_on(entrant: Entrant, task: Task, config: HeatsConfig, folder: Path) -> Entrant:
    """The entrant itself; or, where its scheme has ``dapt``, one whose backbone went on with pretraining, done once and kept.

    All training texts are read without their labels; the labels of the smallest number asked for, drawn by the first seed,
    serve the probe that decides.
    """
    if entrant.kind != "adapted" or not make_scheme(entrant.scheme).continued_pretraining:
        return entrant
    few = config.fewest()
    labelled = subsample(task, few, config.seed) if few else task
    options = {name: value for name, value in config.tune.options.to_dict().items() if name.startswith("dapt")}
    said = json.dumps([entrant.origin, task.digest, _text_digest(task), options, few, config.seed])
    place = folder / "dapt" / sha256(said.encode())[:24]
    if not place.is_dir():
        place.parent.mkdir(exist_ok=True)
        made = continue_pretraining(load_model(entrant.backbone), labelled, config.tune.options, config.seed, task.train)
        save(made.bundle, place)
    record = load_bundle(place).history[-1]
    assert isinstance(record, ContinuedPretrainingRecord)
    seconds = record.evaluations[-1].seconds
    return entrant.model_copy(
        update={"backbone": str(place), "parent": entrant.backbone, "origin": bundle_digest(str(place)), "before": seconds}
    )


@functools.lru_cache(maxsize=1)
def _text_digest(task: Task) -> str:
    """Names the text that ``dapt`` reads: what the manifest calls unlabelled is no part of the task's own digest."""
    return sha256(json.dumps(pretraining_texts(task, task.train.texts)[0]).encode())


def run_heats(heats: Heats, labels: int | None) -> Ran:
    """Run what is not done yet: first the rates, on the first seed; then seed after seed for all.

    A budget that runs out so leaves all methods with as many seeds.
    """
    config, first = heats.config, heats.config.seed
    search = [
        Cell(entrant=entrant, seed=first, rate=rate, labels=labels)
        for entrant in heats.entrants
        for rate in rates_of(entrant, config.rates, heats.middle)
    ]
    done = run_cells(search, heats.ground, config.jobs)
    rest = list[Cell]()
    for seed in range(first + 1, first + config.seeds):
        for entrant in heats.entrants:
            if entrant.kind == "baseline" and not labels:
                continue  # the same texts give the same baseline
            if tried := validated([cell for cell in search if cell.entrant == entrant], done):
                rest.append(Cell(entrant=entrant, seed=seed, rate=choose_rate(tried, heats.middle), labels=labels))
    return Ran((*search, *rest), done | run_cells(rest, heats.ground, config.jobs))


def rates_of(entrant: Entrant, rates: Sequence[float], middle: float) -> list[float]:
    """What an entrant chooses from, nearest to ``middle`` first."""
    if entrant.kind == "baseline":
        return [0.0]
    still = entrant.kind == "adapted" and make_scheme(entrant.scheme).keeps_features
    return sorted({*rates, *(float(f"{10 * rate:.6g}") for rate in rates if still)}, key=lambda rate: abs(math.log(rate / middle)))


def line_up(heats: Heats, ran: Ran) -> Lineup:
    """How all stand on the seeds that all have run."""
    stood = [(entrant, stand(entrant, ran.cells, ran.done, heats.middle)) for entrant in heats.entrants]
    steady = {entrant for entrant, _ in stood if entrant.kind == "baseline" and not ran.cells[0].labels}  # one run says it all
    ran_on = [set(standing.seeds) for entrant, standing in stood if standing and entrant not in steady]
    seeds = set.intersection(*ran_on) if any(s and s.entrant.kind != "baseline" for _, s in stood) else set[int]()
    even = [standing if entrant in steady else standing.on(seeds) for entrant, standing in stood if standing and seeds]
    begun = {cell.entrant for cell in ran.cells if str(cell) in ran.done}
    missing = tuple(entrant.name for entrant, standing in stood if not standing and entrant not in begun)
    diverged = tuple(entrant.name for entrant, standing in stood if not standing and entrant in begun)
    return Lineup(tuple(sorted(even, key=lambda s: -s.judged.over_seeds.mean)), missing, diverged, len(seeds))


def seconds_of(budget: str) -> float:
    """``seconds_of("30m")`` -> 1800."""
    number, unit = float(budget.rstrip(" smh")), budget[-1]
    return number * {"s": 1, "h": 3600}.get(unit, 60)


def _names(backbones: Sequence[str]) -> list[str]:
    """What tells the backbones apart in a method's name: nothing where there is one, else the folder's name."""
    if len(backbones) == 1:
        return [""]
    if len(set(backbones)) < len(backbones):
        raise ConfigError(f"each backbone must be named once, but {', '.join(backbones)} came; drop one")
    short = [Path(path).parent.name if Path(path).name == "bundle" else Path(path).name for path in backbones]
    return [f" · {name if short.count(name) == 1 else path}" for name, path in zip(short, backbones, strict=True)]


def _unambiguous(tune: FineTuneConfig) -> None:
    """What is settled here must not be given beside it."""
    plain = FineTuneConfig()
    if tune.scheme != plain.scheme:
        raise ConfigError(f"several schemes may run: give --schemes {tune.scheme}, not --scheme")
    if tune.train.learning_rate != plain.train.learning_rate:
        raise ConfigError(f"each method chooses its rate: give --rates {tune.train.learning_rate:g}, not --learning-rate")
