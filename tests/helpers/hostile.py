"""Folders as a stranger could make them: sound ones, changed with care, so that hashes and digests are right.

``python -m helpers.hostile KIND FOLDER`` (in ``tests``) reads every case of a kind, with no more than ``MEMORY`` bytes above what
the process had before, and prints what came of each as a line of JSON.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import struct
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmstart.system.storage import SEAL, sealed, sha256

MEMORY = 500 << 20
Change = Callable[[Path], object]
Case = tuple[str, Change]
DEEP = "[" * 100_000 + "]" * 100_000
LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'lol'] * 10)}]\n" for i in range(9))
"""a kilobyte of YAML that stands for a billion values"""


# ------------------------------------------------------------------------------------------------ how files are changed


def settings(name: str, *path: str | int, to: Any) -> Change:
    """Put a value at a path of keys of a JSON file; of a manifest, make the digest right again."""

    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        place = values
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
        write_json(folder, name, values)

    return change


def without(name: str, key: str) -> Change:
    """Remove a key of a JSON file."""

    def change(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        del values[key]
        write_json(folder, name, values)

    return change


def write_json(folder: Path, name: str, values: Any) -> None:
    if name == "bundle.json":
        values.pop(SEAL, None)
        values = sealed(values)
    (folder / name).write_text(json.dumps(values))


def both(*changes: Change) -> Change:
    """Several changes, one after another."""
    return lambda folder: [change(folder) for change in changes]


def content(name: str, data: bytes | str) -> Change:
    """Replace a file; of a bundle, correct its hash."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        if (folder / "bundle.json").exists() and name != "bundle.json":
            settings("bundle.json", "files", name, to=sha256((folder / name).read_bytes()))(folder)

    return change


def link(name: str, target: str) -> Change:
    """Replace a file by a link."""

    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def moved_out(name: str) -> Change:
    """Replace a file by a link to itself outside the folder: were it followed, it would be read."""

    def change(folder: Path) -> None:
        outside = folder.with_name(f"{folder.name} {Path(name).name}")
        shutil.move(folder / name, outside)
        (folder / name).symlink_to(outside)

    return change


def pipe(name: str) -> Change:
    """Replace a file by a pipe, which nobody writes to."""

    def change(folder: Path) -> None:
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def sparse(name: str, size: int) -> Change:
    """A file that says it is so large, and takes no space."""

    def change(folder: Path) -> None:
        header = json.dumps({"x": {"dtype": "U8", "shape": [size - 1000], "data_offsets": [0, size - 1000]}}).encode()
        header += b" " * (992 - len(header))
        with (folder / name).open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(size)

    return change


