"""Settings, registries and tables in a terminal: keys and names are checked, YAML files are read with their variables."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field
from rich.console import Console
from rich.progress import Progress
from tyro.conf import arg

from warmstart.cli import main, parse
from warmstart.commands import COMMANDS
from warmstart.commands.settings import PredictConfig, PretrainConfig
from warmstart.config import EFFECTLESS, Config, read_yaml, result_key
from warmstart.errors import ConfigError, suggest
from warmstart.finetuning.config import STRATEGY_NAMES
from warmstart.finetuning.continual import STRATEGIES
from warmstart.flags import file_settings
from warmstart.heads.pooled import POOLINGS
from warmstart.heads.settings import POOLING_NAMES
from warmstart.registry import Registry
from warmstart.system import console
from warmstart.system.console import print_table, quietly
from warmstart.tasks.unknown import UNKNOWN_SHARE


class Inner(Config):
    """A group of settings."""

    width: int = Field(4, gt=0)
    """a number"""


class Middle(Inner):
    """A group that inherits a key and adds one."""

    quick: bool = True
    """a switch"""


class Outer(Config):
    """Settings with a flattened group and one with a prefix."""

    limit: int | None = None
    """another number"""
    flat: Annotated[Middle, arg(name="")] = Middle()
    group: Inner = Inner()


def test_wrong_keys_and_values_are_named() -> None:
    """An unknown key names the nearest known one, a wrong value what must hold."""
    for values, message in (
        ({"limt": 3}, "settings: unknown key 'limt'; did you mean 'limit'? known: flat, group, limit"),
        ({"group": {"wdth": 3}}, "settings: unknown key 'group.wdth'; did you mean 'width'? known: width"),
        ({"flat": {"quik": False}}, "settings: unknown key 'flat.quik'; did you mean 'quick'? known: quick, width"),
        ({"group": {"width": "three"}}, "settings: 'group.width' must be a whole number, but is 'three'"),
        ({"group": {"width": 0}}, "settings: 'group.width' must be greater than 0, but is 0"),
    ):
        with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
            Outer.build(values)


WRONG = {
    "race t --seeds 0": "--seeds must be greater than 0, but is 0",
    "race t --backbones m --seeds=-1": "--seeds must be greater than 0, but is -1",
    "pretrain x --mask-rate 2": "--mask-rate must be less than 1, but is 2",
    "pretrain x --width three": "--width must be a whole number, but is three",
    "pretrain x --width 2.5": "--width must be a whole number, but is 2.5",
    "pretrain x --optimizer adm": "--optimizer must be 'adamw' or 'muon', but is adm",
    "pretrain x --clip 0.5": "--clip is no flag; write `train: {clip: 0.5}` into a file for --config",
    "adapt m t --keep=last": "--keep is no flag; write `tune: {keep: last}` into a file for --config",
    "cost --no-bias": "--no-bias is no flag; write `backbone: {bias: false}` into a file for --config",
    "pretrain x --tokenizer.vocab-size 0": "--tokenizer.vocab-size must be at least 1, but is 0",
    "generate m x --temperature -1": "--temperature must be greater than 0, but is -1",
    "generate m x --temperature warm": "--temperature must be a number, but is warm",
    "adapt m t --lora-targets q vv": "--lora-targets must be 'q', 'k', 'v', 'qkv', 'out' or 'feedforward', but is vv",
    "fit t --minuts 3": "there is no flag --minuts; did you mean --minutes? --help-all lists all",
    "fit t --minutes": "--minutes needs a value after it",
    "cost --vocab-size 0": "--vocab-size must be greater than 0, but is 0",
    "study lab --samples 9": "--samples must be greater than 99, but is 9",
}


def test_a_wrong_value_of_a_flag_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """What must hold and what came, in the words of every command, with exit code 2: ranges, types and choices."""
    for line, message in WRONG.items():
        assert main(line.split()) == 2
        assert capsys.readouterr().err == f"warmstart: {message}\n"


def test_all_settings_are_printed_as_the_file_that_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of every command, those that are no flag too: the file changes nothing, as each is there with its default."""
    for name, command in COMMANDS.items():
        with pytest.raises(SystemExit):
            main([*name.split(), "--print-config"])
        (tmp_path / "all.yaml").write_text(capsys.readouterr().out)
        settings = command.load_settings()
        fields = {key: field for key, field in settings.model_fields.items() if field.is_required()}
        required = {key: ("a", "b") if "tuple" in str(field.annotation) else "a" for key, field in fields.items()}
        required |= {"text": ("a",)} if name == "tokenize" else {}
        assert settings.build(read_yaml(tmp_path / "all.yaml") | required) == settings.build(required), name


