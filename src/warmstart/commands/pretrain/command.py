"""Pretraining: text in, a bundle out, with a language-modeling head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from warmstart.backbone.block import Block
from warmstart.commands.pretrain.page import write_pretrain_page
from warmstart.commands.pretrain.result import PretrainResult, domain_sentences
from warmstart.commands.settings import NOTHING, PretrainConfig
from warmstart.config import read_yaml, result_key, setting_paths
from warmstart.corpora.pieces import DocumentSplit, sample_of_words
from warmstart.corpora.relevant import DomainSource, DomainText, domain_text
from warmstart.corpora.rows import PretrainingRows, ShardsToRead
from warmstart.corpora.write import TokenSides, text_here, tokenized_sides, tokenized_text
from warmstart.data.read import by_lines, documents_of, source_files
from warmstart.data.source import Source
from warmstart.errors import ConfigError, ModelError
from warmstart.finetuning.further import (
    MOST_PASSES,
    new_language_model,
    pretrain_record,
    pretraining_job,
    rows_to_read,
    tokens_to_read,
    trained_language,
)
from warmstart.generation.sample import beginnings, sample_of
from warmstart.heads.language_modeling import LMHead
from warmstart.heads.settings import LMHeadConfig
from warmstart.interop.load import load_model
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.model.history import DataRecord
from warmstart.model.model import Model, fresh_head
from warmstart.objectives.registry import OBJECTIVES
from warmstart.report.sections import model_is_saved
from warmstart.runs.run import Run
from warmstart.runs.steps import own_text
from warmstart.runs.verdict import verdict_lines
from warmstart.system.console import console
from warmstart.system.device import pick_device
from warmstart.system.storage import sha256
from warmstart.system.urls import is_url
from warmstart.tasks.load import load_task
from warmstart.tokenizer.load import load_tokenizer
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.training.arithmetic import check_compiler, compiles_by_default
from warmstart.training.config import PretrainTrainConfig, TrainConfig
from warmstart.training.distributed import world
from warmstart.training.held_out import held_out_metrics
from warmstart.training.log import events_folder, shown
from warmstart.training.loop import train
from warmstart.version import __version__

TEXT = "text"
"""folder of the tokenized text, and of copies of text from elsewhere, in the folder of the run"""
QUICK_TOKENS = 20_000
"""held-out tokens read at each evaluation during training; the last evaluation reads all of them"""


def pretrain(config: PretrainConfig) -> PretrainResult:
    """Tokenize the text, train, evaluate, save the bundle, write the report; the ``pretrain`` command.

    Of several processes the first writes; all return the same result.
    """
    if config.resume:
        config = _resumed(config, config.resume)
    elif config.train.minutes is None and compiles_by_default(pick_device()):
        config = config.model_copy(update={"train": config.train.model_copy(update={"compile": True})})  # recorded, for a resume
    here = world()
    here.require_equal({f"the setting {name}": value for name, value in setting_paths(config.to_dict())})
    ready = here.in_turns(lambda: _prepare(config))
    with ready.run.emptied_if_refused():
        result = pretrain_on(ready.stores, ready.tokenizer, config, ready.run.folder, ready.origin, ready.domain)
    if text := own_text(beginnings(ready.tokenizer, ready.stores[1] or ready.stores[0])):
        result = replace(result, sample=sample_of(result.bundle, text))
    here.first_alone(lambda: _finish(result, config, ready.run.folder))
    return result


@dataclass(frozen=True)
class _Ready:
    """The inputs of training."""

    run: Run
    stores: TokenSides
    tokenizer: Tokenizer
    origin: Bundle | None
    domain: DomainText | None


def _source(config: PretrainConfig, path: str) -> Source:
    return Source(path=path, document=config.document, **config.reading)


def _prepare(config: PretrainConfig) -> _Ready:
    """Check everything, open the run's folder, tokenize the text."""
    if not config.text and not config.domain.for_task:
        raise ConfigError(
            "name at least one file or folder of text, `warmstart pretrain TEXT ...`, or a task, `warmstart pretrain --for TASK`"
        )
    sources = [_source(config, path) for path in config.text]
    check_sources(config, sources)
    events_folder(config.out, wanted=config.tensorboard)
    if config.train.compile:
        check_compiler(pick_device())
    chosen_from = None
    if config.domain.for_task:
        chosen_from = DomainSource.of(config.domain, load_task(config.domain.for_task), sources, config.held_out_fraction())
    origin = load_model(config.init_from) if config.init_from else None
    if origin is not None and not config.resume:
        console.print(_learning_rates(config.train))
    run = Run.open(config.out, config.model_copy(update={"resume": None}), extend=bool(config.resume))
    with run.emptied_if_refused():
        return _tokenize(config, sources, run, origin, chosen_from)


