"""A bundle as one ONNX graph, from token ids to the head's output, and a stack as its graphs, numbers and a script.

    model.onnx        input_ids (B, T) int64, attention_mask (B, T) int64 with 1 at real tokens, and token_type_ids (B, T) int64
                      if the backbone has token types -> the head's output
    model.int8.onnx   the same with 8-bit weights, if requested
    tokenizer.json    for the ``tokenizers`` library; it frames a text as in training
    config.json       label names, names of inputs and outputs, the maximum length, the id of padding

Batch size and length are dynamic. Inserted modules and a calibrated temperature are part of the graph. The exporter and the
runtime are an extra (``pip install "warmstart[onnx]"``); nothing else imports them. Of a stack:

    config.json      labels, temperature, and the members with theirs
    predict.py       needs numpy and safetensors; onnxruntime and tokenizers if there is a network; not warmstart
    members/1/       model.onnx, tokenizer.json, config.json        a network
    members/2/       baseline.json, arrays.safetensors              a baseline
    backbones/1/     as a network, for the vectors of baselines     once for all of them

Before its folder takes its place, the script predicts some texts in a fresh process in which warmstart cannot be imported.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from warmstart.errors import ConfigError, ModelError
from warmstart.heads.head import TaskHead
from warmstart.interop import portable
from warmstart.interop.companions import framed
from warmstart.interop.folder import refuse_windows
from warmstart.interop.portable import run_network
from warmstart.model.bundle import Bundle
from warmstart.model.folder import write_files
from warmstart.model.inference import embed
from warmstart.model.model import Model
from warmstart.model.selftest import SELFTEST_TEXTS
from warmstart.model.stack import Stack
from warmstart.model.stack_files import member_contents, member_entry
from warmstart.model.stack_selftest import member_columns
from warmstart.seeding import rng
from warmstart.system.outputs import free_folder
from warmstart.system.processes import run_python
from warmstart.system.storage import atomic_folder
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.thresholds import thresholds_of
from warmstart.types import Batch

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
TOLERANCE = 1e-4
"""largest difference of an output, as a share of the largest output"""
GRAPH, INT8_GRAPH = "model.onnx", "model.int8.onnx"
PORTABLE_TEXTS = (*SELFTEST_TEXTS, "", "The", "👍🏽 👩‍👩‍👧 ok", "مرحبا بالعالم, שלום", "one\0two")
"""texts that are predicted to compare: also none, a short one, emoji, right-to-left scripts, and a NUL"""
LONGEST_PROBE = 1024
"""a model that reads more tokens is not given a text that is too long, which would take minutes"""


class Graph(nn.Module):
    """The exported graph: a model and the predictions made from its logits."""

    def __init__(self, model: Model, temperature: float = 1.0) -> None:
        super().__init__()
        self.model = model
        self.temperature = temperature

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor | None = None) -> tuple[Tensor, ...]:
        """Token ids, attention mask and token type ids (B, T) int64 -> the outputs that the head names."""
        model, real = self.model, mask.bool()
        # the path that also returns weights has no branch on the length
        scores = model.head(
            model.backbone(
                ids, attention_mask=real, causal=model.causal, need_weights=True, token_type_ids=types
            ).last_hidden_state,
            real,
        )
        if len(model.head.onnx_outputs) == 1:
            return (scores,)
        assert isinstance(model.head, TaskHead)
        return scores, model.head.predictions(scores / self.temperature)


class OnnxModel(nn.Module):
    """A graph in onnxruntime with the interface of a model, for inference alone.

    Raises ``ConfigError`` if onnxruntime is missing.
    """

    def __init__(self, file: Path, model: Model) -> None:
        super().__init__()
        self.head, self.causal, self.inputs = model.head, model.causal, inputs_of(model)
        self.reordered = True  # the library lays its weights out
        runtime = _needed("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3
        self.session = runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])

    def forward(self, ids: Tensor, mask: Tensor | None = None, types: Tensor | None = None) -> Tensor:
        """Token ids, attention mask and token type ids (B, T) -> the head's logits."""
        mask = torch.ones_like(ids) if mask is None else mask.long()
        inputs = (ids, mask, torch.zeros_like(ids) if types is None else types)[: len(self.inputs)]
        first, *_ = self.session.run(None, {name: values.numpy() for name, values in zip(self.inputs, inputs, strict=True)})
        return torch.from_numpy(first)

    def read(self, batch: Batch) -> Tensor:
        """The graph's outputs for a batch."""
        return self(batch.ids, batch.attention_mask, batch.token_type_ids)


