"""Embedding maps: neighbours, analogies and means are those of plain loops, maps come from a seed, and any model can be drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness

from conftest import SENTENCES, make_language_model
from test_schemes import classifier
from warmstart.analysis.lexicon import Lexicon, lexicon_of_text, lexicon_of_vocabulary, pieces_of, static_states
from warmstart.analysis.neighbours import (
    Answered,
    answer,
    covered,
    mean_cosines,
    nearest,
    random_pairs,
    shared_neighbours,
    unit,
)
from warmstart.analysis.occurrences import find_occurrences, read_occurrences
from warmstart.analysis.projection import pca, project
from warmstart.cli import main
from warmstart.data.analogies import Analogy, read_analogies
from warmstart.errors import DataError, TokenizerError
from warmstart.model import Bundle, save
from warmstart.seeding import rng
from warmstart.tokenizer import Tokenizer, TokenizerConfig, train_tokenizer


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False, **switches: object) -> Bundle:
    switches = {"max_tokens": 64} | switches
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **switches), tokenizer)


def lexicon_named(words: list[str]) -> Lexicon:
    """A lexicon of words that no tokenizer has seen."""
    return Lexicon(tuple(words), tuple((i,) for i in range(len(words))), (), {word: i for i, word in enumerate(words)})


@given(st.integers(0, 1000), st.integers(3, 12), st.integers(1, 15))
@settings(deadline=None, max_examples=40)
def test_neighbours_are_those_of_a_plain_loop(seed: int, count: int, most: int) -> None:
    """Cosines one by one; a word is no neighbour of its own."""
    vectors = rng(seed).normal(size=(count, 5))
    found, cosines = nearest(vectors, np.array([0, count - 1]), most)
    for row, place in enumerate((0, count - 1)):
        one = vectors[place]
        said = {i: float(v @ one / np.linalg.norm(v) / np.linalg.norm(one)) for i, v in enumerate(vectors) if i != place}
        wanted = sorted(said, key=lambda i: -said[i])[:most]
        assert found[row].tolist() == wanted
        assert cosines[row] == pytest.approx([said[i] for i in wanted])
    assert np.sort(random_pairs(vectors, seed)) == pytest.approx(
        np.sort((unit(vectors) @ unit(vectors).T)[np.triu_indices(count, 1)])
    )


def test_shared_neighbours_by_hand() -> None:
    """A space shares all with itself; four words of which one pair changes sides share what stays."""
    one = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    assert shared_neighbours(one, one * 3, 1).tolist() == [1, 1, 1, 1]
    assert shared_neighbours(one, one[[0, 2, 1, 3]], 1).tolist() == [0, 0, 0, 0]


def test_an_offset_answers_and_given_words_never_do() -> None:
    """King - man + woman is queen, not king; "King" is no answer either; the floor is what lies nearest to king."""
    words = ["man", "woman", "king", "queen", "King", "prince", "apple", "pear"]
    kinds = {
        "man": (1, 0, 0),
        "woman": (1, 1, 0),
        "king": (5, 0, 1),
        "queen": (5, 1, 1),
        "King": (5, 0, 1),
        "prince": (4.9, 0.2, 1),
    }
    vectors = np.array([(*kinds.get(word, (0, 0, -4)), word == "apple") for word in words], dtype=float)
    lexicon = lexicon_named(words)
    questions = [Analogy("x", ("man", "woman", "king", "queen")), Analogy("x", ("man", "king", "woman", "Queen"))]
    found = answer(vectors, lexicon, questions)
    assert [words[place] for place in found.answers] == ["queen", "queen"]
    assert found.right.tolist() == [True, True]
    assert found.floor[0] == (_alone(vectors, words, "king", {"man", "woman", "king", "King"}) == "queen")
    assert covered(lexicon, [*questions, Analogy("x", ("man", "woman", "king", "duke"))]) == questions


def _alone(vectors: np.ndarray, words: list[str], word: str, out: set[str]) -> str:
    made = unit(vectors - vectors.mean(axis=0))
    return max((w for w in words if w not in out), key=lambda w: float(made[words.index(w)] @ made[words.index(word)]))


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_analogies_are_those_of_a_plain_loop(seed: int) -> None:
    """Offsets of unit vectors without their mean, the three given words left out, on random vectors."""
    draw, words = rng(seed), list("abcdefghijkl")
    vectors = draw.normal(size=(12, 4)) + 1
    questions = [Analogy("x", tuple(words[i] for i in draw.permutation(12)[:4])) for _ in range(7)]  # type: ignore[arg-type]
    found = answer(vectors, lexicon_named(words), questions)
    made = unit(vectors - vectors.mean(axis=0))
    for row, one in enumerate(questions):
        a, b, c, d = (words.index(word) for word in one.words)
        said = [float((made[b] - made[a] + made[c]) @ v) for v in made]
        assert found.given[row] == (int(np.argmax(said)) in (a, b, c))
        best = max((i for i in range(12) if i not in (a, b, c)), key=lambda i: said[i])
        assert (found.answers[row], found.right[row]) == (best, best == d)
        assert found.floor[row] == (_alone(vectors, words, words[c], set(one.words[:3])) == words[d])


def test_what_the_offset_adds_has_an_interval_over_pairs() -> None:
    """All right against none: one, surely; a hundred questions about one pair say no more than one."""

    def made(questions: list[Analogy], right: list[bool]) -> Answered:
        nothing = np.zeros(len(questions), dtype=bool)
        return Answered(questions, np.zeros(len(questions), dtype=int), np.array(right), nothing, nothing)

    different = [Analogy("x", ("a", "b", str(i), "d")) for i in range(50)]
    assert made(different, [True] * 50).gain(0) == (1, 1, 1)
    mean, low, high = made(different, [True, False] * 25).gain(0)
    assert mean == 0.5
    assert low == pytest.approx(0.5 - 1.96 * np.sqrt(0.25 / 50), abs=0.04)
    assert high == pytest.approx(0.5 + 1.96 * np.sqrt(0.25 / 50), abs=0.04)
    two = [Analogy("x", ("a", "b", "c", "d"))] * 50 + [Analogy("x", ("a", "b", "e", "f"))] * 50
    assert made(two, [True] * 50 + [False] * 50).gain(0) == (0.5, 0, 1)


def test_pairs_of_words_vary_on_both_sides_of_a_question() -> None:
    """Where the first pair decides what is right, its resampling shows; by a loop over the questions of every resample."""
    sides = [(f"a{i}", f"b{i}") for i in range(12)]
    asked = [(i, j) for i in range(12) for j in range(12) if i != j]
    questions = [Analogy("x", (*sides[i], *sides[j])) for i, j in asked]
    right = np.array([i < 6 for i, _ in asked])
    nothing = np.zeros(len(asked), dtype=bool)
    mean, low, high = Answered(questions, np.zeros(len(asked), dtype=int), right, nothing, nothing).gain(3)
    numbers = [side for i, j in asked for side in (i, j)]
    order = {side: place for place, side in enumerate(dict.fromkeys(numbers))}
    shares = []
    for drawn in rng(3, "bootstrap", "analogies").multinomial(12, [1 / 12] * 12, size=1000):
        times = [drawn[order[i]] * drawn[order[j]] for i, j in asked]
        shares.append(sum(n for n, well in zip(times, right, strict=True) if well) / sum(times))
    assert (mean, low, high) == pytest.approx((0.5, *np.quantile(shares, [0.025, 0.975])))
    assert high - low > 0.4


def test_maps_come_from_their_seed() -> None:
    """The same seed the same map; PCA and trustworthiness are scikit-learn's; shuffling the points loses all trust."""
    draw = rng(0)
    vectors = np.concatenate([draw.normal(size=(20, 6)) + place for place in (0, 4, 8)]).astype(np.float32)
    (flat, spread), again = project(vectors, 3), project(vectors, 3)
    assert np.array_equal(flat.points, again[0].points)
    assert np.array_equal(spread.points, again[1].points)
    wanted = PCA(2, svd_solver="full").fit(vectors)
    assert flat.points == pytest.approx(wanted.transform(vectors), abs=1e-4)
    assert flat.explained == pytest.approx(wanted.explained_variance_ratio_)
    for one in (flat, spread):
        assert one.trust == pytest.approx(trustworthiness(vectors, one.points, n_neighbors=12))
        assert one.shuffled < 0.7 < one.trust
    assert project(vectors[:5], 0)[1].points.shape == (5, 2)
    assert pca(np.ones((4, 3)))[1] == (0, 0)


