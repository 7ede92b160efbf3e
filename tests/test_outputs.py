"""Nothing of the user's is written over: neither what a command reads nor what lies where it is told to write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmstart as ws
from helpers.bundles import checked_here
from helpers.mutants import bases
from warmstart.cli import main
from warmstart.errors import BundleError
from warmstart.model.files import save
from warmstart.system.outputs import free_output, write_output
from warmstart.tokenizer.tokenizer import Tokenizer

TEXTS = [("the cup is on the table", "cups"), ("a plate with a crack", "plates"), ("two cups of tea", "cups"), ("plates", "plates")]
TABLE = "text,label\n" + "".join(f"{text} {number},{label}\n" for number in range(8) for text, label in TEXTS)

FILES = {
    "predict": "predict MODEL --file table.csv --out",
    "trace page": "generate WRITER the --max-new-tokens 2 --trace 2 --trace-html",
    "trace JSON": "generate WRITER the --max-new-tokens 2 --trace 2 --trace-json",
    "page": "export MODEL --to page --out",
}
"""commands that write one file"""
ENDINGS = {"predict": ".csv", "trace page": ".html", "trace JSON": ".json", "page": ".html"}
FOLDERS = {
    "export": "export WRITER --out",
    "import": "import exported --out",
    "labels": "label --out labels --export",
    "evaluate": "evaluate MODEL table.csv --out",
    "fit": "fit table.csv --minutes 0.01 --out",
    "pretrain": "pretrain table.csv --text-column text --steps 1 --out",
    "tokenize": "tokenize table.csv --text-column text --out",
    "study": "study lab --out",
}
"""commands that write a folder"""
EVERY = FILES | FOLDERS


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Iterator[Path]:
    """A folder with a table, models, a run, an exported model and a project, in which commands run."""
    place = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, checked_here():
        patch.chdir(place)
        (place / "table.csv").write_text(TABLE)
        (place / "run").mkdir()
        (place / "run" / "report.html").write_text("a report")
        (place / "run" / "run.json").write_text('{"command": "adapt"}')
        found = bases(tokenizer)
        save(found["labels"], place / "MODEL")
        save(found["causal"], place / "WRITER")
        (place / "pool.txt").write_text("a new cup\na new plate\n")
        assert main(["label", "pool.txt", "--task", "table.csv", "--out", "labels", "--export", "first"]) == 0
        assert main(["export", "WRITER", "--out", "exported"]) == 0
        yield place


def contents(place: Path) -> dict[str, bytes]:
    """Every file of the user's, by name; a run that was only begun has a lock and what a process says of itself."""
    return {
        str(file.relative_to(place)): file.read_bytes()
        for file in sorted(place.rglob("*"))
        if file.is_file() and "ledger" not in file.name and not file.is_relative_to(place / "labels")
    }


@pytest.mark.parametrize("name", EVERY)
def test_what_the_user_has_stays_as_it_is(name: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is read, also by another name; anything that lies there; models and runs; the current folder; standard output."""
    (home / "thesis").mkdir(exist_ok=True)
    for file in ("thesis/notes.md", "thesis/task.yaml", "mine.txt", "mine.csv", "mine.html", "mine.json"):
        (home / file).write_text("text,label\nmine,mine\n")
    for link, target in (("link.csv", "table.csv"), ("link.html", "mine.html")):
        if not (home / link).exists():
            (home / link).symlink_to(home / target)
    places = ["table.csv", "link.csv", "link.html", "thesis", "thesis/notes.md", "mine.txt", "mine.csv", "mine.html", "mine.json"]
    places += ["MODEL", "MODEL/bundle.json", "run", "run/run.json", ".", "-", "table.csv/inside"]
    if name in ("predict", "trace page", "trace JSON", "page", "export", "evaluate"):
        places += [f"{folder}/new{ENDINGS.get(name, '')}" for folder in ("MODEL", "run", "MODEL/deep/er")]
    before = contents(home)
    for place in places:
        words = [*EVERY[name].split(), place]
        if (name, place) == ("predict", "-"):
            assert main(words) == 0
            (home / "MODEL.history.ndjson").unlink()  # counts of what was predicted, in no file of the user's
        else:
            assert main(words) == 2, place
        assert contents(home) == before, place
        assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("name", FILES)
def test_what_warmstart_wrote_is_written_again_until_somebody_changes_it(name: str, home: Path) -> None:
    """In a folder that is made, with the permissions that the file has by then; a pipe is written to and stays one."""
    file = home / name / f"out{ENDINGS[name]}"
    words = [*FILES[name].split(), str(file)]
    assert main(words) == 0
    file.chmod(0o640)
    assert main(words) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    file.write_text(changed := file.read_text() + "\n# changed by hand\n")
    assert main(words) == 2
    assert file.read_text() == changed


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """It is not replaced by a file of its name."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_output(free_output(pipe), b"content")
    assert (os.read(reader, 100), pipe.is_fifo()) == (b"content", True)
    os.close(reader)


def test_a_name_that_promises_another_format_is_refused_before_any_work(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the model does not exist."""
    for ending in (".xls", ".txt", ".json", ".arrow"):
        assert main(["predict", "nowhere", "--file", "table.csv", "--out", f"labelled{ending}"]) == 2
        assert "--out must end in .csv, .tsv, .xlsx, .parquet, .jsonl, .ndjson" in " ".join(capsys.readouterr().err.split())
    assert main(["export", "nowhere", "--to", "page", "--out", "page.csv"]) == 2
    assert "must end in .html" in capsys.readouterr().err


def test_an_export_replaces_only_an_export_that_nobody_changed(home: Path) -> None:
    """Another file in its folder, or a row that was mended by hand, is named; the ledger of its test split may grow."""
    words = ["label", "--out", "labels", "--export", "exported-task"]
    assert main(words) == main(words) == 0
    (home / "exported-task" / "task.ledger.jsonl").write_text("kept")
    assert main(words) == 0
    train = home / "exported-task" / "train.csv"
    for changed, content in ((home / "exported-task" / "notes.md", "mine"), (train, train.read_text() + "mine,cups\n")):
        changed.write_text(content)
        assert main(words) == 2
        assert changed.read_text() == content
        changed.unlink()
    assert (home / "exported-task" / "task.ledger.jsonl").read_text() == "kept"


def test_a_model_replaces_only_a_model(home: Path, tmp_path: Path) -> None:
    """Whatever else lies beside its files would be lost."""
    model = ws.load(home / "MODEL")
    save(model, tmp_path / "clone")
    (tmp_path / "clone" / ".git").mkdir()
    with pytest.raises(BundleError, match=r"holds \.git, which would be lost"):
        ws.save(model, tmp_path / "clone")
    (tmp_path / "clone" / ".git").rmdir()
    assert ws.save(model, tmp_path / "clone")


def test_two_outputs_need_two_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second would write over the first."""
    words = "generate WRITER the --max-new-tokens 2 --trace 2 --trace-html one.html --trace-json ./one.html"
    assert main(words.split()) == 2
    assert "a file each" in capsys.readouterr().err