def _tokenize(
    config: PretrainConfig, sources: list[Source], run: Run, origin: Bundle | None, chosen_from: DomainSource | None
) -> _Ready:
    """The tokenizer and the tokens of the text, which with --for is chosen first."""
    folder = run.folder
    cache, plain, domain = folder / TEXT, config, None
    shards = _shards(config, cache, origin)
    if not shards:
        sources = [*by_lines(text_here(source, cache) for source in sources)]
        if any(source.document != config.document for source in sources):
            console.print("The text has many lines and no blank one: each line is a document (--document file takes files whole).")
    if chosen_from is not None:
        chosen_from = replace(chosen_from, text=tuple(sources))
        domain, sources, held_out = domain_text(chosen_from, folder)
        if chosen_from.fraction is not None:  # what is held out of the task's text lies beside it, in the column `text`
            plain = config.model_copy(update={"held_out": str(held_out or NOTHING), "text_column": None})
        for sentence in domain_sentences(domain):
            console.print(sentence)
    tokenizer, stores = shards or _tokenized(plain, sources, folder, origin)
    return _Ready(run, stores, tokenizer, origin, domain)


def _finish(result: PretrainResult, config: PretrainConfig, folder: Path) -> None:
    """Save the bundle and write the report."""
    with model_is_saved(save(result.bundle, folder / "bundle")):
        page = write_pretrain_page(result, config, folder)
    for line in verdict_lines(result.verdict(config), f"saved in {folder}, report {page}"):
        console.print(line)


def _resumed(config: PretrainConfig, folder: str) -> PretrainConfig:
    """The settings of a run to resume, in the way that ``config`` asks for. Raises ``ConfigError`` if it names other settings."""
    settings = Path(folder) / "config.yaml"
    if not settings.exists():
        raise ConfigError(f"there is no run to resume at {folder}: it has no config.yaml; name the folder of a run")
    kept = PretrainConfig.build({**read_yaml(settings), "out": folder, "resume": folder}, str(settings))
    train, effective = config.train.to_dict(), config.train.effective()
    if ways := {name: True for name, value in train.items() if value and name not in effective}:  # all are off by default
        kept = kept.model_copy(update={"train": PretrainTrainConfig.build(kept.train.to_dict() | ways)})
    given, own, default = (dict(setting_paths(settings.to_dict())) for settings in (config, kept, PretrainConfig()))
    for name, value in given.items():
        if value not in (own.get(name), default.get(name)):
            raise ConfigError(
                f"a run is resumed with its own settings, but '{name}' is {value} here and {own.get(name)} in {folder}; "
                "leave it out, or start another run"
            )
    return kept


def _learning_rates(config: TrainConfig) -> str:
    """A reminder that the defaults are those of training from scratch."""
    rates = f"AdamW {config.learning_rate:g}"
    if config.optimizer == "muon":
        rates = f"Muon {config.muon_learning_rate:g}, {rates}"
    return (
        f"The saved model is trained further at these learning rates: {rates}. "
        "With lower ones (--learning-rate, --muon-learning-rate) it forgets less."
    )


