"""``doctor``: check that a saved model is complete and undamaged, and reproduces itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warmstart.commands.settings import DoctorConfig
from warmstart.errors import BundleError, ConfigError
from warmstart.interop.encoders import ENCODER_PREFIX, converted, is_encoder
from warmstart.interop.load import load
from warmstart.model.checks import CheckResult, CheckResults, faults
from warmstart.model.folder import find_bundle, format_sentence, is_model
from warmstart.model.stack_checks import examine
from warmstart.stats.scores import NamedFigures
from warmstart.system.console import console, print_table


def doctor(config: DoctorConfig) -> CheckResults | NamedFigures:
    """``doctor``: the checks of a model, or what a page says. Raises ``BundleError`` if it is damaged or a check fails."""
    if Path(config.model).is_file():  # a model is a folder
        return _check_page(config)
    if config.bundle is not None:
        raise ConfigError(f"--bundle is for pages, but {config.model} is none; remove it")
    model = load(config.model, selftest=False)  # the checks below say which outputs differ
    results = CheckResults(examine(model, _place(config.model)))
    _print(results, config.model)
    if is_model(place := find_bundle(_place(config.model))):
        console.print(format_sentence(place))
    if failed := faults(results):
        advice = dict.fromkeys(result.check.advice for result in results if result.status == "fail")
        error = BundleError(
            f"{config.model} fails {len(failed)} of {len(results)} checks: {'; '.join(failed)}. What to do: {'; or '.join(advice)}"
        )
        error.result = results
        raise error
    return results


def _place(model: str) -> str:
    """Folder of the model's files: an encoder has a name, but no folder of that name."""
    return str(converted(model.removeprefix(ENCODER_PREFIX))) if is_encoder(model) else model


def _check_page(config: DoctorConfig) -> NamedFigures:
    from warmstart.app.one_file.check import check_page

    facts = NamedFigures(check_page(config.model, config.bundle))
    if facts["script_checked"]:
        console.print(f"{config.model} is whole: script, policy and page are those of this version, byte for byte.")
    else:
        console.print(f"The script of {config.model} is of another version, {facts['warmstart']}, and was not checked.")
    console.print(
        f"Its facts and {facts['tensors']} tensors match their hashes. It was made by warmstart {facts['warmstart']} from the "
        f"bundle '{facts['name']}' with the digest {facts['digest']}."
    )
    if facts["bundle"] is None:
        console.print("Its weights were not compared with that bundle; name it with --bundle.")
    else:
        console.print(
            f"Its weights are those of {facts['bundle']}, rounded to 8 bits: they differ by {facts['steps']:.2f} steps at most, "
            "and rounding alone by 0.50."
        )
    return facts


def _print(results: Sequence[CheckResult], path: str) -> None:
    """The checks that say something of this model, as a table, and the others by name."""
    applied = [check for check in results if check.status != "not applicable"]
    rows = [(check.title, check.status, check.number, f"{check.check.limit:g}") for check in applied]
    print_table(path, rows, ("check", "result", "found", "limit"))
    if others := [f"{check.title} ({check.note})" for check in results if check.status == "not applicable"]:
        console.print(f"not applicable: {', '.join(others)}")
    if not faults(results):
        source = "every file and tensor matches its hash, and " if not path.startswith("hf:") else ""
        console.print(f"{path} is sound: {source}it passes {len(applied)} checks.")
