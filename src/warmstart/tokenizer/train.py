"""Training a tokenizer on a stream of texts: five types, each deterministic.

    bytes      byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019): lossless for every text
    wordpiece  pieces at the start of words and inside them, longest first (Schuster & Nakajima 2012; Devlin et al. 2019)
    unigram    the most probable split, with one probability per piece (Kudo 2018)
    character  one id per character: lossless for known characters
    word       one id per white-space word; other words are unknown

Notable: the same texts give the same vocabulary in every process. The library's WordPiece and Unigram trainers do not guarantee
that (they number pieces in the order of a randomised hash table), so both are built here on its byte-pair trainer, which does.
The texts are read once and never stored; memory grows only with the number of distinct words.
What decoding loses: wordpiece, unigram and word collapse white space, wordpiece also puts spaces around punctuation, unigram
applies Unicode NFKC, and ``lowercase`` lowers letters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from warmstart.errors import TokenizerError
from warmstart.registry import Registry
from warmstart.tokenizer.pieces import EVERY_CHARACTER, WORD_MARK
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.specials import guard, new_special_tokens
from warmstart.tokenizer.tokenizer import Tokenizer

Trainer = Callable[[Iterator[str], TokenizerConfig], Backend]


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Learn a vocabulary from a stream of texts, read once.

    Special tokens come first (ids 0, 1, ...): ``[PAD] [UNK] [EOS] [MASK] [CLS] [SENTINEL_0] ...``. Raises
    ``TokenizerError`` if there is no text, or if ``vocab_size`` cannot hold the special tokens and the alphabet.
    """
    stream = iter(texts)
    first = next((text for text in stream if text and not text.isspace()), None)
    if first is None:
        raise TokenizerError("a tokenizer needs text to learn from, but every text is empty; check the source")
    _check_size(config, 256 if config.type == "bytes" else 1)
    backend = TRAINERS[config.type](chain([first], stream), config)
    return Tokenizer(backend.to_str(), config.sentinels)


def _check_size(config: TokenizerConfig, alphabet: int) -> None:
    specials = len(new_special_tokens(config.sentinels))
    if config.vocab_size < specials + alphabet:
        raise TokenizerError(
            f"vocab_size must be at least {specials + alphabet} ({specials} special tokens and an alphabet of {alphabet} for type "
            f"'{config.type}'), but is {config.vocab_size}; raise it, or use type 'bytes' (alphabet 256)"
        )


def _backend(model: Any, config: TokenizerConfig, normalizer: list[Any], splits: list[Any], decoder: Any) -> Backend:
    """The library's tokenizer of these parts; the guard is the last step, in training too."""
    backend = Backend(model)
    backend.encode_special_tokens = True
    normalizer = [*normalizer, *([normalizers.Lowercase()] if config.lowercase else [])]
    if normalizer:
        backend.normalizer = normalizers.Sequence(normalizer)
    last_step = guard(new_special_tokens(config.sentinels), type(model).__name__)
    last = pre_tokenizers.Split(Regex(last_step["pattern"]["Regex"]), last_step["behavior"].lower())
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, last])
    if decoder is not None:
        backend.decoder = decoder
    return backend


def _train(backend: Backend, trainer: Any, texts: Iterator[str], config: TokenizerConfig, **options: Any) -> Backend:
    options = {"vocab_size": config.vocab_size, "min_frequency": config.min_frequency} | options
    specials = new_special_tokens(config.sentinels)
    backend.train_from_iterator(texts, trainer(special_tokens=specials, show_progress=False, **options))
    return backend


def _bytes(texts: Iterator[str], config: TokenizerConfig) -> Backend:
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend = _backend(models.BPE(), config, [], [split], decoders.ByteLevel())
    return _train(backend, trainers.BpeTrainer, texts, config, initial_alphabet=sorted(split.alphabet()))


def _words(texts: Iterator[str], config: TokenizerConfig) -> Backend:
    return _train(word_backend({}, config), trainers.WordLevelTrainer, texts, config)


def word_backend(vocabulary: dict[str, int], config: TokenizerConfig) -> Backend:
    """A tokenizer whose pieces are the words between white space; decoding joins them with one space."""
    model = models.WordLevel(vocabulary, unk_token="[UNK]")
    return _backend(model, config, [], [pre_tokenizers.WhitespaceSplit()], None)


def _characters(texts: Iterator[str], config: TokenizerConfig) -> Backend:
    split = pre_tokenizers.Split(Regex(EVERY_CHARACTER), "isolated")
    backend = _backend(models.WordLevel({}, unk_token="[UNK]"), config, [], [split], decoders.Fuse())
    return _train(backend, trainers.WordLevelTrainer, texts, config)


