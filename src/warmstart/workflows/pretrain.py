"""Pretraining: text in, a bundle with a language-model head out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from tyro.conf import Positional, arg

from warmstart.backbone import Backbone, BackboneConfig
from warmstart.config import Config, read_yaml
from warmstart.data import Document, Part, Source, documents_of, prepare
from warmstart.data.batch import Rows, pretraining_batches
from warmstart.data.read import source_files
from warmstart.engine import TrainConfig, Work, console, pick_device, train
from warmstart.engine.compiled import check_compiler
from warmstart.engine.schedule import SCHEDULES
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.evaluate.language import held_out
from warmstart.heads import LanguageHead, LanguageHeadConfig
from warmstart.model import Bundle, Model, fresh_head, save
from warmstart.objectives import OBJECTIVES, ObjectiveConfig
from warmstart.seeding import seed_torch
from warmstart.storage import sha256
from warmstart.tokenizer import Tokenizer, TokenizerConfig, load_tokenizer, train_tokenizer, vocabulary_report
from warmstart.workflows.outcome import Corpora, Pretrained
from warmstart.workflows.pages import pretraining_page
from warmstart.workflows.run import load_model, open_run, print_figures, print_table, provenance

NOTHING = "none"
"""what ``held_out`` says where every document is trained on: there are no held-out figures then"""
VOCABULARY_SAMPLE = 2_000
"""documents that the vocabulary report reads"""
QUICK_TOKENS = 20_000
"""held-out tokens read at each evaluation during training; the last one reads all of them"""


class PretrainTrainConfig(TrainConfig):
    """How long to pretrain, and how. What is not said is as it took the fewest tokens on a small text (docs/performance.md)."""

    batch: int = Field(8, gt=0)
    """rows read at once"""
    learning_rate: float = Field(1e-2, gt=0)
    """highest rate of AdamW"""
    muon_rate: float = Field(0.01, gt=0)
    """highest rate of Muon"""
    optimizer: Literal["adamw", "muon"] = "muon"
    """Muon for the matrices inside the blocks and AdamW for the rest, or AdamW for all; AdamW alone wants a rate of 1e-3 to 3e-3"""
    schedule: Annotated[str, AfterValidator(SCHEDULES.known)] = "trapezoid"
    """cosine, linear, trapezoid or constant"""
    compile: bool = False
    """let torch compile the blocks: half a minute before the first step, up to a twelfth less for each (docs/performance.md)"""

    @model_validator(mode="after")
    def _time_for_training(self) -> PretrainTrainConfig:
        if self.compile and self.minutes is not None:
            raise ValueError("compile takes minutes of its own, so a budget in minutes would not be one of training; name tokens")
        return self


class PretrainConfig(Config):
    """Train a backbone on unlabelled text, from scratch or from a saved model, and save it as a bundle."""

    text: Positional[tuple[str, ...]] = ()
    """files or folders of text (also .gz, .xz), or tables with a text column"""
    out: str = "runs/pretrain"
    """folder of the run"""
    resume: str | None = None
    """folder of a run to go on with; everything else is read from there"""
    start: str | None = None
    """a model to start from, with its tokenizer and backbone"""
    held_out: str = "0.02"
    """held-out text: a file or folder, a share of the documents, or none"""
    document: Document = "paragraph"
    """what one document is: paragraph, sentence, line or file"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer to train on the text"""
    tokenizer_file: str | None = None
    """a tokenizer to load instead: tokenizer.json, a sentencepiece .model, or a word list"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    backbone: Annotated[BackboneConfig, arg(name="")] = BackboneConfig()
    head: LanguageHeadConfig = LanguageHeadConfig()
    train: Annotated[PretrainTrainConfig, arg(name="")] = PretrainTrainConfig()
    seed: int = Field(0, ge=0)
    """start of every random choice"""
    cache: str | None = None
    """folder that keeps prepared text; default: the run's own folder"""

    @field_validator("train", mode="before")
    @classmethod
    def _all_said(cls, value: Any) -> Any:
        """Settings that are whole, of any training, are taken as they are."""
        return value.plain() if isinstance(value, TrainConfig) else value

    @model_validator(mode="after")
    def _known(self) -> PretrainConfig:
        OBJECTIVES[self.objective.name]
        return self

    def held_out_share(self) -> float | None:
        """The share of the documents that is held out; None where a file or folder is named, or nothing is held out."""
        if self.held_out == NOTHING:
            return None
        try:
            share = float(self.held_out)
        except ValueError:
            return None
        if not 0 < share < 1:
            raise ConfigError(f"held_out must be a file, a folder or a share between 0 and 1, but is {self.held_out}")
        return share


