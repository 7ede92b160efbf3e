"""Windows of long texts lose no token, and nothing but the text decides its prediction; batches hold every text once."""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from helpers.bundles import bundle_with, finetune_config, language_bundle, make_task
from helpers.models import SENTENCES
from warmstart.data.audit import audit
from warmstart.data.batches import BATCH_COST, labelled_batches, sorted_batches
from warmstart.data.encode import Encoded, collate, encode, encode_pieces, framed_windows, window_starts
from warmstart.data.task import Split, Task
from warmstart.errors import ConfigError, ModelError
from warmstart.estimators import TextEncoder
from warmstart.finetuning.features import FeatureCache
from warmstart.finetuning.finetune import check_scheme, fine_tune, task_model
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.heads.pooled import POOLINGS, join_windows
from warmstart.heads.settings import CUT, WindowSettings
from warmstart.inspection.explanations import explain_text, prepare_text
from warmstart.interop.export import to_huggingface
from warmstart.interop.onnx import to_onnx
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.inference import embed
from warmstart.seeding import rng
from warmstart.tasks.predict import predict, raw_predictions, read
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer

JOINED = ("mean", "max", "attention")
WINDOWS = WindowSettings(windows="mean")
SHORT = "She holds the cat."
LONG = " ".join([SHORT, "I rub the river and the dog.", "He rubs the cat and holds the river."] * 8)
window_settings = st.builds(
    WindowSettings, windows=st.sampled_from(JOINED), window_overlap=st.floats(0, 0.9), max_windows=st.integers(0, 4)
)


def reader(tokenizer: Tokenizer, windows: str, pooling: str = "mean", limit: int = 0) -> Bundle:
    """A classifier of texts, of which a window holds 30 tokens; its weights for windows are not equal."""
    config = ClassificationHeadConfig(classes=3, windows=windows, pooling=pooling, max_windows=limit)
    bundle = bundle_with(tokenizer, config)
    if windows == "attention":
        torch.nn.init.normal_(bundle.model.head.window_query, generator=torch.Generator().manual_seed(1))
    return bundle


def long_task() -> Task:
    """The label of a long text is decided by its last sentence, which is cut without windows."""
    short = make_task().train
    texts = tuple(f"{text.split()[0]} rubs it. {'I rub it and hold it. ' * 6}{text}" for text in short.texts)
    split = Split(texts, short.labels)
    return Task("long", ("cat", "other"), split, split, split, "accuracy")


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(1, 40), window_settings)
def test_every_token_is_in_some_window(tokens: int, room: int, chosen: WindowSettings) -> None:
    """Windows begin in order, overlap at least as stated, join to the text again, and what a limit cuts is counted."""
    starts, lost = window_starts(tokens, room, chosen)
    held = framed_windows(tokens + 2, room + 2, chosen)
    assert len(starts) == len(held)
    assert (held[:, [0, -1]] == [0, tokens + 1]).all()
    held = held[:, 1:-1] - 1
    assert (held[:, :1] == starts[:, None][:, : held.shape[1]]).all()
    assert starts[0] == 0
    assert held.max(initial=-1) == tokens - lost - 1
    assert sorted(set(held.ravel().tolist())) == list(range(tokens - lost))
    assert (np.diff(starts) > 0).all()
    assert (np.diff(starts) <= room - int(chosen.window_overlap * room)).all()
    assert len(starts) <= (chosen.max_windows or len(starts))
    assert not lost or (chosen.max_windows and len(starts) == chosen.max_windows)
    if tokens <= room:
        assert len(starts) == 1
        assert not lost


def test_windows_by_literal_numbers() -> None:
    """Two overlap evenly; a limit counts what comes after the last; without windows there is one."""
    third = WindowSettings(windows="mean", window_overlap=1 / 3)
    assert [*window_starts(10, 6, third)[0]] == [0, 4]
    assert [*window_starts(11, 6, third)[0]] == [0, 2, 5]
    assert window_starts(11, 6, third.model_copy(update={"max_windows": 2}))[1] == 1
    assert window_starts(11, 6, CUT) == (np.zeros(1), 5)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6), window_settings)
