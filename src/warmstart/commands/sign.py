"""``sign``: make a pair of keys, sign a saved model, or verify that it is what was signed."""

from __future__ import annotations

from typing import Any

from tyro.conf import Positional

from warmstart.config import Config
from warmstart.console import console
from warmstart.errors import ConfigError
from warmstart.model.signing import new_key, sign, verify


class SignConfig(Config):
    """Sign a saved model, or verify that it is, to the byte, what the holder of a key signed."""

    model: Positional[str] = ""
    """a bundle, a stack, or the folder of a run; none to make keys"""
    key: str | None = None
    """file of the private key to sign with"""
    verify: str | None = None
    """file of the public key of who signed it"""
    new_key: str | None = None
    """file to write a new private key to; the public key, for everyone, is written beside it with the ending .pub"""


def sign_model(config: SignConfig) -> dict[str, Any]:
    """The ``sign`` command; raises ``BundleError`` if a signature does not hold."""
    given = [name for name in ("key", "verify", "new_key") if getattr(config, name) is not None]
    if len(given) != 1 or bool(config.model) == (given == ["new_key"]):
        raise ConfigError("give a MODEL with --key FILE to sign it or with --verify FILE to verify it, or --new-key FILE alone")
    if config.new_key:
        public = new_key(config.new_key)
        console.print(f"private key: {config.new_key} (keep it to yourself)\npublic key: {public} (for everyone)")
        return {"private_key": config.new_key, "public_key": str(public)}
    if config.key:
        signature = sign(config.model, config.key)
        console.print(f"signature: {signature}")
        return {"model": config.model, "signature": str(signature)}
    verify(config.model, str(config.verify))
    console.print(f"{config.model} is what the holder of {config.verify} signed: no file differs.")
    return {"model": config.model, "verified_by": config.verify}
