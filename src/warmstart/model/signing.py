"""Signatures of saved models: who holds a public key sees that a bundle or a stack is, to the byte, what its maker signed.

    signature.json     in the model's folder: the Ed25519 signature (RFC 8032) of the hash of all other files and their names

Hashes inside a bundle show damage, not a forger, who writes new ones. The arithmetic is that of the library ``cryptography``
(``pip install 'warmstart[sign]'``). Hidden files are not read, and not signed. Nothing is known here of whose key a key is.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from warmstart.errors import BundleError, ConfigError
from warmstart.limits import MANIFEST_BYTES, parse_json
from warmstart.model.files import MANIFESTS, find_bundle, saved_as
from warmstart.storage import atomic_write, file_sha256, inside, read_inside, sha256

SIGNATURE = "signature.json"
"""file of the signature"""
_CONTEXT = b"warmstart model, version 1: "
"""begins what is signed, so that the signature of nothing else can be taken for one of a model"""


def new_key(file: str | Path) -> Path:
    """Write a new private key to ``file``, readable by its owner alone, and its public key to ``file`` with ``.pub``; returns that.

    Raises ``ConfigError`` if one of the two exists.
    """
    serialization, ed25519 = _library()
    private, public = Path(file), Path(f"{file}.pub")
    if private.exists() or public.exists():
        raise ConfigError(f"{private} or {public} exists, and a key is never overwritten; choose another file")
    key = ed25519.Ed25519PrivateKey.generate()
    plain, pem = serialization.NoEncryption(), serialization.Encoding.PEM
    with os.fdopen(os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    atomic_write(public, key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo), "the public key")
    return public


def sign(bundle: str | Path, key: str | Path) -> Path:
    """Sign a saved model with the private key in a file; returns the file of the signature, which replaces an older one.

    Raises ``BundleError`` if there is no model, and ``ConfigError`` if the file holds no private Ed25519 key.
    """
    serialization, ed25519 = _library()
    folder = _model(bundle)
    private = _key(key, lambda data: serialization.load_pem_private_key(data, None), ed25519.Ed25519PrivateKey, "private")
    signature = base64.b64encode(private.sign(_CONTEXT + files_digest(folder).encode())).decode()
    atomic_write(folder / SIGNATURE, json.dumps({"algorithm": "ed25519", "signature": signature}).encode(), "the signature")
    return folder / SIGNATURE


def verify(bundle: str | Path, public_key: str | Path) -> None:
    """Check a saved model against the public key in a file.

    Raises ``BundleError`` if it is not signed, or if this key did not sign these files: one changed, is missing or was added.
    """
    serialization, ed25519 = _library()
    folder = _model(bundle)
    public = _key(public_key, serialization.load_pem_public_key, ed25519.Ed25519PublicKey, "public")
    try:
        found = parse_json(read_inside(folder, SIGNATURE, MANIFEST_BYTES))
        signature = base64.b64decode(found["signature"], validate=True)
    except FileNotFoundError:
        raise BundleError(f"{folder} is not signed: it has no {SIGNATURE}; ask its maker to run `warmstart sign`") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{folder / SIGNATURE} must hold a signature, but does not ({error}); copy it again") from None
    from cryptography.exceptions import InvalidSignature

    try:
        public.verify(signature, _CONTEXT + files_digest(folder).encode())
    except InvalidSignature:
        raise BundleError(
            f"{folder} is not what the holder of {public_key} signed: it was changed, or signed with another key; do not use it"
        ) from None


def files_digest(folder: Path) -> str:
    """A hash of the names and contents of all files of a saved model but hidden ones and the signature."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir() or file.is_symlink())
    kept = [name for name in names if name != SIGNATURE and not any(part.startswith(".") for part in name.split("/"))]
    try:
        return sha256(json.dumps([[name, file_sha256(inside(folder, name))] for name in kept]).encode())
    except ValueError as error:
        raise BundleError(f"a model must hold ordinary files alone to be signed or verified, but {error}; remove it") from None


def _model(path: str | Path) -> Path:
    folder = find_bundle(path)
    if not saved_as(folder):
        raise BundleError(f"there is no saved model at {folder}: a folder with {' or '.join(MANIFESTS)} was expected")
    return folder


def _key(file: str | Path, load: Any, wanted: type, kind: str) -> Any:
    try:
        key = load(Path(file).read_bytes())
    except OSError as error:
        raise ConfigError(f"cannot read the key {file}: {error.strerror}") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, wanted):
        raise ConfigError(f"{file} must hold a {kind} Ed25519 key (PEM), but does not; `warmstart sign --new-key FILE` makes two")
    return key


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError("signatures need cryptography, which is not installed; pip install 'warmstart[sign]'") from None
    return serialization, ed25519