def test_encoded_windows_hold_the_text(tokenizer: Tokenizer, lengths: list[int], chosen: WindowSettings) -> None:
    """Rows are framed windows; joined again they are the text's tokens; taking examples takes their rows."""
    texts = [" ".join(["the cat rubs"] * length) for length in lengths]
    chosen = chosen.model_copy(update={"max_windows": 0})
    encoded, whole = encode(tokenizer, texts, 32, windows=chosen), encode(tokenizer, texts, 1 << 20)
    assert len(encoded) == len(texts)
    assert not encoded.cut.any()
    order = np.arange(len(texts))[::-1]
    for index, text in zip(order, whole.take(order).rows, strict=True):
        found = encoded.take(np.array([index]))
        starts, _ = window_starts(len(text) - 2, 30, chosen)
        joined = dict[int, int]()
        for start, row in zip(starts, found.rows, strict=True):
            assert len(row) <= 32
            assert [row[0], row[-1]] == [text[0], text[-1]]
            joined.update(enumerate(row[1:-1].tolist(), int(start)))
        assert [joined[at] for at in range(len(text) - 2)] == text[1:-1].tolist()


def test_every_token_of_a_pair_is_in_some_window(tokenizer: Tokenizer) -> None:
    """Each window of the first text is read with each of the second; what fits without windows is the first row."""
    for pair in ((LONG, SHORT), (SHORT, LONG), (LONG, LONG)):
        encoded = encode(tokenizer, [pair], 32, windows=WINDOWS, typed=True)
        assert not encoded.cut.any()
        assert encoded.second_starts is not None
        rows = [*zip(encoded.rows, encoded.second_starts, strict=True)]
        for text, side in zip(tokenizer.encode(list(pair)), (0, 1), strict=True):
            parts = [row[1 : start - 1] if side == 0 else row[start:-1] for row, start in rows]
            assert {*text} <= {int(one) for part in parts for one in part}
            assert any(part.tolist() == text[: len(part)] for part in parts)
            assert any(part.tolist() == text[len(text) - len(part) :] for part in parts)
        assert encoded.rows[0].tolist() == encode(tokenizer, [pair], 32).rows[0].tolist()


def test_a_batch_of_windows_is_bounded(tokenizer: Tokenizer) -> None:
    """A step has every text once, in parts of at most as many rows as a batch has texts, or of one text."""
    texts = [SHORT, LONG, SHORT, LONG, LONG, SHORT, SHORT, LONG]
    encoded = encode(tokenizer, texts, 32, windows=WINDOWS)
    parts = labelled_batches(encoded, np.arange(8), (8, 1), 0, 0, causal=False)(0)
    assert sorted(int(one) for part in parts for one in part.targets.tolist()) == list(range(8))
    assert sum(part.count for part in parts) == 8
    assert all(len(part.ids) <= 8 or part.count == 1 for part in parts)
    assert sum(batch.ids.shape[0] for _, batch in sorted_batches(encoded, 64, 0, causal=False)) == len(encoded.rows)


def test_joining_by_literal_numbers() -> None:
    """The mean and the maximum of each dimension; attention without preferences is the mean; a single window keeps its state."""
    states, counts = torch.tensor([[1.0, 5.0], [3.0, 1.0], [7.0, 8.0]]), torch.tensor([2, 1])
    assert join_windows(states, counts, "mean").tolist() == [[2, 3], [7, 8]]
    assert join_windows(states, counts, "max").tolist() == [[3, 5], [7, 8]]
    assert join_windows(states, counts, "attention", torch.zeros(2)).tolist() == [[2, 3], [7, 8]]
    weighed = join_windows(states, counts, "attention", torch.tensor([100.0, 0.0]))
    torch.testing.assert_close(weighed, torch.tensor([[3.0, 1.0], [7.0, 8.0]]))


