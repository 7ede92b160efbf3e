"""Embedding maps: neighbours, analogies and means match plain loops, maps depend on the seed only, and any model can be mapped."""

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

from helpers.bundles import classifier
from helpers.models import SENTENCES, make_language_model
from warmstart.cli import main
from warmstart.data.analogies import Analogy, read_analogies
from warmstart.errors import DataError, TokenizerError
from warmstart.inspection.lexicon import Lexicon, lexicon_from_text, lexicon_from_vocabulary, split_pieces, static_embeddings
from warmstart.inspection.neighbours import (
    AnalogyAnswers,
    answer_analogies,
    covered_analogies,
    mean_cosines,
    nearest_neighbours,
    neighbour_overlap,
    random_pair_cosines,
    unit_vectors,
)
from warmstart.inspection.occurrences import find_occurrences, occurrence_states
from warmstart.inspection.projection import project_pca
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.seeding import rng
from warmstart.studies.map.measure import project
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TokenizerConfig, train_tokenizer


def bundle_of(tokenizer: Tokenizer, *, causal: bool = False, **switches: object) -> Bundle:
    switches = {"max_length": 64} | switches
    return Bundle(make_language_model(vocab_size=tokenizer.vocab_size, causal=causal, **switches), tokenizer)


def lexicon_named(words: list[str]) -> Lexicon:
    """A lexicon of words without a tokenizer."""
    return Lexicon(tuple(words), tuple((i,) for i in range(len(words))), (), {word: i for i, word in enumerate(words)})


@given(st.integers(0, 1000), st.integers(3, 12), st.integers(1, 15))
@settings(deadline=None, max_examples=40)
def test_nearest_neighbours_match_a_plain_loop(seed: int, count: int, most: int) -> None:
    """Cosines one by one; a word is never its own neighbour."""
    vectors = rng(seed).normal(size=(count, 5))
    neighbours, cosines = nearest_neighbours(vectors, np.array([0, count - 1]), most)
    for row, index in enumerate((0, count - 1)):
        one = vectors[index]
        by_word = {i: float(v @ one / np.linalg.norm(v) / np.linalg.norm(one)) for i, v in enumerate(vectors) if i != index}
        expected = sorted(by_word, key=lambda i: -by_word[i])[:most]
        assert neighbours[row].tolist() == expected
        assert cosines[row] == pytest.approx([by_word[i] for i in expected])
    assert np.sort(random_pair_cosines(vectors, seed)) == pytest.approx(
        np.sort((unit_vectors(vectors) @ unit_vectors(vectors).T)[np.triu_indices(count, 1)])
    )


def test_neighbour_overlap_by_hand() -> None:
    """A space shares all neighbours with itself, and none with one in which every word's neighbour changed."""
    one = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    assert neighbour_overlap(one, one * 3, 1).tolist() == [1, 1, 1, 1]
    assert neighbour_overlap(one, one[[0, 2, 1, 3]], 1).tolist() == [0, 0, 0, 0]


def test_analogies_are_answered_by_the_offset_and_never_by_a_given_word() -> None:
    """King - man + woman is queen, not king or "King"; the baseline is the word nearest to king."""
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
    result = answer_analogies(vectors, lexicon, questions)
    assert [words[i] for i in result.answers] == ["queen", "queen"]
    assert result.correct.tolist() == [True, True]
    assert result.baseline_correct[0] == (_alone(vectors, words, "king", {"man", "woman", "king", "King"}) == "queen")
    assert covered_analogies(lexicon, [*questions, Analogy("x", ("man", "woman", "king", "duke"))]) == questions


def _alone(vectors: np.ndarray, words: list[str], word: str, out: set[str]) -> str:
    units = unit_vectors(vectors - vectors.mean(axis=0))
    return max((w for w in words if w not in out), key=lambda w: float(units[words.index(w)] @ units[words.index(word)]))


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=20)
def test_analogies_match_a_plain_loop(seed: int) -> None:
    """Random vectors, centred and scaled to length 1; the three given words are left out."""
    draw, words = rng(seed), list("abcdefghijkl")
    vectors = draw.normal(size=(12, 4)) + 1
    questions = [Analogy("x", tuple(words[i] for i in draw.permutation(12)[:4])) for _ in range(7)]  # type: ignore[arg-type]
    result = answer_analogies(vectors, lexicon_named(words), questions)
    units = unit_vectors(vectors - vectors.mean(axis=0))
    for row, one in enumerate(questions):
        a, b, c, d = (words.index(word) for word in one.words)
        cosines = [float((units[b] - units[a] + units[c]) @ v) for v in units]
        assert result.given_word_nearest[row] == (int(np.argmax(cosines)) in (a, b, c))
        best = max((i for i in range(12) if i not in (a, b, c)), key=lambda i: cosines[i])
        assert (result.answers[row], result.correct[row]) == (best, best == d)
        assert result.baseline_correct[row] == (_alone(vectors, words, words[c], set(one.words[:3])) == words[d])