def inputs_of(model: Model) -> tuple[str, ...]:
    """The inputs of a graph of this model."""
    return INPUTS if model.backbone.config.token_types > 1 else INPUTS[:2]


def to_onnx(bundle: Bundle, folder: str | Path, *, int8: bool = False) -> float:
    """Write the folder, open the graph in onnxruntime and compare.

    Returns the largest difference, as a share of the largest output. Raises ``ModelError``, and
    writes nothing, if it exceeds ``TOLERANCE``, or if the model joins windows: a graph reads one row for each text.
    """
    refuse_windows(bundle.model.head.config)
    _needed("onnx", "onnxscript", "onnxruntime")
    model = bundle.model.eval()
    with atomic_folder(free_folder(folder)) as aside:
        _write_graph(bundle, aside / GRAPH)
        gap = relative_difference(model, OnnxModel(aside / GRAPH, model))
        if not gap <= TOLERANCE:
            raise ModelError(
                f"the graph must give the outputs of the model, but differs by {gap:.2g} of the largest one; "
                "try other versions of torch and onnxruntime"
            )
        if int8:
            _write_int8(aside)
        (aside / "tokenizer.json").write_text(
            framed(bundle.tokenizer, _last(bundle), typed=model.backbone.config.token_types > 1), encoding="utf-8"
        )
        (aside / "config.json").write_text(json.dumps(_settings(bundle), indent=1, ensure_ascii=False), encoding="utf-8")
        _check_texts(bundle, aside)
    return gap