def test_a_text_of_one_window_is_read_as_without(tokenizer: Tokenizer) -> None:
    """Alone bit for bit; beside long texts up to the order of sums."""
    for windows, pooling in zip(itertools.cycle(JOINED), POOLINGS, strict=False):
        plain, joined = reader(tokenizer, "none", pooling), reader(tokenizer, windows, pooling)
        expected = raw_predictions(plain, [SHORT, "I"])
        assert raw_predictions(joined, [SHORT, "I"]).tolist() == expected.tolist()
        np.testing.assert_allclose(raw_predictions(joined, [SHORT, LONG, "I"])[[0, 2]], expected, atol=1e-6)
        assert np.abs(raw_predictions(joined, [LONG]) - raw_predictions(plain, [LONG])).max() > 1e-6


@settings(deadline=None, max_examples=20)
@given(st.lists(st.sampled_from([SHORT, LONG, LONG[:300], "I", LONG + LONG]), min_size=1, max_size=5), st.sampled_from(JOINED))
def test_batch_mates_and_batches_change_nothing(tokenizer: Tokenizer, texts: list[str], windows: str) -> None:
    """A prediction is that of the text alone, also if a batch holds its windows together with others."""
    bundle = reader(tokenizer, windows)
    alone = np.concatenate([raw_predictions(bundle, [text]) for text in texts])
    np.testing.assert_allclose(raw_predictions(bundle, texts), alone, atol=1e-6)
    encoded = encode(tokenizer, texts, 32, windows=bundle.model.head.config.window_settings)
    batch = encoded.batch(np.arange(len(texts)), None, 0, causal=False)
    with torch.no_grad():
        logits = bundle.model(batch.ids, batch.attention_mask, None, batch.windows)
    np.testing.assert_allclose(logits.softmax(dim=-1).numpy(), alone, atol=1e-6)


