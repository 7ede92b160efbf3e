"""Settings: small frozen types, validated, read from YAML, written back to YAML.

``Config`` is the base of every settings class. A string under each field is its help, on the command line and in the docs.
Unknown keys are errors with a suggestion. This file knows what no setting means but the number of threads.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tyro.conf import Fixed, Suppress

from warmstart.errors import ConfigError, nearest_path, suggest
from warmstart.system.limits import YAML_BYTES, YAML_VALUES
from warmstart.system.storage import sha256

C = TypeVar("C", bound="Config")
T = TypeVar("T")

ADVANCED = "advanced"
"""marks a setting that ``--help`` leaves out and ``--help-all`` shows; every other setting is basic"""
Advanced = Annotated[T, ADVANCED]
"""the type of an advanced setting: ``clip: Advanced[float] = 1.0``"""
IN_FILE = "in a file"
"""marks a setting without a flag: it is read from ``--config FILE``, or given in Python"""
InFile = Annotated[T, IN_FILE, Fixed, Suppress]
"""the type of such a setting, or of a group of them: ``clip: InFile[float] = 1.0``"""
EFFECTLESS = "effectless"
"""marks a setting that changes no result: where it is written, or how it is computed"""
Effectless = Annotated[T, EFFECTLESS]
"""the type of such a setting: ``out: Effectless[str] = "runs/race"``; of one that is advanced too: ``Effectless[Advanced[int]]``"""
NAMES_FILES, NAMES_TASKS = "names files", "names tasks"
"""mark a setting that names files, folders, globs or models, or manifests of tasks: what they hold counts, too"""
FileInput = Annotated[T, NAMES_FILES]
"""the type of such a setting, in which a word that is no file may stand too: ``pool: FileInput[str] = "rest"``"""
TaskInput = Annotated[T, NAMES_TASKS]
"""the type of a setting that names manifests of tasks, or anything else that ``load_task`` reads"""


class Config(BaseModel):
    """A frozen group of settings: unknown keys are refused, defaults are validated."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True, protected_namespaces=()
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("; ".join(explain(type(self), problem) for problem in error.errors())) from None

    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # groups inside are validated without it, with their path

    @classmethod
    def build(cls: type[C], values: dict[str, Any], where: str = "settings") -> C:
        """The settings in ``values``. Raises ``ConfigError`` that names the key, the value and the nearest known key."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            lines = [explain(cls, problem) for problem in error.errors()]
            raise ConfigError(f"{where}: " + "; ".join(lines)) from None

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values (numbers, strings, lists, dictionaries), fit for JSON and YAML."""
        return self.model_dump(mode="json")

    def effective(self) -> dict[str, Any]:
        """The settings that change the result, as plain values."""
        values, fields = self.to_dict(), type(self).model_fields
        groups = {name: group.effective() for name in fields if isinstance(group := getattr(self, name), Config)}
        return {name: value for name, value in (values | groups).items() if EFFECTLESS not in fields[name].metadata}


class ThreadsConfig(Config):
    """Settings of a command that chooses its number of threads."""

    threads: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """number of threads; default: one for each core that is free. config.yaml records it: the same number repeats a run exactly"""


def result_key(*made_of: Any) -> str:
    """A hash of all that a result depends on: settings, of which those count that have an effect, and plain values.

    Plain values are those that settings alone do not say: the digests of files, texts and models that they name.
    """
    known = [[command_name(part), part.effective()] if isinstance(part, Config) else part for part in made_of]
    return sha256(json.dumps(known, sort_keys=True).encode())


def command_name(config: Config) -> str:
    """The command whose settings these are: that of ``StudyLabConfig`` is ``study lab``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(config).__name__.removesuffix("Config")).lower()


def setting_paths(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting with its path: ``{"train": {"tokens": 5}}`` has ``("train.tokens", 5)``."""
    for name, value in settings.items():
        yield from setting_paths(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]


def explain(cls: type[Config], problem: Any) -> str:
    """One of pydantic's error entries as a sentence: the key, what it must be, and the value given."""
    path = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        owner, key = _settings_at(cls, problem["loc"][:-1]), str(problem["loc"][-1])
        return f"unknown key '{path}'; {suggest(key, owner.model_fields)}"
    if problem["type"] == "missing":
        return f"key '{path}' is required"
    wanted = what_must_hold(problem)
    return f"'{path}' {wanted}, but is {problem['input']!r}" if path else wanted


_WANTED = {
    "greater_than": "must be greater than {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be less than {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "finite_number": "must be a finite number",
    "too_short": "must name at least {min_length}",
    "too_long": "must name at most {max_length}",
    "string_pattern_mismatch": "must match {pattern}",
    "string_too_short": "must have at least {min_length} characters",
    "literal_error": "must be {expected}",
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "tuple": "must be a list",
    "model": "must be a group of settings ('key: value')",
}
"""requirements by pydantic's name of the error, or by the type that was expected"""


