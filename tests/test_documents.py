"""The documents: links lead somewhere, each public name is there, and what they and the model cards show works.

Python snippets run at a tiny size, command lines and manifests parse; test_site.py builds the site.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import warmstart
from helpers.bundles import classifier, language_bundle, unread_model
from helpers.models import SENTENCES, make_backbone
from helpers.pages import PAGES, ROOT, command_lines
from helpers.tasks import cats
from warmstart.adapters.registry import insert_adapter
from warmstart.adapters.settings import LoraConfig
from warmstart.cli import parse
from warmstart.commands import COMMANDS
from warmstart.commands.evaluate.command import evaluate
from warmstart.commands.settings import EvaluateConfig
from warmstart.errors import WarmstartError
from warmstart.experiment.config import RaceConfig
from warmstart.finetuning import finetune
from warmstart.flags import all_flags, count_flags
from warmstart.heads.registry import HEADS, head_config
from warmstart.interop.convert import from_huggingface
from warmstart.interop.onnx import to_onnx
from warmstart.model.bundle import Bundle, Language
from warmstart.model.card import card
from warmstart.model.files import save
from warmstart.model.model import Model, fresh_head
from warmstart.tasks.load import TaskSpec, save_task
from warmstart.tasks.predict import raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

NOT_RUN = re.compile(r"<!-- not run: .+ -->\n```python\n")
MAX_NOT_RUN = 6
FREE = {"--json", "--config", "--print-config", "--preset", "--help", "--help-all", "--version"}
"""flags that the command line itself takes"""
TORCHRUN = {
    "--standalone", "--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port",
    "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id", "--max-restarts",
}  # fmt: skip
"""flags of torch's launcher"""


def snippets(page: str) -> list[str]:
    """The Python blocks of a page that are run, in order."""
    return re.findall(r"(?<! -->\n)```python\n(.*?)```", page, flags=re.DOTALL)


def parse_line(line: str) -> Any:
    """The settings that a command line gives."""
    words = [word for word in shlex.split(line, comments=True)[1:] if word != "--json"]  # of all commands
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in COMMANDS)
    settings = COMMANDS[name].load_settings()
    if "--config" in words:
        del words[(at := words.index("--config")) : at + 2]  # a file of the reader
    return parse(settings, words[len(name.split()) :], line)


def bundle_of(kind: str, tokenizer: Tokenizer) -> Bundle:
    """A tiny bundle with a head of this kind."""
    required = [name for name, field in HEADS[kind].config_class.model_fields.items() if field.is_required() and name != "kind"]
    config = head_config({"kind": kind} | dict.fromkeys(required, 2))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size)
    labels = ("cat", "other") if "classes" in required else ()
    return Bundle(Model(backbone, fresh_head(config, backbone, 0), causal=False), tokenizer, labels)


def generating_bundle(tokenizer: Tokenizer) -> Bundle:
    """A causal language model."""
    return replace(language_bundle(tokenizer, "causal"), language=Language(generates=True))