def test_a_saved_model_joins_windows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """It predicts the same after loading, and its card says how; formats of others could not: they refuse it, and write nothing."""
    for windows in JOINED:
        bundle = reader(tokenizer, windows)
        loaded = load_bundle(save(bundle, tmp_path / windows))
        assert loaded.model.head.config == bundle.model.head.config
        assert raw_predictions(loaded, [LONG, SHORT]).tolist() == raw_predictions(bundle, [LONG, SHORT]).tolist()
        assert f"joined by {windows}" in (tmp_path / windows / "README.md").read_text()
    for write in (to_onnx, to_huggingface):
        with pytest.raises(ModelError, match=r"reads long texts in windows .*export a model that was adapted without --windows"):
            write(reader(tokenizer, "mean"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_vectors_of_windows(tokenizer: Tokenizer) -> None:
    """``embed`` takes windows of its own, or those of the bundle; so does the encoder for scikit-learn."""
    cut, whole = (bundle_with(tokenizer, EmbeddingHeadConfig(windows=windows)) for windows in ("none", "mean"))
    torch.testing.assert_close(embed(cut, [LONG, SHORT], WINDOWS), embed(whole, [LONG, SHORT]))
    assert not torch.allclose(embed(cut, LONG), embed(whole, LONG))
    torch.testing.assert_close(embed(cut, SHORT), embed(whole, SHORT))
    with pytest.raises(ConfigError, match="windows of an embedding must be none, mean or max"):
        EmbeddingHeadConfig(windows="attention")
    bundle = reader(tokenizer, "none")
    most, least = (TextEncoder(bundle, windows=windows).fit([]).transform([LONG, SHORT]) for windows in ("max", "none"))
    np.testing.assert_allclose(most[1], least[1], atol=1e-6)
    assert (most[0] >= least[0] - 1e-6).all()
    assert most[0].max() > least[0].max()


def trained(tokenizer: Tokenizer, scheme: str, epochs: int, **changes: object) -> np.ndarray:
    """Predictions for the long texts; a frozen backbone reads every window once."""
    bundle, task, features = language_bundle(tokenizer), long_task(), FeatureCache()
    config = finetune_config(scheme, **changes)
    train = config.train.model_copy(update={"epochs": epochs, "learning_rate": 1e-2})
    config = config.model_copy(update={"train": train})
    model = task_model(bundle, task, config, 0, scratch=False)
    encoded = replace(EncodedTask.of(task, model, tokenizer), features=features)
    found = fine_tune(model, encoded, config, 0, "", LanguageTask.of(bundle)).test_predictions
    different = len({row.tobytes() for row in encoded.train.rows})
    assert features.texts_computed == (different if config.cache_features and scheme != "full" else 0)
    return found


@pytest.mark.parametrize(("windows", "epochs"), [("mean", 20), ("max", 15), ("attention", 15)])
def test_a_model_learns_what_is_at_the_end_of_long_texts(windows: str, epochs: int, tokenizer: Tokenizer) -> None:
    """However windows are joined."""
    found = trained(tokenizer, "full", epochs, windows=windows)
    assert (found.argmax(axis=1) == long_task().test.labels).all()


@pytest.mark.parametrize(("scheme", "windows"), [("probe", "attention"), ("scalar-mix", "max")])
def test_kept_features_of_windows_change_nothing(scheme: str, windows: str, tokenizer: Tokenizer) -> None:
    """Up to the order of sums."""
    kept, computed = (trained(tokenizer, scheme, 3, windows=windows, cache_features=cache) for cache in (True, False))
    np.testing.assert_allclose(kept, computed, atol=4e-3)


def test_tasks_that_read_no_windows_refuse_them(tokenizer: Tokenizer) -> None:
    """Before anything is written or trained."""
    bundle, task = language_bundle(tokenizer), replace(long_task(), type="tagging")
    with pytest.raises(ConfigError, match=r"--windows is for tasks with one prediction .* 'long' is a tagging task"):
        check_scheme(bundle, task, finetune_config("full", windows="mean"))


def test_the_audit_loses_no_token_with_windows(tokenizer: Tokenizer) -> None:
    """The share of lost tokens is zero with windows, and above it without them, which names the way out; a limit is counted."""
    task = long_task()

    def found(windows: WindowSettings) -> tuple[float, str]:
        result = audit(task, tokenizer, 32, windows=windows)
        tokens = result.splits[0].tokens
        assert tokens.lost is not None
        return tokens.lost, " ".join(one.sentence for one in result.findings() if "tokens" in one.sentence)

    lost, sentence = found(CUT)
    assert lost > 0.3
    assert "of all tokens are cut off. Adapt with --windows mean to read them whole." in sentence
    none_lost, sentence = found(WINDOWS)
    assert none_lost == 0
    assert "they are read in windows that overlap" in sentence
    assert "cut off" not in sentence
    less, sentence = found(WindowSettings(windows="max", max_windows=2))
    assert 0 < less < lost
    assert "longer than 2 windows of 32 tokens" in sentence


def test_predictions_say_what_was_cut(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many texts and tokens, and what to do, nothing if nothing was cut; texts are tokenized once to predict and to say so."""
    cut = len(tokenizer.encode([LONG])[0]) - 30
    assert read(reader(tokenizer, "none"), [LONG, SHORT]).cut() == (
        f"1 of 2 texts (50.0%) did not fit into the 32 tokens that the model reads: {cut} tokens were cut off. "
        "Adapt with --windows mean to read them whole."
    )
    assert read(reader(tokenizer, "none"), [SHORT]).cut() == ""
    assert read(reader(tokenizer, "mean"), [LONG, SHORT]).cut() == ""
    tokenize, texts = Tokenizer.encode, list[str]()
    monkeypatch.setattr(Tokenizer, "encode", lambda self, read: (texts.extend(read), tokenize(self, read))[1])
    assert "1 of 2 texts" in predict(reader(tokenizer, "none"), [LONG, SHORT]).cut
    assert sorted(texts) == sorted([LONG, SHORT])


@pytest.mark.parametrize("windows", JOINED)
def test_a_prediction_over_windows_is_explained(tokenizer: Tokenizer, windows: str) -> None:
    """What is explained is what is predicted; a token counts in each of its windows, and integrated gradients are complete."""
    bundle = reader(tokenizer, windows)
    text = LONG[:200]
    prepared = prepare_text(bundle, text)
    assert len(prepared.windows(len(prepared.row))) > 1
    probabilities = raw_predictions(bundle, [text])[0]
    assert prepared.target == probabilities.argmax()
    found = explain_text(prepared, random_orders=2, seed=0, max_phrase=1)
    assert found.probability == pytest.approx(probabilities.max(), abs=1e-5)
    assert "".join(prepared.words) == "".join(text.split())
    without = raw_predictions(bundle, [tokenizer.decode(prepared.without([0])[1:-1].tolist())])[0, prepared.target]
    expected = np.log(probabilities.max()) - np.log(without)
    assert found.values["erasure"][0] == pytest.approx(expected, abs=1e-4)
    assert found.missing < 0.05
    assert all((np.abs(values) > 0).mean() > 0.9 for values in found.values.values())


def test_a_text_beyond_the_limit_is_not_explained(tokenizer: Tokenizer) -> None:
    """The message says how much too long it is."""
    with pytest.raises(ModelError, match="the text must fit into 2 windows of 32 tokens, but is"):
        prepare_text(reader(tokenizer, "mean", limit=2), LONG)


def texts_of(lengths: list[int]) -> Encoded:
    """PretrainingRows whose first token is their own number, so that they can be distinguished."""
    rows = tuple(np.full(length, i + 5, dtype=np.int64) for i, length in enumerate(lengths))
    return Encoded(rows, np.zeros(len(lengths), dtype=np.int64))


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=60),
    st.tuples(st.integers(1, 16), st.integers(1, 3)),
    st.integers(0, 99),
    st.integers(0, 3),
)
@settings(deadline=None, max_examples=60)
def test_an_epoch_reads_every_text_once(lengths: list[int], batch: tuple[int, int], seed: int, epoch: int) -> None:
    """With its own label, whatever the bucketing; steps of several batches join epochs; and asking twice gives the same."""
    labels, (size, accumulate) = np.arange(len(lengths)) % 3, batch
    batches = labelled_batches(texts_of(lengths), labels, batch, seed, 0, causal=False)
    of_epoch = -(-len(lengths) // size)
    read = [zip(batches(step), batches(step), strict=True) for step in range(-(-(epoch + 1) * of_epoch // accumulate))]
    seen = []
    for one, again in list(itertools.chain(*read))[epoch * of_epoch : (epoch + 1) * of_epoch]:
        assert (one.ids == again.ids).all()
        for row, label in zip(one.ids[:, 0].tolist(), one.targets.tolist(), strict=True):
            assert label == labels[row - 5]
            seen.append(row - 5)
        assert one.count == len(one.ids) <= size
    assert sorted(seen) == list(range(len(lengths)))


def test_bucketing_wastes_little() -> None:
    """For 800 texts of 3 to 60 tokens, less than 12 % of what is read is padding; in random order it is over 40 %."""
    lengths = rng(0, "lengths").integers(3, 61, 800).tolist()
    batches = labelled_batches(texts_of(lengths), np.zeros(800, dtype=np.int64), (16, 1), 0, 0, causal=False)
    read = sum(batches(step)[0].ids.numel() for step in range(50))
    assert sum(lengths) / read > 0.88
    shuffled = rng(0, "order").permutation(lengths)
    assert sum(lengths) / sum(16 * shuffled[i : i + 16].max() for i in range(0, 800, 16)) < 0.6


@given(st.lists(st.integers(1, 30), min_size=1, max_size=50), st.integers(1, 100))
@settings(deadline=None, max_examples=60)
def test_reading_in_order_of_length_misses_nothing(lengths: list[int], tokens: int) -> None:
    """Every text once, in batches of at most so many padded tokens (one text may be longer)."""
    seen = []
    for places, batch in sorted_batches(texts_of(lengths), tokens, 0, causal=False):
        assert len(places) == 1 or batch.ids.numel() <= tokens
        assert [int(ids[0]) - 5 for ids in batch.ids] == places.tolist()
        seen += places.tolist()
    assert sorted(seen) == list(range(len(lengths)))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(60, 300))
@settings(deadline=None, max_examples=40)
def test_reading_in_order_of_length_pads_as_little_as_pays(lengths: list[int], tokens: int) -> None:
    """No other way to cut the sorted texts into batches has fewer tokens with padding, a batch counting as so many more."""
    ranked, inner = sorted(lengths), range(1, len(lengths))
    ways = [[0, *cuts, len(lengths)] for size in range(len(lengths)) for cuts in combinations(inner, size)]
    sizes = [[(end - start) * ranked[end - 1] for start, end in pairwise(way)] for way in ways]
    found = [batch.ids.numel() for _, batch in sorted_batches(texts_of(lengths), tokens, 0, causal=False)]
    assert sum(found) + BATCH_COST * len(found) == min(sum(way) + BATCH_COST * len(way) for way in sizes if max(way) <= tokens)


def test_collate_pads_on_the_right() -> None:
    """The mask is True at real tokens, and absent where nothing is padded."""
    batch = collate([np.array([5, 6, 7]), np.array([8])], np.array([1, 0]), 0, causal=True)
    assert batch.ids.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert batch.attention_mask.tolist() == [[True] * 3, [True, False, False]]
    assert collate([np.array([5]), np.array([8])], None, 0, causal=True).attention_mask is None


def test_long_texts_lose_their_end_but_not_their_frame(tokenizer: Tokenizer) -> None:
    """A text of any length begins and ends with its special tokens; what is cut is counted; an empty text is no accident."""
    texts, specials = ["She holds the cat and rubs the dog.", ""], tokenizer.specials
    whole = tokenizer.encode(texts)[0]
    for appended, last in ((False, specials.eos), (True, specials.cls)):
        encoded = encode(tokenizer, texts, 5, appended=appended)
        assert encoded.rows[0].tolist() == [specials.eos, *whole[:3], last]
        assert encoded.cut.tolist() == [len(whole) - 3, 0]
        assert encoded.rows[1].tolist() == [specials.eos, last]


def blank_of_its_own() -> Tokenizer:
    """As Llama 2 has it: a blank before every text, also before one that begins with a blank."""
    backend = Backend(models.BPE(unk_token="<unk>"))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    backend.train_from_iterator(SENTENCES * 20, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"]))
    backend.pre_tokenizer = None
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse()])
    return Tokenizer(backend.to_str())


def test_words_are_encoded_as_the_text_that_they_make() -> None:
    """Whoever puts the blank before a word; each mark is where the word begins."""
    words = [sentence.split() for sentence in SENTENCES]
    for kind in ("bytes", "wordpiece", "unigram", "word", "llama"):
        config = TokenizerConfig(type="bytes" if kind == "llama" else kind, vocab_size=330, sentinels=0)
        tokenizer = blank_of_its_own() if kind == "llama" else train_tokenizer(SENTENCES * 20, config)
        found = encode_pieces(tokenizer, [[text[0], *(f" {word}" for word in text[1:])] for text in words], 64)
        whole = encode(tokenizer, SENTENCES, 64)
        for text, row, wanted, marks in zip(words, found.rows, whole.rows, found.piece_starts, strict=True):
            assert row.tolist() == wanted.tolist(), kind
            spelled = [tokenizer.decode(row[a:b].tolist()).strip() for a, b in pairwise([*marks, len(row) - 1])]
            assert kind in ("wordpiece", "word") or spelled == text, kind


def test_a_single_string_gives_a_single_result(tokenizer: Tokenizer) -> None:
    """A prediction is a dictionary, an embedding a vector; a tagger splits the string into words."""
    classifier = bundle_with(tokenizer, ClassificationHeadConfig(classes=3))
    assert predict(classifier, "She holds the cat.") == predict(classifier, ["She holds the cat."])[0]
    tagger = bundle_with(tokenizer, TaggingHeadConfig(classes=3))
    assert predict(tagger, "She holds the cat")["words"] == ["She", "holds", "the", "cat"]
    embedder = bundle_with(tokenizer, EmbeddingHeadConfig())
    assert torch.equal(embed(embedder, "She"), embed(embedder, ["She"])[0])
    with pytest.raises(ModelError, match="embeddings need an embedding head, but this model has a classification head"):
        embed(classifier, "She")