def test_pairs_of_words_vary_on_both_sides_of_a_question() -> None:
    """If the first pair decides what is correct, the interval is wide; checked by a loop over the questions of every resample."""
    sides = [(f"a{i}", f"b{i}") for i in range(12)]
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    questions = [Analogy("x", (*sides[i], *sides[j])) for i, j in pairs]
    right = np.array([i < 6 for i, _ in pairs])
    nothing = np.zeros(len(pairs), dtype=bool)
    mean, low, high = AnalogyAnswers(questions, np.zeros(len(pairs), dtype=int), right, nothing, nothing).gain(3)
    numbers = [side for i, j in pairs for side in (i, j)]
    order = {side: number for number, side in enumerate(dict.fromkeys(numbers))}
    shares = []
    for drawn in rng(3, "bootstrap", "analogies").multinomial(12, [1 / 12] * 12, size=1000):
        times = [drawn[order[i]] * drawn[order[j]] for i, j in pairs]
        shares.append(sum(n for n, well in zip(times, right, strict=True) if well) / sum(times))
    assert (mean, low, high) == pytest.approx((0.5, *np.quantile(shares, [0.025, 0.975])))
    assert high - low > 0.4


def test_maps_depend_on_the_seed_only() -> None:
    """The same seed gives the same map; PCA and trustworthiness match scikit-learn; shuffled points are not trustworthy."""
    draw = rng(0)
    vectors = np.concatenate([draw.normal(size=(20, 6)) + centre for centre in (0, 4, 8)]).astype(np.float32)
    (tsne, flat), again = project(vectors, 3), project(vectors, 3)
    assert np.array_equal(tsne.points, again[0].points)
    assert np.array_equal(flat.points, again[1].points)
    expected = PCA(2, svd_solver="full").fit(vectors)
    assert flat.points == pytest.approx(expected.transform(vectors), abs=1e-4)
    assert flat.explained_variance == pytest.approx(expected.explained_variance_ratio_)
    for one in (tsne, flat):
        assert one.trustworthiness == pytest.approx(trustworthiness(vectors, one.points, n_neighbors=12))
        assert one.shuffled < 0.7 < one.trustworthiness
    assert project(vectors[:5], 0)[0].points.shape == (5, 2)
    assert project_pca(np.ones((4, 3)))[1] == (0, 0)


def test_texts_are_split_into_words_and_signs() -> None:
    """Only the type of white space is lost; a mark such as <unk> is no word."""
    text = "I don't  know <unk>,\nsaid 3rd_man."
    assert split_pieces(text) == ["I", " don't", " know", " <unk>", ",", " said", " 3", "rd", "_", "man", "."]
    assert "".join(split_pieces(text)) == " ".join(text.split())


def test_a_lexicon_counts_words_as_the_tokenizer_distinguishes_them(tokenizer: Tokenizer) -> None:
    """By frequency, lowercased if the tokenizer does so; required words stay, and a missing one is an error with similar words."""
    texts = ["The cat and the dog.", "the cat", "the <unk> <unk>"]
    lexicon = lexicon_from_text(tokenizer, texts, 2, ["dog"])
    assert lexicon.words == ("the", "cat", "dog")
    assert lexicon.counts == (3, 2, 1)
    assert lexicon.find("CAT") == 1
    uncased = train_tokenizer(SENTENCES * 20, TokenizerConfig(type="wordpiece", vocab_size=120, lowercase=True))
    folded = lexicon_from_text(uncased, texts, 3, ["DOG"])
    assert (folded.words[0], folded.counts[0], folded.index["The"]) == ("the", 4, folded.index["the"])
    assert folded.index["DOG"] == folded.index["dog"]
    with pytest.raises(DataError, match=r"'cats' must occur in the text .* similar words are cat"):
        lexicon_from_text(tokenizer, texts, 2, ["cats"])


