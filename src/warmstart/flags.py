"""Which flags of a command are basic and which are advanced, as the metadata of its settings' fields say (``config.Advanced``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import takewhile
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.fields import FieldInfo
from tyro.conf import Positional, Suppress, arg

from warmstart.config import ADVANCED, Config, what_must_hold
from warmstart.errors import ConfigError
from warmstart.registry import Choices, Registry


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
    """what it takes: ``number``, ``a, b or c``"""
    default: str
    """empty if it is required, or has none"""
    help: str
    advanced: bool
    choices: tuple[str, ...] = ()
    """the words that it takes, if they are known"""
    many: bool = False
    """whether it takes several values"""

    @property
    def switch(self) -> bool:
        """Whether it takes no value."""
        return self.values == "yes or no"

    @property
    def number(self) -> bool:
        """Whether it takes numbers only."""
        return not self.choices and {"whole number", "number"} >= {*self.values.removesuffix(" …").split(", or ")} - {"left out"}


def all_flags(settings: type[Config]) -> Iterator[Flag]:
    """Every flag of a command in the order of its settings, those of groups after them."""

    def read(cls: type[Config], prefix: str, values: Config | None, *, advanced: bool) -> Iterator[Flag]:
        groups = []
        for name, field in cls.model_fields.items():
            is_advanced = advanced or ADVANCED in field.metadata
            default = (
                getattr(values, name)
                if values is not None
                else (None if field.is_required() else field.get_default(call_default_factory=True))
            )
            if group := _group(field):
                groups.append((group, _inner(field, name, prefix), default, is_advanced))
            else:
                shown = name.upper() if Positional in field.metadata else _flag(prefix, name, field)
                known = tuple(_choices(field.annotation, field.metadata))
                yield Flag(shown, _values(field), _plain(default), field.description or "", is_advanced, known, _is_list(field))
        for group, inner, default, is_advanced in groups:
            yield from read(group, inner, default, advanced=is_advanced)

    yield from read(settings, "", None, advanced=False)


def refuse_wrong_values(settings: type[Config], words: Sequence[str]) -> None:
    """Raise ``ConfigError`` if the value after a flag has the wrong type, is out of range or no known choice.

    -> ``"--seeds must be at least 1, but is 0"``
    """
    flags = {_flag(prefix, name, field): field for prefix, cls in _groups(settings) for name, field in cls.model_fields.items()}
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
            yield from _groups(group, _inner(field, name, prefix))


def _inner(field: FieldInfo, name: str, prefix: str) -> str:
    """What the flags of a group begin with."""
    inner = _given_name(field, name)
    return f"{prefix}{inner}." if inner else prefix


def _given_name(field: FieldInfo, name: str) -> str:
    """What the command line calls a field: ``arg(name="for")`` or its own name."""
    names = [one.name for one in field.metadata if isinstance(getattr(one, "name", None), str)]
    return names[0] if names else name


def _choices(one: Any, metadata: Sequence[Any] = ()) -> Iterator[str]:
    """The words among which a field chooses: those of a ``Literal``, or of a registry that checks it or stands beside it."""
    for part in metadata:
        table = getattr(getattr(part, "func", None), "__self__", part)
        if isinstance(table, Registry | Choices):
            yield from table
    if get_origin(one) is Literal:
        yield from map(str, get_args(one))
    elif get_origin(one) is Annotated:
        yield from _choices(get_args(one)[0], get_args(one)[1:])
    else:
        for part in get_args(one):
            yield from _choices(part)


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
