"""The report of a race: who stands where, what it costs, which rates were tried, and what to take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from warmstart.config import Config
from warmstart.kinds import kind_of
from warmstart.report import Figure, Report, Section, Table, charts, write_report
from warmstart.report.race import restarts, trade_off
from warmstart.workflows.pages import as_sentence, audit_section, closing_sections, footer
from warmstart.workflows.raced import Race
from warmstart.workflows.standings import Standing


def race_page(race: Race, config: Config, folder: Path) -> Path:
    """Write the report; returns its path."""
    advice, *others = race.sentences()
    best = race.best
    report = Report(
        f"Race: {race.task.name}",
        as_sentence(advice),
        (
            (f"{race.task.metric}, {best.name}", f"{100 * best.judged.over_seeds.mean:.1f} %"),
            ("training texts", f"{race.labels:,}"),
            ("validation texts", f"{len(race.task.validation):,}"),
            ("test texts", f"{len(race.task.test):,}"),
            ("methods", str(len(race.standings))),
            ("seeds", str(race.seeds)),
        ),
        (
            _standings_section(race, others),
            _pairs_section(race),
            _runs_section(race),
            Section("What it costs", (), tuple(_trade_offs(race))),
            _rates_section(race),
            audit_section(race.audit),
            *closing_sections(config),
        ),
        footer(),
    )
    return write_report(report, folder)


def _standings_section(race: Race, said: list[str]) -> Section:
    rows = [(s.name, s.judged.scores, *_ends(s)) for s in race.standings]
    figure = Figure(
        "standings",
        f"{race.task.metric} on the test split: each seed, mean and 95 % interval over seeds.",
        charts.comparison(rows, race.task.metric),
    )
    text = (
        "Seconds and memory are of one run, training and evaluation: memory at its highest, on top of the program, the backbone "
        "and the texts. New: parameters that the backbone has not. A task: bytes to keep beside the backbone.",
    )
    return Section("Standings", (*(as_sentence(sentence) for sentence in said), *text), (figure, Table(race.HEADER, race.table())))


def _pairs_section(race: Race) -> Section:
    over = "over both" if race.seeds > 1 else "over test texts alone, as one seed tells nothing of others"
    text = (
        f"Every method against {race.best.name}, which is best on validation, in points on the test split: paired by seed and by "
        f"test text, {over}; probabilities corrected for the number of methods (Holm 1979)."
    )
    return Section("Can a difference be seen?", (text,), (Table(race.PAIRS, race.pairs()),))


def _runs_section(race: Race) -> Section:
    rows = [(s.name, s.judged.scores, [run.collapsed for run in s.runs]) for s in race.standings if s.name != "majority"]
    figure = Figure(
        "restarts",
        "A cross a run; the bar is the mean, the stroke one standard deviation each way. Red: no better than the commonest label.",
        restarts(rows, race.task.metric, kind_of(race.task).floor(race.task)),
    )
    return Section("Restarts", items=(figure,))


def _trade_offs(race: Race) -> Iterator[Figure]:
    costs: list[tuple[str, str, Callable[[Standing], float]]] = [
        ("time", "seconds of one run", lambda s: s.seconds),
        ("parameters", "parameters that train", lambda s: s.runs[0].trainable),
        ("memory", "bytes of memory", lambda s: s.memory or 0),
        ("disk", "bytes to keep a task", lambda s: s.runs[0].disk),
    ]
    for name, title, cost in costs:
        rows = [(s.name, float(cost(s)), *_ends(s)) for s in race.standings if cost(s) and s.name != "majority"]
        if rows:
            caption = f"Score against {title}; the line joins what nothing beats at its price."
            yield Figure(f"score-and-{name}", caption, trade_off(rows, title, race.task.metric))


def _rates_section(race: Race) -> Section:
    trained = [standing for standing in race.standings if standing.tried]
    rates = sorted({rate for standing in trained for rate in (*standing.tried, *standing.diverged)})
    rows = [(s.name, *(_at(s, rate) for rate in rates), f"{s.rate:g}", f"{s.search:.1f}") for s in trained]
    total = sum(standing.search for standing in trained)
    text = (
        f"{race.task.metric} on the {len(race.task.validation):,} validation texts at each rate, first seed. Rates that were not "
        f"chosen cost {total:.0f} seconds in all. A scheme multiplies the rate for its parts, so one rate means the same for all."
    )
    header = ("method", *(f"{rate:g}" for rate in rates), "chosen", "seconds spent on the others")
    return Section("Learning rates", (text,), (Table(header, rows),))


def _at(standing: Standing, rate: float) -> str:
    if rate in standing.tried:
        return f"{100 * standing.tried[rate]:.1f}"
    return "diverged" if rate in standing.diverged else "-"


def _ends(standing: Standing) -> tuple[float, float, float]:
    found = standing.judged.over_seeds
    return found.mean, found.low, found.high
