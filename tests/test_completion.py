"""Completion: what a shell offers for a line that is typed, asked of the shell itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from warmstart.cli import main, print_completion
from warmstart.commands import COMMANDS
from warmstart.completion import SHELLS
from warmstart.flags import all_flags

ASK = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _warmstart; printf "%s\\n" "${COMPREPLY[@]}"',
    # the editor's own functions, which exist in a terminal only, print what they are given
    "zsh": """
        compdef() { }; compset() { }; _describe() { print -l -- ${${(P)2}%%:*} }; compadd() { shift; print -l -- $@ }
        _files() { ls }
        source $1; shift; words=("$@"); CURRENT=$#; _warmstart; true""",
    "fish": "source $argv[1]; complete -C (string join ' ' -- $argv[2..])",
}


@pytest.fixture(scope="module", params=[*SHELLS])
def script(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A shell and its script."""
    if not shutil.which(request.param):
        pytest.skip(f"{request.param} is not installed")
    file = tmp_path_factory.mktemp("shell") / f"completion.{request.param}"
    file.write_text(print_completion([request.param]), encoding="utf-8")
    return request.param, file


def offered(script: tuple[str, Path], *words: str, folder: Path) -> set[str]:
    """What is offered for the last of the words."""
    shell, file = script
    start = {"bash": ["--norc", "-c", ASK[shell], "ask"], "zsh": ["-f", "-c", ASK[shell], "ask"], "fish": ["-N", "-c", ASK[shell]]}
    command = [shell, *start[shell], str(file), "warmstart", *words]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, timeout=60)
    assert told.stderr == ""
    return {line.split("\t")[0] for line in told.stdout.splitlines() if line.startswith(words[-1] or line[:1]) and line}


def test_a_script_is_right_by_its_shell_and_calls_nothing(script: tuple[str, Path]) -> None:
    """Its syntax; completion imports no Python, and so takes no time."""
    subprocess.run([script[0], "-n", str(script[1])], check=True)
    lines = script[1].read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.lstrip().startswith(("python", "warmstart")) or "(warmstart" in line or "`" in line]


def test_commands_and_flags_are_offered(script: tuple[str, Path], tmp_path: Path) -> None:
    """Commands, the studies after ``study``, and the shells; the flags that ``--help-all`` lists, of a switch what changes it."""
    assert {name.split()[0] for name in COMMANDS} <= offered(script, "", folder=tmp_path)
    studies = {name.split()[1] for name in COMMANDS if name.startswith("study ")}
    assert offered(script, "study", "", folder=tmp_path) == studies
    assert offered(script, "study", "p", folder=tmp_path) & studies == {"probe"}
    assert offered(script, "--print-completion", "", folder=tmp_path) == {*SHELLS}
    for name in ("adapt", "study probe", "race"):
        wanted = {flag.name for flag in all_flags(COMMANDS[name].load()[0]) if flag.name.startswith("--")}
        found = offered(script, *name.split(), "--", folder=tmp_path)
        always = {"--help", "--help-all", "--json", "--config", "--print-config"}
        assert {flag.replace("--no-", "--") for flag in found} == wanted | always
    assert "--no-scratch" in offered(script, "adapt", "lm", "task", "--no", folder=tmp_path)


def test_values_are_those_of_the_flag(script: tuple[str, Path], tmp_path: Path) -> None:
    """Choices; nothing for a number; otherwise files, and so after a switch."""
    (tmp_path / "corpus.txt").touch()
    assert offered(script, "adapt", "lm", "--selection", "", folder=tmp_path) == {"cross-validation", "holdout", "none"}
    assert offered(script, "pretrain", "--objective", "m", folder=tmp_path) == {"masked"}
    nothing = offered(script, "pretrain", "corpus.txt", "--objective", "causal", "c", folder=tmp_path)
    assert "causal" not in nothing
    assert offered(script, "pretrain", "--steps", "", folder=tmp_path) == set()
    files = set() if script[0] == "bash" else {"corpus.txt"}  # bash completes files itself: `complete -o default`
    for line in (["pretrain", ""], ["adapt", "--out", ""], ["adapt", "--drop-leaks", "c"], ["adapt", "--config", ""]):
        assert offered(script, *line, folder=tmp_path) == files


def test_the_names_of_flags_are_those_of_the_parser() -> None:
    """Also where a field has another name: ``--for``, ``--objective``, ``--import``."""
    names = {flag.name for command in ("pretrain", "label") for flag in all_flags(COMMANDS[command].load()[0])}
    assert {"--for", "--objective", "--import"} <= names
    assert not {"--for-task", "--name", "--imports"} & names


def test_a_shell_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    """One that there is."""
    assert main(["--print-completion"]) == 2
    assert "--print-completion takes the name of one shell: bash, zsh, fish" in capsys.readouterr().err
    assert main(["--print-completion", "csh"]) == 2
    assert "unknown shell 'csh'" in capsys.readouterr().err
    assert main(["--print-completion", "fish"]) == 0
    assert "complete -c warmstart" in capsys.readouterr().out