def _wordpiece(texts: Iterator[str], config: TokenizerConfig) -> Backend:
    """Byte-pair encoding over words that begin with a mark, respelled: ``▁the`` -> ``the``, ``ing`` -> ``##ing``.

    Every character is there both as a start and as an inside, so a word of known characters (up to 100) is never unknown.
    """
    normalizer = [normalizers.BertNormalizer(strip_accents=False, lowercase=False)]
    split = pre_tokenizers.BertPreTokenizer()
    marks = pre_tokenizers.Metaspace(replacement=WORD_MARK, prepend_scheme="always", split=False)
    learner = _train(_backend(models.BPE(), config, normalizer, [split, marks], None), trainers.BpeTrainer, texts, config)
    specials, marked = new_special_tokens(config.sentinels), _ordered(learner)[len(new_special_tokens(config.sentinels)) :]
    characters = [piece for piece in marked if len(piece) == 1 and piece != WORD_MARK]
    _check_size(config, 2 * len(characters))
    respelled = [piece[1:] if piece[0] == WORD_MARK else f"##{piece}" for piece in marked if piece != WORD_MARK]
    pieces = list(dict.fromkeys([*specials, *characters, *(f"##{c}" for c in characters), *respelled]))
    vocabulary = {piece: id for id, piece in enumerate(pieces[: config.vocab_size])}
    return _backend(models.WordPiece(vocabulary, unk_token="[UNK]"), config, normalizer, [split], decoders.WordPiece(cleanup=False))


def _ordered(backend: Backend) -> list[str]:
    vocabulary = backend.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _unigram(texts: Iterator[str], config: TokenizerConfig) -> Backend:
    """Start from four times as many byte-pair pieces; re-estimate, drop the rarest quarter, repeat.

    Each round splits every distinct word in its most probable way and counts the pieces (hard expectation-maximisation; Kudo weighs
    all splits). Single characters are never dropped.
    """
    words: Counter[str] = Counter()
    learner = _unigram_backend(models.BPE(), config)
    normalizer = learner.normalizer  # read now, because the learner is locked while it trains

    def counted() -> Iterator[str]:
        for text in texts:
            words.update(normalizer.normalize_str(text).split(" "))
            yield text

    _train(learner, trainers.BpeTrainer, counted(), config, vocab_size=4 * config.vocab_size)
    specials = new_special_tokens(config.sentinels)
    counts = dict.fromkeys(_ordered(learner)[len(specials) :], 0) | _count(learner, words)
    target = config.vocab_size - len(specials)
    _check_size(config, sum(len(piece) == 1 for piece in counts))
    while True:
        kept = max(target, len(counts) * 3 // 4)
        ranked = sorted(counts, key=lambda piece: (len(piece) > 1, -counts[piece], piece))[:kept]
        total = math.log(sum(counts[piece] + 1 for piece in ranked))
        scores = [(piece, math.log(counts[piece] + 1) - total) for piece in ranked]
        vocabulary = [*((special, 0.0) for special in specials), *scores]
        backend = _unigram_backend(models.Unigram(vocabulary, unk_id=specials.index("[UNK]")), config)
        if len(counts) <= target:
            return backend
        counts = dict.fromkeys(ranked, 0) | _count(backend, words)


def _unigram_backend(model: Any, config: TokenizerConfig) -> Backend:
    normalizer = [normalizers.NFKC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    split = pre_tokenizers.Metaspace(replacement=WORD_MARK, prepend_scheme="always")
    return _backend(model, config, normalizer, [split], decoders.Metaspace(replacement=WORD_MARK, prepend_scheme="always"))


def _count(backend: Backend, words: Counter[str]) -> dict[str, int]:
    """The count of each piece in all the words, computed for ten thousand distinct words at a time."""
    counts: Counter[str] = Counter()
    stream = iter(sorted(words))
    while chunk := list(islice(stream, 10_000)):
        for word, encoding in zip(chunk, backend.encode_batch(chunk), strict=True):
            for piece in encoding.tokens:
                counts[piece] += words[word]
    return dict(counts)


TRAINERS: Registry[Trainer] = Registry(
    "tokenizer",
    {"bytes": _bytes, "wordpiece": _wordpiece, "unigram": _unigram, "character": _characters, "word": _words},
)
"""The types of tokenizers that can be trained: functions from a stream of texts to the library's tokenizer."""
