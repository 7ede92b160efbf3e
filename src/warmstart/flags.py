"""Which flags of a command are basic and which are advanced, as the metadata of its settings' fields say (``config.Advanced``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from tyro.conf import Positional, Suppress, arg

from warmstart.config import ADVANCED, IN_FILE, Config, what_must_hold
from warmstart.errors import ConfigError


def count_flags(settings: type[Config]) -> dict[str, int]:
    """How many ``basic`` and how many ``advanced`` flags these settings give a command; groups count field by field."""
    advanced = [flag.advanced for flag in all_flags(settings)]
    return {"basic": advanced.count(False), ADVANCED: advanced.count(True)}


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


def name_arguments(settings: type[Config]) -> None:
    """Let help and complaints call the arguments without a flag by their names, MODEL and TASK rather than STR."""
    for name, field in settings.model_fields.items():
        if Positional in field.metadata:
            shown = name.removeprefix("more_").upper()
            if _is_list(field):
                shown = shown.removesuffix("S")
                shown = f"{shown} [{shown} ...]" if field.is_required() else f"[{shown} ...]"
            elif not field.is_required():
                shown = f"[{shown}]"
            settings.__annotations__[name] = Annotated[(field.annotation, *field.metadata, arg(metavar=shown))]


@dataclass(frozen=True)
class Flag:
    """One setting of a command, as people write it."""

    name: str
    """``--batch``, or ``TASK`` for an argument without a flag"""
    values: str
    """accepted values: ``number``, ``a, b or c``"""
    default: str
    """empty if it is required, or has none"""
    help: str
    advanced: bool


def all_flags(settings: type[Config]) -> Iterator[Flag]:
    """Every flag of a command in the order of its settings, those of groups after them."""
    for one in _settings(settings):
        if not one.in_file:
            yield one.described(one.path[-1].upper() if Positional in one.field.metadata else one.flag)


def file_settings(settings: type[Config]) -> Iterator[Flag]:
    """What is no flag and stands in the file of ``--config`` alone (``config.InFile``), named as there: ``train.clip``."""
    for one in _settings(settings):
        if one.in_file:
            yield one.described(".".join(one.path))


def settings_file(settings: type[Config]) -> str:
    """All settings of a command as the YAML that ``--config`` reads: each with its default below its help."""

    def lines(cls: type[Config], values: Config | None, indent: str) -> Iterator[str]:
        plain = values.to_dict() if values is not None else {}
        for name, field in cls.model_fields.items():
            default = getattr(values, name) if values is not None else _default(field)
            if group := _group(field):
                yield f"{indent}{name}:"
                yield from lines(group, default, f"{indent}  ")
            else:
                yield f"{indent}# {' '.join((field.description or '').split())}{' (required)' * field.is_required()}"
                written = json.dumps(plain.get(name, default), ensure_ascii=False)
                yield f"{indent}# {name}:" if field.is_required() else f"{indent}{name}: {written}"

    return "\n".join(lines(settings, None, ""))


def refuse_wrong_values(settings: type[Config], words: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the value after a flag has the wrong type, is out of range or no known choice, or if it is no flag.

    -> ``"--seeds must be at least 1, but is 0"``
    """
    known = {one.flag: one for one in _settings(settings)}
    for at, word in enumerate(words):
        flag, equals, first = word.partition("=")
        name = flag.replace("_", "-")
        rest = [*takewhile(lambda one: not one.startswith("--"), words[at + 1 :])]
        given: Any = [first, *rest] if equals else rest
        if (switch := known.get(re.sub(r"(--|\.)no-", r"\1", name))) and switch.in_file:
            written = "false" if name not in known else given[0] if given else "true" if _is_switch(switch.field) else "…"
            raise ConfigError(f"{flag} is no flag; write `{_nested(switch.path, written)}` into a file, and give --config FILE")
        if name not in known or _is_switch(field := known[name].field) or not given or given[0] == "None":
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


def _nested(path: Sequence[str], value: str) -> str:
    """A setting as it stands in a file: ``train: {clip: 0.5}``."""
    *groups, name = path
    return "".join(f"{group}: {{" for group in groups) + f"{name}: {value}" + "}" * len(groups)


@dataclass(frozen=True)
class _Setting:
    """One field of the settings of a command or of a group in them."""

    path: tuple[str, ...]
    """its keys in the file of settings"""
    flag: str
    field: FieldInfo
    default: Any
    advanced: bool
    in_file: bool

    def described(self, name: str) -> Flag:
        """As people write it."""
        return Flag(name, _values(self.field), _plain(self.default), self.field.description or "", self.advanced)


def _settings(cls: type[Config], above: _Setting | None = None, prefix: str = "") -> Iterator[_Setting]:
    """Every setting, those of groups after the others."""
    groups = []
    for name, field in cls.model_fields.items():
        found = _Setting(
            (*(above.path if above else ()), name),
            _flag(prefix, name, field),
            field,
            getattr(above.default, name) if above else _default(field),
            ADVANCED in field.metadata or (above is not None and above.advanced),
            IN_FILE in field.metadata or (above is not None and above.in_file),
        )
        if group := _group(field):
            groups.append((group, found, _inner(field, name, prefix)))
        else:
            yield found
    for group, found, inner in groups:
        yield from _settings(group, found, inner)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _inner(field: FieldInfo, name: str, prefix: str) -> str:
    """What the flags of a group begin with."""
    inner = _given_name(field, name)
    return f"{prefix}{inner}." if inner else prefix


def _given_name(field: FieldInfo, name: str) -> str:
    """What the command line calls a field: ``arg(name="for")`` or its own name."""
    names = [one.name for one in field.metadata if isinstance(getattr(one, "name", None), str)]
    return names[0] if names else name


_NAMES = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "NoneType": "left out"}


def _values(field: FieldInfo) -> str:
    """What a field takes, in words: ``"whole number, or none"``."""
    return _described(field.annotation)


def _described(one: Any) -> str:
    origin, inside = get_origin(one), get_args(one)
    if origin in (Union, UnionType):
        return ", or ".join(dict.fromkeys(_described(part) for part in inside))
    if origin is Literal:
        return ", ".join(map(str, inside))
    if origin is Annotated:
        return _described(inside[0])
    if origin is tuple:
        return f"{_described(inside[0])} …"
    if origin is dict:
        return "names and values"
    return _NAMES.get(getattr(one, "__name__", ""), str(getattr(one, "__name__", one)))


def _plain(default: Any) -> str:
    """A default as it is typed."""
    if isinstance(default, tuple):
        return " ".join(map(_plain, default))
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "" if default is None else f"{default:g}" if isinstance(default, float) else str(default)


def _types(field: FieldInfo) -> list[Any]:
    """The type of a field, or the types of a union, without None."""
    members = get_args(field.annotation) if get_origin(field.annotation) in (Union, UnionType) else [field.annotation]
    return [one for one in members if one is not type(None)]


def _is_switch(field: FieldInfo) -> bool:
    return bool in _types(field)


def _is_list(field: FieldInfo) -> bool:
    return any(get_origin(one) is tuple for one in _types(field))


def _flag(prefix: str, name: str, field: FieldInfo) -> str:
    return f"--{prefix}{_given_name(field, name)}".replace("_", "-")


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
