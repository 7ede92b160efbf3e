"""Minimal pairs: scores are the sums they are said to be, files are read as published, and shares come with their doubt."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import make_language_model
from test_schemes import classifier
from warmstart.analysis.ngram import DISCOUNT, Trigram
from warmstart.analysis.pairs import Judgement, judge, lead, overall, score
from warmstart.analysis.pieces import is_punctuation
from warmstart.cli import main
from warmstart.data.pairs import Pair, read_pairs
from warmstart.errors import DataError, ModelError
from warmstart.model import Bundle, save
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer
from warmstart.workflows.studies.pairs import Found

GULORDAVA = "pattern\tconstr_id\tsent_id\tclass\ttype\tform\tlen_prefix\tsent\n"
SENTENCES = ["She holds the cat.", "I", "He rubs the river and it holds him.", "She holds the cat.", ""]


def bundle_of(tokenizer: Tokenizer, *, causal: bool) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_tokens=64), tokenizer)


def test_a_causal_score_is_the_sum_of_its_tokens(tokenizer: Tokenizer) -> None:
    """By one row at a time and a plain softmax; the end of the text does not count."""
    bundle = bundle_of(tokenizer, causal=True)
    found = score(bundle, SENTENCES)
    for place, ids in enumerate(tokenizer.encode(SENTENCES)):
        row = torch.tensor([[tokenizer.specials.begin, *ids]])
        with torch.inference_mode():
            said = bundle.model(row)[0].log_softmax(dim=-1)
        wanted = sum(float(said[i, token]) for i, token in enumerate(ids))
        assert found.log_probabilities[place] == pytest.approx(wanted, abs=1e-4)
        assert found.tokens[place] == len(ids)
    assert found.log_probabilities[0] == found.log_probabilities[3]
    assert found.by(per_token=True)[0] == pytest.approx(found.log_probabilities[0] / found.tokens[0])


def test_a_model_is_scored_as_it_learned(tokenizer: Tokenizer) -> None:
    """A hybrid one token after token; one that learned only spans behind sentinels not at all."""
    history = ({"objective": {"name": "hybrid"}, "generates": True},)
    hybrid, causal = bundle_of(tokenizer, causal=False), bundle_of(tokenizer, causal=True)
    found = score(replace(hybrid, history=history), SENTENCES).log_probabilities
    np.testing.assert_array_equal(found, score(causal, SENTENCES).log_probabilities)
    assert not np.allclose(found, score(hybrid, SENTENCES).log_probabilities)
    with pytest.raises(ModelError, match="learned only spans behind sentinels"):
        score(replace(causal, history=({"objective": {"name": "span"}, "generates": False},)), SENTENCES)


BEGINNINGS = [
    "She",
    "She holds",
    "She holds the cat.",
    "She holds the cat!",
    "She holds the dog.",
    "He",
    "",
    "She holds the cat. He",
]


@given(sentences=st.lists(st.sampled_from(BEGINNINGS), min_size=1, max_size=12), synthesizer=st.booleans())
def test_what_sentences_begin_with_is_shared_unseen(tokenizer: Tokenizer, sentences: list[str], synthesizer: bool) -> None:
    """Scores are those of each sentence alone, whatever stands beside it, and no token is read that tells nothing new."""
    switches = {"attention": "synthesizer"} if synthesizer else {}
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_tokens=64, **switches)
    alone = {one: score(Bundle(model, tokenizer), [one]).log_probabilities[0] for one in set(sentences)}
    shapes: list[tuple[int, int]] = []
    watch = model.backbone.register_forward_pre_hook(lambda _, ids: shapes.append(tuple(ids[0].shape)))
    found = score(Bundle(model, tokenizer), sentences)
    watch.remove()
    np.testing.assert_allclose(found.log_probabilities, [alone[one] for one in sentences], atol=1e-4)
    before = {tuple(ids[:-1]) for ids in tokenizer.encode(sentences) if ids}  # what must be read, the first token apart
    ends = {one for one in before if not any(other != one and other[: len(one)] == one for other in before)}
    assert sum(rows for rows, _ in shapes) == len(ends)


def test_a_masked_score_hides_a_token_and_what_follows_of_its_word(tokenizer: Tokenizer) -> None:
    """By a plain loop over tokens; punctuation is a word of its own, though no space stands before it."""
    bundle, specials = bundle_of(tokenizer, causal=False), tokenizer.specials
    starts, sentences = tokenizer.vocabulary().word_starts, [*SENTENCES, "She rubs (doggedly)", "It doesn't."]
    found, several, ended = score(bundle, sentences), 0, 0
    for place, ids in enumerate(tokenizer.encode(sentences)):
        marks, wanted = [is_punctuation(tokenizer.token(id)) for id in ids], 0.0
        for i, token in enumerate(ids):
            end = next((j for j in range(i + 1, len(ids)) if starts[ids[j]] or marks[j] or marks[j - 1]), len(ids))
            several += end > i + 1
            ended += end < len(ids) and not starts[ids[end]]
            row = torch.tensor([[specials.begin, *ids[:i], *[specials.mask] * (end - i), *ids[end:], specials.eos]])
            with torch.inference_mode():
                wanted += float(bundle.model(row)[0, i + 1].log_softmax(dim=-1)[token])
        assert found.log_probabilities[place] == pytest.approx(wanted, abs=1e-4)
    assert several, "no word of several pieces was met"
    assert ended, "no word was met that punctuation ends"


@pytest.mark.parametrize("causal", [True, False])
def test_what_the_tokenizer_does_not_tell_apart_is_read_once(*, causal: bool) -> None:
    """So that it scores the same to the last bit, and is a tie."""
    folding = train_tokenizer(BEGINNINGS * 20, TokenizerConfig(kind="wordpiece", vocab_size=120, lowercase=True))
    bundle, rows = bundle_of(folding, causal=causal), list[int]()
    with_one = score(bundle, ["She holds the cat."])
    watch = bundle.model.backbone.register_forward_pre_hook(lambda _, ids: rows.append(len(ids[0])))
    found = score(bundle, ["She holds the cat.", "she  Holds the Cat."])
    watch.remove()
    assert found.log_probabilities[0] == found.log_probabilities[1]
    assert found.tokens.tolist() == [*with_one.tokens, *with_one.tokens]
    assert sum(rows) == (1 if causal else with_one.tokens[0])


def test_what_cannot_be_scored_is_said(tokenizer: Tokenizer) -> None:
    """Heads of other jobs, and sentences that do not fit."""
    model = classifier(tokenizer)
    names = tuple("abcdefgh"[: model.head.config.classes])  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="scored by a language model"):
        score(Bundle(model, tokenizer, names), SENTENCES)
    with pytest.raises(ModelError, match="1 of 2 do not"):
        score(bundle_of(tokenizer, causal=True), ["She", "the cat " * 60])


def test_a_trigram_needs_text() -> None:
    """Without a row it would find short sentences likelier, and nothing else."""
    with pytest.raises(DataError, match="row of three tokens"):
        Trigram([], size=6)


def test_a_trigram_in_literal_numbers() -> None:
    """Kneser-Ney by hand: "a b c" twice and "a b d" once, over six tokens; all probabilities sum to one."""
    a, b, c, d = range(4)
    model = Trigram([[a, b, c], [a, b, c], [a, b, d]], size=6)
    lowest = (1 - DISCOUNT) / 2 + (2 * DISCOUNT / 2) / 6  # c and d each stood behind one token
    middle = (1 - DISCOUNT) / 2 + (2 * DISCOUNT / 2) * lowest
    assert model.probability((a, b), c) == pytest.approx((2 - DISCOUNT) / 3 + (2 * DISCOUNT / 3) * middle)
    for before in ((a, b), (b, b), (d, d)):
        assert sum(model.probability(before, token) for token in range(6)) == pytest.approx(1)
    assert model.log_probability([a, b, c]) == pytest.approx(math.log(model.probability((a, b), c)))


def test_files_are_read_as_they_are_published(tmp_path: Path) -> None:
    """BLiMP's folder, Marvin and Linzen's table, Gulordava's and Linzen's; ``first`` keeps so many of each group."""
    blimp = tmp_path / "blimp"
    blimp.mkdir()
    rows = [{"sentence_good": f"g{i}", "sentence_bad": f"b{i}", "UID": "x", "linguistics_term": "y"} for i in range(3)]
    with gzip.open(blimp / "x.jsonl.gz", "wt") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    (blimp / "index.tsv").write_text("not\ta pair\n")
    assert read_pairs(blimp, first=2) == [Pair("g0", "b0", "x", "y"), Pair("g1", "b1", "x", "y")]
    (tmp_path / "ml.tsv").write_text('construction\tgood\tbad\nlong\tthe "cat runs\tthe "cat run\n')
    assert read_pairs(tmp_path / "ml.tsv") == [Pair('the "cat runs', 'the "cat run', "long")]
    (tmp_path / "g.tab").write_text(
        f'{GULORDAVA}p\t1\t1\tcorrect\tx y\tholds\t2\t"the cat holds ,"\np\t1\t1\twrong\tx y\thold\t2\t"the cat holds"\n'
    )
    assert read_pairs(tmp_path / "g.tab") == [Pair("the cat holds", "the cat hold", "x y")]
    (tmp_path / "l.text").write_text("the cats of the man run fast . <eos>\n")
    (tmp_path / "l.gold").write_text("5\trun\truns\t1\n")
    assert read_pairs(tmp_path / "l.gold") == [Pair("the cats of the man run", "the cats of the man runs", "1 attractors")]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.tsv", "x\ty\n1\t2\n", "columns good and bad"),
        ("a.doc", "x", "one of .jsonl"),
        ("a.gold", "1\ta\tb\t0\n", "no a.text"),
        ("a.tsv", "good\tbad\n", "one at least, but .*a.tsv holds none"),
        ("a.tsv", "good\tbad\na\tb\nc\t\n", "row 2 of a.tsv: .* the wrong one is empty"),
        ("a.tsv", "good\tbad\n \tb\n", "row 1 of a.tsv: .* the right one is empty"),
        ("a.jsonl", '{"good": "a", "bad": null}\n{"good": "a", "bad": "b"}\n', "row 1 of a.jsonl: .* the wrong one is empty"),
        ("a.jsonl", '{"sentence_good": 3, "sentence_bad": "b"}\n', "row 1 of a.jsonl: .* the right one is '3'"),
        ("a.tab", "", "a.tab must be a table with tabs"),
        ("a.tab", "good\tbad\na\tb\tc\td\n", "a.tab must be a table with tabs"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\tright\tx\tholds\t1\tthe cat\n", "row 1 of a.tab: the class must be correct or wrong"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\twrong\tx\tholds\tone\tthe cat\n", "row 1 of a.tab: the place .* but is 'one'"),
        ("a.tab", f"{GULORDAVA}p\t1\t1\twrong\tx\tholds\t1\t\n", "row 1 of a.tab: .* but sent is empty"),
        ("a.tab", "class\ttype\tform\tlen_prefix\tsent\nwrong\tx\tholds\t1\tthe cat\n", "columns good and bad"),
    ],
)
def test_other_files_are_refused(name: str, text: str, said: str, tmp_path: Path) -> None:
    """By what they lack."""
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=said):
        read_pairs(tmp_path / name)


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ("2\truns\trun\t0\n", "a row for every line of a.text, but has 1 for 2"),
        ("2\truns\trun\t0\n2\truns\trun\n", "row 2 of a.gold: .* but has 3 cells"),
        ("2\truns\trun\t0\ntwo\truns\trun\t0\n", "row 2 of a.gold: the place .* but is 'two'"),
        ("2\truns\trun\t0\n-1\truns\trun\t0\n", "row 2 of a.gold: the place .* but is '-1'"),
        ("2\truns\t\t0\n2\truns\trun\t0\n", "row 1 of a.gold: the form"),
    ],
)
def test_a_gold_file_fits_its_sentences(gold: str, said: str, tmp_path: Path) -> None:
    """A row a line, four cells a row, and a place within the line."""
    (tmp_path / "a.text").write_text("the cat runs .\nthe dog runs .\n")
    (tmp_path / "a.gold").write_text(gold)
    with pytest.raises(DataError, match=said):
        read_pairs(tmp_path / "a.gold")


@pytest.mark.parametrize(
    ("name", "text", "group"),
    [
        ("a.tsv", "good\tbad\tgroup\na\tb\t\n", "all"),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": null}\n', "all"),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": 7}\n', "7"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": 7, "linguistics_term": null}\n', "7"),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": null}\n', "a"),
    ],
)
def test_groups_are_names_whatever_their_cells(name: str, text: str, group: str, tmp_path: Path) -> None:
    """A number is its digits; what has none is of the group "all", or of its file in BLiMP's form."""
    (tmp_path / name).write_text(text)
    assert read_pairs(tmp_path / name) == [Pair("a", "b", group)]