def tensors(header: dict[str, Any], data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this header, of this or a false length."""
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(shape: list[int], end: int, start: int = 0, dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


# ------------------------------------------------------------------------------------------------ tokenizers

PLAIN = {"type": "BPE", "vocab": {"a": 0, "b": 1, "[PAD]": 2}, "merges": []}


def tokenizer(model: Any = PLAIN, **parts: Any) -> str:
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                       "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model} | parts)  # fmt: skip


def split_at(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def steps(kind: str, *parts: Any) -> dict[str, Any]:
    return {"type": "Sequence", kind: [*parts]}


def replace_step(content_: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern or {"String": "a"}, "content": content_}


def added(id_: int, text: str) -> list[dict[str, Any]]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [{"id": id_, "content": text, "special": False, **flags}]


def nested(depth: int) -> Any:
    inner: Any = {"type": "NFC"}
    for _ in range(depth):
        inner = steps("normalizers", inner)
    return inner


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
PIECES = {"type": "WordPiece", "vocab": {"a": 0, "##a": 1, "[UNK]": 2}, "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
TABLE = base64.b64encode(struct.pack("<I", 4) + b"\0\0\0\0" + b"x" * 5000 + b"\0").decode()
CUT_TABLE = base64.b64encode(struct.pack("<I", 0x7FFFFFFC) + b"AAAA").decode()
TOKENIZERS: dict[str, str | bytes] = {
    "no regular expression": tokenizer(pre_tokenizer=split_at("(a")),
    "replacements that multiply": tokenizer(normalizer=steps("normalizers", *[replace_step("a" * 10)] * 12)),
    "replacements of nothing": tokenizer(normalizer=steps("normalizers", *[replace_step("aaaaa", String="")] * 9)),
    "replacements that multiply in the decoder": tokenizer(decoder=steps("decoders", *[replace_step("a" * 10)] * 12)),
    "bytes of bytes of bytes": tokenizer(pre_tokenizer=steps("pretokenizers", *[BYTE_LEVEL] * 26)),
    "a long insertion": tokenizer(normalizer={"type": "Prepend", "prepend": "x" * 5_000_000}),
    "a table of long texts": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": TABLE}),
    "a cut table": tokenizer(normalizer={"type": "Precompiled", "precompiled_charsmap": CUT_TABLE}),
    "a highest id of four billion": tokenizer({**PLAIN, "vocab": {"a": 0, "b": 4_000_000_000}}),
    "an added id of thirty million": tokenizer(added_tokens=added(30_000_000, "<x>")),
    "a negative id": tokenizer({**PLAIN, "vocab": {"a": -1}}),
    "added tokens of megabytes": tokenizer(added_tokens=added(3, "x" * 3_000_000)),
    "words without an end": tokenizer({**PIECES, "max_input_chars_per_word": 10**9}),
    "a merge of unknown pieces": tokenizer({**PLAIN, "merges": [["a", "zz"]]}),
    "deep lists": DEEP,
    "deep steps": tokenizer(normalizer=nested(200)),
    "ten million lists": "[" + "[]," * 10_000_000 + "[]]",
    "no UTF-8": b"\xff\xfe",
    "pieces of length zero": tokenizer(pre_tokenizer={"type": "FixedLength", "length": 0}),
    "an unknown piece that is not there": tokenizer(
        {"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0]], "byte_fallback": False}
    ),
}
"""what a ``tokenizer.json`` of a stranger may hold; each is refused when it is read, or when it reads its first text"""
PIECE_MODELS: dict[str, bytes] = {
    "a number without an end": b"\x08" + b"\x80" * 5_000_000,
    "a long piece": b"".join(
        b"\x0a" + bytes([128 | len(one) & 127, 128 | len(one) >> 7 & 127, len(one) >> 14]) + one
        for one in (
            b"\x0a" + bytes([128 | 30_000 & 127, 128 | 30_000 >> 7 & 127, 30_000 >> 14]) + b"a" * 30_000,
            b"\x0a\x01u\x18\x02",
        )
    ),
    "a field beyond the end": b"\x0a\xff\xff\xff\xff\x0f",
    "text": b"no model at all",
}
"""what a sentencepiece ``.model`` of a stranger may hold"""


def tokenizer_cases() -> dict[str, Case]:
    cases = {name: ("empty", content("tokenizer.json", data)) for name, data in TOKENIZERS.items()}
    return cases | {f"pieces: {name}": ("empty", content("pieces.model", data)) for name, data in PIECE_MODELS.items()}


# ------------------------------------------------------------------------------------------------ bundles


def manifest(*path: str | int, to: Any) -> Change:
    return settings("bundle.json", *path, to=to)


LORA = {"kind": "lora", "rank": 10_000_000, "alpha": 1.0, "targets": ["q"], "dropout": 0.0}
WRONG_TYPES = {"backbone": 7, "head": [], "adapters": "lora", "labels": 3, "history": {"a": 1}, "calibration": "yes", "files": [],
               "tensors": "none", "vocab_size": "many", "causal": None, "format": [3]}  # fmt: skip
HUGE = {"depth": 10**9, "width": 2**20, "feedforward": 10**9, "max_length": 10**9, "heads": 10**9, "head_width": 10**8,
        "kv_heads": 10**9, "token_types": 10**9, "window": -1, "norm_eps": "small", "init_std": None,
        "rotary_scaling": [1]}  # fmt: skip


def selftest_of(**changed: Any) -> Change:
    """Replace tensors of the self-test."""

    def change(folder: Path) -> None:
        import torch
        from safetensors.torch import load_file, save

        stored = load_file(folder / "selftest.safetensors") | {key: torch.as_tensor(value) for key, value in changed.items()}
        content("selftest.safetensors", save({key: value.contiguous() for key, value in stored.items()}))(folder)

    return change


def bundle_cases() -> dict[str, Case]:
    weights = "weights.safetensors"
    changes: dict[str, Change] = {f"{key} of another type": manifest(key, to=value) for key, value in WRONG_TYPES.items()}
    changes |= {f"backbone.{key} is {value}": manifest("backbone", key, to=value) for key, value in HUGE.items()}
    changes |= {f"without {key}": without("bundle.json", key) for key in WRONG_TYPES}
    changes |= {
        f"{name} is a link out": moved_out(name) for name in ("bundle.json", weights, "tokenizer.json", "selftest.safetensors")
    }
    changes |= {f"tokenizer: {name}": content("tokenizer.json", data) for name, data in list(TOKENIZERS.items())[:14]}
    changes |= {
        "vocabulary of thirty million": manifest("vocab_size", to=30_000_000),
        "vocabulary of 10^30": manifest("vocab_size", to=10**30),
        "sinusoidal positions without an end": both(
            manifest("backbone", "positions", to="sinusoidal"), manifest("backbone", "max_length", to=10**8)
        ),
        "LoRA of rank ten million": manifest("adapters", to=[LORA]),
        "a thousand adapters": manifest("adapters", to=[{**LORA, "rank": 1}] * 1000),
        "a bottleneck of width 10^9": manifest("adapters", to=[{"kind": "bottleneck", "width": 10**9}]),
        "a billion classes": manifest("head", to={"kind": "classification", "classes": 10**9}),
        "an unknown head": manifest("head", to={"kind": "__import__"}),
        "labels without a head for them": manifest("labels", to=["a"] * 100_000),
        "an unknown record": manifest("history", to=[{"type": "exec"}]),
        "a temperature of nothing": manifest("calibration", to={"temperature": 0}),
        "a shape without an end": manifest("tensors", "backbone.embedding.weight", to=[[10**18], "0"]),
        "deep JSON": content("bundle.json", DEEP),
        "deep settings": content("bundle.json", '{"backbone":' * 50_000 + "1" + "}" * 50_000),
        "ten million values": content("bundle.json", "[" + "1," * 10_000_000 + "1]"),
        "a number of a million digits": content("bundle.json", "1" * 1_000_000),
        "tokenizer.json is all zeros": link("tokenizer.json", "/dev/zero"),
        "weights are all zeros": link(weights, "/dev/zero"),
        "weights are a pipe": pipe(weights),
        "the manifest is a pipe": pipe("bundle.json"),
        "weights are a link to themselves": link(weights, weights),
        "weights of a terabyte": sparse(weights, 1 << 40),
        "a header of a hundred megabytes": content(weights, struct.pack("<Q", 100_000_000) + b"{" + b" " * 1000),
        "weights that overlap": content(weights, tensors({"a": tensor([1], 4), "b": tensor([1], 4)}, b"\0" * 4)),
        "a tensor larger than the file": content(weights, tensors({"a": tensor([10**9], 4 * 10**9)}, b"\0" * 4)),
        "a hundred thousand tensors of nothing": content(weights, tensors({f"t{i}": tensor([0], 0) for i in range(100_000)})),
        "weights are a pickle": content(weights, b"\x80\x04cos\nsystem\n(S'true'\ntR."),
        "a self-test of many rows": selftest_of(ids=[[1] * 32] * 100_000, mask=[[True] * 32] * 100_000),
        "a self-test of other tokens": selftest_of(ids=[[10**9] * 32] * 6),
        "a self-test of a large header": content("selftest.safetensors", struct.pack("<Q", 100_000_000) + b"{"),
    }  # fmt: skip
    return {name: ("bundle", change) for name, change in changes.items()}


# ------------------------------------------------------------------------------------------------ folders to import


def config(*path: str | int, to: Any) -> Change:
    return settings("config.json", *path, to=to)


def import_cases() -> dict[str, Case]:
    weights, index = "model.safetensors", "model.safetensors.index.json"
    numbers = {"hidden_size": 2**20, "num_hidden_layers": 10**9, "intermediate_size": 10**9,
               "num_attention_heads": 10**9, "num_key_value_heads": 10**9, "head_dim": 10**8}  # fmt: skip
    changes: dict[str, Change] = {f"{key} is {value}": config(key, to=value) for key, value in numbers.items()}
    changes |= {f"{key} is a list": config(key, to=[1]) for key in (*numbers, "rms_norm_eps", "model_type")}
    changes |= {f"without {key}": without("config.json", key) for key in ("hidden_size", "num_attention_heads", "model_type")}
    changes |= {
        f"{name} is a link out": moved_out(name) for name in ("config.json", weights, "tokenizer.json", "tokenizer_config.json")
    }
    changes |= {f"tokenizer: {name}": content("tokenizer.json", data) for name, data in list(TOKENIZERS.items())[:12]}
    classifier = config("model_type", to="bert"), config("architectures", to=["BertForSequenceClassification"])

    def sharded(names: Any) -> Change:
        return lambda folder: [(folder / weights).unlink(), write_json(folder, index, names)]

    changes |= {
        "rope_parameters are text": config("rope_parameters", to="x"),
        "architectures are a number": config("architectures", to=5),
        "an unknown family": config("model_type", to="../../x"),
        "remote code": both(config("model_type", to="mine"), config("auto_map", to={"AutoModel": "evil.Evil"})),
        "a billion labels": both(*classifier, config("num_labels", to=10**9)),
        "labels without numbers": both(*classifier, config("id2label", to={"x": 1})),
        "config.json is a pipe": pipe("config.json"),
        "an embedding without rows": content(weights, tensors({"model.embed_tokens.weight": tensor([], 4)}, b"\0" * 4)),
        "only a pickle": lambda folder: [(folder / weights).unlink(), (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")],
        "an index of lists": sharded({"weight_map": []}),
        "a mask token that is a list": content("tokenizer_config.json", '{"mask_token": ["x"]}'),
        "modules that are text": both(bare, content("modules.json", '"x"')),
        "a pooling outside": both(bare, content("modules.json", '[{"type": "a.Pooling", "path": "../../x"}]')),
    }  # fmt: skip
    return {name: ("import", change) for name, change in changes.items()}


def bare(folder: Path) -> None:
    """A model without a head, whose vectors are pooled as ``modules.json`` says."""
    for key, value in (("tie_word_embeddings", False), ("architectures", ["LlamaModel"])):
        config(key, to=value)(folder)


# ------------------------------------------------------------------------------------------------ reading them


def all_cases(kind: str) -> dict[str, Case]:
    makers = {"bundles": bundle_cases, "tokenizers": tokenizer_cases, "imports": import_cases}
    return makers[kind]()


def read(base: str, folder: Path) -> None:
    """Read a folder as a user would: with its self-test, or with a first text."""
    from warmstart.interop.convert import import_folder
    from warmstart.model.files import load_bundle
    from warmstart.tokenizer.load import load_tokenizer

    if base == "bundle":
        load_bundle(folder)
    elif base == "import":
        import_folder(folder)
    else:
        file = next(folder.iterdir())
        tokenizer = load_tokenizer(file)
        tokenizer.decode(tokenizer.encode(["a" * 3000 + "é b"])[0])


def main(kind: str, place: Path) -> None:
    """Read every case; ``place / "sound"`` holds the folders that are changed."""
    sound = place / "sound"
    for base in ("bundle", "import"):
        read(base, sound / base)  # everything is imported, and sound folders are read
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    for number, (name, (base, change)) in enumerate(all_cases(kind).items()):
        folder = place / f"{kind} {number}"
        shutil.copytree(sound / base, folder) if (sound / base).exists() else folder.mkdir()
        shutil.rmtree(place / f"{kind} {number - 1}", ignore_errors=True)
        print(json.dumps({"begins": name}), flush=True)
        change(folder)
        started = time.process_time()
        try:
            read(base, folder)
            found = ("", "it was read", "")
        except BaseException as error:
            classes = [one.__name__ for one in type(error).__mro__]
            found = ("WarmstartError" if "WarmstartError" in classes else classes[0], str(error), traceback.format_exc()[-1500:])
        took = {"seconds": time.process_time() - started}  # of the processor: other programs do not disturb them
        print(json.dumps({"name": name, "error": found[0], "message": found[1][:500], "trace": found[2], **took}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