def test_texts_are_cut_into_words_and_signs() -> None:
    """Nothing is lost but the kind of white space; a mark is no word."""
    text = "I don't  know <unk>,\nsaid 3rd_man."
    assert pieces_of(text) == ["I", " don't", " know", " <unk>", ",", " said", " 3", "rd", "_", "man", "."]
    assert "".join(pieces_of(text)) == " ".join(text.split())


def test_a_lexicon_counts_words_as_the_tokenizer_tells_them_apart(tokenizer: Tokenizer) -> None:
    """By frequency; folded where the tokenizer folds; words asked for stay, absent ones are named with what is near."""
    texts = ["The cat and the dog.", "the cat", "the <unk> <unk>"]
    lexicon = lexicon_of_text(tokenizer, texts, 2, ["dog"])
    assert lexicon.words == ("the", "cat", "dog")
    assert lexicon.counts == (3, 2, 1)
    assert lexicon.find("CAT") == 1
    uncased = train_tokenizer(SENTENCES * 20, TokenizerConfig(kind="wordpiece", vocab_size=120, lowercase=True))
    folded = lexicon_of_text(uncased, texts, 3, ["DOG"])
    assert (folded.words[0], folded.counts[0], folded.known["The"]) == ("the", 4, folded.known["the"])
    assert folded.known["DOG"] == folded.known["dog"]
    with pytest.raises(DataError, match=r"'cats' must stand in the text .* near it are cat"):
        lexicon_of_text(tokenizer, texts, 2, ["cats"])


