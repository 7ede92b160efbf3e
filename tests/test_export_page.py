"""``export --to page``: what is refused, what the file holds, and what ``doctor`` finds in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.models import make_backbone
from helpers.mutants import LABELS, bases
from warmstart.cli import main
from warmstart.errors import BundleError, ModelError
from warmstart.heads.classification import ClassificationHeadConfig
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.model import Model, fresh_head
from warmstart.serve.one_file.characters import ranges_of
from warmstart.serve.one_file.contents import refuse_unable
from warmstart.serve.one_file.document import joined_scripts, read_page
from warmstart.serve.one_file.tokenizer_spec import tokenizer_spec
from warmstart.serve.one_file.weights import pack_tensors, quantise_rows, unpack_tensors
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("no_second_process")


@pytest.fixture
def cups(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A saved model that labels cups."""
    return save(bases(tokenizer)["labels"], tmp_path / "cups" / "bundle").parent


def exported(model: Path, file: Path) -> Path:
    assert main(["export", str(model), "--to", "page", "--out", str(file)]) == 0
    return file


def test_a_page_names_its_bundle_and_agrees_with_it(cups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a step is the most that a rounded weight is off; LoRA is merged on both sides."""
    file = exported(cups, tmp_path / "cups.html")
    assert main(["doctor", str(file), "--bundle", str(cups)]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "is whole" in said
    assert "rounded to 8 bits: they differ by 0.50 steps at most" in said
    assert main(["doctor", str(file), "--bundle", str(cups), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "cups"
    assert len(found["digest"]) == 64


def test_a_page_with_merged_lora_agrees_with_its_bundle(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Which is saved with its pairs apart."""
    saved = save(bases(tokenizer)["lora"], tmp_path / "lora")
    file = exported(saved, tmp_path / "lora.html")
    assert main(["doctor", str(file), "--bundle", str(saved)]) == 0


@pytest.mark.parametrize(
    ("what", "damage", "said"),
    [
        (
            "weights",
            lambda text: re.sub(r'(id="weights">.{40}).', lambda m: m[1] + ("A" if m[0][-1] != "A" else "B"), text),
            "weights in",
        ),
        ("labels", lambda text: text.replace('"labels": ["tea"', '"labels": ["tee"'), "is damaged or was edited"),
        ("script", lambda text: text.replace("module_api", "module_ape"), "script in"),
        ("foreign", lambda text: "<!doctype html><p>Hello", "must be a page that"),
    ],
)
def test_a_damaged_page_is_named(
    what: str, damage: object, said: str, cups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one sentence, whatever was damaged."""
    file = exported(cups, tmp_path / "cups.html")
    file.write_text(damage(file.read_text()))  # type: ignore[operator]
    capsys.readouterr()
    assert main(["doctor", str(file)]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_page_of_another_model_is_found_out(
    cups: Path, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its weights, or, where these are the same, by its digest."""
    file = exported(cups, tmp_path / "cups.html")
    bundle = bases(tokenizer)["labels"]
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[7, 3] += 0.5
    other = save(bundle, tmp_path / "other")
    assert main(["doctor", str(file), "--bundle", str(other)]) == 2
    assert "backbone.embedding.weight differs by" in " ".join(capsys.readouterr().err.split())
    renamed = save(replace(bases(tokenizer)["labels"], labels=("a", "b", "c")), tmp_path / "renamed")
    assert main(["doctor", str(file), "--bundle", str(renamed)]) == 2
    assert "names the digest" in " ".join(capsys.readouterr().err.split())


def test_what_cannot_run_in_a_page_is_refused(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason: other heads, other attention, windows."""
    found = bases(tokenizer)
    place = save(found["number"], tmp_path / "number")
    assert main(["export", str(place), "--to", "page", "--out", str(tmp_path / "a.html")]) == 2
    assert "head of type 'regression'" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "a.html").exists()
    for bundle, reason in ((found["masked"], "not trained to write"), (_labels(tokenizer, attention="synthesizer"), "synthesizer")):
        with pytest.raises(ModelError, match=reason):
            refuse_unable(bundle)
    with pytest.raises(ModelError, match="in windows"):
        refuse_unable(_labels(tokenizer, ClassificationHeadConfig(classes=3, windows="mean")))


def _labels(tokenizer: Tokenizer, head: ClassificationHeadConfig | None = None, **switches: object) -> Bundle:
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, **switches)
    return Bundle(
        Model(backbone, fresh_head(head or ClassificationHeadConfig(classes=3), backbone, 0), causal=False), tokenizer, LABELS
    )


def test_a_tokenizer_with_unknown_steps_is_refused_by_name(tokenizer: Tokenizer) -> None:
    """Such as one that cuts words out of a text before all else, or splits by another expression."""
    spec = json.loads(tokenizer.to_json())
    steps = spec["pre_tokenizer"]["pretokenizers"]
    split = {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False}
    changed = spec | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, *steps]}}
    with pytest.raises(ModelError, match=r"splits by .*x\+"):
        tokenizer_spec(Tokenizer.from_json(json.dumps(changed)))
    digits = spec | {"normalizer": {"type": "Prepend", "prepend": "x"}}
    with pytest.raises(ModelError, match="normalises by Prepend"):
        tokenizer_spec(Tokenizer.from_json(json.dumps(digits)))


def test_an_existing_file_is_not_replaced(cups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And other formats need a folder, and a page takes no option of theirs."""
    file = exported(cups, tmp_path / "cups.html")
    assert main(["export", str(cups), "--to", "page", "--out", str(file)]) == 2
    assert main(["export", str(cups)]) == 2
    assert main(["doctor", str(cups), "--bundle", str(cups)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    for words in ("exists; choose another file", "needs the folder to create", "--bundle is for pages"):
        assert words in said


def test_weights_come_back_within_half_a_step() -> None:
    """Small matrices and vectors come back to the bit; a row of zeros stays zero."""
    big, small = torch.randn(80, 70), torch.randn(3, 5)
    big[4] = 0
    layout, packed = pack_tensors({"big": big, "small": small, "vector": small[0]})
    found = unpack_tensors(layout, packed)
    assert torch.equal(found["small"][0], small)
    assert torch.equal(found["vector"][0], small[0])
    values, half = found["big"]
    assert half is not None
    assert bool(((values - big).abs() <= half * 1.0001).all())
    assert not values[4].any()
    assert quantise_rows(big)[0].abs().max() == 127
    with pytest.raises(BundleError, match="weights in this page are damaged"):
        unpack_tensors(layout, packed[:-9])


def test_runs_of_characters_have_two_ends() -> None:
    """A class of characters travels as the ends of its runs."""
    assert ranges_of("xabc") == [97, 99, 120, 120]


def test_scripts_are_joined_in_the_order_of_need(cups: Path, tmp_path: Path) -> None:
    """Nothing is imported any more, nothing is asked of a network, and nothing in them ends the script."""
    script = joined_scripts("main.js")
    assert not re.search(r"^\s*(import|export) ", script, re.MULTILINE)
    for words in ("fetch(", "</script", "<!--", "eval(", "new Function", "innerHTML"):
        assert words not in script
    assert script.index("const module_weights") < script.index("const module_backbone") < script.index("const module_api")
    text = exported(cups, tmp_path / "cups.html").read_text()
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text.split('id="facts"')[0])
    assert read_page(tmp_path / "cups.html").facts["name"] == "cups"