def test_a_vocabulary_has_its_whole_words(tokenizer: Tokenizer) -> None:
    """Tokens that encode as one word, lowest id first; words of several tokens come last."""
    lexicon = lexicon_from_vocabulary(tokenizer, ["doggedly"])
    assert lexicon.words[-1] == "doggedly"
    assert len(lexicon.token_ids[-1]) > 1
    assert list(lexicon.token_ids[:-1]) == sorted(lexicon.token_ids[:-1])
    for word, ids in zip(lexicon.words[:-1], lexicon.token_ids, strict=False):
        assert word.isalpha()
        assert tokenizer.encode([f" {word}"]) == [list(ids)]
    words = train_tokenizer(SENTENCES, TokenizerConfig(type="word", vocab_size=60))
    with pytest.raises(TokenizerError, match="spell 'zebra'"):
        lexicon_from_vocabulary(words, ["zebra"])


def test_word_vectors_match_plain_loops(tokenizer: Tokenizer) -> None:
    """Static: the mean of a word's rows of the embedding. In context: the mean over the word's tokens, one text at a time."""
    for causal in (True, False):
        bundle = bundle_of(tokenizer, causal=causal, depth=3)
        lexicon = lexicon_from_text(tokenizer, SENTENCES, 100, ["cat"])
        table = bundle.model.backbone.embedding.weight.detach().numpy()
        for vector, word in zip(static_embeddings(bundle, lexicon), lexicon.words, strict=True):
            assert vector == pytest.approx(table[tokenizer.encode([f" {word}"])[0]].mean(axis=0), abs=1e-6)
        occurrences = find_occurrences(bundle, SENTENCES, lexicon, dict.fromkeys(range(len(lexicon)), 3), 0)
        chosen = rng(0).permutation(len(occurrences.words))
        states = occurrence_states(bundle, occurrences, chosen, [0, 2, 3])
        for number, got in zip(chosen, states, strict=True):
            passage, position = occurrences.positions[number]
            pieces = occurrences.passages.texts[passage]
            assert lexicon.index[pieces[position].strip()] == occurrences.words[number]
            before, own = (tokenizer.encode(list(part)) for part in (pieces[:position], [pieces[position]]))
            first = 1 + sum(map(len, before))
            spelled = (id for piece in tokenizer.encode(list(pieces)) for id in piece)
            with torch.inference_mode():
                ids = torch.tensor([[tokenizer.specials.begin, *spelled, tokenizer.specials.eos]])
                of_text = bundle.model.backbone(ids, causal=causal)
            layers = (of_text.hidden_states[0], of_text.hidden_states[2], of_text.last_hidden_state)
            for layer, one in zip(layers, got, strict=True):
                assert one == pytest.approx(layer[0, first : first + len(own[0])].mean(dim=0).numpy(), abs=1e-4)


def test_occurrences_are_limited_per_word(tokenizer: Tokenizer) -> None:
    """All of them if there are few; contexts are the text around; what does not fit into the model is left out."""
    texts = [*SENTENCES, "river " * 300]
    lexicon = lexicon_from_text(tokenizer, texts, 100)
    cat, river = lexicon.index["cat"], lexicon.index["river"]
    bundle = bundle_of(tokenizer)
    occurrences = find_occurrences(bundle, texts, lexicon, {cat: 2, river: 1000}, 1)
    assert len(occurrences.of(cat)) == 2
    assert 30 < len(occurrences.of(river)) < 301
    left, here, right = occurrences.context(occurrences.of(cat)[0])
    assert here == "cat"
    assert any(f"{left} {here}" in text and right in text for text in SENTENCES)
    assert {tuple(row) for row in occurrences.positions.tolist()} == {
        tuple(row) for row in find_occurrences(bundle, texts, lexicon, {cat: 2, river: 1000}, 1).positions.tolist()
    }


