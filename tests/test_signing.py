"""A signed model is what its maker signed: whatever differs by a byte, or was signed by another, is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.bundles import language_bundle
from helpers.hostile import manifest
from warmstart.cli import main
from warmstart.errors import BundleError, ConfigError
from warmstart.model.files import bundle_contents, load_bundle, write_files
from warmstart.model.signing import SIGNATURE, files_digest, new_key, sign, verify
from warmstart.tokenizer.tokenizer import Tokenizer


@pytest.fixture
def bundle(tokenizer: Tokenizer, tmp_path: Path) -> Path:
    """A saved model, and a pair of keys beside it."""
    (tmp_path / "model").mkdir()
    write_files(tmp_path / "model", bundle_contents(language_bundle(tokenizer)))
    new_key(tmp_path / "key")
    return tmp_path / "model"


def test_a_signed_model_verifies_and_loads(bundle: Path, tmp_path: Path) -> None:
    """In the folder of its run too, and signed anew after a change; the private key is its owner's alone."""
    assert sign(bundle, tmp_path / "key") == bundle / SIGNATURE
    verify(bundle, tmp_path / "key.pub")
    assert load_bundle(bundle, selftest=True)
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    (bundle / "README.md").write_text("Another card.")
    (bundle / ".hidden").write_text("not read by anything")
    sign(bundle, tmp_path / "key")
    verify(bundle, tmp_path / "key.pub")


CHANGES: dict[str, Callable[[Path], object]] = {
    "a setting, with its digest made right": manifest("labels", to=["x"]),
    "a byte of the weights": lambda folder: (folder / "weights.safetensors").write_bytes(
        (folder / "weights.safetensors").read_bytes()[:-1] + b"\x01"
    ),
    "the card": lambda folder: (folder / "README.md").write_text("Trust me."),
    "a file more": lambda folder: (folder / "more.txt").write_text("x"),
    "a file less": lambda folder: (folder / "README.md").unlink(),
    "a file of another name": lambda folder: (folder / "README.md").rename(folder / "readme.md"),
    "another signature": lambda folder: (folder / SIGNATURE).write_text('{"signature": "AAAA"}'),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_model_that_was_changed_does_not_verify(name: str, bundle: Path, tmp_path: Path) -> None:
    """Even if every hash inside it was computed anew, which a forger can do."""
    sign(bundle, tmp_path / "key")
    CHANGES[name](bundle)
    with pytest.raises(BundleError, match=r"is not what the holder of .*key\.pub signed"):
        verify(bundle, tmp_path / "key.pub")


def test_another_key_does_not_verify(bundle: Path, tmp_path: Path) -> None:
    """Nor does a model without a signature, or with something else in its place."""
    new_key(tmp_path / "other")
    with pytest.raises(BundleError, match=r"is not signed: it has no signature\.json"):
        verify(bundle, tmp_path / "key.pub")
    sign(bundle, tmp_path / "other")
    with pytest.raises(BundleError, match="or signed with another key"):
        verify(bundle, tmp_path / "key.pub")
    for wrong in ("[]", "{}", "[" * 100_000, '{"signature": "no base 64!"}', '{"signature": 7}'):
        (bundle / SIGNATURE).write_text(wrong)
        with pytest.raises(BundleError, match="must hold a signature"):
            verify(bundle, tmp_path / "key.pub")
    (bundle / "link").symlink_to("/etc/passwd")
    with pytest.raises(BundleError, match="must hold ordinary files alone"):
        files_digest(bundle)


def test_wrong_keys_are_named(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public key does not sign, a private one does not verify, and no key is overwritten; a missing library is named."""
    with pytest.raises(ConfigError, match=r"key\.pub must hold a private Ed25519 key"):
        sign(bundle, tmp_path / "key.pub")
    with pytest.raises(ConfigError, match="must hold a public Ed25519 key"):
        verify(bundle, tmp_path / "key")
    with pytest.raises(ConfigError, match="cannot read the key"):
        sign(bundle, tmp_path / "nothing")
    with pytest.raises(ConfigError, match="a key is never overwritten"):
        new_key(tmp_path / "key")
    with pytest.raises(BundleError, match="there is no saved model"):
        sign(tmp_path, tmp_path / "key")
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ConfigError, match=r"pip install 'warmstart\[sign\]'"):
        sign(bundle, tmp_path / "key")


def test_the_command(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Keys, signature, verification; exit code 2 if it fails, and for words that do not say what to do."""
    key = str(tmp_path / "mine")
    assert main(["sign", "--new-key", key]) == 0
    assert main(["sign", str(bundle), "--key", key]) == 0
    assert main(["sign", str(bundle), "--verify", f"{key}.pub"]) == 0
    assert "no file differs" in capsys.readouterr().err
    (bundle / "README.md").write_text("Trust me.")
    assert main(["sign", str(bundle), "--verify", f"{key}.pub"]) == 2
    assert "is not what the holder" in capsys.readouterr().err
    for words in ([], [str(bundle)], ["--key", key], [str(bundle), "--new-key", key], [str(bundle), "--key", key, "--verify", key]):
        assert main(["sign", *words]) == 2
