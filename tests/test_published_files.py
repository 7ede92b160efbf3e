"""Tagged sentences, probing tasks and minimal pairs as others publish them; scores of sentences, and how pairs are judged."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bundles import classifier
from helpers.models import make_language_model
from helpers.refusals import refused
from warmstart.cli import main
from warmstart.commands.evaluate.result import count_significant, pairs_result
from warmstart.data.conllu import read_conllu
from warmstart.data.probing import IGNORED, read_probing_files, word_tasks
from warmstart.errors import DataError, ModelError
from warmstart.inspection.minimal_pairs import MinimalPair, PairGroup, by_phenomenon, judge_pairs, mean_accuracy, read_minimal_pairs
from warmstart.inspection.sentence_scores import PairsMeasured, score_sentences
from warmstart.inspection.tokens import is_punctuation, sample_passages, word_boundaries
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import save
from warmstart.objectives.config import ObjectiveConfig
from warmstart.seeding import rng
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

# ------------------------------------------------------------------------------------------------ files

CONLLU = """# text = It doesn't.
1\tIt\tit\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdoes\tdo\tAUX\tVBZ\t_\t0\troot\t_\t_
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_
"""


def test_words_stand_with_their_tags(tmp_path: Path) -> None:
    """Ranges, empty nodes and comments are passed over; a packed file reads alike; both columns of tags can be had."""
    (tmp_path / "a.conllu").write_text(CONLLU)
    (tmp_path / "a.conllu.gz").write_bytes(gzip.compress(CONLLU.encode()))
    wanted = [[("It", "PRON"), ("does", "AUX"), ("n't", "PART")], [("Yes", "INTJ")]]
    assert read_conllu(tmp_path / "a.conllu") == read_conllu(tmp_path / "a.conllu.gz") == wanted
    assert read_conllu(tmp_path / "a.conllu", "xpos")[0] == [("It", "PRP"), ("does", "VBZ"), ("n't", "RB")]
    (tmp_path / "b.conllu").write_text("1\tIt\n")
    (tmp_path / "c.conllu").write_text("# nothing\n")
    for name, message in (("a.txt", "conllu files"), ("b.conllu", "at least 4 columns"), ("c.conllu", "at least one")):
        refused(DataError, message, read_conllu, tmp_path / name)
    refused(DataError, "no such file", read_conllu, tmp_path / "d.conllu")


def test_word_tasks_have_the_targets_of_their_names() -> None:
    """The position in bins, the tag itself, and the frequent word before; splits share no sentence."""
    sentences = [[(f"w{i}", "X"), ("the", "DET"), (f"n{i}", "NOUN"), ("is", "VERB")] for i in range(60)]
    tags, positions, before = word_tasks(sentences, 120, seed=0)
    assert tags.labels == ("DET", "NOUN", "VERB", "X")
    assert [tags.labels[i] for i in tags.train.targets[0]] == ["X", "DET", "NOUN", "VERB"]
    assert positions.labels[:4] == ("1", "2", "3-4", "5-8")
    assert [positions.labels[i] for i in positions.train.targets[0]] == ["1", "2", "3-4", "3-4"]
    assert before.train.targets[0][0] == IGNORED
    assert before.labels[before.train.targets[0][2]] == "the"
    texts = [set(split.texts) for split in (tags.train, tags.validation, tags.test)]
    assert sum(map(len, texts)) == len(set.union(*texts))
    refused(DataError, "ask for fewer words", word_tasks, sentences[:2], 1000, seed=0)
    refused(DataError, "ask for fewer words", word_tasks, sentences[:42], 120, seed=0)
    for bad in ([[(form, "_") for form, _ in sentence] for sentence in sentences], [sentence[:1] for sentence in sentences * 4]):
        refused(DataError, "at least two labels", word_tasks, bad, 120, seed=0)


def test_a_probing_file_of_another_form_is_refused(tmp_path: Path) -> None:
    """The error names the line, split or label that is wrong; one label or one test sentence can show nothing."""
    for text, message in (
        ("tr\tA\n", "line 1"),
        ("tr\tA\ta b\nva\tA\tc\n", "none for test"),
        ("tr\tA\ta\nva\tB\tb\nte\tA\tc\n", "B does not"),
        ("tr\tA\ta\nva\tA\tb\nte\tA\tc\nte\tA\td\n", "has 1 and 2"),
        ("tr\tA\ta\ntr\tB\tb\nva\tA\tb\nte\tA\tc\n", "has 2 and 1"),
    ):
        (tmp_path / "bad.txt").write_text(text)
        refused(DataError, message, read_probing_files, tmp_path / "bad.txt")


def test_minimal_pairs_are_read(tmp_path: Path) -> None:
    """BLiMP's folder, and tables; ``limit`` keeps at most this many of each group."""
    blimp = tmp_path / "blimp"
    blimp.mkdir()
    rows = [{"sentence_good": f"g{i}", "sentence_bad": f"b{i}", "UID": "x", "linguistics_term": "y"} for i in range(3)]
    (blimp / "x.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    (blimp / "index.tsv").write_text("not\ta pair\n")
    assert read_minimal_pairs(blimp, limit=2) == [MinimalPair("g0", "b0", "x", "y"), MinimalPair("g1", "b1", "x", "y")]
    for name, text, wanted in (
        ("ml.tsv", 'group\tgood\tbad\nlong\tthe "cat runs\tthe "cat run\n', ('the "cat runs', 'the "cat run', "long")),
        # a group is a name whatever its value; without one it is "all", or in BLiMP's form that of the file
        ("a.tsv", "good\tbad\tgroup\na\tb\t\n", ("a", "b", "all")),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": null}\n', ("a", "b", "all")),
        ("a.jsonl", '{"good": "a", "bad": "b", "group": 7}\n', ("a", "b", "7")),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": 7, "linguistics_term": null}\n', ("a", "b", "7")),
        ("a.jsonl", '{"sentence_good": "a", "sentence_bad": "b", "UID": null}\n', ("a", "b", "a")),
    ):
        (tmp_path / name).write_text(text)
        assert read_minimal_pairs(tmp_path / name) == [MinimalPair(*wanted)], text


def test_rows_that_are_no_pairs_are_refused(tmp_path: Path) -> None:
    """The error says what is wrong, and in which row."""
    for name, text, message in (
        ("a.tsv", "x\ty\n1\t2\n", "columns good and bad"),
        ("a.doc", "x", "one of the endings .jsonl"),
        ("a.tsv", "good\tbad\n", "at least one minimal pair, but .*a.tsv has none"),
        ("a.tsv", "good\tbad\na\tb\nc\t\n", "row 2 of a.tsv: .* the wrong one is empty"),
        ("a.tsv", "good\tbad\n \tb\n", "row 1 of a.tsv: .* the right one is empty"),
        ("a.jsonl", '{"good": "a", "bad": null}\n{"good": "a", "bad": "b"}\n', "row 1 of a.jsonl: .* the wrong one is empty"),
        ("a.jsonl", '{"sentence_good": 3, "sentence_bad": "b"}\n', "row 1 of a.jsonl: .* the right one is '3'"),
    ):
        (tmp_path / name).write_text(text)
        refused(DataError, message, read_minimal_pairs, tmp_path / name)


# ------------------------------------------------------------------------------------------------ passages and words


def test_passages_are_sampled_evenly() -> None:
    """All if there are few; else each equally likely, in their order; none at all is an error."""
    assert sample_passages(iter("abc"), 5, 0) == ["a", "b", "c"]
    samples = [sample_passages((str(i) for i in range(10)), 3, seed) for seed in range(2000)]
    assert all(sample == sorted(sample) and len(set(sample)) == 3 for sample in samples)
    counts = np.unique(samples, return_counts=True)[1]
    assert abs(counts - 600).max() < 100
    refused(DataError, "at least one passage", sample_passages, iter(()), 3, 0)


def test_words_end_at_punctuation(tokenizer: Tokenizer) -> None:
    """A token of punctuation begins and ends a word; special tokens do neither."""
    ids = np.array([*tokenizer.encode(["cat, dog."])[0], tokenizer.specials.eos])
    begins, ends = word_boundaries(tokenizer, ids)
    for token in ids[:-1]:
        assert begins[token] == ends[token] == is_punctuation(tokenizer.token(int(token)))
    assert not begins[tokenizer.specials.eos]
    assert not ends[tokenizer.specials.eos]


def groups_of(*rights: object) -> list[PairGroup]:
    return [PairGroup(str(number), "", np.array(right, dtype=float)) for number, right in enumerate(rights)]


def measured(groups: list[PairGroup], other: list[PairGroup] | None = None) -> PairsMeasured:
    """Made-up verdicts of a causal model."""
    count = sum(len(group.right) for group in groups)
    return PairsMeasured([MinimalPair("a", "b")] * count, np.zeros(2 * count), groups, {"other": other} if other else {}, "causal")


def test_ties_count_half_and_groups_count_alike() -> None:
    """The mean is over groups, not over pairs."""
    pairs = [MinimalPair("a", "b", "one")] * 2 + [MinimalPair("a", "b", "two")]
    groups = judge_pairs(pairs, np.array([-1.0, -2.0, -3.0, -2.0, -2.0, -1.0]))
    assert [(group.name, group.accuracy.value) for group in groups] == [("one", 0.75), ("two", 0.0)]
    assert mean_accuracy(groups).value == pytest.approx(0.375)


def test_chance_is_seldom_called_significant() -> None:
    """Of studies that toss a coin, few find a group that differs from it; a real difference is found."""
    draw = rng(0, "coins")
    claims = [sum(count_significant(groups_of(*(draw.random((67, 100)) < 0.5)))) for _ in range(20)]
    assert sum(claim > 0 for claim in claims) <= 2
    result = pairs_result("pairs", measured(groups_of([1] * 20, [0] * 20, [0.5] * 20, [1, 0] * 10)))
    assert (result.figures["groups_above_chance"], result.figures["groups_below_chance"]) == (1, 1)
    assert result.findings[1] == (
        "1 of 4 groups are significantly above chance and 1 significantly below (exact binomial tests, Holm's correction). "
        "In groups without a significant difference, 34.2 points from chance would have been detected with 80% power."
    )


def test_findings_are_read_as_sentences() -> None:
    """Accuracy with its interval, and another model by a verdict that interval and sign test agree on."""
    result = pairs_result("pairs", measured(groups_of([1] * 10), groups_of([0] * 10)))
    assert (
        result.findings[0]
        == "By log-probability, the right sentence scores higher in 100.0% (72.2 to 100.0) of 10 pairs (chance is 50%)."
    )
    assert result.findings[2].startswith("The model is better than other, which reaches 0.0%: +100.0 points (")
    same = pairs_result("pairs", measured(groups_of([1, 0] * 100), groups_of([1] * 100 + [0] * 100)))
    assert same.findings[2].startswith("The model is not significantly different from other")
    assert same.findings[2].endswith("; 14.0 points would have been detected with 80% power.")


def test_paradigms_of_one_phenomenon_are_joined() -> None:
    """The terminal shows phenomena where groups have one in common, the page and ``groups.csv`` all groups; others keep theirs."""
    rights = {"island_1": [1.0, 1.0], "island_2": [0.0, 1.0], "binding_1": [0.0, 0.0]}
    groups = [PairGroup(name, name.split("_")[0], np.array(right)) for name, right in rights.items()]
    result = pairs_result("blimp", measured(groups, groups))
    assert [row[:2] + row[3:] for row in result.summary.rows] == [("island", "4", "75.0%"), ("binding", "2", "0.0%")]
    assert result.tables["groups"]["other"].to_list() == [1.0, 0.5, 0.0]
    assert by_phenomenon(groups_of([1, 0], [1])) == by_phenomenon(groups[1:]) == []


def test_the_command_judges_two_models(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Groups, a row per pair, and a page."""
    save(Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_length=64), tokenizer), tmp_path / "lm")
    lines = [f"{group}\tShe holds the cat{i}.\tShe hold the cat{i}." for group in ("one", "two") for i in range(6)]
    (tmp_path / "p.tsv").write_text("group\tgood\tbad\n" + "\n".join(lines))
    shutil.copytree(tmp_path / "lm", tmp_path / "other")
    words = ["--against", str(tmp_path / "other"), "--out", str(tmp_path / "run"), "--limit", "5"]
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "p.tsv"), *words]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "of 10 pairs (mean over 2 groups; chance is 50%)" in printed
    assert "lm is not significantly different from other, which reaches" in printed
    assert len((tmp_path / "run" / "pairs.csv").read_text().splitlines()) == 11
    assert "right sentence scores higher" in (tmp_path / "run" / "report.html").read_text()
    (tmp_path / "other").rename(tmp_path / "accuracy")
    words = ["--against", str(tmp_path / "accuracy"), "--out", str(tmp_path / "again")]
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "p.tsv"), *words]) == 0
    columns = (tmp_path / "again" / "groups.csv").read_text().splitlines()[0]
    assert columns == "phenomenon,group,pairs,accuracy,low,high,accuracy (against)", "no model's column replaces another"
    assert main(["evaluate", str(tmp_path / "lm"), "--pairs", str(tmp_path / "none")]) == 2
    assert main(["evaluate", str(tmp_path / "lm")]) == 2
    assert "name a task or a text that it is scored on" in " ".join(capsys.readouterr().err.split())


SENTENCES = ["She holds the cat.", "I", "He rubs the river and it holds him.", "She holds the cat.", ""]


def bundle_of(tokenizer: Tokenizer, *, causal: bool) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_length=64), tokenizer)


def test_a_causal_score_is_the_sum_over_its_tokens(tokenizer: Tokenizer) -> None:
    """Checked with one row at a time and a plain softmax; the end of the text does not count."""
    bundle = bundle_of(tokenizer, causal=True)
    scores = score_sentences(bundle, SENTENCES)
    for place, ids in enumerate(tokenizer.encode(SENTENCES)):
        row = torch.tensor([[tokenizer.specials.begin, *ids]])
        with torch.inference_mode():
            log_probabilities = bundle.model(row)[0].log_softmax(dim=-1)
        wanted = sum(float(log_probabilities[i, token]) for i, token in enumerate(ids))
        assert scores.log_probabilities[place] == pytest.approx(wanted, abs=1e-4)
        assert scores.tokens[place] == len(ids)
    assert scores.log_probabilities[0] == scores.log_probabilities[3]
    assert scores.normalized(per_token=True)[0] == pytest.approx(scores.log_probabilities[0] / scores.tokens[0])


def test_a_model_is_scored_in_the_way_it_was_trained(tokenizer: Tokenizer) -> None:
    """A hybrid model from left to right; one that learned span corruption alone is refused."""
    language = Language(objective=ObjectiveConfig(name="hybrid"), generates=True)
    hybrid, causal = bundle_of(tokenizer, causal=False), bundle_of(tokenizer, causal=True)
    found = score_sentences(replace(hybrid, language=language), SENTENCES).log_probabilities
    np.testing.assert_array_equal(found, score_sentences(causal, SENTENCES).log_probabilities)
    assert not np.allclose(found, score_sentences(hybrid, SENTENCES).log_probabilities)
    with pytest.raises(ModelError, match="learned span corruption alone"):
        score_sentences(replace(causal, language=Language(objective=ObjectiveConfig(name="span"))), SENTENCES)


HOLDS = ["She", "She holds", "She holds the cat.", "She holds the cat!", "She holds the dog."]
PREFIXES = [*HOLDS, "He", "", "She holds the cat. He"]


@given(sentences=st.lists(st.sampled_from(PREFIXES), min_size=1, max_size=12), synthesizer=st.booleans())
@settings(deadline=None)
def test_shared_prefixes_are_read_once_and_change_no_score(tokenizer: Tokenizer, sentences: list[str], synthesizer: bool) -> None:
    """A score is that of the sentence alone, whatever other sentences there are, and no row is a prefix of another."""
    switches = {"attention": "synthesizer"} if synthesizer else {}
    model = make_language_model(vocab_size=tokenizer.vocab_size, max_length=64, **switches)
    alone = {one: score_sentences(Bundle(model, tokenizer), [one]).log_probabilities[0] for one in set(sentences)}
    shapes: list[tuple[int, int]] = []
    watch = model.backbone.register_forward_pre_hook(lambda _, ids: shapes.append(tuple(ids[0].shape)))
    found = score_sentences(Bundle(model, tokenizer), sentences)
    watch.remove()
    np.testing.assert_allclose(found.log_probabilities, [alone[one] for one in sentences], atol=1e-4)
    before = {tuple(ids[:-1]) for ids in tokenizer.encode(sentences) if ids}  # what must be read, apart from the first token
    ends = {one for one in before if not any(other != one and other[: len(one)] == one for other in before)}
    assert sum(rows for rows, _ in shapes) == len(ends)


def test_a_masked_score_masks_a_token_and_the_rest_of_its_word(tokenizer: Tokenizer) -> None:
    """Checked with a plain loop over tokens; punctuation is a word of its own, even without a space before it."""
    bundle, specials = bundle_of(tokenizer, causal=False), tokenizer.specials
    starts, sentences = tokenizer.vocabulary().word_starts, [*SENTENCES, "She rubs (doggedly)", "It doesn't."]
    found, several, ended = score_sentences(bundle, sentences), 0, 0
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
    assert several, "no word has several tokens"
    assert ended, "no word ends at punctuation"


def test_sentences_with_the_same_tokens_are_read_once() -> None:
    """Their scores are exactly equal, and such a pair is a tie."""
    folding = train_tokenizer(PREFIXES * 20, TokenizerConfig(type="wordpiece", vocab_size=120, lowercase=True))
    for causal in (True, False):
        bundle, rows = bundle_of(folding, causal=causal), list[int]()
        with_one = score_sentences(bundle, ["She holds the cat."])
        watch = bundle.model.backbone.register_forward_pre_hook(lambda _, ids, rows=rows: rows.append(len(ids[0])))
        found = score_sentences(bundle, ["She holds the cat.", "she  Holds the Cat."])
        watch.remove()
        assert found.log_probabilities[0] == found.log_probabilities[1]
        assert found.tokens.tolist() == [*with_one.tokens, *with_one.tokens]
        assert sum(rows) == (1 if causal else with_one.tokens[0])


def test_models_and_sentences_that_cannot_be_scored_are_refused(tokenizer: Tokenizer) -> None:
    """Models without a language head, and sentences that are too long."""
    model = classifier(tokenizer)
    names = tuple("abcdefgh"[: model.head.config.classes])  # type: ignore[union-attr]
    with pytest.raises(ModelError, match="only a language model can score sentences"):
        score_sentences(Bundle(model, tokenizer, names), SENTENCES)
    with pytest.raises(ModelError, match="1 of 2 do not"):
        score_sentences(bundle_of(tokenizer, causal=True), ["She", "the cat " * 60])