def test_a_vocabulary_has_its_whole_words(tokenizer: Tokenizer) -> None:
    """Tokens that are read as one word, lowest id first; words of several tokens come last."""
    lexicon = lexicon_of_vocabulary(tokenizer, ["doggedly"])
    assert lexicon.words[-1] == "doggedly"
    assert len(lexicon.ids[-1]) > 1
    assert list(lexicon.ids[:-1]) == sorted(lexicon.ids[:-1])
    for word, ids in zip(lexicon.words[:-1], lexicon.ids, strict=False):
        assert word.isalpha()
        assert tokenizer.encode([f" {word}"]) == [list(ids)]
    words = train_tokenizer(SENTENCES, TokenizerConfig(kind="word", vocab_size=60))
    with pytest.raises(TokenizerError, match="spell 'zebra'"):
        lexicon_of_vocabulary(words, ["zebra"])


@pytest.mark.parametrize("causal", [True, False])
def test_states_are_those_of_plain_loops(tokenizer: Tokenizer, *, causal: bool) -> None:
    """Static: the mean of a word's rows of the embedding. In context: one text at a time, the mean over the word's tokens."""
    bundle = bundle_of(tokenizer, causal=causal, depth=3)
    lexicon = lexicon_of_text(tokenizer, SENTENCES, 100, ["cat"])
    table = bundle.model.backbone.embedding.weight.detach().numpy()
    for vector, word in zip(static_states(bundle, lexicon), lexicon.words, strict=True):
        assert vector == pytest.approx(table[tokenizer.encode([f" {word}"])[0]].mean(axis=0), abs=1e-6)
    found = find_occurrences(bundle, SENTENCES, lexicon, dict.fromkeys(range(len(lexicon)), 3), 0)
    chosen = rng(0).permutation(len(found.word))
    states = read_occurrences(bundle, found, chosen, [0, 2, 3])
    for number, got in zip(chosen, states, strict=True):
        passage, place = found.where[number]
        pieces = found.passages.texts[passage]
        assert lexicon.known[pieces[place].strip()] == found.word[number]
        before, own = (tokenizer.encode(list(part)) for part in (pieces[:place], [pieces[place]]))
        first = 1 + sum(map(len, before))
        ids = [tokenizer.specials.begin, *(id for piece in tokenizer.encode(list(pieces)) for id in piece), tokenizer.specials.eos]
        with torch.inference_mode():
            made = bundle.model.backbone(torch.tensor([ids]), causal=causal)
        for layer, one in zip((made.layers[0], made.layers[2], made.last), got, strict=True):
            assert one == pytest.approx(layer[0, first : first + len(own[0])].mean(dim=0).numpy(), abs=1e-4)