def check_sources(config: PretrainConfig, sources: Sequence[Source]) -> None:
    """Before anything is written: all files exist, no text is both trained on and held out, and the run does not write into it."""
    sources = [source for source in sources if not is_url(source.path)]
    files = {file.resolve() for source in sources for file in source_files(source)}
    if config.held_out != NOTHING and config.held_out_fraction() is None and not is_url(config.held_out):
        both = [file for file in source_files(Source(path=config.held_out)) if file.resolve() in files]
        if both:
            raise ConfigError(f"held-out text must not be training text, but {both[0]} is both; move it out of the text's folder")
    for source in sources:
        if Path(config.out).resolve().is_relative_to(Path(source.path).resolve()):
            raise ConfigError(f"the run's folder {config.out} lies inside the text's folder {source.path}; choose another --out")


def _shards(config: PretrainConfig, cache: Path, origin: Bundle | None) -> tuple[Tokenizer, TokenSides] | None:
    """The tokenizer and the stores of token shards; None if the text is text."""
    fraction = config.held_out_fraction()
    held_out = None if config.held_out == NOTHING else config.held_out if fraction is None else fraction
    named = origin.tokenizer if origin else load_tokenizer(config.tokenizer_file) if config.tokenizer_file else None
    shards = ShardsToRead(config.text, held_out, named, config.document, cache).open()
    if shards and config.domain.for_task:
        raise ConfigError(f"--for chooses passages of text, but {config.text[0]} holds tokens; name the text, or leave out --for")
    if shards and config.max_words:
        raise ConfigError(f"--max-words draws documents of text, but {config.text[0]} holds tokens; name the text, or leave it out")
    return shards


def _tokenized(
    config: PretrainConfig, sources: Sequence[Source], folder: Path, origin: Bundle | None
) -> tuple[Tokenizer, TokenSides]:
    """The tokenizer and the tokens of training and held-out text, kept in the run's folder."""
    split, cache = _split(config, sources), folder / TEXT
    tokenizer = origin.tokenizer if origin else _make_tokenizer(config, sources, folder, split)
    training, held_out = tokenized_sides(sources, tokenizer, cache, split)
    if config.held_out != NOTHING and config.held_out_fraction() is None:
        held_out = tokenized_text(by_lines([text_here(_source(config, config.held_out), cache)]), tokenizer, cache)
    return tokenizer, (training, held_out)


def _split(config: PretrainConfig, sources: Sequence[Source]) -> DocumentSplit | None:
    """The documents that are held out or not read at all; None: all are trained on. It does not depend on the run's seed."""
    fraction = config.held_out_fraction()
    sample = None if config.max_words is None else sample_of_words(sources, config.max_words)
    return DocumentSplit(fraction=fraction or 0, sample=sample) if fraction or sample is not None else None


def _make_tokenizer(config: PretrainConfig, sources: Sequence[Source], folder: Path, split: DocumentSplit | None) -> Tokenizer:
    """Load the tokenizer that is named, or train one on the training text; the run's folder keeps it for a resume."""
    saved = folder / "tokenizer.json"
    if saved.exists():
        return load_tokenizer(saved)
    if config.tokenizer_file:
        tokenizer = load_tokenizer(config.tokenizer_file)
    else:
        console.print(f"Training a tokenizer ({config.tokenizer.type}, {config.tokenizer.vocab_size} tokens).")
        texts = enumerate(documents_of(sources))
        tokenizer = train_tokenizer((text for n, text in texts if split is None or split.held_out(n) is False), config.tokenizer)
    tokenizer.save(saved)
    return tokenizer