def probe_texts(max_length: int) -> list[str]:
    """``PORTABLE_TEXTS``, and one that is longer than the model reads unless that is very long."""
    return [*PORTABLE_TEXTS, *[" ".join(SELFTEST_TEXTS * (max_length // 20 + 1))] * (max_length <= LONGEST_PROBE)]


def largest_gap(expected: np.ndarray, exported: Sequence[Any] | np.ndarray) -> float:
    """The largest difference, as a share of the largest expected value if that is above 1."""
    other = np.asarray(exported, dtype=np.float64).reshape(expected.shape)
    return float(np.abs(other - expected).max() / max(1.0, float(np.abs(expected).max())))


def _check_texts(bundle: Bundle, folder: Path) -> None:
    """Raise ``ModelError`` if onnxruntime and tokenizers, which read the folder alone, predict otherwise for a text than we do."""
    kind = bundle.model.head.config.kind
    if kind not in ("classification", "multilabel", "regression", "embedding"):
        return
    texts = probe_texts(bundle.model.backbone.config.max_length)
    expected = embed(bundle, texts).numpy() if kind == "embedding" else np.asarray(raw_predictions(bundle, texts))
    gap = largest_gap(expected, run_network(folder, texts))
    if not gap <= TOLERANCE:
        raise ModelError(f"the exported folder must predict what the model predicts, but for a text it differs by {gap:.2g}")


@torch.inference_mode()
def relative_difference(model: nn.Module, other: nn.Module) -> float:
    """The largest difference of outputs on ragged rows of random tokens, as a share of the largest output."""
    worst = 0.0
    for row in random_batches(model):
        first, second, mask = model(*row), other(*row), row[1]
        if first.dim() == 3:  # outputs at padding are never read
            first, second = first[mask], second[mask]
        worst = max(worst, float((first - second).abs().max() / first.abs().max().clamp(min=1e-6)))
    return worst


def random_batches(model: Any) -> Iterator[tuple[Tensor, ...]]:
    """Batches of 1, 2 and 4 ragged rows of 1 to 64 random tokens: token ids, attention mask, token type ids."""
    longest, draw = min(64, model.backbone.config.max_length), rng(0, "onnx")
    for rows, tokens in ((1, 1), (2, longest // 2 + 1), (4, longest)):
        ids = torch.from_numpy(draw.integers(0, model.backbone.vocab_size, (rows, tokens)))
        mask = torch.arange(tokens) < torch.linspace(tokens, 1, rows).long()[:, None]
        yield (ids, mask, ids % 2)[: len(inputs_of(model))]


def _write_graph(bundle: Bundle, file: Path) -> None:
    model = bundle.model
    graph = Graph(model, bundle.calibration.temperature if bundle.calibration else 1.0).eval()
    ids = torch.zeros(2, min(8, model.backbone.config.max_length), dtype=torch.int64)
    names = inputs_of(model)
    free = {0: torch.export.Dim("rows", min=1), 1: torch.export.Dim("tokens", min=1, max=model.backbone.config.max_length)}
    with _quiet():
        program = torch.onnx.export(
            graph,
            (ids, torch.ones_like(ids), torch.zeros_like(ids))[: len(names)],
            dynamo=True,
            dynamic_shapes=(free, free, free)[: len(names)],
            input_names=list(names),
            output_names=list(model.head.onnx_outputs),
            verbose=False,
        )
        assert program is not None
        program.save(file)


def _write_int8(folder: Path) -> None:
    """Weights as integers from -127 to 127 with a scale for each tensor; activations are quantised dynamically."""
    quantise = _needed("onnxruntime.quantization")
    graph = _needed("onnx").load(folder / GRAPH)
    del graph.graph.value_info[:]  # shapes noted by the exporter: the quantiser transposes weights, which contradicts them
    with _quiet():
        quantise.quantize_dynamic(graph, folder / INT8_GRAPH, weight_type=quantise.QuantType.QInt8)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hides what the exporter reports of itself: missing parts of torchvision, deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "root")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _last(bundle: Bundle) -> int:
    """The token at the end of a text."""
    specials = bundle.tokenizer.specials
    return specials.cls if getattr(bundle.model.head.config, "pooling", "") == "appended" else specials.eos


def _settings(bundle: Bundle) -> dict[str, Any]:
    head = bundle.model.head.config
    return {
        "head": head.to_dict(),
        "labels": list(bundle.labels),
        "temperature": bundle.calibration.temperature if bundle.calibration else None,
        "thresholds": thresholds_of(bundle),
        "inputs": list(inputs_of(bundle.model)),
        "outputs": list(bundle.model.head.onnx_outputs),
        "max_length": bundle.model.backbone.config.max_length,
        "pad_id": bundle.tokenizer.specials.pad,
    }


def _needed(*names: str) -> Any:
    """The last of these modules; raises ``ConfigError`` for the first that is missing."""
    module = None
    for name in names:
        try:
            module = importlib.import_module(name)
        except ImportError:
            raise ConfigError(f'--to onnx needs {name}, which is not installed; pip install "warmstart[onnx]"') from None
    return module


PROBES = (*PORTABLE_TEXTS, " ".join(SELFTEST_TEXTS * 30))
"""texts that are predicted to compare; the last is longer than most networks read"""
_RUN = """
import json
sys.modules["warmstart"] = None
sys.path.insert(0, sys.argv[1])
import predict
json.dump(predict.probabilities(json.load(sys.stdin)).tolist(), sys.stdout)
"""


def stack_to_onnx(stack: Stack, folder: str | Path) -> float:
    """Write the folder, run its script, and compare; returns the largest difference of a prediction.

    Raises ``ModelError``, and writes nothing, if it exceeds ``TOLERANCE`` or the script fails.
    """
    with atomic_folder(free_folder(folder)) as aside:
        members, columns = [], member_columns(stack)
        for number, member in enumerate(stack.members, 1):
            place = aside / "members" / str(number)
            if isinstance(member.model, Bundle):
                to_onnx(member.model, place)
            else:
                place.mkdir(parents=True)
                write_files(place, member_contents(member, columns[number - 1]))
            members.append(member_entry(member) | {"backbone": stack.backbone_of(member)})
        for number, backbone in enumerate(stack.backbones, 1):
            to_onnx(backbone, aside / "backbones" / str(number))
        temperature = stack.calibration.temperature if stack.calibration else 1.0
        settings = {"type": stack.type, "labels": list(stack.labels), "temperature": temperature, "members": members}
        settings["thresholds"] = thresholds_of(stack)
        script = Path(portable.__file__).read_bytes()
        write_files(aside, {"config.json": json.dumps(settings, indent=1, ensure_ascii=False).encode(), "predict.py": script})
        return _compared(stack, aside)


def _compared(stack: Stack, folder: Path) -> float:
    """The largest difference of a prediction of the script in ``folder`` from the stack's own."""
    run = run_python(_RUN, str(folder.resolve()), text=json.dumps(PROBES))
    if run.returncode:
        reason = run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit code {run.returncode}"
        raise ModelError(f"predict.py of the exported stack must run without warmstart, but failed: {reason}")
    expected, exported = raw_predictions(stack, PROBES), np.array(json.loads(run.stdout))
    gap = largest_gap(expected, exported)
    if not gap <= TOLERANCE:
        raise ModelError(
            f"the exported stack must predict what the saved one predicts, but differs by {gap:.2g}; export its members one by one"
        )
    return gap