def test_occurrences_are_as_many_as_are_wanted(tokenizer: Tokenizer) -> None:
    """All where there are few; contexts are what stands around; what does not fit into the model is passed over."""
    texts = [*SENTENCES, "river " * 300]
    lexicon = lexicon_of_text(tokenizer, texts, 100)
    cat, river = lexicon.known["cat"], lexicon.known["river"]
    bundle = bundle_of(tokenizer)
    found = find_occurrences(bundle, texts, lexicon, {cat: 2, river: 1000}, 1)
    assert len(found.of(cat)) == 2
    assert 30 < len(found.of(river)) < 301
    left, here, right = found.context(found.of(cat)[0])
    assert here == "cat"
    assert any(f"{left} {here}" in text and right in text for text in SENTENCES)
    assert {tuple(row) for row in found.where.tolist()} == {
        tuple(row) for row in find_occurrences(bundle, texts, lexicon, {cat: 2, river: 1000}, 1).where.tolist()
    }


def test_a_word_in_one_context_is_like_itself(tokenizer: Tokenizer) -> None:
    """Its cosine is 1 at every layer and in every resample; other states have the mean over all pairs, by a loop."""
    bundle = bundle_of(tokenizer)
    texts = ["She holds the cat."] * 8
    lexicon = lexicon_of_text(tokenizer, texts, 100)
    found = find_occurrences(bundle, texts, lexicon, {lexicon.known["cat"]: 8}, 0)
    states = read_occurrences(bundle, found, np.arange(8), [0, 1, 2])
    assert mean_cosines(states, 0, "cat") == pytest.approx(1)
    draws = rng(0).normal(size=(7, 3, 5))
    cosines = mean_cosines(draws, 0, "x")
    for layer in range(3):
        made = unit(draws[:, layer])
        assert cosines[0, layer] == pytest.approx(np.mean([made[i] @ made[j] for i in range(7) for j in range(7) if i != j]))
    assert abs(cosines[1:].mean(axis=0) - cosines[0]).max() < 0.05, "resampling must not pair an occurrence with itself"


def test_files_of_analogies(tmp_path: Path) -> None:
    """Headings and four words a line; another line is named."""
    file = tmp_path / "q.txt"
    file.write_text("a b c d\n: two words\n\nMan King Woman Queen\n")
    assert read_analogies(file) == [Analogy("q", ("a", "b", "c", "d")), Analogy("two words", ("Man", "King", "Woman", "Queen"))]
    file.write_text(": x\na b c\n")
    with pytest.raises(DataError, match="line 2 is 'a b c'"):
        read_analogies(file)
    file.write_text(": x\n")
    with pytest.raises(DataError, match="holds none"):
        read_analogies(file)