@pytest.fixture(scope="module")
def inputs(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that the documents name: texts, a task, and tiny models before and after adaptation."""
    place = tmp_path_factory.mktemp("inputs")
    (place / "books").mkdir()
    (place / "books" / "one.txt").write_text("\n\n".join(SENTENCES * 50))
    (place / "blimp").mkdir()
    (place / "blimp" / "one.jsonl").write_text('{"sentence_good": "She holds it.", "sentence_bad": "She hold it."}\n' * 4)
    task = cats()
    rows = "".join(f"{text},{task.labels[label]}\n" for text, label in zip(task.train.texts, task.train.labels, strict=True))
    (place / "mails.csv").write_text(f"text,label\n{rows}")
    save_task(task, place / "task")
    shutil.copytree(place / "task", place, dirs_exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warmstart.model.files._fresh_reader", unread_model)
        save(language_bundle(tokenizer), place / "runs" / "lm" / "bundle")
        (place / "runs" / "lm" / "config.yaml").write_text("text: [books/]")
        save(generating_bundle(tokenizer), place / "runs" / "writer" / "bundle")
        shutil.copytree(place / "runs" / "writer", place / "runs" / "small-1")
        judge = EvaluateConfig(model=f"{place}/runs/small-1", pairs=f"{place}/blimp", out=f"{place}/runs/judged")
        evaluate(judge)
        for name in (f"pairs-{size}-{seed}" for size in ("small", "large") for seed in range(1, 6)):
            shutil.copytree(place / "runs" / "judged", place / "runs" / name)
        adapted = Bundle(classifier(tokenizer), tokenizer, ("other", "cat"))
        save(adapted, place / "runs" / "topics" / "bundle")
        to_onnx(adapted, place / "exported" / "topics-onnx")
        insert_adapter(adapted.model.backbone, LoraConfig(rank=2), 0)
        save(adapted, place / "runs" / "lora" / "bundle")
    return place


@pytest.mark.journeys
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if snippets(text)])
def test_the_snippets_of_a_document_run(page: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one namespace, in a folder that holds the files they name."""
    monkeypatch.chdir(shutil.copytree(inputs, tmp_path / "folder"))
    monkeypatch.setattr(finetune, "MIN_STEPS", 1)
    namespace: dict[str, Any] = {}
    for number, snippet in enumerate(snippets(PAGES[page]), 1):
        for out in re.findall(r'out="([^"]+)"', snippet):
            shutil.rmtree(out, ignore_errors=True)
        exec(compile(snippet, f"{page}, snippet {number}", "exec"), namespace)


@pytest.mark.journeys
def test_the_onnx_snippet_reads_every_model(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An imported encoder with token types, and one of ours: the probabilities are those of ``predict``."""
    from helpers.foreign import folder_of  # here, because without transformers it skips the file that imports it

    page = "docs/how-to/onnx.md"
    (snippet,) = (one for one in snippets(PAGES[page]) if "onnxruntime" in one)
    ours = Bundle(classifier(tokenizer), tokenizer, ("other", "cat"))
    for name, bundle in (("typed", from_huggingface(folder_of("bert-labels", tmp_path / "hf"))), ("plain", ours)):
        to_onnx(bundle, tmp_path / name / "exported" / "topics-onnx")
        monkeypatch.chdir(tmp_path / name)
        namespace: dict[str, Any] = {}
        exec(compile(snippet, page, "exec"), namespace)
        expected = raw_predictions(bundle, ["Where is the river?", "Who was it?"])
        np.testing.assert_allclose(namespace["probabilities"], expected, atol=1e-5, err_msg=name)
        assert len(namespace["config"]["inputs"]) == (3 if name == "typed" else 2)


def test_few_snippets_are_not_run() -> None:
    """Those that need more than one process say so."""
    assert sum(len(NOT_RUN.findall(text)) for text in PAGES.values()) <= MAX_NOT_RUN
    for name, text in PAGES.items():
        assert text.count("```python\n") == len(snippets(text)) + len(NOT_RUN.findall(text)), name


@pytest.mark.journeys
@pytest.mark.parametrize("kind", [*HEADS, "generating"])
def test_the_snippets_of_a_card_run(kind: str, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python and command lines, for every kind of head, beside the bundle."""
    bundle = bundle_of(kind, tokenizer) if kind in HEADS else generating_bundle(tokenizer)
    save(bundle, tmp_path / "FOLDER")
    monkeypatch.chdir(tmp_path)
    text = card(bundle)
    for line in command_lines(text):
        parse_line(line)
    for snippet in snippets(text):
        exec(compile(snippet, f"card of {kind}", "exec"), {})


def test_the_command_lines_of_the_documents_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flags exist and their values are valid; the only file that parsing reads is the run that one resumes."""
    (tmp_path / "runs" / "lm").mkdir(parents=True)
    (tmp_path / "runs" / "lm" / "config.yaml").write_text("text: [books/]")
    monkeypatch.chdir(tmp_path)
    wrong = []
    for line, page in {line: page for page, text in PAGES.items() for line in command_lines(text)}.items():
        try:
            parse_line(line)
        except (SystemExit, WarmstartError) as error:
            wrong.append(f"{page}: {line}: {error}")
    assert not wrong, "\n".join(wrong)


def test_the_manifests_of_the_documents_are_valid() -> None:
    """Every YAML block describes a task."""
    blocks = [(page, block) for page, text in PAGES.items() for block in re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)]
    assert blocks
    for page, block in blocks:
        TaskSpec.build(yaml.safe_load(block), page)


def test_every_flag_that_a_document_names_exists() -> None:
    """Outside of the command lines too, where it is marked as code."""
    flags = [flag for command in COMMANDS.values() for flag in all_flags(command.load_settings())]
    known = FREE | TORCHRUN | {flag.name for flag in flags}
    known |= {re.sub(r"(--|\.)(?=[^.]+$)", r"\1no-", flag.name) for flag in flags if flag.values == "yes or no"}
    for page, text in PAGES.items():
        gone = r"\n### Removed\n.*?(?=\n##)|\n## 0\..*"  # a changelog names what is no longer there
        prose = re.sub(rf"```.*?```|{gone}", "", text, flags=re.DOTALL)
        named = {flag for code in re.findall(r"`([^`]+)`", prose) for flag in re.findall(r"(?<!\S)--[a-z][a-z0-9.-]*", code)}
        assert named <= known, f"{page}: {sorted(named - known)}"


def anchors(page: str) -> set[str]:
    """The anchors that GitHub makes of the headings of a page."""
    found: Counter[str] = Counter()
    made = set()
    text = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        made.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return made


def test_every_public_name_exists_and_explains_itself() -> None:
    """``warmstart.NAME`` is what it says, also after the subpackages were imported; an unknown one is an ``AttributeError``."""
    for name in warmstart.__all__:
        assert name == "__version__" or (getattr(warmstart, name).__doc__ and name in dir(warmstart)), name
    with pytest.raises(AttributeError, match="no attribute 'pretrian'"):
        _ = warmstart.pretrian


def test_links_lead_somewhere() -> None:
    """To a file, to a heading of this or another page; paths of source files exist too."""
    for page, text in PAGES.items():
        for target, anchor in re.findall(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)", text):
            there = ((ROOT / page).parent / target if target else ROOT / page).resolve()
            assert there.exists(), f"{page} links to {target}"
            assert not anchor or anchor in anchors(there.relative_to(ROOT).as_posix()), f"{page} links to {target}#{anchor}"
        for path in re.findall(r"`((?:\w+/)+\w+\.(?:py|yaml))`", text):
            assert (ROOT / path).exists() or (ROOT / "src" / "warmstart" / path).exists(), f"{page} names {path}"


def test_the_reference_is_complete() -> None:
    """docs/reference/reference.md lists every command and every public name."""
    page = PAGES["docs/reference/reference.md"]
    assert not [name for name in COMMANDS if f"`{name}`" not in page]
    assert not [name for name in warmstart.__all__ if name != "__version__" and f"`ws.{name}" not in page]


def test_the_architecture_names_every_concern() -> None:
    """docs/explanation/architecture.md and the folders tell one story."""
    page = PAGES["docs/explanation/architecture.md"]
    for place in (ROOT / "src" / "warmstart").iterdir():
        if place.suffix == ".py" or (place / "__init__.py").exists():
            name = place.stem
            assert name.startswith("__") or f"`{name}`" in page, name


def test_every_page_is_in_the_contents() -> None:
    """The start page names it, so that the sidebar has it."""
    for name in (page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")):
        assert name == "index.md" or name.startswith("project/") or f"({name})" in PAGES["docs/index.md"], name


def test_the_flags_of_the_reference_are_those_of_the_help() -> None:
    """As many as ``--help`` and ``--help-all`` show, with a help and the defaults of the command."""
    for name, command in COMMANDS.items():
        settings, _ = command.load()
        flags = [*all_flags(settings)]
        shown = Counter("advanced" if flag.advanced else "basic" for flag in flags)
        assert shown == Counter(count_flags(settings)), name
        assert all(flag.help for flag in flags), [flag.name for flag in flags if not flag.help]
    race = {flag.name: flag for flag in all_flags(RaceConfig)}
    assert (race["--seed"].values, race["--seed"].default, race["--seed"].advanced) == ("whole number", "0", True)
    assert race["--selection"].values == "cross-validation, holdout, none, or left out"