def pretrain_on(
    stores: TokenSides,
    tokenizer: Tokenizer,
    config: PretrainConfig,
    folder: Path | None,
    origin: Bundle | None = None,
    domain: DomainText | None = None,
) -> PretrainResult:
    """Train on the first corpus, evaluate on the second; resumes the run in ``folder``.

    ``origin`` is a model to train further; ``domain`` says how the first corpus was chosen.
    """
    model = _make_model(tokenizer, config, origin)
    training_text, held_out_text = stores
    rows = rows_to_read(training_text, tokenizer, model, config.objective, "add text, or choose a smaller --max-length")
    held_out_rows = replace(rows, store=held_out_text) if held_out_text else None
    world().require_equal(_contents(stores, tokenizer, model, domain))
    blocks = [part for part in model.modules() if isinstance(part, Block)]
    model.to(pick_device())
    digests = [training_text.digest, held_out_text.digest if held_out_text else "", tokenizer.digest]
    job = replace(
        pretraining_job(model, rows, config.train, config.seed, "pretraining", passes=_passes(rows) if domain else 1),
        identity=result_key(config, *digests, domain.identity if domain else ""),
        evaluate=None if held_out_rows is None else lambda: held_out_metrics(model, held_out_rows, QUICK_TOKENS),
        compile=blocks if config.train.compile else (),
    )
    with shown(events_folder(folder or config.out, wanted=config.tensorboard)) as observe:
        output = train(model, replace(job, observe=observe), config.train, folder)
    metrics = {} if held_out_rows is None else world().together(lambda: held_out_metrics(model, held_out_rows))
    record = pretrain_record(rows, config.train, config.seed, output)
    words = {"held-out words": held_out_text.counts.words} if held_out_text else {}
    corpus = record.data[0].model_copy(update={"sizes": record.data[0].sizes | words})
    changes = {"scores": metrics, "data": (corpus, *([_domain_record(domain)] if domain else []))}
    history = (*(origin.history if origin else ()), record.model_copy(update=changes))
    bundle = Bundle(model.cpu().eval(), tokenizer, history=history, language=trained_language(config.objective))
    return PretrainResult(bundle, config.objective.name, output, metrics, stores, domain)


def _contents(stores: TokenSides, tokenizer: Tokenizer, model: Model, domain: DomainText | None) -> dict[str, str | None]:
    """Hashes of all that a run begins with, by name."""
    weights = b"".join(tensor.detach().numpy().tobytes() for tensor in model.weights().values()) if world().several else b""
    training_text, held_out_text = stores
    return {
        "the version of warmstart": __version__,
        "the training text": training_text.digest,
        "the held-out text": held_out_text.digest if held_out_text else None,
        "the tokenizer": tokenizer.digest,
        "the task's text": domain.identity if domain else None,
        "the weights at first": sha256(weights),
    }


def _passes(rows: PretrainingRows) -> float:
    """Passes over the text of a task's domain if no budget is named: at least one."""
    return min(MOST_PASSES, max(1.0, tokens_to_read(rows.objective) / (len(rows) * rows.mean_tokens)))


def _domain_record(text: DomainText) -> DataRecord:
    sizes = {"texts": text.pool_texts, "left out": text.left_out, "passages of other text": text.passages}
    return DataRecord(name=text.task, sizes=sizes)


def _make_model(tokenizer: Tokenizer, config: PretrainConfig, origin: Bundle | None) -> Model:
    """A new model, or a saved one, which keeps its language head."""
    objective = OBJECTIVES[config.objective.name]
    if origin is None:
        return new_language_model(config.backbone, config.head, tokenizer, config.objective, config.seed)
    if origin.tokenizer.digest != tokenizer.digest:
        raise ModelError("a saved model can only be trained further with its own tokenizer; do not change tokenizer.json")
    if isinstance(origin.model.head, LMHead):
        console.print("Starting from the saved backbone and language head.")
        return Model(origin.model.backbone, origin.model.head, causal=objective.causal)
    console.print("Starting from the saved backbone with a new language head; the saved head is dropped.")
    return Model(
        origin.model.backbone,
        fresh_head(LMHeadConfig(**dict(config.head)), origin.model.backbone, config.seed),
        causal=objective.causal,
    )
