"""Files from strangers never harm: hostile bundles, tokenizers and folders are refused, soon and with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.bundles import language_bundle
from helpers.hostile import all_cases
from helpers.models import make_backbone
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.export import to_huggingface
from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import bundle_contents
from warmstart.model.folder import write_files
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer

HANGS_AFTER = 500
"""seconds, for all cases of a kind: only what never ends takes so long"""


@pytest.fixture(scope="module")
def place(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a sound bundle and a sound model of another library, which the cases damage."""
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "sound" / "bundle").mkdir(parents=True)
    write_files(folder / "sound" / "bundle", bundle_contents(language_bundle(tokenizer)))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, norm_type="rms", activation="swiglu", bias=False)
    model = Model(backbone, fresh_head(LMHeadConfig(bias=False), backbone, 0), causal=True)
    to_huggingface(Bundle(model, tokenizer), folder / "sound" / "import")
    return folder


@pytest.mark.chaos
@pytest.mark.timeout(HANGS_AFTER)
@pytest.mark.parametrize("kind", ["bundles", "tokenizers", "imports"])
def test_hostile_files_are_refused(kind: str, place: Path) -> None:
    """With one of our own errors, in less than 500 MB, without a crash of a library and without hanging; all in one process."""
    command = [sys.executable, "-m", "helpers.hostile", kind, str(place)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    refused = {line["name"] for line in lines if line.get("error") == "WarmstartError" and line["message"].strip()}
    wrong = [line for line in lines if line.get("begins", line.get("name")) not in refused]
    assert {*all_cases(kind)} == refused, f"{wrong} {run.returncode} {run.stderr[-1000:]}"