def what_must_hold(problem: Any) -> str:
    """The requirement of pydantic's error entry: ``must be at least 1``."""
    template = _WANTED.get(problem["type"]) or _WANTED.get(problem["type"].split("_")[0])
    return template.format(**problem.get("ctx", {})) if template else problem["msg"].removeprefix("Value error, ")


def _settings_at(cls: type[Config], path: tuple[int | str, ...]) -> type[Config]:
    """The settings class that a path of keys leads to."""
    for part in path:
        field = cls.model_fields.get(str(part))
        types = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        cls = next((kind for kind in types if hasattr(kind, "model_fields")), cls)
    return cls


def read_yaml(path: str | os.PathLike[str], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The mapping in a YAML file, with ``${NAME}`` and ``${NAME:-default}`` replaced from ``names`` or the environment."""
    file = Path(path)
    try:
        if (size := file.stat().st_size) > YAML_BYTES:
            raise ConfigError(f"{file} must have at most {YAML_BYTES:,} bytes of settings, but has {size:,}; name another file")
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"no such file: {file}; {nearest_path(file)}a YAML file of settings is needed") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {file}: {error}; it must be readable UTF-8") from None
    try:
        values = yaml.load(expand(text, str(file), names or {}), _Loader)  # a SafeLoader: it makes plain values only
    except RecursionError:
        raise ConfigError(f"{file} is not valid YAML: its lists or groups are nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:  # a date or a number that cannot be
        raise ConfigError(f"{file} is not valid YAML: {str(error).replace(chr(10), ' ')}") from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{file} must hold 'key: value' settings, but holds {'nothing' if values is None else f'a {type(values).__name__}'}"
        )
    return values


class _Loader(yaml.SafeLoader):
    """Names stay as they are written: only true, false, null and decimal numbers are not text (YAML 1.2, core schema).

    So ``yes``, ``12:30``, ``007``, ``1_000`` and dates are text, and a number that a setting takes as text keeps its digits.
    Refuses aliases within themselves, and those that together repeat too much: a kilobyte can stand for terabytes.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  # as yaml has it

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.values = 0
        self.sizes: dict[str, int] = {}  # anchor -> how many values it stands for

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = self.peek_event(), self.values  # type: ignore[no-untyped-call]
        anchor = getattr(event, "anchor", None)
        if isinstance(event, yaml.AliasEvent):
            if anchor in self.anchors and anchor not in self.sizes:
                raise yaml.YAMLError(f"the alias *{anchor} is within itself")
            self.values += self.sizes.get(str(anchor), 0)
        self.values += 1
        if self.values > YAML_VALUES:
            raise yaml.YAMLError(f"it must hold at most {YAML_VALUES:,} values, counted again wherever an alias repeats them")
        node = super().compose_node(parent, index)
        if anchor and not isinstance(event, yaml.AliasEvent):
            self.sizes[anchor] = self.values - before
        return node


class _WrittenInt(int):
    """A whole number with the text that was written for it."""

    written = ""

    def __str__(self) -> str:
        return self.written


class _WrittenFloat(float):
    """A float with the text that was written for it."""

    written = ""

    def __str__(self) -> str:
        return self.written


def _number(loader: _Loader, node: yaml.ScalarNode) -> _WrittenInt | _WrittenFloat:
    number = (
        _WrittenInt(node.value)
        if node.tag.endswith("int")
        else _WrittenFloat(node.value.replace(".inf", "inf").replace(".nan", "nan"))
    )
    number.written = node.value
    return number


for _tag, _first, _pattern in (
    ("null", "~nN", r"~|null|Null|NULL|"),
    ("bool", "tTfF", r"true|True|TRUE|false|False|FALSE"),
    ("int", "-+0123456789", r"[-+]?(0|[1-9][0-9]*)"),
    ("float", "-+.0123456789", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan"),
    ("merge", "<", r"<<"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), [*_first, *([""] * (_tag == "null"))]
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
_Loader.add_constructor("tag:yaml.org,2002:float", _number)
yaml.SafeDumper.add_representer(_WrittenInt, lambda dumper, number: dumper.represent_int(int(number)))
yaml.SafeDumper.add_representer(_WrittenFloat, lambda dumper, number: dumper.represent_float(float(number)))


def expand(text: str, where: str, names: Mapping[str, str]) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` by the value in ``names`` or the environment.

    Raises ``ConfigError`` for a name that has neither a value nor a default; ``where`` is the file that it names.
    """

    def value(match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        content = names.get(name, os.environ.get(name, default))
        if content is None:
            raise ConfigError(f"{where} uses ${{{name}}}, but the environment variable {name} is not set; set it")
        return content

    return re.sub(r"\$\{(?P<name>\w+)(?::-(?P<default>[^}]*))?\}", value, text)
