"""The settings of commands whose files cost much to import; `--help` reads these alone. Others stand beside their function."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from tyro.conf import Positional, arg

from warmstart.backbone.config import NewBackboneConfig
from warmstart.config import Advanced, Config, Effectless, FileInput, TaskInput, ThreadsConfig
from warmstart.data.source import Document, DomainConfig, LabelledTableFlags, Source, TableFlags
from warmstart.errors import ConfigError
from warmstart.finetuning.schemes.registry import known_scheme
from warmstart.heads.settings import NewLMHeadConfig
from warmstart.objectives.config import ObjectiveConfig
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.training.config import PretrainTrainConfig, TrainConfig

NOTHING = "none"
"""the value of ``held_out`` that holds out nothing; there are no held-out metrics then"""


class PretrainConfig(TableFlags):
    """Train a backbone on unlabelled text, from scratch or from a saved model, and save it as a bundle."""

    text: Positional[FileInput[tuple[str, ...]]] = ()
    """files, folders, globs or URLs of text (also .gz, .xz) or tables with a text column, or folders of token shards; optional
    with --for"""
    domain: Annotated[DomainConfig, arg(name="")] = DomainConfig()
    out: Effectless[str] = "runs/pretrain"
    """folder of the run"""
    resume: Effectless[str | None] = None
    """folder of a run to resume, with its own settings"""
    init_from: FileInput[str | None] = None
    """a saved model to train further, with its tokenizer and backbone"""
    held_out: FileInput[str] = "0.02"
    """held-out text: a file, folder or URL, a fraction of the documents, or none"""
    document: Advanced[Document] = "paragraph"
    """one document of the text: paragraph, sentence, line or file"""
    max_words: Advanced[int | None] = Field(None, gt=0)
    """words of the text to read at most: whole documents, drawn at random, the same for every seed; default: all"""
    tensorboard: Effectless[Advanced[bool]] = False
    """write the training log as event files of TensorBoard, too"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer to train on the text"""
    tokenizer_file: FileInput[Advanced[str | None]] = None
    """a tokenizer to load instead: tokenizer.json, a sentencepiece .model, or a word list"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    backbone: Annotated[NewBackboneConfig, arg(name="")] = NewBackboneConfig()
    head: Advanced[NewLMHeadConfig] = NewLMHeadConfig()
    train: Annotated[PretrainTrainConfig, arg(name="")] = PretrainTrainConfig()
    seed: int = Field(0, ge=0)
    """seed of every random choice"""

    @field_validator("train", mode="before")
    @classmethod
    def _complete_settings(cls, value: Any) -> Any:
        """Complete settings of any training run are taken as they are, without the defaults of pretraining."""
        return value.to_dict() if isinstance(value, TrainConfig) else value

    @model_validator(mode="after")
    def _known_objective(self) -> PretrainConfig:
        from warmstart.objectives.registry import OBJECTIVES

        OBJECTIVES[self.objective.name]
        if self.max_words and self.domain.for_task:
            raise ValueError("with --for the number of words is --relevant-words; remove --max-words")
        return self

    def held_out_fraction(self) -> float | None:
        """The fraction of the documents that is held out; None if a file or folder is named, or nothing is held out."""
        if self.held_out == NOTHING:
            return None
        try:
            fraction = float(self.held_out)
        except ValueError:
            return None
        if not 0 < fraction < 1:
            raise ConfigError(f"held_out must be a file, a folder or a fraction between 0 and 1, but is {self.held_out}")
        return fraction


class TokenizeConfig(TableFlags):
    """Write text as shards of tokens. The same command goes on where it stopped, with any number of jobs."""

    text: Positional[FileInput[tuple[str, ...]]] = Field((), min_length=1)
    """files, folders, globs or URLs of text (also .gz, .xz), or tables with a text column"""
    out: Effectless[str]
    """folder of the shards"""
    jobs: Effectless[int] = Field(1, gt=0)
    """pieces of the text that are tokenized at the same time, each in a process of its own"""
    held_out: str = "0.02"
    """fraction of the documents that is held out, or none"""
    document: Advanced[Document] = "paragraph"
    """one document of the text: paragraph, sentence, line or file"""
    drop_test_texts_of: TaskInput[tuple[str, ...]] = ()
    """manifests of tasks (YAML): leave out documents in which one of their test or validation texts occurs"""
    tokenizer: TokenizerConfig = TokenizerConfig()
    """the tokenizer to train on the text"""
    tokenizer_file: FileInput[Advanced[str | None]] = None
    """a tokenizer to load instead: tokenizer.json, a sentencepiece .model, a word list, or a folder with a tokenizer.json"""

    @field_validator("held_out")
    @classmethod
    def _a_fraction(cls, value: str) -> str:
        """``none``, or a number between 0 and 1."""
        try:
            good = value == "none" or 0 < float(value) < 1
        except ValueError:
            good = False
        if not good:
            raise ValueError("must be a fraction between 0 and 1, or none")
        return value

    @property
    def how(self) -> Source:
        """How each file is read; the path is that of none."""
        return Source.build({"path": "", "document": self.document, **self.reading})

    @property
    def held_out_fraction(self) -> float | None:
        """None: nothing is held out."""
        return None if self.held_out == "none" else float(self.held_out)


class EvaluateConfig(ThreadsConfig, LabelledTableFlags):
    """Score an adapted model on a task's test split, or a language model on a text or on minimal pairs."""

    model: Positional[FileInput[str]]
    """a bundle, or the folder of a run"""
    task: Positional[TaskInput[str | None]] = None
    """for an adapted model, the manifest of a task (YAML), or a table of texts and labels, all of which count but those that it has
    learned from; for a language model, a file or folder of text"""
    against: FileInput[str | None] = None
    """another model: which of the two is better on texts like those of the task, or on the pairs, and how certain is that?"""
    gate: float | None = Field(None, ge=0, le=100)
    """for builds, in percent: exit code 0 if the whole 95% interval of the score is at least that, 1 if the whole interval is under
    it, 3 if only more labels can decide; with --against: the points by which the model may be worse than the other"""
    pairs: FileInput[str | None] = None
    """minimal pairs, of which a language model should score the right sentence higher: a file or folder of BLiMP's, or a table of
    good, bad and optionally group"""
    limit: int | None = Field(None, gt=0)
    """use only the first pairs of each group, up to this number; default: all"""
    per_token: Advanced[bool] = False
    """compare log-probabilities per token, for pairs whose sentences differ in length"""
    out: Effectless[str | None] = None
    """folder of the report about pairs or two models, by default runs/pairs or runs/against; else of scores.json, which is written
    if a folder is named"""
    document: Advanced[Document] = "paragraph"
    """one document of a text"""


