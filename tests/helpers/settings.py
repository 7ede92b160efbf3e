"""Settings that are no flags, for command lines in tests."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from warmstart.system.storage import sha256


def in_file(**settings: Any) -> list[str]:
    """``--config FILE``, with a file of these settings: ``in_file(train={"clip": 0})``; equal settings are in the same file."""
    content = yaml.safe_dump(settings).encode()
    file = Path(tempfile.gettempdir()) / f"warmstart-{sha256(content)[:16]}.yaml"
    if not file.exists():
        file.write_bytes(content)
    return ["--config", str(file)]
