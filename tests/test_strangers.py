"""Files from strangers never harm: hostile bundles, tokenizers and folders are refused, soon and with little memory."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from helpers.bundles import language_bundle
from helpers.hostile import all_cases
from helpers.models import make_backbone
from warmstart.heads.language_modeling import LMHeadConfig
from warmstart.interop.export import to_huggingface
from warmstart.model.bundle import Bundle
from warmstart.model.files import bundle_contents, write_files
from warmstart.model.model import Model, fresh_head
from warmstart.tokenizer.tokenizer import Tokenizer

KINDS = ("bundles", "tokenizers", "imports")
HANGS_AFTER = 500
"""seconds, for all cases of a kind: only what never ends takes so long"""


@pytest.fixture(scope="session")
def outcomes(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What came of every case of a kind, by its name; read in one process, whose memory is limited."""
    place = tmp_path_factory.mktemp("strangers")
    (place / "sound" / "bundle").mkdir(parents=True)
    write_files(place / "sound" / "bundle", bundle_contents(language_bundle(tokenizer)))
    backbone = make_backbone(vocab_size=tokenizer.vocab_size, norm_type="rms", activation="swiglu", bias=False)
    model = Model(backbone, fresh_head(LMHeadConfig(bias=False), backbone, 0), causal=True)
    to_huggingface(Bundle(model, tokenizer), place / "sound" / "import")

    @cache
    def read_all(kind: str) -> dict[str, dict[str, Any]]:
        command = [sys.executable, "-m", "helpers.hostile", kind, str(place)]
        folder = Path(__file__).parent
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=HANGS_AFTER)
            output, end = run.stdout, f"exit code {run.returncode}: {run.stderr[-1000:]}"
        except subprocess.TimeoutExpired as hung:
            output, end = (hung.stdout or b"").decode(), "it did not end"
        lines = [json.loads(line) for line in output.splitlines()]
        found = {line["name"]: line for line in lines if "name" in line}
        if found:  # shown by `pytest -s`
            name = max(found, key=lambda one: found[one]["seconds"])
            print(f"{kind}: {len(found)} files, at most {found[name]['seconds']:.1f} processor seconds for one ({name})")
        return {line["begins"]: {"error": "", "message": end} for line in lines if "begins" in line} | found

    return read_all


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in all_cases(kind)])
def test_hostile_files_are_refused(kind: str, name: str, outcomes: Any) -> None:
    """With one of our own errors, in less than 500 MB, without a crash of a library and without hanging."""
    found = outcomes(kind).get(name, {"error": "", "message": "an earlier case ended the process"})
    assert found["error"] == "WarmstartError", f"{name}: {found}"
    assert found["message"].strip()