class PredictConfig(TableFlags):
    """Label texts, or answer questions, with an adapted model: one line of JSON per text, or a table with a row for each."""

    model: Positional[FileInput[str]]
    """an adapted model: a bundle, or the folder of a run"""
    texts: Positional[FileInput[tuple[str, ...]]] = ()
    """texts to label, or questions to answer; a single one that is the path of a file or folder stands for ``--file``; a text that
    only reads like a path is given with a blank behind it"""
    file: FileInput[str | None] = None
    """a file of texts: one per line, or a table with a text column, read with the columns and format of the training table; or a
    folder of files, each of which is a text; - reads standard input"""
    second: Advanced[str | None] = None
    """the column of the table that holds the second texts of pairs"""
    out: Effectless[str | None] = None
    """output file: .csv, .tsv, .xlsx and .parquet have the columns of the input, and in its format all else; .jsonl and .ndjson are
    lines of JSON; default: these, to standard output"""
    top: int = Field(3, gt=0)
    """number of most probable labels to print"""
    target_error: float | None = Field(None, gt=0, lt=1)
    """abstain below the confidence threshold that guarantees at most this error rate (labels need a model of fit, or one
    adapted with --calibration-fraction)"""
    confidence_level: Advanced[float] = Field(0.95, gt=0, lt=1)
    """probability with which that error rate is guaranteed"""
    refuse_unknown: bool = False
    """label texts 'none of these' if they resemble those of no label; else they are marked 'unknown'"""
    unknown_share: Advanced[float] = Field(0.05, gt=0, lt=1)
    """share of the texts of known labels that may be marked so, at most"""
    shares: bool = False
    """count: the share of each label among these texts, with its interval; the labelled texts of the fit correct the predictions"""
    by: str | None = None
    """with --shares: a column of the table, whose values are groups with shares of their own (dates: months)"""
    corpus: FileInput[Advanced[tuple[str, ...]]] = ()
    """for answers: text that the model was trained on; questions with names that do not occur in it are flagged and not answered"""

    @model_validator(mode="after")
    def _groups_are_counted(self) -> PredictConfig:
        if self.by and not self.shares:
            raise ValueError("--by counts the labels of each group, so it needs --shares; add it, or leave --by out")
        return self


