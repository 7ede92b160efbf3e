"""Which flags of a command are basic and which are advanced, as the metadata of its settings' fields say (``config.Advanced``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import takewhile
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from tyro.conf import Suppress

from warmstart.config import ADVANCED, Config, what_must_hold
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
    for prefix, cls in _groups(settings):
        renamed.update({_flag(prefix, old): _flag(prefix, new) for old, new in cls.all_renamed().items()})
        present.update(_flag(prefix, name) for name, field in cls.model_fields.items() if not _group(field))
    for word in words:
        flag = word.split("=")[0].replace("_", "-").replace("--no-", "--")
        if flag in renamed and flag not in present:
            raise ConfigError(f"unknown flag {flag}; it is now {renamed[flag]}")


def refuse_wrong_values(settings: type[Config], words: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the value after a flag has the wrong type, is out of range or no known choice.

    -> ``"--seeds must be at least 1, but is 0"``
    """
    flags = {_flag(prefix, name): field for prefix, cls in _groups(settings) for name, field in cls.model_fields.items()}
    for at, word in enumerate(words):
        flag, equals, first = word.partition("=")
        field = flags.get(flag.replace("_", "-"))
        if field is None or _group(field) or _is_switch(field):
            continue
        rest = [*takewhile(lambda one: not one.startswith("--"), words[at + 1 :])]
        given: Any = [first, *rest] if equals else rest
        if not given or given[0] == "None":
            continue
        if not _is_list(field):
            given = given[0]
        checked: Any = Annotated[field.annotation, field]
        try:
            TypeAdapter(checked).validate_python(given)
        except ValidationError as error:
            problem = error.errors()[0]
            came = problem["input"] if problem["loc"] or not _is_list(field) else " ".join(given)
            raise ConfigError(f"{flag} {what_must_hold(problem)}, but is {came}") from None


def _groups(settings: type[Config], prefix: str = "") -> Iterator[tuple[str, type[Config]]]:
    """The settings and every group in them, each with the prefix of its flags."""
    yield prefix, settings
    for name, field in settings.model_fields.items():
        if group := _group(field):
            names = [one.name for one in field.metadata if isinstance(getattr(one, "name", None), str)]
            inner = names[0] if names else name
            yield from _groups(group, f"{prefix}{inner}." if inner else prefix)


def _types(field: FieldInfo) -> list[Any]:
    """The type of a field, or the types of a union, without None."""
    members = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else [field.annotation]
    return [one for one in members if one is not type(None)]


def _is_switch(field: FieldInfo) -> bool:
    return bool in _types(field)


def _is_list(field: FieldInfo) -> bool:
    return any(get_origin(one) is tuple for one in _types(field))


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
