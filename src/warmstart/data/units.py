"""Independent units of texts: copies, near copies, replies that quote, and texts of one group are one unit.

    "Ticket 4711: my lamp is broken"    "my lamp is brokn -- Ann Lee, +44 6053"    "Thanks!  > my lamp is broken"   ->  one unit

A text is compared without numbers, greeting and signature, and apart from what it quotes; texts with the same signature are by one
hand. Two are near copies if they have most of their pairs of words in common, each counted by how rare it is (inverse document
frequency): short texts must agree in all but the endings, or differ by typing errors; longer ones may differ in what fills a
template. So "what is the capital of Peru" and "… of Chad" stay two. Candidates are neighbours in the lists of texts that have a
pair of words, which finds all copies of a text without comparing each with each.

Letters: N texts, P parts of texts, F different pairs of words, M candidates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from warmstart.data.text_key import plain_text, text_key, text_words

LEAST_WORDS = 3
"""words of a text that is compared, and two more if there are small numbers; a shorter text is only like its copies"""
LEAST_REPLY = 10
"""words of a reply that is compared beside what it quotes: "thank you, that helps" is no copy of another one"""
MOST_READ = 2000
"""characters of a text that are compared"""
NEIGHBOURS = 3
"""texts with the same pair of words, in their order, that each is compared with"""
OFTEN = 3
"""lists in which two texts longer than ``LONGEST_FILLED`` must be neighbours to be compared: copies are so in most of them"""
AT_ONCE = 10_000_000
"""features of candidates that are compared at once, which bounds the memory"""
MOST_QUOTED = 5
"""texts with the same quote, which no text says itself; what more have is a form letter"""
MOST_SIGNED = 0.2
"""share of the texts with the same signature of several names, if it is that of one person"""
SHORT_ALIKE, SEVERAL, SEVERAL_ALIKE, MANY, MANY_ALIKE = 0.85, 8, 0.7, 12, 0.5
"""the similarity of near copies; it may be less where so many pairs of words are common"""
TEMPLATE, TEMPLATE_SHARE, LONGEST_FILLED = 10, 0.55, 60
"""common words, and their share of both texts by number and weight, of two that fill one template; and the words of the longest"""
SIMILAR_FOR_TYPOS = 0.1
"""below this similarity typing errors are not looked for"""
SPELLED_ALIKE = 0.65
"""share of common letters of a word and one with a typing error"""
_IDENTIFIER = re.compile(
    r"(?:(?:^|[(\[])(?:\W*\b(?:ticket|case|order|ref(?:erence)?|invoice|incident|request|re|fwd?|aw|nr|no|number|id)\b)+[\s.:#-]*)?"
    r"(?<![\w-])(?=(?:[\w-]*?\d){3})(?=(?:[\w-]*?\d){5}|[\w-]*[a-z])[\w-]{5,}",
    re.I | re.M,
)
"""a number of a ticket or the like, which says nothing even of a short text"""
_QUOTED = re.compile(r"^\s*>.*$(?:\n\s*>.*$)*", re.M)
_ORIGINAL = re.compile(
    r"^[\s-]*(?:original message|forwarded message|urspr\S* nachricht|message d'origine)[\s-]*$"
    r"|(?:^(?:on|am|le|el)\b.{0,60})?(?:\b\w+ )?\b(?:wrote|schrieb|a écrit|escribió)\s*:",
    re.I | re.M,
)
_HEADERS = re.compile(r"^\s*(?:from|to|cc|sent|date|subject|von|an|gesendet|datum|betreff)\s*:.*$", re.I | re.M)
_HELLO = (
    r"(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|to whom|greetings|hallo|guten (?:tag|morgen)|sehr geehrte\w*"
    r"|liebe\w?|moin|bonjour|hola|buenos|caro|ciao)\b"
)
_GREETING = re.compile(rf"\W*{_HELLO}(?:[ .]+[^\s,.!?:]+){{0,4}}\s*[,.!:\n]|\W*{_HELLO} (?:(?-i:[A-Z])\w+ )?", re.I)
_CLOSING = re.compile(
    r"\n\s*(?:--|__)|\bsent from my\b|(?:[^\w\s]|\n)\s*(?:(?:many|best|kind|kindest|warm|with) )*(?:regards|wishes|thanks|thank you"
    r"|thx|cheers|sincerely|yours|best|mit freundlichen gr\w+|(?:viele|liebe|beste) gr\w+|gr(?:u|ü)(?:ss|ß)e?|mfg|lg|vg"
    r"|cordialement|saludos|atentamente)\b(?: \w+)?(?:[\s,.!]|$)",
    re.I,
)
_LONGEST_SIGNATURE, _LONGEST_LINE = 20, 6
_ADDRESS = re.compile(r"[|@]|www\.|\+\d")


def independent_units(texts: Sequence[Any], groups: np.ndarray | None) -> np.ndarray:
    """(N,) int64 the unit of each text: copies, near copies, quotes and the texts of one of the ``groups`` (N,) are the same unit.

    Copies count as the same by ``text_key``, as in the audit; blank texts are not copies. Near copies are found among strings only.
    Units are numbered in the order of their texts.
    """
    plain = [text if (text := plain_text(part)).strip() else f"\0{number}" for number, part in enumerate(texts)]
    _, order = np.unique(np.array(plain, dtype=object), return_inverse=True)
    _, same = np.unique(np.array([*map(text_key, plain)], dtype=object), return_inverse=True)
    together = [(np.arange(len(plain)), len(plain) + same)]  # a graph of texts, keys and groups: what hangs together is one unit
    if all(isinstance(text, str) for text in texts):
        together.append(near_copies(plain))
    if groups is not None:
        owners = np.unique(groups, return_inverse=True)[1]
        together.append((np.arange(len(plain)), 2 * len(plain) + owners))
    left, right = np.concatenate(together, axis=1)
    size = 3 * len(plain)
    graph = coo_array((np.ones(len(left)), (left, right)), shape=(size, size))
    component = connected_components(graph, directed=False)[1][: len(plain)]
    first = np.full(size, size)
    np.minimum.at(first, component, order)
    return np.asarray(np.unique(first[component], return_inverse=True)[1], dtype=np.int64)


def near_copies(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of texts (M,), (M,), by number, that together connect all near copies; not each pair of a unit is among them."""
    number_of = dict[tuple[str, ...], int]()
    read = [_read(text) for text in texts]
    parts_of, signed = zip(*read, strict=True) if read else ((), ())
    own_words = {words for own in parts_of for words, quoted in own if not quoted}
    times = Counter(words for own in parts_of for words, quoted in own if quoted and words not in own_words)
    parts = [
        (text, number_of.setdefault(words, len(number_of)))
        for text, own in enumerate(parts_of)
        for words, _ in own
        if times[words] <= MOST_QUOTED
    ]
    if not parts:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    owners, numbers = np.array(parts, dtype=np.int64).T
    first = np.unique(numbers, return_index=True)[1]
    one, other = _alike([*number_of])
    alike = [(owners, owners[first[numbers]]), (owners[first[one]], owners[first[other]]), _of_one_hand(signed)]
    left, right = np.concatenate(alike, axis=1)
    return left, right