class CostConfig(Config):
    """Count the parameters, FLOPs and memory of a model, part by part; reads the settings of a pretraining run too."""

    model: Positional[FileInput[str | None]] = None
    """a bundle, or the folder of a run; none: the model that the settings describe"""
    vocab_size: int = Field(TokenizerConfig().vocab_size, gt=0)
    """size of the vocabulary"""
    tokenizer_file: FileInput[Advanced[str | None]] = None
    """take the size of the vocabulary from this tokenizer"""
    backbone: Annotated[NewBackboneConfig, arg(name="")] = NewBackboneConfig()
    head: Advanced[NewLMHeadConfig] = NewLMHeadConfig()
    """the language head"""
    classes: int | None = Field(None, gt=1)
    """use a classification head with this many classes instead"""
    scheme: Annotated[str, AfterValidator(known_scheme)] = "full"
    """trained parameters: any scheme of `warmstart adapt`; a+b combines two"""
    length: int | None = Field(None, gt=0)
    """tokens per row; default: the context length of the backbone"""
    objective: Annotated[ObjectiveConfig, arg(name="")] = ObjectiveConfig()
    batch: int = Field(TrainConfig().batch, gt=0, le=1_000_000)
    """rows in a batch"""
    optimizer: Advanced[Literal["adamw", "muon"]] = TrainConfig().optimizer
    """AdamW for all parameters, or Muon for the matrices inside the blocks and AdamW for the rest"""

    @model_validator(mode="before")
    @classmethod
    def _from_pretraining(cls, values: Any) -> Any:
        """Keys of a pretraining run that do not matter for its cost are ignored; ``init_from`` names the model."""
        if not isinstance(values, dict):
            return values
        ignored = PretrainConfig.model_fields.keys() - cls.model_fields.keys()
        kept = {name: value for name, value in values.items() if name not in ignored}
        if "text" in values:  # missing training settings have the defaults of pretraining
            train = PretrainTrainConfig.build(values.get("train") or {}, "train")
            tokenizer = TokenizerConfig.build(values.get("tokenizer") or {}, "tokenizer")
            kept |= {"batch": train.batch, "optimizer": train.optimizer, "vocab_size": tokenizer.vocab_size}
        return {"model": values["init_from"], **kept} if values.get("init_from") else kept

    @model_validator(mode="after")
    def _known(self) -> CostConfig:
        from warmstart.objectives.registry import OBJECTIVES

        OBJECTIVES[self.objective.name]
        return self


class ExportConfig(Config):
    """Write a model in a format that other tools read."""

    model: Positional[FileInput[str]]
    """a bundle, or a run's folder"""
    out: Effectless[str | None] = None
    """folder to create; of a page the file, by default the model's name and .html"""
    to: Literal["hf", "sentence-transformers", "onnx", "page"] = "hf"
    """hf: config.json, model.safetensors and tokenizer.json, as transformers reads them; sentence-transformers: the same without
    the head, and with how a text becomes one vector; onnx: one graph from token ids to the head's output, for onnxruntime; of a
    stack, a graph or numbers for each member, and a script; page: one HTML file with the model inside, 8 bits for each weight, that
    any browser opens without a server or a network"""
    int8: bool = False
    """onnx: also write the graph with 8-bit weights"""
    task: TaskInput[str | None] = None
    """onnx: the task's manifest (YAML); reports the score and the speed of each form on its test split"""

    @property
    def folder(self) -> str:
        """The folder to create. Raises ``ConfigError`` if none is named."""
        if self.out is None:
            raise ConfigError(f"--to {self.to} needs the folder to create; name it with --out")
        return self.out


class AuditConfig(LabelledTableFlags):
    """Check a task's data: leaks between splits, duplicates, conflicting labels, empty texts, and how often test was scored."""

    task: Positional[TaskInput[str]]
    """the task: a manifest (YAML), a table of texts and labels, or a folder with a folder of texts per label"""
    model: FileInput[str | None] = None
    """also count the tokens that this model truncates or does not know: a bundle, or the folder of a run"""
    text: FileInput[tuple[str, ...]] = ()
    """pretraining text (files or folders): also count the test texts that occur in it"""
    drop_leaks: bool = False
    """drop leaks first, and audit the rest"""
    drop_near_leaks: bool = False
    """drop leaks and texts that are nearly the same as one of a later split, and audit the rest"""


class DoctorConfig(Config):
    """Check that a model is complete and undamaged, gives the outputs stored when it was saved, and agrees with its settings."""

    model: Positional[str]
    """a bundle, the folder of a run, hf:FOLDER for a model in the Hugging Face format, or a page that `export --to page` wrote"""
    bundle: str | None = None
    """model that a page must come from; its weights are compared with those in the page"""


class ImportConfig(Config):
    """Save a pretrained model (in the Hugging Face format, a GGUF file, an encoder) as a bundle, or fetch a public data set."""

    source: Positional[FileInput[str | None]] = None
    """the model's folder (config.json, model.safetensors, tokenizer.json), hf:OWNER/NAME on the hub, FILE.gguf, or an encoder; or
    the address of a data set; default: list the encoders"""
    out: Effectless[str | None] = None
    """folder of the bundle, or of the data set; one that holds the data set is not downloaded again"""
    checksum: str | None = Field(None, pattern="^(sha256|md5):[0-9a-f]+$")
    """digest that the file of a data set at https://… must have: sha256:… or md5:…"""
    max_length: int | None = Field(None, gt=0)
    """maximum length; default: that of the model, with rotary positions at most 8192"""
    list: bool = False
    """list the encoders: the pretrained models that have a name, with what they have read"""
    speed: bool = False
    """measure for --list how many texts of 30 words each installed encoder reads in a second here; the figures are kept"""