def test_a_setting_that_is_no_flag_comes_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The parser keeps what the file says beside flags of the same group; ``--help-all`` counts such settings."""
    (tmp_path / "rare.yaml").write_text("train: {clip: 0.25, batch: 3}\nbackbone: {bias: false}\n")
    config = parse(PretrainConfig, ["a.txt", "--config", str(tmp_path / "rare.yaml"), "--batch", "5"], "warmstart pretrain")
    assert (config.train.clip, config.train.batch, config.backbone.bias) == (0.25, 5, False)
    with pytest.raises(SystemExit):
        main(["pretrain", "--help-all"])
    printed = capsys.readouterr().out
    assert f"{len([*file_settings(PretrainConfig)])} more settings, for a file that --config reads" in printed
    assert "--clip" not in printed


def test_wrong_values_in_python_are_named() -> None:
    """Settings that are made in Python are checked with the same words; the path leads into groups."""
    with pytest.raises(ConfigError, match=r"^'width' must be greater than 0, but is 0$"):
        Inner(width=0)
    with pytest.raises(ConfigError, match=r"^'group.width' must be a whole number, but is 'x'$"):
        Outer(group={"width": "x"})  # type: ignore[arg-type]


def test_right_values_are_not_refused() -> None:
    """None where a setting may be absent, switches, values after an equals sign, groups with and without a prefix."""
    for words in (["--limit", "None"], ["--limit=3"], ["--no-quick"], ["--width", "5", "--group.width", "6"]):
        assert isinstance(parse(Outer, words, "warmstart test"), Outer)


def test_yaml_reads_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``${NAME}`` comes from the names given or the environment, ``${NAME:-default}`` has a default; an unset one is an error."""
    file = tmp_path / "settings.yaml"
    file.write_text("a: ${GIVEN}\nb: ${SET}\nc: ${UNSET:-7}\n")
    monkeypatch.setenv("SET", "from the environment")
    assert read_yaml(file, {"GIVEN": "one"}) == {"a": "one", "b": "from the environment", "c": 7}
    file.write_text("a: ${UNSET}\n")
    with pytest.raises(ConfigError, match=r"uses \$\{UNSET\}, but the environment variable UNSET is not set; set it"):
        read_yaml(file)


def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path) -> None:
    """Bad YAML, a list, nothing, and a file that is not there."""
    for content, message in (
        ("a: [", "is not valid YAML"),
        ("- a", "must hold 'key: value' settings, but holds a list"),
        ("", "but holds nothing"),
    ):
        (tmp_path / "settings.yaml").write_text(content)
        with pytest.raises(ConfigError, match=message):
            read_yaml(tmp_path / "settings.yaml")
    with pytest.raises(ConfigError, match=r"no such file: .*none\.yaml; a YAML file of settings is needed"):
        read_yaml(tmp_path / "none.yaml")


def fields_of(settings: type[Config]) -> set[tuple[str, bool]]:
    """The name of each setting, in groups too, and whether its field says that it changes no result."""
    found = {(name, EFFECTLESS in field.metadata) for name, field in settings.model_fields.items()}
    groups = [field.annotation for field in settings.model_fields.values()]
    return found.union(*(fields_of(one) for one in groups if isinstance(one, type) and issubclass(one, Config)))