def test_shares_come_with_their_doubt() -> None:
    """Ties count half; groups count alike; Wilson's interval by its known value: 8 of 10 -> 0.49 to 0.94."""
    pairs = [Pair("a", "b", "one")] * 2 + [Pair("a", "b", "two")]
    found = judge(pairs, np.array([-1.0, -2.0, -3.0, -2.0, -2.0, -1.0]))
    assert [(one.name, one.share) for one in found] == [("one", 0.75), ("two", 0.0)]
    assert overall(found)[0] == pytest.approx(0.375)
    assert Judgement("x", "", np.array([1.0] * 8 + [0.0] * 2)).ends() == pytest.approx((0.490, 0.943), abs=1e-3)
    assert Judgement("x", "", np.zeros(20)).ends()[0] == 0


def groups_of(*rights: object) -> list[Judgement]:
    return [Judgement(str(place), "", np.array(right, dtype=float)) for place, right in enumerate(rights)]


def test_few_pairs_that_agree_are_not_certain() -> None:
    """In numbers by hand: p = 3/5 for one right pair; one group has Wilson's interval; no end lies beyond 0 or 1."""
    half = 1.96 * math.sqrt(3 * 0.24) / 3
    assert overall(groups_of([1], [1], [1])) == pytest.approx((1, 1 - half, 1))
    assert overall(groups_of([0] * 3, [0] * 3))[1:] == pytest.approx((0, 1.96 * math.sqrt(2 * (2 / 7) * (5 / 7) / 3) / 2))
    assert overall(groups_of([1] * 9 + [0]))[1:] == Judgement("", "", np.array([1] * 9 + [0])).ends()
    assert overall(groups_of(*[[1]] * 9, [0]))[2] == 1


