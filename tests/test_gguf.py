"""GGUF files give the network and the tokenizer that were written."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.foreign import LLAMA, VOCAB, transformers, word_pieces
from helpers.models import SENTENCES
from helpers.refusals import mutated, refused
from warmstart.cli import main
from warmstart.errors import ModelError, TokenizerError, WarmstartError
from warmstart.interop.convert import import_foreign
from warmstart.interop.gguf_file import read_gguf, tokenizer_of
from warmstart.model.files import load_bundle

gguf = pytest.importorskip("gguf")
KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
TOP = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
CLASSES = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 16}),
}  # fmt: skip


def decoded(raw: bytes, kind: str, count: int) -> np.ndarray:
    """(count,) a second decoder, number by number, from what ggml says of its blocks."""
    half = lambda at: struct.unpack_from("<e", raw, at)[0]  # noqa: E731
    found = np.zeros(count, dtype=np.float64)
    for i in range(count):
        block, place = divmod(i, 32)
        if kind in ("F32", "F16"):
            found[i] = struct.unpack_from("<f" if kind == "F32" else "<e", raw, i * (4 if kind == "F32" else 2))[0]
        elif kind == "BF16":
            found[i] = struct.unpack("<f", b"\0\0" + raw[2 * i : 2 * i + 2])[0]
        elif kind == "Q8_0":
            found[i] = half(34 * block) * struct.unpack_from("<b", raw, 34 * block + 2 + place)[0]
        else:
            size, head = (18, 2) if kind == "Q4_0" else (20, 4)
            byte = raw[size * block + head + place % 16]
            number = byte & 15 if place < 16 else byte >> 4
            found[i] = (number - 8) * half(size * block) if kind == "Q4_0" else number * half(20 * block) + half(20 * block + 2)
    return found


def paired(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows as llama.cpp's own script orders them for Llama's rotary positions."""
    return matrix.reshape(heads, 2, -1, *matrix.shape[1:]).swapaxes(1, 2).reshape(matrix.shape)


