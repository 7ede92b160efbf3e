"""Probes: they find what is there, do not find what is not, and stand beside their controls."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from conftest import SENTENCES, make_language_model
from warmstart.analysis.activations import states_of, text_states, with_random_weights, word_states, words_of
from warmstart.analysis.probe import Items, clustered, control_labels, fit, frequency_code, levelled, online_code, right
from warmstart.analysis.probing import BAG, Asked, Reading, probe, splits_of
from warmstart.cli import main
from warmstart.data.batch import encode
from warmstart.data.probing import IGNORED, Part, Probing, read_probing, word_tasks
from warmstart.errors import DataError
from warmstart.model import Bundle, save
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer
from warmstart.workflows.studies import probe as study
from warmstart.workflows.studies.probe import Found, ProbeConfig, floors_of, unfit

WORDS = [tuple(sentence.split()) for sentence in SENTENCES]


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False) -> Bundle:
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, max_tokens=64), tokenizer)


def made(count: int, readings: int = 3, width: int = 8, classes: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States in which the second reading alone tells the label."""
    draw = rng(seed, "states")
    labels = draw.integers(0, classes, count)
    states = draw.normal(size=(readings, count, width))
    states[1, np.arange(count), labels] += 3.0
    return torch.from_numpy(states).float(), torch.from_numpy(labels)


@pytest.mark.parametrize("causal", [True, False])
def test_word_states_are_means_over_a_words_tokens(tokenizer: Tokenizer, causal: bool) -> None:
    """By one text at a time; a text of no words has none."""
    bundle = bundle_of(tokenizer, causal=causal)
    words = words_of(bundle, [*WORDS, ()])
    found = word_states(bundle, words)
    assert found[-1].shape == (0, 3, 16)
    for number, text in enumerate(WORDS):
        alone = words_of(bundle, [text]).encoded
        states = states_of(bundle, alone.batch(np.array([0]), None, 0, causal=causal))
        layers = torch.stack([*states.layers[:-1], states.last])[:, 0]
        ends = [*alone.marks[0], len(alone.rows[0]) - 1]
        for place in range(len(text)):
            wanted = layers[:, ends[place] : ends[place + 1]].mean(dim=1).detach().numpy()
            np.testing.assert_allclose(found[number][place], wanted, atol=1e-5)
    joined = encode(tokenizer, [" ".join(text) for text in WORDS], 64)
    for row, own in zip(joined.rows, words.encoded.rows[:-1], strict=True):
        assert row.tolist() == own.tolist()
    assert text_states(bundle, SENTENCES).shape == (4, 3, 16)


def test_a_linear_probe_finds_what_logistic_regression_finds() -> None:
    """As many right, within a few of 500; readings that tell nothing stay at chance."""
    states, labels = made(2000)
    train, validation, test = levelled(states[:, :1200], [states[:, 1200:1500], states[:, 1500:]])
    parts = [
        Items(x, y.expand(3, -1))
        for x, y in zip((train, validation, test), (labels[:1200], labels[1200:1500], labels[1500:]), strict=True)
    ]
    said = right(fit(parts[0], parts[1], torch.eye(3), (3, None), seed=0), parts[2]).mean(axis=1)
    theirs = LogisticRegression(C=0.1).fit(train[1].numpy(), labels[:1200]).score(test[1].numpy(), labels[1500:])
    assert said[1] == pytest.approx(theirs, abs=0.02)
    assert said[1] > 0.85 > 0.42 > max(said[0], said[2])


def test_a_hidden_layer_reads_what_no_line_parts() -> None:
    """Labels by the signs' product: chance for a linear probe, nearly all for the other."""
    x = rng(0, "xor").normal(size=(1, 2000, 2))
    labels = torch.from_numpy((x[0, :, 0] * x[0, :, 1] > 0).astype(np.int64))
    states = torch.from_numpy(x).float()
    parts = [Items(states[:, a:b], labels[None, a:b]) for a, b in ((0, 1400), (1400, 1700), (1700, 2000))]
    line, bent = (right(fit(parts[0], parts[1], torch.ones(1, 1), (2, hidden), 0), parts[2]).mean() for hidden in (None, 32))
    assert line < 0.65
    assert bent > 0.9


def test_a_mix_learns_where_to_look_and_a_closed_place_is_never_read() -> None:
    """The learned share of the telling reading is the largest; what a probe may not read has share 0."""
    states, labels = made(900)
    items = Items(states, labels.expand(2, -1))
    fitted = fit(
        items.take(np.arange(600)), items.take(np.arange(600, 900)), torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]]), (3, None), 0
    )
    shares = (fitted.learned + fitted.allowed).softmax(dim=-1).detach()
    assert int(shares[0].argmax()) == 1
    assert float(shares[1, 1]) == 0.0
    found = right(fitted, items).mean(axis=1)
    assert found[0] > 0.85 > 0.5 > found[1]