@pytest.mark.parametrize(("groups", "pairs", "share"), [(3, 3, 0.9), (40, 1, 0.7), (67, 1000, 0.6)])
def test_the_interval_of_the_mean_holds_the_truth(groups: int, pairs: int, share: float) -> None:
    """In 95 of 100 studies or more, give or take 2, however few pairs each group has."""
    draw = rng(0, "studies")
    found = [overall(groups_of(*(draw.random((groups, pairs)) < share))) for _ in range(400)]
    assert sum(low <= share <= high for _, low, high in found) > 0.93 * 400


def test_chance_is_seldom_called_sure() -> None:
    """Of studies that toss a coin, few find a group surely apart from it; ties round towards it; a real one is found."""
    draw = rng(0, "coins")
    claims = [sum(Found(groups_of(*(draw.random((67, 100)) < 0.5)), [], True).sure()) for _ in range(20)]
    assert sum(claim > 0 for claim in claims) <= 2
    found = Found(groups_of([1] * 20, [0] * 20, [0.5] * 20, [1, 0] * 10), [], True)
    assert found.sure() == (1, 1)
    assert "1 of 4 groups are surely above chance, 1 surely below" in found.sentences()[1]
    assert "Holm" in found.sentences()[1]
    assert groups_of([1, 1, 0.5])[0].p() == groups_of([1, 1, 0])[0].p()