def test_a_word_in_one_context_is_identical_to_itself(tokenizer: Tokenizer) -> None:
    """Its cosine is 1 at every layer and in every resample; for other states it matches a loop over all pairs."""
    bundle = bundle_of(tokenizer)
    texts = ["She holds the cat."] * 8
    lexicon = lexicon_from_text(tokenizer, texts, 100)
    occurrences = find_occurrences(bundle, texts, lexicon, {lexicon.index["cat"]: 8}, 0)
    states = occurrence_states(bundle, occurrences, np.arange(8), [0, 1, 2])
    assert mean_cosines(states, 0, "cat") == pytest.approx(1)
    draws = rng(0).normal(size=(7, 3, 5))
    cosines = mean_cosines(draws, 0, "x")
    for layer in range(3):
        units = unit_vectors(draws[:, layer])
        assert cosines[0, layer] == pytest.approx(np.mean([units[i] @ units[j] for i in range(7) for j in range(7) if i != j]))
    assert abs(cosines[1:].mean(axis=0) - cosines[0]).max() < 0.05, "resampling must not pair an occurrence with itself"


def test_files_of_analogies(tmp_path: Path) -> None:
    """Headings and four words a line; any other line is named in the error."""
    file = tmp_path / "q.txt"
    file.write_text("a b c d\n: two words\n\nMan King Woman Queen\n")
    assert read_analogies(file) == [Analogy("q", ("a", "b", "c", "d")), Analogy("two words", ("Man", "King", "Woman", "Queen"))]
    for content, message in ((": x\na b c\n", "line 2 is 'a b c'"), (": x\n", "holds none")):
        file.write_text(content)
        with pytest.raises(DataError, match=message):
            read_analogies(file)


@pytest.mark.parametrize("kind", ["classifier", "typed"])
def test_the_command_maps_any_model(
    kind: str, tokenizer: Tokenizer, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Maps, neighbours, contexts and analogies are on the page and in files."""
    typed, labelled = bundle_of(tokenizer, token_types=2), Bundle(classifier(tokenizer), tokenizer, ("constructor", "b"))
    save(typed if kind == "typed" else labelled, tmp_path / "m")
    (tmp_path / "q.txt").write_text(": constructor\ncat cats dog dogs\nrub hold the toString\n")
    out, named = tmp_path / "run", ["--contexts-of", "cat", "--neighbours-of", "dog", "--neighbours-of", "cat"]
    words = [str(tmp_path / "m"), "--text", str(text), *named, "--analogies", str(tmp_path / "q.txt"), "--words", "12"]
    assert main(["study", "map", *words, "--out", str(out)]) == 0
    output = " ".join(capsys.readouterr().err.split())
    for part in (
        "Nearest to 'dog' among",
        "1 covered analogies (of 2)",
        "'cat' in 90 contexts",
        "trustworthiness of the map of 12",
    ):
        assert part in output
    tables = {name: pl.read_csv(out / f"{name}.csv") for name in ("map", "neighbours", "analogies", "contexts", "layers")}
    assert set(tables["map"]["method"]) == {"PCA", "t-SNE"}
    assert set(tables["map"]["space"]) == {"static", "layer 1"}
    assert set(tables["neighbours"]["word"]) == {"dog", "cat"}
    assert set(tables["layers"]["series"]) == {"random words", "“cat” above random words"}
    assert [len(tables[name]) for name in ("map", "contexts", "analogies")] == [4 * 12, 90, 1]
    page = (out / "report.html").read_text()
    for part in ("Map: layer 1", "Neighbours: static", "Contexts of “cat”", "Analogies", "Self-similarity"):
        assert part in page


def test_without_a_text_the_vocabulary_is_mapped(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The embedding alone, with neighbours of any word; mistakes are found before a folder is made."""
    save(bundle_of(tokenizer), tmp_path / "m")
    command = ["study", "map", str(tmp_path / "m")]
    assert main([*command, "--neighbours-of", "unheard", "--out", str(tmp_path / "run")]) == 0
    assert set(pl.read_csv(tmp_path / "run" / "map.csv")["space"]) == {"static"}
    assert not (tmp_path / "run" / "layers.csv").exists()
    (tmp_path / "q.txt").write_text("rivers lakes oceans seas\n")
    (tmp_path / "t.txt").write_text("the cat and the dog rub and hold the river")
    text = ["--text", str(tmp_path / "t.txt")]
    mistakes = {
        "give --text too": ["--contexts-of", "cat"],
        "must be at most 2": ["--layer", "3"],
        "none of the 1 questions": ["--analogies", str(tmp_path / "q.txt")],
        "'zebra' must occur in the text": [*text, "--neighbours-of", "zebra"],
        "at least 3 times": [*text, "--contexts-of", "cat"],
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