@given(st.integers(0, 5), st.integers(2, 4))
@settings(max_examples=8, deadline=None)
def test_a_control_label_belongs_to_a_kind(seed: int, classes: int) -> None:
    """The same kind has the same label in every split, whatever its own label was; what is not asked stays so."""
    kinds = [["the", "cat", "the"], ["cat", "dog"]]
    labels = [np.arange(3) % classes, np.array([1, IGNORED])]
    one, other = control_labels(kinds, labels, seed)
    assert one[0] == one[2]
    assert one[1] == other[0]
    assert other[1] == IGNORED


def test_the_online_code_is_short_only_where_something_is_learned() -> None:
    """Noise takes about as many bits as a uniform code, the telling reading far fewer."""
    states, labels = made(1200)
    items = Items(states, labels.expand(3, -1))
    found = online_code(items.take(np.arange(900)), items.take(np.arange(900, 1200)), torch.eye(3), 3, seed=0)
    assert found[1] > 1.8
    assert found[0] < 1.1
    assert found[2] < 1.1


def test_a_code_may_be_short_by_the_frequency_of_labels_alone() -> None:
    """Of ten labels nine alike: noise codes them no shorter than a probe with nothing to read; equal ones stay as long."""
    draw = rng(0, "uneven")
    labels = torch.from_numpy((draw.random(800) < 0.1).astype(np.int64))
    items = Items(torch.from_numpy(draw.normal(size=(1, 800, 8))).float(), labels[None])
    alone = frequency_code(labels[:600], labels[600:], 2, seed=0)
    noise = online_code(items.take(np.arange(600)), items.take(np.arange(600, 800)), torch.ones(1, 1), 2, seed=0)
    assert 1.3 < alone < 2.2
    assert noise[0] < alone + 0.05
    assert frequency_code(torch.arange(200) % 2, torch.arange(200) % 2, 2, seed=0) == pytest.approx(1, abs=0.02)


def test_a_bag_holds_the_tokens_that_the_layers_mean_is_over(tokenizer: Tokenizer) -> None:
    """Frame and cut alike: where the embedding knows no place, it is the bag."""
    whole = Part(tuple(WORDS), tuple(np.array([i % 2]) for i in range(4)))
    for room in (64, 8):
        model = make_language_model(vocab_size=tokenizer.vocab_size, max_tokens=room, positions="rotary")
        for split in splits_of(Bundle(model, tokenizer), Probing("half", ("a", "b"), whole, whole, whole)):
            torch.testing.assert_close(split.states[0], split.states[1])
            assert (split.lost, split.whole) == (0 if room == 64 else 4, 4)


def test_intervals_know_that_words_of_a_sentence_go_together() -> None:
    """Fifty sentences of ten equal words give the interval of fifty items, not of five hundred."""
    each = rng(0, "right").integers(0, 2, 50).astype(float)
    mean, low, high = clustered(np.repeat(each, 10), np.repeat(np.arange(50), 10))
    _, low_50, high_50 = clustered(each, np.arange(50))
    assert mean == each.mean()
    assert (low, high) == (low_50, high_50)
    assert high - low > 0.2


def test_every_reading_of_a_model_is_probed(tokenizer: Tokenizer) -> None:
    """Bag, embedding, blocks, mix; a model that tells the first word's kind is read right, and the seed decides."""
    texts = tuple(tuple(f"{first} {' '.join(rest)}".split()) for first in ("cat", "dog") for rest in WORDS for _ in range(10))
    part = Part(texts, tuple(np.array([int(text[0] == "dog")]) for text in texts))
    task = Probing("first word", ("cat", "dog"), part, part, part)
    bundle = bundle_of(tokenizer)
    found = probe(bundle, task, "linear", [0, 1], coded=True)
    assert [one.layer for one in found] == [BAG, "embedding", "1", "2", "mix"]
    assert {(one.right.shape, len(one.compression)) for one in found} == {((2, 80), 2)}
    assert found[1].share[0] > 0.9
    again = probe(bundle, task, "linear", [0, 1])
    assert (again[2].right == found[2].right).all()
    other = with_random_weights(bundle, 1)
    assert other.model.backbone.config == bundle.model.backbone.config
    assert not torch.equal(other.model.backbone.embedding.weight, bundle.model.backbone.embedding.weight)


def place_task() -> Probing:
    """First word or another, of ten copies of each sentence."""
    part = Part(tuple(WORDS * 10), tuple(np.array([0] + [1] * (len(text) - 1)) for text in WORDS * 10))
    return Probing("first", ("yes", "no"), part, part, part, words=True)