def write(file: Path, family: str, kind: str, **changes: Any) -> Any:
    """A file with a tiny model of transformers, whose matrices are of a kind; the model with the weights as they are read."""
    config, name, more = CLASSES[family]
    torch.manual_seed(0)
    settings = {**LLAMA, "hidden_size": 64, "intermediate_size": 96, "tie_word_embeddings": family == "qwen2", **more}
    theirs = getattr(transformers, name)(getattr(transformers, config)(**settings)).eval()
    writer, tokenizer = gguf.GGUFWriter(str(file), changes.get("architecture", family)), word_pieces(None)
    writer.add_block_count(3)
    writer.add_context_length(64)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(theirs.config.rms_norm_eps)
    writer.add_rope_freq_base(theirs.config.rope_parameters["rope_theta"])
    if "head_dim" in more:
        writer.add_key_length(16)
    tokens = [tokenizer.id_to_token(i) for i in range(tokenizer.get_vocab_size())]
    writer.add_tokenizer_model(changes.get("model", "gpt2"))
    writer.add_tokenizer_pre(changes.get("pre", "gpt-2"))
    writer.add_eos_token_id(tokenizer.token_to_id("[MASK]"))
    writer.add_token_list(tokens + [f"<spare{i}>" for i in range(VOCAB - len(tokens))])
    writer.add_token_types([3 if token.startswith("[") and len(token) > 1 else 1 for token in tokens] + [3] * (VOCAB - len(tokens)))
    writer.add_token_merges([" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]])
    if changes.get("pooled"):
        writer.add_pooling_type(gguf.PoolingType.LAST)
    if changes.get("scaled"):
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    with torch.no_grad():
        for name, tensor in theirs.state_dict(keep_vars=True).items():
            if name == "lm_head.weight" and theirs.config.tie_word_embeddings:
                continue
            part, _, leaf = name.rpartition(".")
            _, number, inner = ["", "", part] if part in TOP else part.removeprefix("model.").split(".", 2)
            short = TOP[part] if part in TOP else f"blk.{number}.{PARTS[inner]}"
            moved = family == "llama" and short.endswith(("attn_q", "attn_k"))
            values = tensor.numpy().copy()
            values = paired(values, 4 if short.endswith("q") else 2) if moved else values
            one = gguf.GGMLQuantizationType[kind if values.ndim > 1 else "F32"]
            raw = gguf.quants.quantize(values, one)
            again = decoded(raw.tobytes(), one.name, values.size).reshape(values.shape).astype(np.float32)
            if moved:
                again = again.reshape(4 if short.endswith("q") else 2, -1, 2, 64).swapaxes(1, 2).reshape(values.shape)
            tensor.copy_(torch.from_numpy(again))
            writer.add_tensor(f"{short}.{leaf}", raw, raw_dtype=one)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return theirs


def test_a_network_gives_the_logits_of_transformers(tmp_path: Path) -> None:
    """With the weights that a second decoder reads, for every kind of weight, and in each family."""
    ids = torch.randint(6, VOCAB - 8, (2, 17), generator=torch.Generator().manual_seed(1))
    cases = [("llama", kind) for kind in KINDS] + [("qwen2", "Q8_0"), ("qwen3", "F16")]
    for family, kind in cases:
        file = tmp_path / f"{family}-{kind}.gguf"
        theirs = write(file, family, kind)
        found = read_gguf(file)
        own = theirs.state_dict()
        for name, tensor in found.tensors.items():
            torch.testing.assert_close(tensor, own[name], atol=1e-5, rtol=0)
        imported = import_foreign(found)
        with torch.no_grad():
            torch.testing.assert_close(imported.bundle.model(ids)[..., :VOCAB], theirs(ids).logits, atol=1e-5, rtol=1e-5)
        assert not imported.left_out


def test_a_tokenizer_is_rebuilt_from_the_metadata(tmp_path: Path) -> None:
    """It encodes as the one that was written; special tokens are no text; a text begins as the file says."""
    write(tmp_path / "tiny.gguf", "llama", "F32")
    tokenizer = read_gguf(tmp_path / "tiny.gguf").tokenizer
    assert tokenizer.encode(SENTENCES) == [one.ids for one in word_pieces(None).encode_batch(SENTENCES)]
    assert tokenizer.id("[MASK]") not in tokenizer.encode(["a [MASK]"])[0]
    assert tokenizer.specials.bos is None
    spelled = {
        "model": "gpt2",
        "tokens": ["[BOS]", "a", "b", "ab"],
        "merges": ["a b"],
        "bos_token_id": 0,
        "token_type": [3, 1, 1, 1],
    }
    for first, begins in (({}, None), ({"add_bos_token": True}, 0)):
        given = {**spelled, "pre": "gpt-2", **first}
        found = tokenizer_of({f"tokenizer.ggml.{name}": value for name, value in given.items()})
        assert found.specials.bos == begins


def test_the_command_imports_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bundle generates; what cannot be read is refused in one sentence."""
    write(tmp_path / "tiny.gguf", "llama", "Q8_0")
    assert main(["import", str(tmp_path / "tiny.gguf"), "--out", str(tmp_path / "bundle")]) == 0
    assert "'[MASK]' (texts end with '[SEP]')" in " ".join(capsys.readouterr().err.split())
    assert load_bundle(tmp_path / "bundle").generates
    assert main(["import", str(tmp_path / "none.gguf"), "--out", str(tmp_path / "no")]) == 2
    whole, key = (tmp_path / "tiny.gguf").read_bytes(), b"tokenizer.ggml.token_type"
    (tmp_path / "cut.gguf").write_bytes(whole[:4000])
    at = whole.index(key) + len(key) + 8
    (tmp_path / "endless.gguf").write_bytes(whole[:at] + struct.pack("<Q", 1 << 50) + whole[at + 8 :])
    for file, error, words in (
        (tmp_path / "cut.gguf", ModelError, "must be a sound GGUF file"),
        (tmp_path / "endless.gguf", ModelError, "must be a sound GGUF file"),
        (written(tmp_path / "phi.gguf", architecture="phi3"), ModelError, "must be one of llama, qwen2, qwen3"),
        (written(tmp_path / "odd.gguf", pre="tekken"), TokenizerError, "names 'tekken'"),
        (written(tmp_path / "old.gguf", pre="default"), TokenizerError, "names 'default'"),
        (written(tmp_path / "vectors.gguf", pooled=True), ModelError, "must hold a language model"),
        (written(tmp_path / "wpm.gguf", model="bert"), TokenizerError, "must be of type gpt2, but is 'bert'"),
        (written(tmp_path / "yarn.gguf", scaled=True), ModelError, "must not be scaled"),
    ):
        refused(error, words, read_gguf, file)


def test_a_damaged_file_is_refused_by_our_own_errors(tmp_path: Path) -> None:
    """Or it is read, if a weight alone is another."""
    whole = written(tmp_path / "tiny.gguf").read_bytes()
    for content in mutated(whole, 14_000, 40):
        (tmp_path / "odd.gguf").write_bytes(content)
        with suppress(WarmstartError):
            import_foreign(read_gguf(tmp_path / "odd.gguf"))


def written(file: Path, **changes: Any) -> Path:
    """A file with something that cannot be read."""
    write(file, "llama", "F32", **changes)
    return file