def pretrain(config: PretrainConfig) -> Pretrained:
    """Prepare text, train, evaluate, save the bundle, write the report; the ``pretrain`` command."""
    if config.resume:
        settings = Path(config.resume) / "config.yaml"
        if not settings.exists():
            raise ConfigError(f"there is no run to resume at {config.resume} (no config.yaml there)")
        stored = read_yaml(settings)
        config = PretrainConfig.build({**stored, "out": config.resume, "resume": config.resume}, str(settings))
    if not config.text:
        raise ConfigError("name at least one file or folder of text: `warmstart pretrain TEXT ...`")
    sources = [Source(path=path, document=config.document) for path in config.text]
    check_text(config, sources)
    if config.train.compile:
        check_compiler(pick_device())
    started = load_model(config.start) if config.start else None
    if started is not None and not config.resume:
        rates = (
            f"Muon {config.train.muon_rate:g}, AdamW {config.train.learning_rate:g}"
            if config.train.optimizer == "muon"
            else f"AdamW {config.train.learning_rate:g}"
        )
        console.print(f"its weights go on at these rates: {rates}; lower ones forget less (--learning-rate, --muon-rate)")
    folder = open_run(config.out, config, resume=bool(config.resume))
    cache = Path(config.cache) if config.cache else folder / "text"
    tokenizer = started.tokenizer if started else make_tokenizer(config, sources, folder)
    sample = islice(documents_of(sources), VOCABULARY_SAMPLE)
    print_table(f"vocabulary, on the first {VOCABULARY_SAMPLE:,} documents", vocabulary_report(tokenizer, sample).rows(), ("", ""))
    corpora = split_corpora(config, sources, tokenizer, cache)
    done = pretrain_on(corpora, tokenizer, config, folder, started)
    if done.figures:
        print_figures("held out", done.figures)
    save(done.bundle, folder / "bundle")
    page = pretraining_page(done, corpora, config, folder)
    console.print(f"bundle: {folder / 'bundle'}\nreport: {page}")
    return done


def check_text(config: PretrainConfig, sources: Sequence[Source]) -> None:
    """Before anything is written: all files are there, no text is both trained on and held out, or written by the run."""
    files = {file.resolve() for source in sources for file in source_files(source)}
    if config.held_out != NOTHING and config.held_out_share() is None:
        both = [file for file in source_files(Source(path=config.held_out)) if file.resolve() in files]
        if both:
            raise ConfigError(f"held-out text must not be training text, but {both[0]} is both; move it out of the text's folder")
    for source in sources:
        if Path(config.out).resolve().is_relative_to(Path(source.path).resolve()):
            raise ConfigError(f"the run's folder {config.out} lies inside the text's folder {source.path}; choose another --out")


def make_tokenizer(config: PretrainConfig, sources: Sequence[Source], folder: Path) -> Tokenizer:
    """Load the tokenizer that is named, or train one on the training text; the run keeps it, for a resume."""
    kept = folder / "tokenizer.json"
    if kept.exists():
        return load_tokenizer(kept)
    if config.tokenizer_file:
        tokenizer = load_tokenizer(config.tokenizer_file)
    else:
        console.print(f"training a tokenizer ({config.tokenizer.kind}, {config.tokenizer.vocab_size} tokens)")
        share = config.held_out_share()
        part = None if share is None else Part(share=share, held_out=False)
        tokenizer = train_tokenizer(documents_of(sources, part), config.tokenizer)
    tokenizer.save(kept)
    return tokenizer


