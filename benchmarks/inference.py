"""Reading texts that nothing is learned from: labels against transformers' pipeline, vectors against sentence-transformers.

The same BERT in all: random weights, a tokenizer of its own, texts as long as TREC's questions. Vectors are left out where
sentence-transformers is not installed.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.finetuning import lengths_of
from benchmarks.harness import Build, Step, ratio, show, table, time_in_turn

from warmstart.interop.convert import from_huggingface
from warmstart.model.inference import embed
from warmstart.seeding import rng
from warmstart.tasks.predict import predict

TEXTS = 1000
WORDS = 2000
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def folder_of(place: Path, width: int = 384, vocabulary: int = 0, seed: int = 0) -> Path:
    """A BERT that labels texts, 6 layers, in the Hugging Face form; ``vocabulary`` 0: the special tokens and ``WORDS`` words."""
    from tokenizers import processors
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    shape = BertConfig(
        vocab_size=vocabulary or len(SPECIALS) + WORDS, hidden_size=width, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=4 * width, num_labels=6,
    )  # fmt: skip
    model = BertForSequenceClassification(shape).eval()
    with torch.no_grad():
        model.classifier.weight.normal_(std=0.2)  # labels differ from text to text
    model.save_pretrained(place)
    write_tokenizer(place, shape.vocab_size, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
    return place


def write_tokenizer(place: Path, vocabulary: int, frame: Any = None) -> None:
    """A tokenizer of whole words, in the Hugging Face form; ``frame`` puts special tokens around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = [*SPECIALS, *map(_word, range(vocabulary - len(SPECIALS)))]
    tokenizer = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if frame:
        tokenizer.post_processor = frame
    tokenizer.save(str(place / "tokenizer.json"))
    settings = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "unk", "cls", "sep", "mask")}
    (place / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "PreTrainedTokenizerFast"}))


def texts() -> list[str]:
    """Random words."""
    draw = rng(0, "texts")
    return [" ".join(map(_word, draw.integers(0, WORDS, max(2, n - 2)))) for n in lengths_of(TEXTS)]


def _word(number: int) -> str:
    """A word of letters for a number, since a map of words leaves out what has digits: "wbca" for 120."""
    return "w" + str(number).translate(str.maketrans("0123456789", "abcdefghij"))


def build(name: str) -> Step:
    """One way to label all texts."""
    place, given = folder_of(Path(tempfile.mkdtemp(prefix="benchmark"))), texts()
    if name == "warmstart":
        bundle = from_huggingface(place)
        return lambda: predict(bundle, given)
    return _theirs(place, given, batch=int(name.rsplit(" ", 1)[1]))


def _theirs(place: Path, given: list[str], batch: int) -> Step:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, pipeline

    model: Any = AutoModelForSequenceClassification.from_pretrained(place)
    pipe = pipeline("text-classification", model=model, tokenizer=AutoTokenizer.from_pretrained(place), device="cpu")
    return lambda: pipe(given, batch_size=batch)


def embedding(name: str) -> Step:
    """One way to turn all texts into vectors: the mean of the last states."""
    from sentence_transformers import SentenceTransformer

    place, given = Path(tempfile.mkdtemp(prefix="benchmark")), texts()
    theirs = SentenceTransformer(str(folder_of(place / "bert")))
    theirs.save(str(place / "sentences"))
    if name == "warmstart":
        bundle = from_huggingface(place / "sentences")
        return lambda: embed(bundle, given)
    return lambda: theirs.encode(given, batch_size=int(name.rsplit(" ", 1)[1]))


def run(rounds: int = 5) -> str:
    """Labels and vectors for a thousand texts."""
    pipelines = ("warmstart", "transformers pipeline, batches of 1", "transformers pipeline, batches of 32")
    parts = [_table("predictions", {name: partial(build, name) for name in pipelines}, rounds)]
    if importlib.util.find_spec("sentence_transformers") is None:
        print("vectors are left out: sentence-transformers is not installed; `pip install sentence-transformers`")
    else:
        encoders = ("warmstart", "sentence-transformers, batches of 32", "sentence-transformers, batches of 128")
        parts.append(_table("embeddings", {name: partial(embedding, name) for name in encoders}, rounds))
    return "\n\n".join(parts)


def _table(what: str, contenders: dict[str, Build], rounds: int) -> str:
    timed = time_in_turn(contenders, rounds, warm=1)
    rows = [(t.name, str(t), f"{TEXTS / statistics.median(t.seconds):,.0f}", f"{ratio(t, timed[0]):.2f}") for t in timed]
    title = f"{what} for {TEXTS:,} short texts, BERT of width 384 and 6 layers, float32"
    return table((title, "seconds", "texts/s", "times ours"), rows)


if __name__ == "__main__":
    show(run)
