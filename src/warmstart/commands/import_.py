"""``import``: what comes from elsewhere: pretrained models, data sets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warmstart.commands.settings import ImportConfig
from warmstart.errors import ConfigError, DataError
from warmstart.heads.embedding import EmbeddingHead
from warmstart.interop.convert import Imported
from warmstart.interop.encoder_speed import encoder_speeds, speeds_sentence
from warmstart.interop.encoders import ENCODERS, how_to_install, installed, read_source
from warmstart.interop.families import FAMILIES
from warmstart.model.already_read import read_by
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import DataRecord
from warmstart.notebook import Shown
from warmstart.runs.run import provenance
from warmstart.system.console import console, print_table
from warmstart.system.outputs import free_folder
from warmstart.system.storage import atomic_folder

if TYPE_CHECKING:
    from warmstart.report.parts import Report


HEADERS = {"User-Agent": "Mozilla/5.0 (warmstart)"}
"""some hosts refuse requests without a user agent"""


def import_model(config: ImportConfig) -> Bundle | Path | EncodersResult:
    """The ``import`` command: read, describe, save with a self-test."""
    if config.list or config == ImportConfig(speed=config.speed):
        return _list_encoders(measure=config.speed)
    if config.source is None or config.out is None:
        raise ConfigError("name what is imported, and with --out the folder that it becomes, or list the encoders with --list")
    if config.source.startswith(("https://", "http://")):
        return _fetch(config, config.source, config.out)
    target = free_folder(config.out)
    imported = read_source(config.source, config.max_length)
    for line in describe(imported):
        console.print(line)
    record = imported.bundle.history[0]
    changes = {"settings": record.settings | {"source": config.source}, "provenance": provenance()}
    bundle = replace(imported.bundle, history=(record.model_copy(update=changes),))
    save(bundle, target)
    console.print(f"bundle: {target} (reloaded in a fresh process, equal outputs)")
    return bundle


def _list_encoders(*, measure: bool) -> EncodersResult:
    """The settings of each by name."""
    encoders, speeds = EncodersResult(), encoder_speeds(measure=measure)
    for name, encoder in ENCODERS.items():
        package, read = installed(encoder), read_by(encoder.model)
        encoders[name] = {
            "model": encoder.model,
            "parameters": encoder.parameters,
            "languages": encoder.languages,
            "licence": encoder.licence,
            "package": encoder.package,
            "installed": package.version if package else None,
            "install": how_to_install(name),
            "read": _read_as_json(read) if read else None,
            "texts_per_second": speeds.get(name),
        }
    print_table("encoders", encoders.rows(), ENCODERS_HEADER)
    console.print(speeds_sentence(speeds) if speeds else "--speed measures how many texts each reads in a second on this machine")
    for name, facts in encoders.items():
        if facts["installed"] != ENCODERS[name].version:
            console.print(f"{name}: {facts['install']}")
        read = read_by(facts["model"])
        names = ", ".join(data.name for data in read)
        console.print(f"{name} has read {names} ({read[0].source})" if read else f"{name} has read: unknown")
    return encoders


def _read_as_json(read: Sequence[DataRecord]) -> dict[str, Any]:
    """Names of the data sets that a model has read with and without their labels, and the origin of this knowledge."""
    names = {key: [data.name for data in read if data.with_labels == (key == "labelled")] for key in ("labelled", "texts")}
    return {**names, "source": read[0].source}


def _fetch(config: ImportConfig, url: str, out: str) -> Path:
    """A public data set, whose checksum is verified."""
    if config.checksum is None:
        raise ConfigError(f"--checksum must say what {url} is, as sha256:… or md5:…, but is not given")
    folder = fetch(url, config.checksum, Path(out))
    console.print(f"{folder}: {sum(1 for file in folder.rglob('*') if file.is_file())} files")
    return folder


def describe(imported: Imported) -> list[str]:
    """Imported and dropped parts, one line each."""
    bundle, family = imported.bundle, imported.family
    title = f"{FAMILIES[family].title} ({family})" if family in FAMILIES else family
    config, head = bundle.model.backbone.config, bundle.model.head
    count = sum(parameter.numel() for parameter in bundle.model.parameters())
    kind = f"{head.config.kind} head" + (f", pooling {head.config.pooling}" if isinstance(head, EmbeddingHead) else "")
    specials, tokenizer = bundle.tokenizer.specials, bundle.tokenizer
    begin = " ".join([tokenizer.token(specials.begin), *([tokenizer.decode(tokenizer.prefix)] if tokenizer.prefix else [])])
    lines = [
        f"family:   {title}: width {config.width}, depth {config.depth}, heads {config.heads}",
        f"imported: {len(bundle.model.weights())} tensors, {count:,} parameters; {kind}",
        f"texts:    {begin} text {tokenizer.token(specials.eos)}, at most {config.max_length:,} tokens",
    ]
    if imported.left_out:
        lines.append(f"left out: {', '.join(imported.left_out)}")
    lines += [f"left out: {setting}" for setting in imported.settings]
    if imported.added:
        lines.append(f"added:    {', '.join(imported.added)} (their embeddings are the mean of all others)")
    if spare := bundle.model.backbone.vocab_size - tokenizer.vocab_size:
        lines.append(f"spare:    {spare} rows of the embedding that belong to no token")
    read = bundle.history[0].data
    lines.append(f"has read: {', '.join(data.name for data in read)}, says {read[0].source}" if read else "has read: unknown")
    return lines


def fetch(url: str, checksum: str, folder: Path) -> Path:
    """Download the file at ``url`` into ``folder``, unpacked if it is a zip or tar archive; an existing folder stays as it is.

    ``checksum`` is ``"sha256:…"`` or ``"md5:…"``. Raises ``DataError`` if network or checksum fail; then nothing is left behind.
    """
    if folder.exists():
        return folder
    import pooch  # here, because in a notebook it asks for widgets

    name = url.rsplit("/", 1)[-1]
    processor = _unpacker(name)
    pooch.get_logger().setLevel(logging.WARNING)
    with atomic_folder(folder) as aside:
        try:
            downloader = pooch.HTTPDownloader(headers=HEADERS, timeout=60)
            pooch.retrieve(url, checksum, fname=name, path=aside, downloader=downloader, processor=processor)
        except Exception as error:  # network, host, checksum and archive raise errors of many types
            reason = str(error).splitlines()[0]
            raise DataError(f"cannot download {url}: {reason}; download it by hand and name its folder instead") from None
        if processor:
            (aside / name).unlink()
    return folder


def _unpacker(name: str) -> Any:
    import pooch

    if name.endswith(".zip"):
        return pooch.Unzip(extract_dir=".")
    if name.endswith((".tar.gz", ".tgz", ".tar")):
        return pooch.Untar(extract_dir=".")
    return None


ENCODERS_HEADER = ("name", "model", "parameters", "languages", "licence", "installed")


class EncodersResult(dict[str, dict[str, Any]], Shown, view="commands.import_:encoders_view"):
    """Facts about each encoder, by name."""

    def rows(self) -> list[tuple[str, ...]]:
        """One for each, under ``ENCODERS_HEADER``."""
        return [_row(name, facts) for name, facts in self.items()]


def _row(name: str, facts: dict[str, Any]) -> tuple[str, ...]:
    size, model = f"{facts['parameters'] / 1e6:.0f} M", facts["model"].partition("/")[2]
    return name, model, size, facts["languages"], facts["licence"], facts["installed"] or "no"


def encoders_view(encoders: EncodersResult) -> Report:
    """The encoders in a notebook, one row each."""
    from warmstart.report.parts import Report, Section, Table, headline

    here = [name for name, facts in encoders.items() if facts["installed"]]
    sentence = f"Installed: {', '.join(here)}." if here else "No encoder is installed."
    table = Table(ENCODERS_HEADER, encoders.rows())
    return Report("Encoders", headline(sentence), (), (Section("Encoders by name", (), (table,)),))
