"""An exported page in a browser: it computes what Python computes, shows it to everyone, and runs nothing that the data holds."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from helpers.browser import IN_A_BROWSER, readable, watched_page
from helpers.bundles import unread_model
from helpers.models import SENTENCES, make_backbone
from helpers.mutants import bases
from helpers.one_file import browser_probabilities, in_browser, labelled, made_texts, rounded
from helpers.restarts import adapt_record
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import BottleneckConfig, ScalarMixConfig
from warmstart.app.one_file.document import write_model_page
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.heads.per_text import ClassificationHeadConfig, MultilabelHeadConfig
from warmstart.heads.per_token import TaggingHeadConfig
from warmstart.heads.settings import LMHeadConfig
from warmstart.inspection.explanations import erase_words, prepare_text
from warmstart.interop.companions import with_prefix
from warmstart.interop.convert import from_huggingface
from warmstart.model.bundle import Bundle, Calibration, Language
from warmstart.model.files import save
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tasks.predict import predict, raw_predictions, unread
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import TRAINERS, train_tokenizer

pytestmark = IN_A_BROWSER
SAME_ARITHMETIC = 2e-5
"""of a probability: the page adds in float64 what torch adds in float32, with the same rounded weights"""
ROUNDING = 0.02
"""of a probability: what 8 bits may change. A weight moves by at most 1 / 254 of the largest one in its row, at random; through the
few layers of these models that moves a logit by some hundredths, and a probability by at most a quarter of that"""
HOSTILE = "<img src=x onerror=window.hacked=1></script><script>window.hacked=1</script>"
SWITCHES: dict[str, dict[str, Any]] = {
    "default": {},
    "bert": {"norm": "post", "positions": "learned", "embedding_norm": True, "token_types": 2, "norm_eps": 1e-12},
    "roberta": {"norm": "post", "positions": "learned", "position_offset": 2, "embedding_norm": True},
    "tutorial": {"norm": "post", "positions": "sinusoidal", "activation": "relu", "scale_embeddings": True},
    "gpt-2": {"positions": "learned", "activation": "gelu-tanh"},
    "llama": {"norm_type": "rms", "activation": "swiglu", "bias": False, "kv_heads": 1, "rotary_scaling": (8.0, 1.0, 4.0, 16)},
    "qwen": {"norm_type": "rms", "activation": "swiglu", "bias": False, "qkv_bias": True, "qk_norm": True, "head_width": 12},
    "modernbert": {"depth": 3, "window": 2, "global_every": 2, "window_rotary_base": 500.0, "activation": "geglu", "bias": False,
                   "embedding_norm": True, "first_norm": False},
}  # fmt: skip


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """An empty page that is watched."""
    with watched_page(browser, "file:", "about:") as opened:
        yield opened


def agree(page: Any, bundle: Bundle, texts: list[Any], *named: Any) -> None:
    """Fails unless scripts and Python predict the same, with the same rounded weights."""
    found = np.array(browser_probabilities(page, bundle, texts))
    assert np.abs(found - raw_predictions(rounded(bundle), texts)).max() < SAME_ARITHMETIC, named


def test_every_backbone_computes_what_python_computes(page: Any, tokenizer: Tokenizer) -> None:
    """With the same rounded weights, to the last digits of float32; from left to right, too."""
    texts = made_texts(16)
    for name, switches in SWITCHES.items():
        for causal in (False, True):
            agree(page, labelled(tokenizer, causal=causal, **switches), texts, name, causal)


def test_every_head_computes_what_python_computes(page: Any, tokenizer: Tokenizer) -> None:
    """Of texts, and of pairs of texts; each pooling and each hidden layer at least once."""
    for pooling, hidden in (("mean", "none"), ("first", "tanh"), ("last", "relu"), ("appended", "none")):
        head = ClassificationHeadConfig(classes=3, pooling=pooling, hidden=hidden, normalize=pooling == "mean")  # type: ignore[arg-type]
        for texts in (made_texts(8), [*zip(made_texts(8, 1), made_texts(8, 2), strict=True)]):
            agree(page, labelled(tokenizer, head, **SWITCHES["bert"]), texts, pooling, hidden)


def test_adapters_compute_what_python_computes(page: Any, tokenizer: Tokenizer) -> None:
    """Bottlenecks and a scalar mix stay modules of their own; LoRA is merged."""
    bundle, texts = labelled(tokenizer), made_texts(8)
    insert_adapter(bundle.model.backbone, BottleneckConfig(width=8, activation="relu"), 0)
    insert_adapter(bundle.model.backbone, ScalarMixConfig(), 0)
    with torch.no_grad():
        for name, parameter in bundle.model.named_parameters():
            if "adapter" in name or "scalar_mix" in name:
                parameter.normal_(std=0.3)
    for one in (bundle, bases(tokenizer)["lora"]):
        agree(page, one, texts)


def test_two_hundred_texts_get_the_labels_that_python_gives(page: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In the panel, as people use it: the model before rounding gives the same labels, and nearly the same confidence."""
    bundle = labelled(tokenizer)
    texts = [text for text in made_texts(1000) if text != "."]
    sure = raw_predictions(bundle, texts)
    ranked = np.sort(sure, axis=1)
    texts = [text for text, row in zip(texts, ranked, strict=True) if row[-1] - row[-2] > 2 * ROUNDING][:200]
    assert len(texts) == 200
    write_model_page(bundle, str(save(bundle, tmp_path / "cups")), "cups", tmp_path / "cups.html")
    page.goto((tmp_path / "cups.html").as_uri())
    page.fill("#classify-texts", "\n".join(texts))
    page.click("#classify [type=submit]")
    page.wait_for_selector("#classify-save:not([hidden])")
    with page.expect_download() as download:
        page.click("#classify-save")
    with open(download.value.path(), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = predict(bundle, texts)
    assert [row["prediction"] for row in rows] == [one["label"] for one in wanted]
    shown = page.locator("#classify-results > li").all_inner_texts()
    lost = unread(bundle, texts).tokens
    assert [("not read" in item) for item in shown] == [count > 0 for count in lost[: len(shown)]]
    assert max(lost[: len(shown)]) > 0
    assert wanted.probabilities is not None
    gap = np.abs(np.array([float(row["confidence"]) for row in rows]) - wanted.probabilities.max(axis=1))
    assert gap.max() < ROUNDING
    assert np.abs(np.array(browser_probabilities(page, bundle, texts)) - wanted.probabilities).max() < ROUNDING


def test_several_labels_and_tags_are_those_of_python(page: Any, tokenizer: Tokenizer) -> None:
    """A label from 0.5 on; a tag for each word that fits, none for the others."""
    several = replace(labelled(tokenizer, MultilabelHeadConfig(classes=3)), calibration=None)
    found = in_browser(page, several, "return given.map((text) => model.predict(text, 3));", texts := made_texts(30))
    wanted = predict(rounded(several), texts)
    assert [one["labels"] for one in found] == [one["labels"] for one in wanted]
    for one, two in zip(found, wanted, strict=True):
        assert one["probabilities"] == pytest.approx(two["probabilities"], abs=2e-4)
    tags = replace(labelled(tokenizer, TaggingHeadConfig(classes=3)), calibration=None)
    words = [tuple(text.split()) for text in made_texts(30)]
    found = in_browser(page, tags, "return given.map((text) => model.predict(text));", words)
    assert [one["tags"] for one in found] == [list(one["tags"]) for one in predict(rounded(tags), words)]


def test_a_word_matters_as_much_as_python_says(page: Any, tokenizer: Tokenizer) -> None:
    """By erasure, in nats, with the same words."""
    bundle = labelled(tokenizer)
    for text in ("She holds the cat and rubs it", "שלום [MASK] dog"):
        prepared = prepare_text(rounded(bundle), text)
        found = in_browser(page, bundle, "return model.erasure(...given, () => {});", [text, prepared.target_name])
        assert tuple(found["words"]) == prepared.words
        assert found["importance"]["erasure"] == pytest.approx(erase_words(prepared), abs=1e-4)


def test_words_before_every_text_are_read_as_in_python(page: Any, tokenizer: Tokenizer) -> None:
    """They are cut from no text, and matter to no explanation: "query: ", say."""
    bundle, texts = labelled(with_prefix(tokenizer, "the cat: ")), made_texts(16)
    agree(page, bundle, texts)
    cut = in_browser(page, bundle, "return given.map((text) => model.encode(text).unread);", texts)
    assert tuple(cut) == unread(bundle, texts).tokens
    prepared = prepare_text(rounded(bundle), "She holds it")
    said = in_browser(page, bundle, "return model.erasure(...given, () => {});", ["She holds it", prepared.target_name])
    assert tuple(said["words"]) == prepared.words
    assert said["importance"]["erasure"] == pytest.approx(erase_words(prepared), abs=1e-4)


def test_text_is_written_as_python_writes_it(page: Any, tokenizer: Tokenizer) -> None:
    """Greedily, beyond the context length too, with the six most probable tokens at every step."""
    for head in (LMHeadConfig(), LMHeadConfig(tied=False, bias=True, transform=True)):
        backbone = make_backbone(vocab_size=tokenizer.vocab_size, max_length=16)
        wrote = Language(objective=ObjectiveConfig(name="causal"), generates=True)
        bundle = Bundle(Model(backbone, fresh_head(head, backbone, 0), causal=True).eval(), tokenizer, language=wrote)
        work = _same_greedy_text(page, bundle)
        again = [in_browser(page, bundle, work.replace("greedy: true", "seed: 3"), "She holds") for _ in range(2)]
        assert again[0] == again[1]


def test_an_imported_gpt_2_writes_as_python_does(page: Any, tmp_path: Path) -> None:
    """With its own tokenizer and weights, as transformers saved them."""
    foreign = pytest.importorskip("helpers.foreign", reason="needs transformers")
    foreign.make_theirs("gpt2").save_pretrained(tmp_path)
    foreign.write_tokenizer(tmp_path, None)
    bundle = from_huggingface(tmp_path)
    _same_ids(page, bundle.tokenizer, odd_texts(300, 4))
    _same_greedy_text(page, bundle)


def _same_greedy_text(page: Any, bundle: Bundle) -> str:
    """Compare forty tokens, and return the script that wrote them."""
    wanted = trace(rounded(bundle), "She holds", GenerateConfig(max_new_tokens=40, greedy=True))
    work = """const steps = [];
              await model.write(given, {max_new_tokens: 40, greedy: true}, (kind, step) => kind === "token" && steps.push(step));
              return steps;"""
    found = in_browser(page, bundle, work, "She holds")
    assert [step["token"] for step in found] == [step.token for step in wanted.steps]
    for step, one in zip(found, wanted.steps, strict=True):
        assert step["entropy"] == pytest.approx(one.entropy, abs=1e-3)
        assert [other["probability"] for other in step["candidates"]] == pytest.approx([p for _, p in one.candidates], abs=1e-4)
    return work


def odd_texts(count: int, seed: int) -> list[str]:
    """Characters of every plane, spellings of special tokens, and what normal forms change."""
    draw = random.Random(seed)
    known = ["[MASK]", "[PAD]", "[UNK", " ", "  ", "\n", "\t", "'s", "'LL", "the", "1", "字", "한", "▁", "ß", "İ", "Σ", "ﬁ", "①"]
    known += [chr(code) for code in (0, 0x85, 0x301, 0x344, 0x1FBE, 0x200D, 0xD7A3, 0xFEFF, 0xFF5C, 0xFFFD, 0x1D15E, 0x20000)]

    def one() -> str:
        kind = draw.random()
        if kind < 0.4:
            return draw.choice(known)
        code = draw.randrange(32, 127) if kind < 0.6 else draw.randrange(32, 0x3100) if kind < 0.85 else draw.randrange(0x110000)
        return chr(code) if not 0xD800 <= code < 0xE000 else "x"

    return ["".join(one() for _ in range(draw.randrange(30))) for _ in range(count)]


def test_every_tokenizer_gives_the_ids_of_python(page: Any) -> None:
    """Of odd Unicode, of text that spells special tokens, and back again; also BERT's, which changes letters and spaces."""
    texts = odd_texts(200, 1)
    for kind in TRAINERS:
        for lowercase in (False, True):
            config = TokenizerConfig(type=kind, vocab_size=700, lowercase=lowercase, sentinels=2)  # type: ignore[arg-type]
            _same_ids(page, train_tokenizer(SENTENCES * 20 + texts[:40], config), texts + SENTENCES + odd_texts(200, 2))
    made = train_tokenizer(SENTENCES * 20 + ["naïve Ärger 字"], TokenizerConfig(type="wordpiece", vocab_size=600, sentinels=0))
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    spec = json.dumps(json.loads(made.to_json()) | {"normalizer": bert})
    _same_ids(page, Tokenizer.from_json(spec), [*odd_texts(300, 3), "Ärger, naïve İ"])


def _same_ids(page: Any, tokenizer: Tokenizer, texts: list[str]) -> None:
    bundle = labelled(tokenizer, width=8, heads=2, feedforward=8, depth=1)
    wanted = tokenizer.encode(texts)
    work = """const t = model.tokenizer; const ids = given.texts.map((one) => t.encode(one));
              return {ids, decoded: given.ids.map((row) => t.decode(row)), names: t.spec.pieces.map((_, id) => t.token(id)),
                      starts: t.spec.pieces.map((_, id) => t.startsWord(id))};"""
    found = in_browser(page, bundle, work, {"texts": texts, "ids": wanted})
    assert [text for text, one, two in zip(texts, found["ids"], wanted, strict=True) if one != two] == []
    assert found["decoded"] == [tokenizer.decode(row) for row in wanted]
    assert found["names"] == [tokenizer.token(id) for id in range(tokenizer.vocab_size)]
    assert found["starts"] == tokenizer.vocabulary().word_starts.tolist()


@pytest.fixture(scope="module")
def hostile(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose labels and card try to run a script; it has guarantees."""
    place, labels = tmp_path_factory.mktemp("hostile"), (HOSTILE, "milk", "10")
    held_out = tuple((0.34 + i / 320, i > 80) for i in range(200))
    raced = adapt_record(0.7, 6, {"method": HOSTILE})
    bundle = replace(
        labelled(tokenizer, labels=labels), history=(raced,), calibration=Calibration(temperature=1.5, held_out=held_out)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        save(bundle, place / "cups" / "bundle")
    write_model_page(bundle, str(place / "cups"), f"cups {HOSTILE}", place / "cups.html")
    return place / "cups.html"


def use_everything(page: Any) -> None:
    """Every panel of the hostile page."""
    page.fill("#classify-texts", f"{HOSTILE}\nI want tea")
    page.click("#classify [type=submit]")
    page.wait_for_selector("#classify-results li:nth-child(2)")
    page.get_by_role("button", name="Why?").last.click()
    page.wait_for_selector(".heat span")
    page.click("#checks [type=submit]")
    page.wait_for_selector("#checks-card:not([hidden])")
    page.click("#checks-card summary")


def test_nothing_in_the_data_can_run(page: Any, hostile: Path) -> None:
    """Labels, texts, methods, the card and the name are shown as they are written; a model abstains as its guarantee says."""
    page.goto(hostile.as_uri())
    use_everything(page)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2  # the facts and the one script; the weights are removed once they are read
    assert HOSTILE in page.locator("#checks-card pre").inner_text()
    assert HOSTILE in page.locator("#classify-results li").first.locator(".text").inner_text()
    assert page.title().startswith(f"cups {HOSTILE}")
    labels = page.locator("#classify-results li").first.locator(".bars > :nth-child(3n+1)").all_inner_texts()
    assert sorted(labels) == sorted([HOSTILE, "milk", "10"])
    page.locator("#classify-error").focus()
    page.keyboard.press("Home")
    page.fill("#classify-texts", "\n".join(made_texts(30)))
    page.click("#classify [type=submit]")
    page.wait_for_selector("#classify-save:not([hidden])")
    assert "of the predictions that reach it are wrong" in page.locator("#classify-guaranteed").inner_text()
    assert "label" in page.locator("#classify-error-value").inner_text()


def test_a_page_may_ask_nothing_and_evaluate_nothing(browser: Any, hostile: Path) -> None:
    """The policy in the file forbids it, whatever a script tries."""
    page = browser.new_page()
    page.goto(hostile.as_uri())
    tries = {
        "fetch": "fetch('https://example.org').then(() => 'done', () => 'refused')",
        "image": "new Promise((done) => { const i = new Image(); i.onload = () => done('done'); i.onerror = () => done('refused'); "
        "i.src = 'https://example.org/a.png'; })",
        "script": "(() => { const s = document.createElement('script'); s.textContent = 'window.added = 1'; "
        "document.body.append(s); return window.added ? 'done' : 'refused'; })()",
        "handler": "(() => { const b = document.createElement('button'); b.setAttribute('onclick', 'window.added = 1'); "
        "b.click(); return window.added ? 'done' : 'refused'; })()",
    }
    assert {name: page.evaluate(one) for name, one in tries.items()} == dict.fromkeys(tries, "refused")
    page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1000)])
def test_everyone_can_read_a_page(scheme: str, width: int, browser: Any, hostile: Path) -> None:
    """axe finds no serious violation; nothing is wider than the screen; the keyboard alone is enough."""
    with browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True) as context:
        page = context.new_page()
        page.goto(hostile.as_uri())
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.locator("#classify-texts").focus()
        page.keyboard.type("tea")
        while page.evaluate("document.activeElement.type") != "submit":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_selector("#classify-results li")
        use_everything(page)
        readable(page)


def test_a_damaged_page_says_so(browser: Any, hostile: Path, tmp_path: Path) -> None:
    """When the model is asked; the page itself is still there."""
    text = hostile.read_text()
    at = text.index('id="weights">') + 4000
    (tmp_path / "damaged.html").write_text(text[:at] + text[at + 400 :])
    page = browser.new_page()
    page.goto((tmp_path / "damaged.html").as_uri())
    page.fill("#classify-texts", "tea")
    page.click("#classify [type=submit]")
    page.wait_for_selector("#classify .error:not([hidden])")
    assert "the model in this page cannot be read" in page.locator("#classify .error").inner_text()
    page.close()
