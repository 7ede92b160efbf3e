"""Which flags of a command are basic and which are advanced, as the metadata of its settings' fields say (``config.Advanced``)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import takewhile
from shutil import get_terminal_size
from textwrap import wrap
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from tyro.conf import Positional, UseAppendAction, arg

from warmstart.config import ADVANCED, IN_FILE, Config, what_must_hold
from warmstart.errors import ConfigError


def count_flags(settings: type[Config]) -> dict[str, int]:
    """Numbers of ``basic`` and ``advanced`` flags that these settings give a command; groups count field by field."""
    advanced = [flag.advanced for flag in all_flags(settings)]
    return {"basic": advanced.count(False), ADVANCED: advanced.count(True)}


def name_arguments(settings: type[Config]) -> None:
    """Let complaints call the arguments without a flag by their names, MODEL and TASK rather than STR."""
    for name, field in settings.model_fields.items():
        if Positional in field.metadata:
            settings.__annotations__[name] = Annotated[(field.annotation, *field.metadata, arg(metavar=_argument(name, field)))]


def _argument(name: str, field: FieldInfo) -> str:
    """The argument of a setting in the usage: ``MODEL``, ``[POOL ...]``, ``TEXT [TEXT ...]``."""
    shown = name.removeprefix("more_").replace("_", "-").upper()
    if _is_list(field):
        shown = shown.removesuffix("S")
        return f"{shown} [{shown} ...]" if field.is_required() else f"[{shown} ...]"
    return shown if field.is_required() else f"[{shown}]"


WIDEST = 100
"""characters of a line of help; a narrower terminal has narrower lines"""
INDENT = 24
"""characters before the help of a flag"""


def command_help(settings: type[Config], program: str, *, everything: bool) -> str:
    """The usage of a command and its flags: the basic ones, each with what its help says first, or all of them in full."""
    width = min(WIDEST, get_terminal_size().columns)
    shown = (setting for setting in _settings(settings) if not setting.in_file and (everything or not setting.advanced))
    flags = sorted(shown, key=lambda setting: Positional not in setting.field.metadata)
    required = [setting.typed() for setting in flags if setting.field.is_required() or Positional in setting.field.metadata]
    lines = [f"usage: {' '.join([program, *required, '[options]'])}", "", *wrap(settings.__doc__ or "", width), ""]
    for setting in flags:
        help_text = " ".join((setting.field.description or "").split())
        words = setting.described("").default
        help_text = help_text if everything else help_text.partition("; ")[0]
        default = f" [default: {words}]" if words not in ("", "no") and "default" not in help_text else ""
        typed, *more = wrap(help_text + default, width - INDENT, break_on_hyphens=False) or [""]
        name = f"  {setting.typed()}"
        lines += [f"{name:<{INDENT}}{typed}"] if len(name) < INDENT else [name, " " * INDENT + typed]
        lines += [" " * INDENT + line for line in more]
    return "\n".join(lines)


@dataclass(frozen=True)
class Flag:
    """A flag of a command, as people write it."""

    name: str
    """``--batch``, or ``TASK`` for an argument without a flag"""
    values: str
    """accepted values: ``number``, ``a, b or c``"""
    default: str
    """default as it is typed; empty if the setting is required, or has none"""
    help: str
    advanced: bool


def all_flags(settings: type[Config]) -> Iterator[Flag]:
    """Every flag of a command in the order of its settings, those of groups after them."""
    for setting in _settings(settings):
        if not setting.in_file:
            yield setting.described(setting.path[-1].upper() if Positional in setting.field.metadata else setting.flag)


def file_settings(settings: type[Config]) -> Iterator[Flag]:
    """The settings without a flag, for the file of ``--config`` alone (``config.InFile``), named as there: ``train.clip``."""
    for setting in _settings(settings):
        if setting.in_file:
            yield setting.described(".".join(setting.path))


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


def refuse_wrong_values(settings: type[Config], words: Sequence[str], elsewhere: Sequence[str] = ()) -> None:
    """Raise ``ConfigError`` if the value after a flag has the wrong type, is out of range or no known choice, or if it is no flag.

    Flags that are read ``elsewhere`` are passed over. -> ``"--seeds must be at least 1, but is 0"``
    """
    known = {setting.flag: setting for setting in _settings(settings)}
    for at, word in enumerate(words):
        flag, equals, first = word.partition("=")
        name = flag.replace("_", "-")
        rest = [*takewhile(lambda argument: not argument.startswith("--"), words[at + 1 :])]
        value: Any = [first, *rest] if equals else rest
        if (switch := known.get(re.sub(r"(--|\.)no-", r"\1", name))) and switch.in_file:
            written = "false" if name not in known else value[0] if value else "true" if _is_switch(switch.field) else "…"
            raise ConfigError(f"{flag} is no flag; write `{_nested(switch.path, written)}` into a file for --config")
        if word.startswith("--") and word != "--" and not switch and name not in (*known, *elsewhere):
            near = [key for key in known if len(name) > 4 and name[2:] in key] or get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"there is no flag {flag}; {meant}--help-all lists all")
        if name not in known or _is_switch(field := known[name].field) or value[:1] == ["None"] or (_listed(field) and not value):
            continue
        if not value:
            raise ConfigError(f"{flag} needs a value after it")
        if not _is_list(field):
            value = value[0]
        checked: Any = Annotated[field.annotation, field]
        try:
            TypeAdapter(checked).validate_python(value)
        except ValidationError as error:
            problem = error.errors()[0]
            came = problem["input"] if problem["loc"] or not _is_list(field) else " ".join(value)
            raise ConfigError(f"{flag} {what_must_hold(problem)}, but is {came}") from None


def complaint(settings: type[Config], program: str, box: str) -> str:
    """What the box says that is drawn around missing and surplus words: the words, and what is expected in their place."""
    said = " ".join(re.sub(r"^[\s│╭╰|+]+|[\s│╮╯|+]+$|[─-]{3,}", " ", box, flags=re.MULTILINE).split())
    wanted = [one for one in _settings(settings) if one.field.is_required() or Positional in one.field.metadata]
    usage = f"`{' '.join([program, *(one.typed() for one in wanted)])}`"
    if extra := re.search(r"Unrecognized options: (.+?) For full", said):
        return f"there is no place for '{extra[1]}' in {usage}; a text or name with blanks needs quotes; see {program} --help"
    if missing := [
        one for one in wanted if one.field.is_required() and re.search(rf"\s{re.escape(one.typed().split()[0])}\b", said)
    ]:
        means = " ".join((missing[0].field.description or "").split()).partition("; ")[0]
        return f"{missing[0].typed().split()[0]} is missing in {usage}: {means}; see {program} --help"
    return said


def _nested(path: Sequence[str], value: str) -> str:
    """A setting as it stands in a file: ``train: {clip: 0.5}``."""
    *groups, name = path
    return "".join(f"{group}: {{" for group in groups) + f"{name}: {value}" + "}" * len(groups)


@dataclass(frozen=True)
class _Setting:
    """A field of the settings of a command or of a group in them."""

    path: tuple[str, ...]
    """keys of the setting in the file of settings"""
    flag: str
    field: FieldInfo
    default: Any
    advanced: bool
    in_file: bool

    def typed(self) -> str:
        """The flag with its argument: ``--minutes N``, ``--metric {accuracy,macro_f1}``, ``--random-sample``, ``POOL``."""
        if Positional in self.field.metadata:
            return _argument(self.path[-1], self.field)
        if _is_switch(self.field):
            return re.sub(r"^--", "--[no-]", self.flag) if self.default is True else self.flag
        several = " ..." * _listed(self.field)
        choices = [choice for kind in _types(self.field) if get_origin(kind) is Literal for choice in get_args(kind)]
        name = "N" if {int, float} & {*_types(self.field)} else self.flag.rpartition("-")[2].rpartition(".")[2].upper()
        shown = f"{{{','.join(map(str, choices))}}}" if choices else name
        return f"{self.flag} {shown.removesuffix('S') if several else shown}{several}"

    def described(self, name: str) -> Flag:
        """The setting as a ``Flag`` of this name."""
        return Flag(name, _values(self.field), _plain(self.default), self.field.description or "", self.advanced)


def _settings(cls: type[Config], above: _Setting | None = None, prefix: str = "") -> Iterator[_Setting]:
    """Every setting, those of groups after the others."""
    groups = []
    for name, field in cls.model_fields.items():
        setting = _Setting(
            (*(above.path if above else ()), name),
            _flag(prefix, name, field),
            field,
            getattr(above.default, name) if above else _default(field),
            ADVANCED in field.metadata or (above is not None and above.advanced),
            IN_FILE in field.metadata or (above is not None and above.in_file),
        )
        if group := _group(field):
            groups.append((group, setting, _inner(field, name, prefix)))
        else:
            yield setting
    for group, setting, inner in groups:
        yield from _settings(group, setting, inner)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _inner(field: FieldInfo, name: str, prefix: str) -> str:
    """The prefix of the flags of a group."""
    inner = _given_name(field, name)
    return f"{prefix}{inner}." if inner else prefix


def _given_name(field: FieldInfo, name: str) -> str:
    """The command line's name of a field: ``arg(name="for")`` or its own name."""
    names = [mark.name for mark in field.metadata if isinstance(getattr(mark, "name", None), str)]
    return names[0] if names else name


_NAMES = {"str": "text", "int": "whole number", "float": "number", "bool": "yes or no", "NoneType": "left out"}


def _values(field: FieldInfo) -> str:
    """The accepted values of a field in words: ``"whole number, or none"``."""
    return _described(field.annotation)


def _described(kind: Any) -> str:
    origin, inside = get_origin(kind), get_args(kind)
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
    return _NAMES.get(getattr(kind, "__name__", ""), str(getattr(kind, "__name__", kind)))


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
    return [kind for kind in members if kind is not type(None)]


def _is_switch(field: FieldInfo) -> bool:
    return bool in _types(field)


def _is_list(field: FieldInfo) -> bool:
    return any(get_origin(kind) is tuple for kind in _types(field))


def _listed(field: FieldInfo) -> bool:
    """True if several values may follow a flag, which for others is repeated."""
    return _is_list(field) and UseAppendAction not in field.metadata


def _flag(prefix: str, name: str, field: FieldInfo) -> str:
    return f"--{prefix}{_given_name(field, name)}".replace("_", "-")


def _group(field: FieldInfo) -> type[Config] | None:
    """The settings class of a field that holds a group of settings."""
    return field.annotation if isinstance(field.annotation, type) and issubclass(field.annotation, Config) else None