def test_the_real_analogies_are_read(data_folder: Path) -> None:
    """19,544 questions in 14 sections."""
    found = read_analogies(data_folder / "word_analogies" / "questions-words.txt")
    assert (len(found), len({one.section for one in found})) == (19_544, 14)
    assert found[0] == Analogy("capital-common-countries", ("Athens", "Greece", "Baghdad", "Iraq"))


@pytest.mark.usefixtures("no_second_process")
@pytest.mark.parametrize("kind", ["causal", "masked", "classifier", "typed"])
def test_the_command_draws_any_model(
    kind: str, tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Maps, neighbours, contexts and analogies, on the page and as files."""
    bundle = {
        "causal": lambda: bundle_of(tokenizer, causal=True),
        "masked": lambda: bundle_of(tokenizer),
        "classifier": lambda: Bundle(classifier(tokenizer), tokenizer, ("constructor", "b")),
        "typed": lambda: bundle_of(tokenizer, types=2),
    }[kind]()
    save(bundle, tmp_path / "m")
    (tmp_path / "q.txt").write_text(": constructor\ncat cats dog dogs\nrub hold the toString\n")
    out = tmp_path / "run"
    words = ["--text", str(text), "--word", "cat", "--near", "dog", "--near", "cat", "--analogies", str(tmp_path / "q.txt")]
    assert main(["study", "map", str(tmp_path / "m"), *words, "--words", "12", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    for part in (
        "Nearest to 'dog' among",
        "1 analogies covered (of 2)",
        "'cat' in 90 contexts",
        "trustworthiness of the map",
    ):
        assert part in said
    tables = {name: pl.read_csv(out / f"{name}.csv") for name in ("map", "neighbours", "analogies", "contexts", "layers")}
    assert set(tables["map"]["method"]) == {"PCA", "t-SNE"}
    assert set(tables["map"]["space"]) == {"static", "layer 1"}
    assert len(tables["map"]) == 4 * 12
    assert set(tables["neighbours"]["word"]) == {"dog", "cat"}
    assert len(tables["contexts"]) == 90
    assert set(tables["layers"]["line"]) == {"random words", "“cat” above random words"}
    assert len(tables["analogies"]) == 1
    page = (out / "report.html").read_text()
    for part in ("Map: layer 1", "Neighbours: static", "Contexts of “cat”", "Analogies", "Through the layers"):
        assert part in page


@pytest.mark.usefixtures("no_second_process")
def test_without_a_text_the_vocabulary_is_drawn(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The embedding alone, with neighbours of any word; mistakes are told before a folder is made."""
    save(bundle_of(tokenizer), tmp_path / "m")
    command = ["study", "map", str(tmp_path / "m")]
    assert main([*command, "--near", "unheard", "--out", str(tmp_path / "run")]) == 0
    assert set(pl.read_csv(tmp_path / "run" / "map.csv")["space"]) == {"static"}
    assert not (tmp_path / "run" / "layers.csv").exists()
    (tmp_path / "q.txt").write_text("rivers lakes oceans seas\n")
    (tmp_path / "t.txt").write_text("the cat and the dog rub and hold the river")
    text = ["--text", str(tmp_path / "t.txt")]
    mistakes = {
        "give --text beside --word": ["--word", "cat"],
        "must be at most 2": ["--layer", "3"],
        "none of the 1 questions": ["--analogies", str(tmp_path / "q.txt")],
        "'zebra' must stand in the text": [*text, "--near", "zebra"],
        "at least 3 times": [*text, "--word", "cat"],
        "no such file or folder": ["--text", str(tmp_path / "none")],
    }
    capsys.readouterr()
    for message, flags in mistakes.items():
        assert main([*command, *flags, "--out", str(tmp_path / "no")]) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    (tmp_path / "t.txt").write_text("a cat is a cat")
    assert main([*command, *text, "--out", str(tmp_path / "no")]) == 2
    assert "a map needs at least 5 words of 3 letters, but the text has 1" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
