"""The command line: help everywhere, quick to start, and every mistake ends with one message and exit code 2.

With ``--json`` every command prints its result, or its error, as one JSON document and nothing else on standard output.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.bundles import classifier, language_bundle
from helpers.models import make_backbone
from helpers.settings import in_file
from helpers.tasks import cats
from warmstart.cli import main, parse
from warmstart.commands import COMMANDS
from warmstart.commands.settings import PredictConfig, PretrainConfig
from warmstart.corpora.store import read_index
from warmstart.flags import all_flags, count_flags
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.json_output import WITHOUT_RESULT, plain
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head
from warmstart.tasks.load import save_task
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.training.loop import _Run
from warmstart.version import __version__

TINY = ["--width", "16", "--depth", "1", "--heads", "2", "--feedforward", "24", "--max-length", "32"]
EACH_STEP = in_file(train={"checkpoint_every": 1})
QUICK = [*TINY, "--tokenizer.vocab-size", "330", "--tokenizer.sentinels", "8", "--batch", "4"]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A task of two labels, in a table with a manifest."""
    rows = [
        f"{who} {does} the {what}.\t{what}"
        for who in ("She", "He", "I", "They")
        for does in ("holds", "rubs")
        for what in ("cat", "river")
    ]
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + "\n".join(rows * 2) + "\n")
    (tmp_path / "test.tsv").write_text("text\tlabel\nShe rubs a cat.\tcat\nHe sees a river.\triver\n")
    manifest = tmp_path / "task.yaml"
    manifest.write_text("name: pets\ntrain: {path: train.tsv}\nvalidation: 0.25\ntest: {path: test.tsv}\nmetric: accuracy\n")
    return manifest


def save_model(folder: Path, tokenizer: Tokenizer, *, language: bool = False) -> Path:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    head = LMHeadConfig() if language else ClassificationHeadConfig(classes=2)
    model = Model(backbone, fresh_head(head, backbone, 0), causal=True)
    language_head = Language(generates=True)
    return save(Bundle(model, tokenizer, () if language else ("cat", "river"), language=language_head), folder)