def _of_one_hand(signed: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """(M,), (M,) texts with the same signature, each with the first of them."""
    times, first = Counter(signed), {words: place for place, words in reversed([*enumerate(signed)])}
    places = [
        (place, first[words]) for place, words in enumerate(signed) if len(words) > 1 and times[words] <= MOST_SIGNED * len(signed)
    ]
    one, other = np.array(places, dtype=np.int64).reshape(-1, 2).T
    return one, other


def _read(text: str) -> tuple[list[tuple[tuple[str, ...], bool]], tuple[str, ...]]:
    """The words that a text says itself, and those that it quotes (True), each if they are enough to be compared; its signature."""
    text, quoted = _IDENTIFIER.sub(" ", text[:MOST_READ]).strip(), list[str]()
    if reply := _ORIGINAL.search(text):
        quoted.append(_HEADERS.sub("", text[reply.end() :]).replace(">", " "))
        text = text[: reply.start()]
    if ">" in text:
        quoted += [re.sub(r"^\s*>+", "", quote, flags=re.M) for quote in _QUOTED.findall(text)]
        text = _QUOTED.sub("\n", text)
    parts = [part.strip(' "\n') for part in (text, *quoted)]
    own = [_own_words(part) for part in parts]
    least = [LEAST_WORDS + 2 * numbered for _, numbered, _ in own]
    if quoted:
        least[0] = LEAST_REPLY
    long = [(tuple(words), number > 0) for number, (words, *_) in enumerate(own) if len(words) >= least[number]]
    return long, own[0][2]


def _own_words(text: str) -> tuple[list[str], bool, tuple[str, ...]]:
    """Words without greeting, signature and numbers, if enough are left; True if there are numbers; names of a signature."""
    if (match := _GREETING.match(text)) and len(_words(text[match.end() :])) >= LEAST_WORDS:
        text = text[match.end() :].strip()
    words, body, signature = _words(text), text, ""
    for match in _CLOSING.finditer(text):
        before = _words(text[: match.start()])
        if len(before) >= LEAST_WORDS and len(words) - len(before) <= _LONGEST_SIGNATURE:
            words, body, signature = before, text[: match.start()].strip(), text[match.end() :]
            break
    lines = body.split("\n")
    while len(lines) > 1 and _ends_a_letter(lines[-1]):
        signature = f"{lines.pop()} {signature}"
    if signature and len(before := _words("\n".join(lines))) >= LEAST_WORDS:
        words, text = before, "\n".join(lines)
    names = len(re.findall(r"\b[^\W\d_a-z]\w+", signature)) > 1
    return words, any(map(str.isdigit, text)), tuple(_words(signature)) if names else ()


def _ends_a_letter(line: str) -> bool:
    """True if a last line is a name, an address or the like."""
    return bool(_ADDRESS.search(line)) or (len(line.split()) <= _LONGEST_LINE and line.rstrip()[-1:] not in (".", "!", "?"))


def _words(text: str) -> list[str]:
    return [word for word in text_words(text) if word.isalpha() or not any(map(str.isdigit, word))]


@dataclass(frozen=True)
class _Features:
    """The features of each of P parts, as a table, with the weight of each feature."""

    table: csr_array
    """(P, F) 1 where a part has it"""
    weights: np.ndarray
    """(F,)"""

    @classmethod
    def of(cls, owners: np.ndarray, features: np.ndarray, count: int) -> _Features:
        """The table of ``owners`` (S,), which have ``features`` (S,)."""
        _, columns = np.unique(features, return_inverse=True)
        width = int(columns.max(initial=-1)) + 1
        rows, columns = np.divmod(_different(owners * width + columns), max(width, 1))
        frequencies = np.bincount(columns, minlength=width)
        return cls(csr_array((np.ones(len(rows)), (rows, columns)), shape=(count, width)), np.log((count + 1) / frequencies))

    def neighbours(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(M,), (M,) parts that are near each other in lists of those that have a feature; (M,) in how many lists."""
        by_feature = self.table.tocsc()
        column, row = np.repeat(np.arange(self.table.shape[1]), np.diff(by_feature.indptr)), by_feature.indices.astype(np.int64)
        pairs = [
            row[:-step][same] * self.table.shape[0] + row[step:][same]
            for step in range(1, NEIGHBOURS + 1)
            for same in [column[step:] == column[:-step]]
        ]
        unique, times = np.unique(np.concatenate(pairs), return_counts=True)
        return *np.divmod(unique, self.table.shape[0]), times

    def common(self, one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(M,), (M,) how many features are common to two parts, and the sum of their weights."""
        count, shared = np.zeros(len(one), dtype=np.int64), np.zeros(len(one))
        at_once = max(1, AT_ONCE // max(1, int(np.diff(self.table.indptr).max(initial=1))))
        for start in range(0, len(one), at_once):
            some = slice(start, start + at_once)
            both = self.table[one[some]].multiply(self.table[other[some]]).tocsr()
            count[some], shared[some] = np.diff(both.indptr), both @ self.weights
        return count, shared


def _different(numbers: np.ndarray) -> np.ndarray:
    """The different numbers, ascending. Without counts ``np.unique`` hashes them, ten times slower for millions."""
    return np.unique(numbers, return_counts=True)[0]


def _alike(parts: Sequence[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """(M,), (M,) the numbers of different parts that are near copies."""
    number_of = dict[str, int]()
    words = np.array([number_of.setdefault(word, len(number_of) + 1) for part in parts for word in part], dtype=np.int64)
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    inside = owners[1:] == owners[:-1]
    pairs = _Features.of(owners[1:][inside], (words[1:] * (len(number_of) + 1) + words[:-1])[inside], len(parts))
    single = _Features.of(owners, words, len(parts))
    lengths = np.bincount(owners, minlength=len(parts))
    one, other, times = pairs.neighbours()
    compared = (times >= OFTEN) | (np.minimum(lengths[one], lengths[other]) <= LONGEST_FILLED)
    one, other = one[compared], other[compared]
    count, shared = pairs.common(one, other)
    total = np.maximum(pairs.table @ pairs.weights, 1e-9)
    similar = shared / np.sqrt(total[one] * total[other])
    alike = (similar >= SHORT_ALIKE) | (count >= SEVERAL) & (similar >= SEVERAL_ALIKE)
    alike |= (count >= MANY) & (similar >= MANY_ALIKE)
    weight, (words_shared, weight_shared) = single.table @ single.weights, single.common(one, other)
    filled = (words_shared >= TEMPLATE) & (np.maximum(lengths[one], lengths[other]) <= LONGEST_FILLED)
    filled &= weight_shared >= TEMPLATE_SHARE * np.maximum(weight[one], weight[other])
    spelled = (lengths[one] == lengths[other]) & (similar >= SIMILAR_FOR_TYPOS)
    spelled &= words_shared >= single.table.sum(axis=1)[one] - np.maximum(2, lengths[one] // 2)
    for place in np.flatnonzero(~alike & (filled | spelled)):
        texts = parts[one[place]], parts[other[place]]
        alike[place] = (filled[place] and _fill_one_template(*texts)) or (spelled[place] and _differ_by_typos(*texts))
    return one[alike], other[alike]


def _fill_one_template(one: Sequence[str], other: Sequence[str]) -> bool:
    """True if so many words of both are common in the same order (the longest common subsequence)."""
    best = [0] * (len(other) + 1)
    for word in one:
        before = best[:]
        for place, another in enumerate(other):
            best[place + 1] = before[place] + 1 if word == another else max(before[place + 1], best[place])
    return best[-1] >= max(TEMPLATE, TEMPLATE_SHARE * max(len(one), len(other)))


def _differ_by_typos(one: Sequence[str], other: Sequence[str]) -> bool:
    """True if the words that only one of two texts has, at most half, are spellings of those that only the other has."""
    left, right = ([word for word in words if word not in others] for words, others in ((one, other), (other, one)))
    return len(left) == len(right) <= max(2, len(one) // 2) and all(
        any(_spelled_alike(word, another) for another in right) for word in left
    )


def _spelled_alike(one: str, other: str) -> bool:
    """True if most letters of two words are the same in the same order (Ratcliff and Metzener 1988)."""
    shorter, longer = sorted((len(one), len(other)))
    return shorter > 2 and longer - shorter <= 2 and SequenceMatcher(None, one, other, autojunk=False).ratio() >= SPELLED_ALIKE
