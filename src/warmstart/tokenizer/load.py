"""Loading tokenizers made elsewhere: ``tokenizer.json``, a sentencepiece ``.model``, a word list.

Each becomes a ``Tokenizer``, which also explains how special tokens with other names are found.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from warmstart.errors import TokenizerError
from warmstart.system.limits import TOKENIZER_BYTES
from warmstart.tokenizer.sentencepiece import parse_sentencepiece, sentencepiece_json
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.specials import new_special_tokens
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import word_backend


def load_tokenizer(path: str | os.PathLike[str], sentinels: int = 0) -> Tokenizer:
    """The tokenizer in a file: ``.json`` (tokenizers library), ``.model`` (sentencepiece) or ``.txt`` (word list).

    For a folder, the ``tokenizer.json`` in it. A word list has one piece per line, with an optional count after a space; special
    tokens come before it, and words outside it are unknown. ``sentinels`` is the least number of sentinel tokens; missing ones are
    added at the end. Raises ``TokenizerError`` for other files, and for what cannot be read.
    """
    file = Path(path)
    file = file / "tokenizer.json" if file.is_dir() else file
    if file.suffix not in (".json", ".model", ".txt"):
        raise TokenizerError(f"a tokenizer file must end in .json, .model or .txt (a word list), but this is {file}")
    try:
        if (size := file.stat().st_size) > TOKENIZER_BYTES:
            raise TokenizerError(f"a tokenizer must have at most {TOKENIZER_BYTES:,} bytes, but has {size:,}; give another file")
        content = file.read_bytes()
        if file.suffix == ".model":
            return Tokenizer(sentencepiece_json(parse_sentencepiece(content)), sentinels)
        text = content.decode("utf-8")
        return Tokenizer(text if file.suffix == ".json" else _word_list_json(text, sentinels), sentinels)
    except FileNotFoundError:
        raise TokenizerError(f"no such tokenizer file: {file}; check the path") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"cannot read the tokenizer file {file}: {error}; it must be readable UTF-8") from None
    except TokenizerError as error:
        raise TokenizerError(f"{file}: {error}") from None


def _word_list_json(text: str, sentinels: int) -> str:
    """The vocabulary of a word list: of lines ``the 12`` and ``of 7``, the special tokens, then ``the``, ``of``."""
    words = [_without_count(line.removesuffix("\r")) for line in text.split("\n") if line.strip()]
    specials = new_special_tokens(sentinels)
    repeated = [word for word, count in Counter([*specials, *words]).items() if count > 1]
    if repeated or not words:
        more = f", and {len(repeated) - 1} more" if len(repeated) > 1 else ""
        problem = f"{repeated[0]!r} is repeated{more}" if repeated else "there is no word"
        raise TokenizerError(f"a word list must name each word once and no special token, but {problem}; correct the list")
    vocabulary = {word: id for id, word in enumerate([*specials, *words])}
    config = TokenizerConfig(type="word", vocab_size=len(vocabulary), sentinels=sentinels)
    text_json: str = word_backend(vocabulary, config).to_str()
    return text_json


def _without_count(line: str) -> str:
    word, _, count = line.rpartition(" ")
    return word if word and count.isdecimal() else line