def test_a_lead_is_claimed_where_interval_and_sign_test_agree() -> None:
    """One pair claims nothing, nor do five; ten that all say the same do, and leave a doubt."""
    assert lead(groups_of([1]), groups_of([0])).sign == 0
    assert lead(groups_of([1] * 5), groups_of([0] * 5)).sign == 0
    apart = lead(groups_of(*[[1]] * 20, [0] * 90), groups_of(*[[0]] * 20, [1] * 90))
    assert (apart.low > 0, apart.p < 0.05, apart.sign) == (True, True, 0), "groups say better, pairs say worse"
    better = lead(groups_of([1] * 10), groups_of([0] * 10))
    assert (better.mean, better.low < 0.8, better.sign, better.p) == (1, True, 1, pytest.approx(2 / 2**10))
    assert lead(groups_of([0] * 10), groups_of([1] * 10)).sign == -1
    alike = lead(groups_of([1] * 10), groups_of([1] * 10))
    assert (alike.sign, alike.p, alike.low < 0 < alike.high) == (0, 1, True)
    draw = rng(0)
    one, other = (draw.random((3, 400)) < share for share in (0.7, 0.6))
    found = lead(groups_of(*one), groups_of(*other))
    assert found.high - found.mean == pytest.approx(1.96 * (one.astype(float) - other).std() / math.sqrt(1200), rel=0.01)


@pytest.mark.usefixtures("no_second_process")
def test_the_command_judges_beside_a_floor(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups, the floor of a text, a row a pair, and a page."""
    save(bundle_of(tokenizer, causal=True), tmp_path / "lm")
    lines = [f"{group}\tShe holds the cat{i}.\tShe hold the cat{i}." for group in ("one", "two") for i in range(6)]
    (tmp_path / "p.tsv").write_text("group\tgood\tbad\n" + "\n".join(lines))
    (tmp_path / "t.txt").write_text("She holds the cat.\n\nShe holds the river.\n")
    words = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "run")]
    assert main(["study", "pairs", str(tmp_path / "lm"), str(tmp_path / "p.tsv"), *words]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "the mean over 2 groups" in said
    assert "a trigram of the text, which has 100.0 %" in said
    assert len((tmp_path / "run" / "pairs.csv").read_text().splitlines()) == 13
    assert "pairs judged rightly" in (tmp_path / "run" / "report.html").read_text()
    assert main(["study", "pairs", str(tmp_path / "lm"), str(tmp_path / "none")]) == 2
    (tmp_path / "t.txt").write_text("\n \n")
    words = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "no")]
    assert main(["study", "pairs", str(tmp_path / "lm"), str(tmp_path / "p.tsv"), *words]) == 2
    assert "--text must hold at least one document" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "no").exists()