def found_of(model: str, *, bag: float = 0.5, items: int = 40, draws: int = 2, asked: Asked | None = None) -> Found:
    """What a model tells of one item a sentence, most of it right."""
    each, control = (rng(0, "right").random(items) < 0.8).astype(float)[None], np.zeros((1, items))
    asked = asked or Asked(0.5, 0, items, (1.2,))
    layer = Reading("1", each, control, np.arange(items), 0.8, (1.5,), asked)
    floor = Reading(BAG, np.full((1, items), bag), control, np.arange(items), 0.5, (1.1,), asked)
    random = Reading("1", np.repeat(1 - each, draws, axis=0), control, np.arange(items), 0.2)
    return Found(place_task(), model, {BAG: floor, "1": layer}, {}, {"1": random})


def test_words_that_do_not_fit_are_said(tokenizer: Tokenizer) -> None:
    """With their number; the commonest label is that of the words asked; models that were asked different ones are named."""
    found = []
    for name, room in (("long", 64), ("short", 7)):
        bundle = Bundle(make_language_model(vocab_size=tokenizer.vocab_size, max_tokens=room), tokenizer)
        found.append(Found(place_task(), name, {one.layer: one for one in probe(bundle, place_task(), "linear", [0])}, {}, {}))
    long, short = (one.asked for one in found)
    words = 10 * sum(map(len, WORDS))
    left = len(found[1].best.groups)
    assert (long.lost, long.whole, short.lost) == (0, 3 * words, 3 * (words - left))
    assert 0 < left < words
    assert long.commonest == pytest.approx(1 - 40 / words)
    assert short.commonest == pytest.approx(max(40 / left, 1 - 40 / left))
    first, second = unfit(found)
    assert first == f"first: {short.lost} of {3 * words:,} words did not fit into short and are not asked"
    assert f"different items, as not all fit (in test: long {words}, short {left})" in second
    assert unfit(found[:1]) == []


def test_a_task_that_asks_too_little_is_refused(tokenizer: Tokenizer) -> None:
    """Nothing in validation, one sentence in test, one label in training."""
    task, bundle = place_task(), bundle_of(tokenizer)
    silent = Part(task.train.texts, tuple(np.full(len(text), IGNORED) for text in task.train.texts))
    single = Part(task.train.texts[:1], task.train.targets[:1])
    same = Part(task.train.texts, tuple(np.zeros(len(text), dtype=np.int64) for text in task.train.texts))
    for bad in (replace(task, validation=silent), replace(task, test=single), replace(task, train=same)):
        with pytest.raises(DataError, match="'first' must ask for two labels"):
            splits_of(bundle, bad)


def test_few_sentences_are_said_with_the_interval() -> None:
    """Below thirty, with their number."""
    assert "sentences" not in found_of("a").sentence()
    assert found_of("a", items=13).sentence().endswith("; over 13 items of 13 sentences")


