"""Which flags of a command are basic and which are advanced, as the metadata of its settings' fields say (``config.Advanced``)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Annotated, Any

from pydantic import create_model
from pydantic.fields import FieldInfo
from tyro.conf import Suppress

from warmstart.config import ADVANCED, Config
from warmstart.errors import ConfigError


def count_flags(settings: type[Config]) -> dict[str, int]:
    """How many ``basic`` and how many ``advanced`` flags these settings give a command; groups count field by field."""
    counts = {"basic": 0, ADVANCED: 0}

    def add(cls: type[Config], *, advanced: bool) -> None:
        for field in cls.model_fields.values():
            is_advanced, group = advanced or ADVANCED in field.metadata, _group(field)
            if group is None:
                counts[ADVANCED if is_advanced else "basic"] += 1
            else:
                add(group, advanced=is_advanced)

    add(settings, advanced=False)
    return counts


def only_basic(settings: type[Config]) -> type[Config]:
    """The same settings without help for their advanced fields, for a short ``--help``; they are not used for parsing."""
    fields: dict[str, Any] = {}
    for name, field in settings.model_fields.items():
        group = _group(field)
        if ADVANCED in field.metadata:
            fields[name] = (Annotated[field.annotation, Suppress], field)
        elif group is not None:
            basic, own = only_basic(group), copy(field)
            own.default = _same_values(basic, field.default)
            fields[name] = (Annotated[(basic, "basic", *field.metadata)], own)  # with its prefix, if it has one
    return create_model(settings.__name__, __base__=settings, __doc__=settings.__doc__, **fields)


def refuse_renamed_flags(settings: type[Config], words: Sequence[str]) -> None:
    """Raise ``ConfigError`` that names the present flag if one of the words is a flag of an earlier version."""
    present, renamed = set[str](), dict[str, str]()

    def collect(cls: type[Config], prefix: str) -> None:
        renamed.update({_flag(prefix, old): _flag(prefix, new) for old, new in cls.all_renamed().items()})
        for name, field in cls.model_fields.items():
            if group := _group(field):
                names = [one.name for one in field.metadata if isinstance(getattr(one, "name", None), str)]
                inner = names[0] if names else name
                collect(group, f"{prefix}{inner}." if inner else prefix)
            else:
                present.add(_flag(prefix, name))

    collect(settings, "")
    for word in words:
        flag = word.split("=")[0].replace("_", "-").replace("--no-", "--")
        if flag in renamed and flag not in present:
            raise ConfigError(f"unknown flag {flag}; it is now {renamed[flag]}")


def _flag(prefix: str, name: str) -> str:
    return f"--{prefix}{name}".replace("_", "-")


def _same_values(cls: type[Config], settings: Config) -> Config:
    """``settings`` as an instance of ``cls``, groups included."""
    values = dict(settings)
    for name, field in cls.model_fields.items():
        if group := _group(field):
            values[name] = _same_values(group, values[name])
    return cls.model_construct(None, **values)


def _group(field: FieldInfo) -> type[Config] | None:
    """The settings class of a field that holds a group of settings."""
    return field.annotation if isinstance(field.annotation, type) and issubclass(field.annotation, Config) else None
