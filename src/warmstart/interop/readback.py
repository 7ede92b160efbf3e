"""What the receiving library makes of an exported folder, compared with what we predict: the same texts, through both.

transformers (and sentence-transformers, if it is installed) reads the folder alone, in a fresh process in which warmstart cannot be
imported. Labels, calibration, pooling, the frame of a text and where a long one is cut are then part of what is compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from warmstart.data.encode import encode
from warmstart.errors import ModelError
from warmstart.model.bundle import Bundle
from warmstart.model.inference import embed
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.system.processes import run_python
from warmstart.tasks.predict import raw_predictions

READBACK_TEXTS = (*SELFTEST_TEXTS, "", "The", "👍🏽 👩‍👩‍👧 ok", "مرحبا بالعالم, שלום", "one\0two")
"""texts that are predicted to compare: also none, a short one, emoji, right-to-left scripts, and a NUL"""
LONGEST_PROBE = 1024
"""a model that reads more tokens is not given a text that is too long, which would take minutes"""
LARGEST_GAP = 1e-4
"""largest difference of an output, as a share of the largest output or of 1"""
_RUN = """
import importlib.util, json, os, warnings
sys.modules["warmstart"] = None
warnings.simplefilter("ignore")
os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TOKENIZERS_PARALLELISM": "false"}
place, kind = sys.argv[1:]
texts, out, settings = json.load(sys.stdin), {}, json.load(open(place + "/config.json", encoding="utf-8"))
try:
    import torch, transformers
    torch.set_grad_enabled(False)
    out["library"] = "transformers " + transformers.__version__
    if kind == "classification":
        model = transformers.pipeline("text-classification", model=place, device="cpu", top_k=None)
    elif kind == "embedding" and importlib.util.find_spec("sentence_transformers"):
        import sentence_transformers
        out["library"] = "sentence-transformers " + sentence_transformers.__version__
        model = sentence_transformers.SentenceTransformer(place, device="cpu", local_files_only=True)
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place)
        model = getattr(transformers, settings["architectures"][0]).from_pretrained(place).eval()
except Exception as error:
    out["unread"] = f"{type(error).__name__}: {error}"
    json.dump(out, sys.stdout)
    raise SystemExit

def states(text):
    inputs = tokenizer(text, truncation=True, return_tensors="pt", return_token_type_ids=False, add_special_tokens=kind != "causal")
    return model(**inputs)[0][0] if inputs["input_ids"].shape[1] else torch.zeros(1, settings["vocab_size"])

def vector(text):
    pooling = json.load(open(place + "/1_Pooling/config.json", encoding="utf-8"))
    rows = states(text)
    pooled = rows[0] if pooling["pooling_mode_cls_token"] else rows[-1] if pooling["pooling_mode_lasttoken"] else rows.mean(0)
    unit = "Normalize" in open(place + "/modules.json", encoding="utf-8").read()
    return torch.nn.functional.normalize(pooled, dim=-1) if unit else pooled

if kind == "classification":
    out["values"] = [{one["label"]: one["score"] for one in model([text], truncation=True)[0]} for text in texts]
elif kind == "embedding" and "sentence" in out["library"]:
    out["values"] = model.encode(texts).tolist()
elif kind == "embedding":
    out["values"] = [vector(text).tolist() for text in texts]
else:
    out["values"] = [states(text)[-1].tolist() for text in texts]
json.dump(out, sys.stdout)
"""


class Readback(NamedTuple):
    """What came of a comparison."""

    library: str
    gap: float | None = None
    """largest difference of a probability, a number of a vector or a logit; None: the folder was not read"""
    texts: int = 0
    """number of texts that it was given"""
    why: str = ""
    """why it was not"""

    @property
    def sentence(self) -> str:
        """For the line that an export prints."""
        if self.gap is None:
            return f"not compared in {self.library}: {self.why}"
        return f"in {self.library}, predictions of {self.texts} texts differ by at most {self.gap:.2g}"


def probe_texts(max_length: int) -> list[str]:
    """The texts, and one that is longer than the model reads unless that is very long."""
    return [*READBACK_TEXTS, *[" ".join(SELFTEST_TEXTS * (max_length // 20 + 1))] * (max_length <= LONGEST_PROBE)]


def largest_gap(expected: np.ndarray, found: Sequence[Any] | np.ndarray) -> float:
    """The largest difference, as a share of the largest expected value if that is above 1."""
    other = np.asarray(found, dtype=np.float64).reshape(expected.shape)
    return float(np.abs(other - expected).max() / max(1.0, float(np.abs(expected).max())))


def compare_in_library(bundle: Bundle, folder: Path) -> Readback:
    """Give the texts to the library that reads the folder, and to the bundle.

    Raises ``ModelError`` if it reads the folder but then fails, knows other labels, or predicts otherwise.
    """
    if find_spec("transformers") is None:
        return Readback("transformers", why="it is not installed")
    kind = bundle.model.head.config.kind
    kind = kind if kind != "language-modeling" or not bundle.model.causal else "causal"
    texts = probe_texts(bundle.model.backbone.config.max_length)
    run = run_python(_RUN, str(folder.resolve()), kind, text=json.dumps(texts))
    last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
    if run.returncode:
        raise ModelError(f"transformers must predict from the exported folder, but failed: {last}; export with --to onnx instead")
    found = json.loads(run.stdout)
    library = found.get("library", "transformers")
    if "unread" in found:
        return Readback(library, why=str(found["unread"]).splitlines()[0])
    values, expected = found["values"], _expected(bundle, texts, kind)
    if kind == "classification":
        if odd := values[0].keys() ^ set(bundle.labels):
            raise ModelError(f"{library} must know the labels of the model, but differs in {sorted(odd)}; rename them")
        values = [[row[label] for label in bundle.labels] for row in values]
    else:  # rows that were added at import are not written
        expected = expected[:, : len(values[0])]
    gap = largest_gap(expected, values)
    if not gap <= LARGEST_GAP:
        raise ModelError(f"{library} must predict what the model predicts, but differs by {gap:.2g}; export with --to onnx instead")
    return Readback(library, gap, len(texts))


@torch.inference_mode()
def _expected(bundle: Bundle, texts: Sequence[str], kind: str) -> np.ndarray:
    """(N, C) probabilities, (N, D) vectors, or the logits (N, V) after the last token."""
    if kind == "classification":
        return np.asarray(raw_predictions(bundle, texts))
    if kind == "embedding":
        return embed(bundle, texts).numpy()
    config, tokenizer = bundle.model.backbone.config, bundle.tokenizer
    rows = [ids[: config.max_length] for ids in tokenizer.encode(texts)]
    if kind != "causal":
        rows = [row.tolist() for row in encode(tokenizer, texts, config.max_length).rows]
    logits = [bundle.model(torch.tensor([row]))[0, -1] if row else torch.zeros(bundle.model.backbone.vocab_size) for row in rows]
    return torch.stack(logits).numpy()