def test_every_fit_on_random_weights_has_a_draw_of_its_own(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed of the fit is that of the draw; how many there are is said, and of one that it is one."""
    bundle, asked = bundle_of(tokenizer), list[tuple[float, list[int]]]()

    def asking(bundle: Bundle, _: Probing, __: str, seeds: Sequence[int], *, coded: bool = False) -> list[Reading]:
        asked.append((float(bundle.model.backbone.embedding.weight.detach().abs().sum()), list(seeds)))
        return [*found_of("a").linear.values()]

    monkeypatch.setattr(study, "probe", asking)
    first, second = study._probed({"a": bundle, "b": bundle}, [place_task()], ProbeConfig(models=("a", "b"), seeds=2, mlp=False))
    sizes = [float(with_random_weights(bundle, seed).model.backbone.embedding.weight.detach().abs().sum()) for seed in (0, 1)]
    assert asked[:2] == [(sizes[0], [0]), (sizes[1], [1])]
    assert len(asked) == 4
    assert first.random is second.random
    assert len(first.random["1"].right) == 2
    assert "against 2 draws of random weights (" in found_of("a").sentence()
    said = found_of("a", draws=1).sentence()
    assert "against one draw of random weights (" in said
    assert "for this draw alone" in said


def test_floors_are_named_after_models_where_they_differ() -> None:
    """One for all where they are the same."""
    found = [found_of("a"), found_of("b", bag=0.6)]
    assert floors_of(found, "chance", lambda one: one.asked.commonest) == [("first", "chance", 0.5)]
    named = floors_of(found, BAG, lambda one: one.linear[BAG].share[0])
    assert [(name, round(share, 6)) for _, name, share in named] == [(f"{BAG}, a", 0.5), (f"{BAG}, b", 0.6)]
    assert {point[1] for point in study._points(found, "first")} == {"a", "b", "random weights"}
    other = found_of("c", items=50)
    assert {point[1] for point in study._points([*found, other], "first")} == {
        "a", "b", "c", "random weights, a and b", "random weights, c",
    }  # fmt: skip


def test_models_and_tasks_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model is called after its folder, wherever one stands; two tasks of one name are refused."""
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.txt").write_text("tr\tA\ta\ntr\tB\tb\nva\tA\ta\nte\tA\ta\nte\tB\tb\n")
    monkeypatch.chdir(tmp_path / "one")
    assert study._names((".", "../two/bundle")) == ["one", "two"]
    assert main(["study", "probe", "x", "--tasks", "same.txt", "../two/same.txt", "--out", "out"]) == 2
    assert "a name of its own" in " ".join(capsys.readouterr().err.split())


def test_word_tasks_ask_what_they_say() -> None:
    """Place by bins, the tag itself, and the common word before; splits share no sentence."""
    sentences = [[(f"w{i}", "X"), ("the", "DET"), (f"n{i}", "NOUN"), ("is", "VERB")] for i in range(60)]
    tags, places, before = word_tasks(sentences, 120, seed=0)
    assert tags.labels == ("DET", "NOUN", "VERB", "X")
    assert [tags.labels[i] for i in tags.train.targets[0]] == ["X", "DET", "NOUN", "VERB"]
    assert places.labels[:4] == ("1", "2", "3-4", "5-8")
    assert [places.labels[i] for i in places.train.targets[0]] == ["1", "2", "3-4", "3-4"]
    assert before.train.targets[0][0] == IGNORED
    assert before.labels[before.train.targets[0][2]] == "the"
    parts = [set(part.texts) for part in (tags.train, tags.validation, tags.test)]
    assert sum(map(len, parts)) == len(set.union(*parts))
    with pytest.raises(DataError, match="ask for fewer"):
        word_tasks(sentences[:2], 1000, seed=0)
    with pytest.raises(DataError, match="ask for fewer"):
        word_tasks(sentences[:42], 120, seed=0)
    for bad in ([[(form, "_") for form, _ in sentence] for sentence in sentences], [sentence[:1] for sentence in sentences * 4]):
        with pytest.raises(DataError, match="two labels at least"):
            word_tasks(bad, 120, seed=0)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("tr\tA\n", "line 1"),
        ("tr\tA\ta b\nva\tA\tc\n", "none for test"),
        ("tr\tA\ta\nva\tB\tb\nte\tA\tc\n", "B does not"),
        ("tr\tA\ta\nva\tA\tb\nte\tA\tc\nte\tA\td\n", "has 1 and 2"),
        ("tr\tA\ta\ntr\tB\tb\nva\tA\tb\nte\tA\tc\n", "has 2 and 1"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str, match: str) -> None:
    """With the line, the split or the label that is wrong; one label or one test sentence can show nothing."""
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(DataError, match=match):
        read_probing(tmp_path / "bad.txt")


@pytest.mark.slow
def test_the_command_writes_a_page(
    tmp_path: Path, tokenizer: Tokenizer, no_second_process: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two models side by side, one adapted to other labels; all readings as a table; what lacks is said."""
    one = save(bundle_of(tokenizer), tmp_path / "one")
    other = save(replace(bundle_of(tokenizer, causal=True), history=({"command": "pretrain"},)), tmp_path / "other")
    rows = [
        f"{split}\t{label}\t{label.lower()} {SENTENCES[i % 4]}" for split in ("tr", "va", "te") for i in range(20) for label in "AB"
    ]
    with gzip.open(tmp_path / "first_word.txt.gz", "wt") as file:
        file.write("\n".join(rows))
    out = tmp_path / "out"
    words = [
        "study",
        "probe",
        str(one),
        str(other),
        "--tasks",
        str(tmp_path / "first_word.txt.gz"),
        "--out",
        str(out),
        "--seeds",
        "1",
    ]
    assert main(words) == 0
    said = capsys.readouterr().err
    assert "First word: " in said
    assert "points against one draw of random weights" in said
    table = pl.read_csv(out / "probes.csv")
    assert set(table["model"]) == {"one", "other"}
    assert set(table["probe"]) == {"linear", "mlp", "linear, random weights"}
    assert (out / "figures" / "probes.svg").exists()
    assert main(["study", "probe", str(one), "--out", str(tmp_path / "none")]) == 2
    assert "--tasks" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_real_tasks_are_read(data_folder: Path) -> None:
    """Seven tasks with the classes that their description names."""
    found = {task.name: task for task in read_probing(data_folder / "ud_probing")}
    assert len(found) == 7
    assert found["tree depth"].labels == ("2", "3", "4", "5", "6")
    assert len(found["bigram shift"].test.texts) == 1298
