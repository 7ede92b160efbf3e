"""Tables in a terminal."""

import io

import pytest
from rich.console import Console
from rich.status import Status

from warmstart.system import console
from warmstart.system.console import print_table, quietly

NAME, SCORE = "class means + label names + EM · minilm", "68.2% (63.7 to 72.6)"


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
    monkeypatch.setattr(Status, "update", lambda _, text: shown.append(str(text)))
    for terminal in (False, True):
        file = io.StringIO()
        monkeypatch.setattr(console, "console", type(console.console)(force_terminal=terminal, width=20, file=file))
        with quietly("trying methods"):
            console.console.print("1 of 9: words; 3 seconds left")
            console.console.print("2 of 9: words and more words")
            console.console.step("words: 1.0 s")
        assert file.getvalue() == ("" if terminal else "trying methods\nwords: 1.0 s\n")
        console.console.print("after")
        assert "after" in file.getvalue()
    assert shown == ["1 of 9: words", "2 of 9: words and…"]
