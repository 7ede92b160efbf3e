"""Windows and macOS, as far as Linux can show them: what they lack, what they refuse, and consoles and files without UTF-8.

Children run with the ``sitecustomize`` of ``helpers.other_systems``; hosted CI runs the fast tests on the systems themselves.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from helpers.other_systems import environment

TINY = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32"]
QUICK = [*TINY, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "8", "--batch", "4", "--steps", "4"]
CONSOLES = {"cp1252": {"PYTHONIOENCODING": "cp1252"}, "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}}
"""of Windows in western Europe, and of a shell without a language, where files are ASCII too unless one says otherwise"""
SEVERAL = """
import json, sys
from warmstart.cli import main
for words in json.loads(sys.argv[1]):
    code = main(words)
    assert code == 0, (words, code)
"""


def run(code: str, *words: str, variables: dict[str, str], here: Path) -> subprocess.CompletedProcess[bytes]:
    """Run Python code in a folder."""
    return subprocess.run([sys.executable, "-c", code, *words], cwd=here, env=variables, capture_output=True, check=False)


@pytest.fixture
def place(console: str, tmp_path: Path) -> Path:
    """A folder as people name them, with a text and a task in files as Excel and Notepad write them: CRLF and a byte-order mark.

    Where all names must be ASCII only its content is not.
    """
    folder = tmp_path / "Eigene Dateien (Kopie)" / ("folder.a" if console == "ascii" else "Übung.ä")
    folder.mkdir(parents=True)
    texts = [
        f"{who} {does} the {what} in the café."
        for who in ("She", "Zoë", "I")
        for does in ("holds", "rubs")
        for what in ("cat", "Löwe")
    ]
    (folder / "Text neu.txt").write_bytes("\r\n\r\n".join(texts * 20).encode("utf-8-sig"))
    with (folder / "train (1).csv").open("w", encoding="utf-8-sig", newline="") as out:
        writer = csv.writer(out)
        writer.writerows([("text", "label"), *((text, "Löwe" if "Löwe" in text else "cat") for text in texts * 3)])
    manifest = {"name": "Tiere: ä/b?", "train": {"path": "train (1).csv"}, "validation": 0.25, "test": 0.25, "metric": "accuracy"}
    (folder / "task.yaml").write_bytes(yaml.safe_dump(manifest, allow_unicode=True).replace("\n", "\r\n").encode())
    return folder


RACE = ["--schemes", "full", "--learning-rates", "0.001", "--selection", "none", "--seeds", "2", "--epochs", "1"]
LINE = [
    ["pretrain", "Text neu.txt", "--out", "läufe/lm", *QUICK],
    ["pretrain", "--resume", "läufe/lm"],
    ["adapt", "läufe/lm", "task.yaml", "--out", "läufe/a", "--seeds", "2", "--epochs", "1", "--batch", "4"],
    ["predict", "läufe/a", "Zoë holds the Löwe.", "日本"],
    ["doctor", "läufe/a"],
    ["export", "läufe/a", "--to", "page", "--out", "Seite.html"],
    ["race", "task.yaml", "--out", "läufe/r", "--backbones", "läufe/lm", "--jobs", "2", *RACE],
]
"""the main line, a run and a file that are replaced, and workers, which the second console does not need again"""


@pytest.mark.journeys
@pytest.mark.parametrize("console", CONSOLES)
def test_the_main_line_on_a_system_like_windows(console: str, place: Path, tmp_path: Path) -> None:
    """No fork, /proc or fcntl; open files stay; CRLF; names with spaces and umlauts; and a console that lacks most characters."""
    variables = environment(tmp_path, **CONSOLES[console])
    line = [[word.replace("läufe", "runs") for word in words] for words in LINE] if console == "ascii" else LINE[:-1]
    done = run(SEVERAL, json.dumps(line), variables=variables, here=place)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")
    answers = [json.loads(line) for line in done.stdout.decode("ascii" if console == "ascii" else "cp1252").splitlines()]
    assert {answer["label"] for answer in answers} <= {"Löwe", "cat"}
    for folder in [place, *filter(Path.is_dir, place.rglob("*"))]:
        names = [file.name.casefold() for file in folder.iterdir()]
        assert len(set(names)) == len(names), f"names in {folder} differ by case only"
    assert not [file for file in place.rglob(".*") if file.is_file()], "locks and leftovers stay behind"
