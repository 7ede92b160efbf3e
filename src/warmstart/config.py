"""Settings: small frozen types, validated, read from YAML, written back to YAML.

``Config`` is the base of every settings class. A string under each field is its help, on the command line and in the docs.
Unknown keys are errors with a suggestion. This file knows nothing about what the settings mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from warmstart.errors import ConfigError, suggest

C = TypeVar("C", bound="Config")


class Config(BaseModel):
    """A frozen group of settings: unknown keys are refused, defaults are validated."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True, protected_namespaces=()
    )

    @classmethod
    def build(cls: type[C], values: dict[str, Any], where: str = "settings") -> C:
        """The settings in ``values``; raises ``ConfigError`` naming the key, the value and the nearest known key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            lines = [explain(cls, problem) for problem in error.errors()]
            raise ConfigError(f"{where}: " + "; ".join(lines)) from None

    def plain(self) -> dict[str, Any]:
        """The settings as plain values (numbers, strings, lists, dictionaries), fit for JSON and YAML."""
        return self.model_dump(mode="json")


def explain(cls: type[Config], problem: Any) -> str:
    """What one of pydantic's problems with settings means: the key, what must hold, and the value that came."""
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{place}'; {suggest(str(problem['loc'][-1]), _keys_at(cls, problem['loc'][:-1]))}"
    if problem["type"] == "missing":
        return f"key '{place}' is required"
    message = problem["msg"].removeprefix("Value error, ")
    return f"'{place}' {message} (got {problem['input']!r})" if place else message


def _keys_at(cls: Any, path: tuple[int | str, ...]) -> list[str]:
    for part in path:
        field = getattr(cls, "model_fields", {}).get(part)
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        cls = next((kind for kind in kinds if hasattr(kind, "model_fields")), cls)
    return list(cls.model_fields)


def read_yaml(path: str | os.PathLike[str], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The mapping in a YAML file, with ``${NAME}`` and ``${NAME:-default}`` replaced from ``names`` or the environment."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no such file: {file} (a YAML file with settings was expected)") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from None
    try:
        values = yaml.safe_load(expand(text, str(file), names or {}))
    except yaml.YAMLError as error:
        raise ConfigError(f"{file} is not valid YAML: {str(error).replace(chr(10), ' ')}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{file} must hold 'key: value' settings, but holds {type(values).__name__}")
    return values


def expand(text: str, where: str, names: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` by what ``names`` or the environment says; unset without default is an error."""

    def value(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        found = names.get(name, os.environ.get(name, default))
        if found is None:
            raise ConfigError(f"{where} uses ${{{name}}}, but the environment variable {name} is not set; set it")
        return found

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", value, text)
