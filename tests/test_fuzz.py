"""Fuzzed inputs: whatever is in a file or behind a flag, only our own errors come out, and soon.

``make test`` tries ten inputs of each kind, ``make chaos`` about five thousand in all; ``CHAOS=20`` makes that many times more, and
``make fuzz`` looks for more by coverage (``helpers/guided_fuzzing.py``).
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from helpers.tasks import read_examples
from warmstart.cli import read_command
from warmstart.commands import COMMANDS
from warmstart.commands.recipe import read_recipe
from warmstart.data.conllu import read_conllu
from warmstart.data.read import read_documents
from warmstart.data.source import Source
from warmstart.errors import WarmstartError
from warmstart.interop.convert import from_huggingface
from warmstart.model.files import load_bundle
from warmstart.system.trouble import explain_trouble
from warmstart.tasks.load import load_task
from warmstart.tokenizer.load import load_tokenizer

MANY = round(500 * float(os.environ.get("CHAOS", "1")))
SECONDS = 30
"""longest time for one input; a guard against hanging, not a measurement"""

PIECES = st.sampled_from(
    [b"text", b"label", b"name: t\n", b"train: a.csv\n", b"test: 0.3\n", b",", b"\t", b"\n", b"\r\n", b'"', b"{", b"}", b"[", b"]",
     b":", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xe9", b"1e999", b"-1", b"nan", b"null", b"2020-99-99", b"9" * 400, b"PAR1",
     b"&a ", b"*a", b"!!python/name:os", b"${x}", b"# ", b"1\tA\ta\tNOUN\n", b"1-2\tab\n", b"1.1\n", b"\\ud800", b"[/b]"]
)  # fmt: skip
BYTES = st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=40).map(b"".join))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.just(10**400),
    st.sampled_from(["classification", "a.csv", "text", "pretrain", "adapt", "small", "a\0b", "../x", "[/b]"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=8,
)
MANIFEST_KEYS = [
    "name", "type", "train", "validation", "test", "labels", "limit", "metric", "source", "label_descriptions",
]  # fmt: skip
CONFIG = [
    "model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "head_dim",
    "max_position_embeddings", "hidden_act", "architectures", "id2label", "rope_parameters", "layer_types", "num_key_value_heads",
    "pad_token_id",
]  # fmt: skip


@contextmanager
def soon() -> Iterator[None]:
    """Fails if an input takes longer than ``SECONDS``."""

    def late(*_: object) -> None:
        raise AssertionError(f"no answer within {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def only_our_errors(read: Callable[[], object]) -> None:
    """What is read, or an error of ours, or one of the system that is explained."""
    with soon(), suppress(WarmstartError):
        try:
            read()
        except AssertionError:
            raise
        except Exception as error:
            if explain_trouble(error) is None:
                raise


def fuzzed(**inputs: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Any]:
    """A test with many inputs under the mark chaos; ``test.few`` runs it with a few."""

    def decorate(body: Callable[..., None]) -> Any:
        def run_in(folder: Path, count: int) -> Any:
            phases = [Phase.explicit, Phase.generate, Phase.shrink]
            checks = list(HealthCheck)

            @settings(max_examples=count, deadline=None, database=None, phases=phases, suppress_health_check=checks)
            @given(**inputs)
            def run(**values: Any) -> None:
                body(folder, **values)

            return run

        def test(tmp_path: Path) -> None:
            run_in(tmp_path, MANY)()

        test.few = lambda folder: run_in(folder, 10)()  # type: ignore[attr-defined]
        test.guided = lambda folder: run_in(folder, 1).hypothesis.fuzz_one_input  # type: ignore[attr-defined]
        test.__doc__ = body.__doc__
        return pytest.mark.chaos(test)

    return decorate


FORMATS = ["text", "csv", "tsv", "ndjson", "parquet", "arrow", "eml", "pattern"]


@fuzzed(content=BYTES, form=st.sampled_from(FORMATS), encoding=st.sampled_from(
    ["utf-8", "utf-16", "latin-1", "utf-7", "cp1252", "punycode", "hex"]), header=st.booleans())  # fmt: skip
def test_files_of_text(folder: Path, content: bytes, form: Any, encoding: str, header: bool) -> None:
    """Plain text and tables, as documents and as examples."""
    file = folder / "a.dat"
    file.write_bytes(content)
    pattern = r"^(?P<label>\S+) (?P<text>.*)$"
    source = Source(path=str(file), format=form, encoding=encoding, header=header, pattern=pattern)
    only_our_errors(lambda: list(read_documents(source)))
    only_our_errors(lambda: read_examples(source))


@fuzzed(content=BYTES)
def test_files_of_tags(folder: Path, content: bytes) -> None:
    """CoNLL-U."""
    file = folder / "a.conllu"
    file.write_bytes(content)
    only_our_errors(lambda: read_conllu(file))


@fuzzed(content=BYTES)
def test_manifests_of_any_bytes(folder: Path, content: bytes) -> None:
    """YAML or not."""
    (folder / "a.csv").write_text("text,label\n" + "one,x\ntwo,y\n" * 6)
    (folder / "task.yaml").write_bytes(content)
    only_our_errors(lambda: load_task(folder / "task.yaml"))


@fuzzed(changes=st.dictionaries(st.sampled_from(MANIFEST_KEYS), VALUES, max_size=3))
def test_manifests_of_any_values(folder: Path, changes: dict[str, Any]) -> None:
    """A sound manifest in which a few keys have other values."""
    (folder / "a.csv").write_text("text,label\n" + "one,x\ntwo,y\n" * 6)
    sound = {"name": "t", "train": "a.csv", "test": 0.3, "validation": 0.2}
    (folder / "task.yaml").write_text(yaml.safe_dump(sound | changes, allow_unicode=True), encoding="utf-8")
    only_our_errors(lambda: load_task(folder / "task.yaml"))


CELLS = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip()))


@fuzzed(rows=st.lists(st.tuples(CELLS, st.sampled_from(["one", "two: three", "#four"])), min_size=1, max_size=8), first=CELLS,
        second=CELLS)  # fmt: skip
def test_tables_without_a_manifest(folder: Path, rows: list[tuple[str, str]], first: str, second: str) -> None:
    """Whatever the columns are called and the cells hold."""
    (folder / "any.ndjson").write_text("\n".join(json.dumps({first: text, second: label}) for text, label in rows), "utf-8")
    only_our_errors(lambda: load_task(folder / "any.ndjson"))


@fuzzed(title=VALUES, steps=st.one_of(VALUES, st.dictionaries(st.text(max_size=4), VALUES)), lengths=VALUES, content=BYTES)
def test_recipes(folder: Path, title: Any, steps: Any, lengths: Any, content: bytes) -> None:
    """Of any values, and of any bytes."""
    file = folder / "r.yaml"
    made = yaml.safe_dump({"title": title, "steps": steps, "lengths": lengths}, allow_unicode=True).encode(errors="replace")
    for data in (made, b"title: x\nsteps:\n" + content):
        file.write_bytes(data)
        only_our_errors(lambda: read_recipe(str(file), folder, "short"))


WORDS = st.one_of(
    st.text(max_size=6), st.sampled_from(["9" * 30, "-1", "nan", "inf", "1e400", "None", "a\0b", "", "--", "[/b]", "\udcff"])
)


@fuzzed(command=st.sampled_from([*COMMANDS]), words=st.lists(WORDS, max_size=3), flag=st.sampled_from(
    ["--seed", "--seeds", "--batch", "--labels", "--out", "--steps", "--epochs", "--width", "--config", "--preset",
     "--learning-rate",
     "--limit", "--nonsense", "--scheme", "--objective"]), value=WORDS)  # fmt: skip
def test_flags(folder: Path, command: str, words: list[str], flag: str, value: str) -> None:
    """Of every command: read, or refused with exit code 2; never run."""
    COMMANDS[command].load()  # importing takes long, once
    with suppress(SystemExit):
        only_our_errors(lambda: read_command([*command.split(), *words, flag, value]))


@fuzzed(name=st.sampled_from(["bundle.json", "tokenizer.json", "weights.safetensors", "selftest.safetensors"]), content=BYTES)
def test_folders_of_bundles(folder: Path, name: str, content: bytes) -> None:
    """One file with other bytes, and the others empty."""
    for file in ("bundle.json", "tokenizer.json", "weights.safetensors", "selftest.safetensors"):
        (folder / file).write_bytes(content if file == name else b"{}")
    only_our_errors(lambda: load_bundle(folder))


@fuzzed(values=VALUES, content=BYTES, suffix=st.sampled_from([".json", ".txt", ".model"]))
def test_files_of_tokenizers(folder: Path, values: Any, content: bytes, suffix: str) -> None:
    """Of the library, of sentencepiece, and word lists."""
    (folder / "t.json").write_text(json.dumps({"model": values, "added_tokens": [], "version": "1.0"}, default=str))
    only_our_errors(lambda: load_tokenizer(folder / "t.json"))
    file = folder / f"u{suffix}"
    file.write_bytes(content)
    only_our_errors(lambda: load_tokenizer(file))


@fuzzed(family=st.sampled_from(["gpt2", "bert", "llama", "modernbert", "esm", "x"]), changes=st.dictionaries(
    st.sampled_from(CONFIG), VALUES, max_size=4))  # fmt: skip
def test_folders_to_import(folder: Path, family: str, changes: dict[str, Any]) -> None:
    """Settings of any values; the tensors are none."""
    (folder / "config.json").write_text(json.dumps({"model_type": family} | changes, default=str))
    from safetensors.torch import save_file

    from helpers.models import SENTENCES
    from warmstart.tokenizer.settings import TokenizerConfig
    from warmstart.tokenizer.train import train_tokenizer

    if not (folder / "tokenizer.json").exists():
        train_tokenizer(SENTENCES, TokenizerConfig(vocab_size=300)).save(folder / "tokenizer.json")
        save_file({}, folder / "model.safetensors")
    only_our_errors(lambda: from_huggingface(folder))


def test_a_few_inputs_of_every_kind(tmp_path: Path) -> None:
    """Ten of each, so that ``make test`` notices what breaks at once."""
    for name, test in list(globals().items()):
        if hasattr(test, "few"):
            (tmp_path / name).mkdir()
            test.few(tmp_path / name)