def split_corpora(config: PretrainConfig, sources: Sequence[Source], tokenizer: Tokenizer, cache: Path) -> Corpora:
    """The token stores of training and held-out text. Which documents are held out does not depend on the run's seed."""
    if config.held_out == NOTHING:
        return prepare(sources, tokenizer, cache), None
    share = config.held_out_share()
    if share is None:
        held = [Source(path=config.held_out, document=config.document)]
        return prepare(sources, tokenizer, cache), prepare(held, tokenizer, cache)
    kept, held_out_part = (Part(share=share, held_out=held) for held in (False, True))
    return prepare(sources, tokenizer, cache, kept), prepare(sources, tokenizer, cache, held_out_part)


def pretrain_on(
    corpora: Corpora, tokenizer: Tokenizer, config: PretrainConfig, folder: Path | None, start: Bundle | None = None
) -> Pretrained:
    """Train on the first corpus, evaluate on the second; resumes what lies in ``folder``."""
    model = _make_model(tokenizer, config, start).to(pick_device())
    tokens = model.backbone.config.max_tokens
    text, kept_back = corpora
    rows = Rows(text, tokenizer.vocabulary(), config.objective, tokens)
    held = replace(rows, corpus=kept_back) if kept_back else None
    if not len(rows):
        raise DataError(
            f"the text is too short: one row takes {rows.stride + 1} tokens, but the text has {len(text.tokens)}; "
            "give more text, or a smaller max_tokens"
        )
    steps = config.train.count_steps(len(rows), rows.mean_tokens, epochs=1)
    settings = config.model_dump_json(exclude={"out", "resume", "cache", "text"})
    work = Work(
        pretraining_batches(rows, config.train.batch, config.train.accumulate, config.seed),
        steps,
        config.seed,
        title="pretraining",
        identity=sha256("/".join([settings, text.digest, tokenizer.digest]).encode()),
        evaluate=None if held is None else lambda: held_out(model, held, QUICK_TOKENS),
        compile=tuple(model.backbone.blocks) if config.train.compile else (),
    )
    trained = train(model, work, config.train, folder)
    figures = {} if held is None else held_out(model, held)
    entry = {
        "command": "pretrain",
        "objective": config.objective.plain() | {"mask_rate": config.objective.hidden},
        "generates": OBJECTIVES[config.objective.name].generates(config.objective),
        "train": config.train.plain(),
        "seed": config.seed,
        "corpus": text.digest,
        "tokens": trained.tokens,
        "seconds": round(trained.seconds, 1),
        "held_out": figures,
        "provenance": provenance(),
    }
    history = (*(start.history if start else ()), entry)
    return Pretrained(Bundle(model.cpu().eval(), tokenizer, history=history), trained, figures)


def _make_model(tokenizer: Tokenizer, config: PretrainConfig, start: Bundle | None) -> Model:
    """A fresh model, or the saved one; a saved one keeps its language head where it has one."""
    causal = OBJECTIVES[config.objective.name].causal
    if start is None:
        seed_torch(config.seed, "backbone")
        backbone = Backbone(config.backbone, tokenizer.vocab_size)
        return Model(backbone, fresh_head(config.head, backbone, config.seed), causal=causal)
    if start.tokenizer.digest != tokenizer.digest:
        raise ModelError("a model can only be trained further with its own tokenizer")
    kept = isinstance(start.model.head, LanguageHead)
    console.print(
        "starting from its backbone" + (" and language head" if kept else "; its head is dropped, a language head is new")
    )
    head = start.model.head if kept else fresh_head(config.head, start.model.backbone, config.seed)
    return Model(start.model.backbone, head, causal=causal)