def test_a_setting_changes_the_result_unless_its_field_says_otherwise() -> None:
    """Only where a result is written, how it is computed and what else is asked, in every command and in groups of settings."""
    places = {"compile", "out", "cache", "resume", "tensorboard", "jobs", "threads", "backend", "details"}
    for name, command in COMMANDS.items():
        settings = command.load_settings()
        assert not [(name, field) for field, marked in fields_of(settings) if marked != (field in places)]
    config = PretrainConfig.build({"text": ["a"]})
    same = config.model_copy(update={"out": "b", "train": config.train.model_copy(update={"compile": True})})
    other = config.model_copy(update={"train": config.train.model_copy(update={"clip": 2.0})})
    assert result_key(config, "ab") == result_key(same, "ab") != result_key(same, "cd")
    assert result_key(config, "ab") != result_key(other, "ab")


def test_a_registry_is_a_mapping_that_suggests_the_nearest_name() -> None:
    """Names, rows and a length in the order given; a ``ConfigError`` lists all names of what is missing."""
    fruit = Registry("fruit", {"pear": 2, "apple": 1})
    assert (list(fruit.items()), len(fruit), "apple" in fruit, "aple" in fruit) == ([("pear", 2), ("apple", 1)], 2, True, False)
    assert fruit.known("pear") == "pear"
    for ask in (fruit.__getitem__, fruit.known):
        with pytest.raises(ConfigError, match="unknown fruit 'aple'; did you mean 'apple'. known: apple, pear"):
            ask("aple")
    assert suggest("xyz", ["b", "a"]) == "known: a, b"


# ------------------------------------------------------------------------------------------------ the terminal

NAME, SCORE = "frozen vectors + EM · minilm-on-mails-1", "68.2% (63.7 to 72.6)"


def printed(monkeypatch: pytest.MonkeyPatch, header: tuple[str, ...], *rows: tuple[str, ...]) -> list[str]:
    """The lines of a table in a terminal of 80 columns."""
    out = Console(file=io.StringIO(), width=80, soft_wrap=True)
    monkeypatch.setattr(console, "console", out)
    print_table("a title", rows, header)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().splitlines()


def test_a_row_is_a_line_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name, interval or size is broken; columns that do not fit are named."""
    header = ("method", "score (95% over seeds and texts)", "seconds", "memory", "trained", "note")
    lines = printed(monkeypatch, header, (NAME, SCORE, "10.0", "1.4 GB", "4,000", ""), ("majority", SCORE, "0.0", "-", "-", ""))
    assert max(map(len, lines)) <= 80
    assert [cell.strip() for cell in lines[-3].split("  ") if cell] == [NAME, SCORE, "10.0", "1.4 GB"]
    assert lines[-1] == "(a wider terminal also shows: trained, note)"


def test_a_sentence_in_a_cell_is_broken_and_columns_after_it_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``doctor`` found is a sentence; the limit beside it is shown."""
    lines = printed(monkeypatch, ("check", "found", "limit"), ("hashes", "every one of the tensors has its hash " * 4, "0"))
    assert max(map(len, lines)) <= 80
    assert "limit" in lines[1]
    assert " ".join(lines).count("tensors") == 4


def test_a_long_command_shows_in_a_terminal_what_it_is_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line, of the latest message, cut where the terminal ends; nothing stays there, and a log has what each step was."""
    shown = list[str]()
    monkeypatch.setattr(Progress, "update", lambda self, line, description: shown.append(description))
    for terminal in (False, True):
        file = io.StringIO()
        monkeypatch.setattr(console, "console", type(console.console)(force_terminal=terminal, width=30, file=file))
        with quietly("trying methods"):
            console.console.print("1 of 9: words; 3 s\nand more")
            console.console.print("2 of 9: words and more words")
            console.console.step("words: 1.0 s")
        assert file.getvalue() == ("" if terminal else "trying methods\nwords: 1.0 s\n")
        console.console.print("after")
        assert "after" in file.getvalue()
    assert shown == ["1 of 9: words; 3 s", "2 of 9: words and …"]


def test_settings_know_what_they_do_not_import() -> None:
    """The names of poolings and strategies, in the order of their tables, and the share of texts that may be marked as unknown."""
    assert ([*POOLING_NAMES], [*STRATEGY_NAMES]) == ([*POOLINGS], [*STRATEGIES])
    assert PredictConfig.model_fields["unknown_share"].default == UNKNOWN_SHARE