def asked(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[object, str, str]:
    """The exit code of a command, and what it printed on both outputs."""
    capsys.readouterr()
    try:
        code: object = main(words)
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """``--help`` fits a screen and counts the flags that ``--help-all`` shows, too; tables have their columns; nothing is wide."""
    monkeypatch.setenv("COLUMNS", "120")
    for name, command in COMMANDS.items():
        basic, advanced = count_flags(command.load_settings()).values()
        assert basic <= 20, name
        for flag, count in (("--help", basic), ("--help-all", basic + advanced)):
            code, shown, _ = asked([*name.split(), flag], capsys)
            assert (code, f"usage: warmstart {name}" in shown) == (0, True), name
            assert (f"{advanced} more flags: warmstart {name} --help-all" in shown) == (count < basic + advanced), name
            assert len(re.findall(r"^  (?:--[\w\[]|[A-Z]{2}|\[)", shown, re.M)) == count, (name, flag)
            assert max(map(len, shown.splitlines())) <= 100, name
            assert flag == "--help-all" or shown.count("\n") < 40, name
        if "--text-column" in shown:  # of --help-all
            assert "--text-column" in asked(["help", *name.split()], capsys)[1], name


def test_every_command_refuses_wrong_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that are not there and flags that do not exist: exit code 2, one message, one document with ``--json``, no file."""
    monkeypatch.chdir(tmp_path)
    for name, command in COMMANDS.items():
        settings = command.load_settings()
        missing = ["missing" for flag in all_flags(settings) if not flag.name.startswith("--")]
        for words in (missing, ["--no-such-flag"]) if missing else (["--no-such-flag"],):
            code, printed, said = asked([*name.split(), *words, "--json"], capsys)
            assert (code, "Traceback" in said, "warmstart" in said) == (2, False, True), (name, said)
            document = json.loads(printed)
            assert (document["command"], document["error"]["exit_code"]) == (name, 2)
    assert not [*tmp_path.iterdir()]


def test_the_name_of_a_file_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """An error is one line, with escapes for what would break the line, colour it or turn its direction; JSON has the name."""
    name = "a\x1b[31m\nb\x9b\u202e.txt"
    code, printed, said = asked(["audit", name, "--json"], capsys)
    assert (code, r"a\x1b[31m\nb\x9b\u202e.txt" in said, said.count("\n")) == (2, True, 1)
    assert name in json.loads(printed)["error"]["message"]
    assert all(line.isprintable() for line in said.splitlines())


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``--help``; ``help fit`` is ``fit --help``, and ``-V`` the version."""
    code, output, _ = asked(["--help"], capsys)
    assert (code, [name for name in COMMANDS if f"  {name}" not in output]) == (0, [])
    assert [asked([flag], capsys)[:2] for flag in ("-V", "--version")] == [(0, f"warmstart {__version__}\n")] * 2
    assert asked(["help", "fit"], capsys) == asked(["fit", "--help"], capsys)


EVERY_HELP = """
from warmstart.cli import main
from warmstart.commands import COMMANDS
for name in COMMANDS:
    try:
        main([*name.split(), "--help"])
    except SystemExit:
        pass
"""
HEAVY = {
    "import warmstart; from warmstart.cli import main; main(['--help'])": "torch sklearn polars pydantic numpy altair",
    "from warmstart.commands import COMMANDS; COMMANDS['predict'].load()": "sklearn scipy altair vl_convert joblib matplotlib",
    "from warmstart.commands import COMMANDS; [command.load() for command in COMMANDS.values()]": "altair vl_convert",
    EVERY_HELP: "torch sklearn scipy polars altair",
}
"""what is run, and the packages that it must not import"""


@pytest.mark.journeys
def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    """``--help``, of each command too, starts without torch, and ``predict`` without what only comparisons and reports need."""
    for code, packages in HEAVY.items():
        told = f"{code}\nimport sys; print(sorted(set({packages!r}.split()) & sys.modules.keys()))"
        run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
        assert run.stdout.splitlines()[-1] == "[]", code


def test_the_main_line_by_command(text: Path, task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pretrain, adapt, evaluate, predict, generate, audit, doctor: each command takes what the one before made."""
    out, adapted = tmp_path / "lm", tmp_path / "adapted"
    assert main(["pretrain", str(text), "--out", str(out), "--steps", "12", *QUICK]) == 0
    assert {"config.yaml", "metrics.jsonl", "bundle", "report.html", "figures"} <= {file.name for file in out.iterdir()}
    how = ["--seeds", "2", "--epochs", "2", "--batch", "4", "--details"]
    assert main(["adapt", str(out), str(task), "--out", str(adapted), *how]) == 0
    output = capsys.readouterr().err
    for word in ("kept:", "new:", "dropped:", "head.score.weight", "majority", "TF-IDF", "from scratch", "95%"):
        assert word in output
    assert main(["evaluate", str(adapted), str(task)]) == 0
    assert main(["evaluate", str(out), str(text)]) == 0
    assert "word_perplexity" in capsys.readouterr().err
    assert main(["predict", str(adapted), "She holds the cat."]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["label"] in ("cat", "river")
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-3)
    (tmp_path / "in.txt").write_text("a cat\n\na river\n")
    assert main(["predict", str(adapted), "--file", str(tmp_path / "in.txt"), "--out", str(tmp_path / "out.ndjson")]) == 0
    assert [json.loads(line)["text"] for line in (tmp_path / "out.ndjson").read_text().splitlines()] == ["a cat", "", "a river"]
    assert main(["predict", str(adapted), "--file", str(tmp_path / "in.txt"), "--out", str(tmp_path / "out.csv")]) == 0
    header, *lines = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "row,label,probability,text"
    assert [(line.split(",")[0], line.split(",")[-1]) for line in lines] == [("1", "a cat"), ("2", ""), ("3", "a river")]
    assert [line.split(",")[1] != "" for line in lines] == [True, False, True]
    assert main(["generate", str(out), "She", "--max-new-tokens", "5", "--greedy"]) == 0
    assert capsys.readouterr().out.startswith("She")
    assert main(["audit", str(task), "--model", str(adapted)]) == 0
    assert main(["doctor", str(adapted)]) == 0
    assert "is sound: every file and tensor matches its hash" in capsys.readouterr().err
    page = (adapted / "report.html").read_text()
    assert "Adaptation: pets" in page
    assert "What transfer" not in page


def test_a_run_goes_on_only_as_it_was_begun(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other steps, and other held-out text, are refused; that it ends as one that never stopped is proved in test_chaos."""

    def interrupted(*arguments: Any) -> None:
        write(*arguments)
        raise KeyboardInterrupt

    write, held_out, out = _Run._write_checkpoint, tmp_path / "held.txt", str(tmp_path / "cut")
    held_out.write_text("She holds the river." * 20)
    words = ["pretrain", str(text), "--objective", "masked", "--held-out", str(held_out), "--steps", "4", *EACH_STEP, *QUICK]
    with monkeypatch.context() as patch:
        patch.setattr(_Run, "_write_checkpoint", interrupted)
        assert main([*words, "--out", out]) == 130
    for again, refused in (
        (["pretrain", "--resume", out, "--steps", "12"], "'train.steps' is 12 here and 4 in"),
        ([*words, "--out", out, "--steps", "12"], "cut exists and is not empty"),
    ):
        assert main(again) == 2
        assert refused in " ".join(capsys.readouterr().err.split())
    held_out.write_text("He rubs the cat." * 20)
    assert main(["pretrain", "--resume", out]) == 2
    assert "belongs to a run with other data" in capsys.readouterr().err
    held_out.write_text("She holds the river." * 20)
    assert main(["pretrain", "--resume", out]) == 0


def test_a_budget_of_words_counts_what_is_held_out(text: Path, tmp_path: Path) -> None:
    """Tokenizer, training and held-out text are all within it."""
    words = ["pretrain", str(text), "--document", "line", "--max-words", "60", "--held-out", "0.3", "--steps", "2", *QUICK]
    assert main([*words, "--max-length", "8", "--out", str(tmp_path / "run")]) == 0
    (index,) = (tmp_path / "run" / "text").glob("*/index.json")
    sides = [read_index(index.read_bytes(), "").counts(held_out=held_out) for held_out in (False, True)]
    assert all(side.documents for side in sides)
    assert 40 < sum(side.words for side in sides) <= 60


def test_a_refused_text_leaves_its_folder_to_the_next_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So does a misspelt file; what the message advises works in the same folder, and with a tokenizer of the new text."""
    (tmp_path / "a.txt").write_text("She holds.\n" * 2)
    assert main(["pretrain", str(tmp_path / "b.txt"), "--out", str(tmp_path / "run"), *QUICK]) == 2
    words = ["pretrain", str(tmp_path / "a.txt"), "--out", str(tmp_path / "run"), "--held-out", "none", "--steps", "2", *QUICK]
    assert main(words) == 2
    assert "add text, or choose a smaller --max-length" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "a.txt").write_text("Quick brown foxes jump over lazy dogs.\n" * 9)
    assert main([*words, "--max-length", "8"]) == 0
    assert len(load_bundle(tmp_path / "run" / "bundle").tokenizer.encode(["Quick brown foxes"])[0]) < 17


def test_settings_come_from_yaml_presets_and_flags(tmp_path: Path) -> None:
    """A flag beats the file, the file beats the preset, the preset beats the default."""
    file = tmp_path / "c.yaml"
    file.write_text("preset: gpt-nano\ntext: [a.txt]\nbackbone: {depth: 5}\ntrain: {steps: 7}\n")
    config = parse(PretrainConfig, ["--config", str(file), "--steps", "9"], "warmstart pretrain")
    assert (config.text, config.backbone.width, config.backbone.depth, config.train.steps) == (("a.txt",), 48, 5, 9)
    config = parse(PretrainConfig, ["b.txt", "--preset=lab"], "warmstart pretrain")
    assert (config.text, config.backbone.width, config.backbone.norm) == (("b.txt",), 200, "post")
    config = parse(PredictConfig, ["m", "a text", "--top", "2"], "warmstart predict")
    assert (config.model, config.texts, config.top) == ("m", ("a text",), 2)


MISTAKES = {
    "unknown command": (["pretrian"], "unknown command 'pretrian'; did you mean 'pretrain'? `warmstart --help` lists all"),
    "no text": (["pretrain"], "name at least one file or folder of text"),
    "missing text": (["pretrain", "nothing.txt", "--out", "OUT", *QUICK], "nothing.txt"),
    "no column": (["pretrain", "TABLE", "--out", "OUT", *QUICK], "--text-column"),
    "empty text": (["pretrain", "EMPTY", "--out", "OUT", *QUICK], "empty"),
    "wrong encoding": (["pretrain", "LATIN", "--out", "OUT", *QUICK], "--encoding cp1252"),
    "short text": (["pretrain", "SHORT", "--out", "OUT", *QUICK, "--held-out", "TEXT"], "the text is too short"),
    "held out is trained on": (
        ["pretrain", "TEXT", "--out", "OUT", "--held-out", "TEXT"],
        "held-out text must not be training text",
    ),
    "run inside text": (["pretrain", "USED", "--out", "OUT"], "lies inside the text's folder"),
    "share": (["pretrain", "TEXT", "--out", "OUT", "--held-out", "1.5"], "a fraction between 0 and 1, but is 1.5"),
    "out of range": (["pretrain", "TEXT", "--mask-rate", "2"], "--mask-rate must be less than 1, but is 2"),
    "two budgets": (["pretrain", "TEXT", "--steps", "3", "--epochs", "1"], "name one budget, not 2"),
    "heads": (["pretrain", "TEXT", "--width", "10", "--heads", "4"], "heads must divide width"),
    "objective": (["pretrain", "TEXT", "--out", "OUT", "--objective", "maskd", *QUICK], "did you mean 'masked'"),
    "vocabulary": (["pretrain", "TEXT", "--out", "OUT", "--tokenizer.vocab-size", "20"], "vocab"),
    "preset": (["pretrain", "TEXT", "--preset", "gpt-nanno"], "did you mean 'gpt-nano'"),
    "config file": (["pretrain", "--config", "nothing.yaml"], "no such file: nothing.yaml"),
    "config key": (["pretrain", "--config", "BADKEY"], "unknown key 'backbone.widht'; did you mean 'width'"),
    "used folder": (["pretrain", "TEXT", "--out", "USED"], "exists and is not empty"),
    "no run": (["pretrain", "--resume", "nothing"], "no run to resume"),
    "no model": (["predict", "nothing", "x"], "there is no model at nothing"),
    "no bundle": (["doctor", "USED"], "not a bundle"),
    "no texts": (["predict", "MODEL"], "there is no text"),
    "language model predicts": (["predict", "LANGUAGE", "x"], "adapt it to a task first"),
    "classifier writes": (["generate", "MODEL", "x"], "does not generate text"),
    "no task": (["adapt", "LANGUAGE", "nothing.yaml", "--out", "OUT"], "nothing.yaml"),
    "one class": (["adapt", "LANGUAGE", "ONECLASS", "--out", "OUT"], "two labels"),
    "unknown label": (["adapt", "LANGUAGE", "NEWLABEL", "--out", "OUT"], "dog"),
    "other labels": (["evaluate", "MODEL", "OTHER"], "must know every label"),
    "scheme": (["adapt", "LANGUAGE", "TASK", "--scheme", "ful", "--out", "OUT"], "did you mean 'full'"),
    "schemes that contradict": (
        ["adapt", "LANGUAGE", "TASK", "--scheme", "full+lora", "--out", "OUT"],
        "full trains the whole backbone, but lora trains only a part of the backbone; name only one of them",
    ),
    "lm-loss after adaptation": (
        ["adapt", "MODEL", "TASK", "--scheme", "lm-loss", "--out", "OUT"],
        "start from a language model",
    ),
    "lora rank": (["adapt", "LANGUAGE", "TASK", "--scheme", "lora", "--lora-rank", "0", "--out", "OUT"], "greater than 0"),
    "lora targets": (
        ["adapt", "LANGUAGE", "TASK", "--lora-targets", "q", "q", "--scheme", "lora", "--out", "OUT"],
        "at least one matrix, and each only once",
    ),
    "label smoothing": (["adapt", "LANGUAGE", "TASK", "--label-smoothing", "1.5", "--out", "OUT"], "less than 1"),
    "study of nothing": (["study"], "'study' needs a second word; known: study lab"),
    "unknown study": (["study", "labb"], "unknown command 'study labb'; did you mean 'study lab'?"),
    "bar for labels": (["predict", "MODEL", "x", "--target-error", "0.1"], "adapt it with --calibration-fraction 0.5"),
    "answers from labels": (["adapt", "MODEL", "QUESTIONS", "--out", "OUT"], "answers are generated by a language head"),
    "lines for a table": (["fit", "SHORT"], "is text, but a table with a column of labels is needed; `warmstart label "),
    "missing word": (["predict"], "MODEL is missing in `warmstart predict MODEL [TEXT ...]`: an adapted model"),
    "missing flag": (["label", "TEXT"], "--out is missing in `warmstart label [POOL ...] --out OUT`: folder of the project"),
    "surplus word": (
        ["fit", "a", "b"],
        "there is no place for 'b' in `warmstart fit DATA`; a text or name with blanks needs quotes",
    ),
    "no value": (["pretrain", "TEXT", "--config"], "--config needs a value"),
    "unknown flag": (["pretrain", "TEXT", "--widht", "3"], "--width"),
    "pooling": (["adapt", "LANGUAGE", "TASK", "--pooling", "maen", "--out", "OUT"], "did you mean 'mean'"),
}


def test_mistakes_end_with_one_message(
    text: Path, task: Path, tmp_path: Path, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, the message says what is wrong, no traceback, and no bundle is left half-written."""
    paths = {"TEXT": text, "TASK": task, "OUT": tmp_path / "out", "USED": tmp_path}
    for key, content in {
        "EMPTY": b"",
        "LATIN": b"caf\xe9 " * 40,
        "SHORT": b"She holds.\n",
        "TABLE": b"id,body\n1,She holds.\n",
    }.items():
        paths[key] = tmp_path / f"{key.lower()}.{'csv' if key == 'TABLE' else 'txt'}"
        paths[key].write_bytes(content)
    for name, labels in {"one": "cat cat", "dog": "dog cat", "bird": "bird cat bird cat"}.items():
        (tmp_path / f"{name}.tsv").write_text(
            "text\tlabel\n" + "".join(f"{i}\t{label}\n" for i, label in enumerate(labels.split()))
        )
    manifests = {
        "ONECLASS": "name: one\ntrain: {path: one.tsv}\nvalidation: 1\ntest: {path: one.tsv}",
        "NEWLABEL": "name: new\ntrain: {path: train.tsv}\nvalidation: 0.25\ntest: {path: dog.tsv}",
        "OTHER": "name: other\ntrain: {path: bird.tsv}\nvalidation: {path: bird.tsv}\ntest: {path: bird.tsv}",
        "QUESTIONS": "name: q\ntype: answers\ntrain: {path: bird.tsv}\nvalidation: {path: bird.tsv}\ntest: {path: bird.tsv}",
        "BADKEY": "backbone: {widht: 3}",
    }
    for key, content in manifests.items():
        paths[key] = tmp_path / f"{key.lower()}.yaml"
        paths[key].write_text(content + "\n")
    paths["MODEL"] = save_model(tmp_path / "model", tokenizer)
    paths["LANGUAGE"] = save_model(tmp_path / "language", tokenizer, language=True)
    for name, (words, message) in MISTAKES.items():
        code, _, output = asked([str(paths.get(word, word)) for word in words], capsys)
        assert (code, "Traceback" in output) == (2, False), f"{name}: {output}"
        assert message in " ".join(output.split()), f"{name}: {output}"
        assert not [*(tmp_path / "out").glob("**/bundle.json")], name


# ------------------------------------------------------------------------------------------------ documents


@pytest.fixture
def place(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task, a model that labels its texts, and one that has read text alone; the folder in which commands run."""
    save_task(cats(), tmp_path / "task")
    (tmp_path / "mails.csv").write_text(
        "text,label\n" + "".join(f"A {name} {i}.,{name}\n" for i in range(8) for name in ("cat", "dog"))
    )
    save(language_bundle(tokenizer), tmp_path / "lm")
    save(Bundle(classifier(tokenizer), tokenizer, ("other", "cat")), tmp_path / "topics")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def document(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    """What a command prints on standard output, which must be one document."""
    capsys.readouterr()
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_result_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the command, where it wrote, and what it found."""
    adapt = ["adapt", "lm", "task", "--seeds", "1", "--epochs", "1", "--no-scratch", "--no-baselines", "--out", "runs/a"]
    for words, keys in (
        (["audit", "task"], {"findings", "splits"}),
        (adapt, {"labels"}),
        (["evaluate", "topics", "task"], {"accuracy"}),
        (["study", "lab", "--out", "runs/lab"], {"findings", "figures"}),
    ):
        found = document(words, capsys)
        assert found["command"] == (" ".join(words[:2]) if words[0] == "study" else words[0])
        assert keys <= found["result"].keys(), words
    rows = document(["predict", "topics", "A cat.", "A dog."], capsys)["result"]
    assert [row["text"] for row in rows] == ["A cat.", "A dog."]
    assert all(row["label"] in ("other", "cat") for row in rows)
    assert {row["status"] for row in document(["doctor", "topics"], capsys)["result"]} == {"pass", "not applicable"}
    assert "parameters" in document(["cost", "--preset", "lab"], capsys)["result"]
    assert document(["runs", "."], capsys)["result"]["runs"]


def test_an_error_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the sentence that is printed, and the exit code; also if the words cannot be read, or the command has no result."""
    assert "labelled.csv" in document(["audit", "labelled.csv"], capsys, 2)["error"]["message"]
    assert document(["no-such-command"], capsys, 2)["error"]["kind"] == "ConfigError"
    assert "no result" in document(["serve", "topics"], capsys, 2)["error"]["message"]
    for words in (["doctor", "nothing"], ["cost", "nothing"], ["runs", "nothing"]):
        assert document(words, capsys, 2)["error"]["kind"] in ("BundleError", "DataError", "ConfigError"), words


def test_what_can_be_done_next_is_a_document(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command."""
    assert main(["--json"]) == 0
    assert all(one["command"] and one["purpose"] for one in json.loads(capsys.readouterr().out)["next"])


def test_every_command_has_a_result_that_is_json() -> None:
    """By what its function says that it returns: each type has ``to_dict``, or is a path, a mapping or a list."""
    for name, command in COMMANDS.items():
        if name in WITHOUT_RESULT:
            continue
        _, run = command.load()
        returned = typing.get_type_hints(inspect.unwrap(run))["return"]
        assert returned is not type(None), name
        for one in typing.get_args(returned) if isinstance(returned, types.UnionType) else [returned]:
            plain_kind = issubclass(typing.get_origin(one) or one, list | dict | Path | type(None))
            assert plain_kind or hasattr(one, "to_dict"), (name, one)


def test_any_value_is_plain() -> None:
    """Arrays are lists, paths are names, and what JSON cannot say is null."""
    value = {"a": np.array([1.0, np.nan]), 2: (Path("x") / "y", {"z"}), "c": np.float64("inf"), "d": True}
    assert json.dumps(plain(value), allow_nan=False) == '{"a": [1.0, null], "2": ["x/y", ["z"]], "c": null, "d": true}'
