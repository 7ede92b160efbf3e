"""The settings of `adapt`, and of a race: methods, numbers of labels, seeds, learning rates and time."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field
from tyro.conf import Positional, UseAppendAction, arg

from warmstart.config import Advanced, Effectless, FileInput, TaskInput, ThreadsConfig
from warmstart.data.source import LabelledTableFlags
from warmstart.finetuning.config import FineTuneConfig, RaceTuneConfig
from warmstart.finetuning.schemes.registry import known_scheme
from warmstart.system.backends import PROCESSES, known_backend
from warmstart.system.console import console
from warmstart.types import SelectionName


def duration(text: str) -> str:
    """The text itself if it is a number with s, m or h after it; a number alone means minutes."""
    if not re.fullmatch(r"\d+(\.\d+)?\s*[smh]?", text):
        raise ValueError(f"must be a time such as 90s, 30m or 2h; got {text!r}")
    return text


def duration_seconds(text: str) -> float:
    """``duration_seconds("30m")`` -> 1800."""
    number, unit = float(text.rstrip(" smh")), text[-1]
    return number * {"s": 1, "h": 3600}.get(unit, 60)


SEEDS, CHEAP_SEEDS = 5, 10
"""default number of seeds of a race: if a backbone is fine-tuned, and if none is, where twice the seeds cost seconds"""
FEW_LABELS = 300
"""number of labels below which a choice of learning rate and length gains less than it costs (results/other.md)"""
SchemeName = Annotated[str, AfterValidator(known_scheme)]
LearningRate = Annotated[float, Field(gt=0)]


def _several(labels: Any) -> Any:
    """A number as a tuple of it, and None as an empty one."""
    return () if labels is None else (labels,) if isinstance(labels, int) else labels


def increasing(labels: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers themselves, if each is larger than the one before."""
    if list(labels) != sorted(set(labels)) or (labels and labels[0] < 2):
        raise ValueError(f"must be increasing numbers from 2 on; got {' '.join(map(str, labels))}")
    return labels


def selection_or_default(selection: SelectionName | None, labels: int | None) -> SelectionName:
    """The selection that is given, or the default for this number of labels."""
    return selection or ("holdout" if labels is None else "cross-validation")


class AdaptConfig(LabelledTableFlags):
    """Swap a model's head, fine-tune it on labels over several seeds, and compare it with methods that need no pretraining."""

    model: Positional[FileInput[str]]
    """the pretrained model: a bundle, the folder of a run, or the name of an encoder: minilm, e5, mpnet or smollm2"""
    task: Positional[TaskInput[str]]
    """the task: a manifest (YAML), a table of texts and labels, or a folder with a folder of texts per label"""
    out: Effectless[str] = "runs/adapt"
    """folder of the run"""
    tune: Annotated[FineTuneConfig, arg(name="")] = FineTuneConfig()
    seeds: int = Field(3, gt=0)
    """number of seeds; fewer than three give wide intervals"""
    seed: int = Field(0, ge=0)
    """the first seed"""
    scratch: bool = True
    """also train the same network from scratch"""
    scratch_time: Advanced[float] = Field(3, ge=0, allow_inf_nan=False)
    """longest time of a run from scratch, in times that of a pretrained run, but no less than a minute: by a measured step it takes
    a half, a quarter and so on of its steps if all would take longer; 0: no limit"""
    baselines: bool = True
    """also run the majority label and TF-IDF + logistic regression"""
    labels: int | None = Field(None, gt=0)
    """number of labelled texts that anything may look at, to learn or to choose; each seed draws its own; default: all"""
    selection: SelectionName | None = None
    """procedure that chooses settings: cross-validation on the texts that learn, a holdout (with --labels a fifth of them) or none;
    default: cross-validation with --labels or without validation texts, also below 300, where a race takes none: out-of-fold
    predictions give the temperature; otherwise the validation split as a holdout"""
    calibration_fraction: Advanced[float] = Field(0.0, ge=0, lt=1)
    """fraction of the validation texts (with --labels: of the labels) that chooses nothing, so that `predict --target-error` can
    give a guarantee; of a task of answers 0 means a half"""
    ensemble: Advanced[bool] = False
    """all seeds as one model, a stack with the mean of their predictions, saved if it is no worse than a single seed on the texts
    that choose; with --labels all seeds then learn from those of the first"""
    drop_leaks: bool = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    details: Effectless[Advanced[bool]] = False
    """also print what its page has: every step, tables and tests"""
    tensorboard: Effectless[Advanced[bool]] = False
    """write every training run as event files of TensorBoard, too"""
    scratch_epochs: Advanced[float] = Field(75, gt=0)
    """answers: passes of the same network from scratch, which needs more of them"""
    target_error: Advanced[float] = Field(0.1, gt=0, lt=1)
    """answers: largest error rate among the answers given; below the threshold for it, the model abstains"""
    confidence_level: Advanced[float] = Field(0.95, gt=0, lt=1)
    """answers: probability with which that error rate is guaranteed"""

    @property
    def chosen_selection(self) -> SelectionName:
        """The name of the procedure that chooses settings."""
        return selection_or_default(self.selection, self.labels)


class RaceConfig(LabelledTableFlags):
    """Run every way to adapt on one task, on the same splits and seeds, and recommend the best on texts that were left out."""

    task: Positional[TaskInput[str]]
    """the task: a manifest (YAML), a table of texts and labels, or a folder with a folder of texts per label"""
    backbones: FileInput[tuple[str, ...]] = ()
    """pretrained models: bundles, folders of runs, or encoders; pool: a small one that is pretrained on the task's own text first;
    default: the encoders that are installed, but no slow one"""
    schemes: tuple[SchemeName, ...] = ("full", "lp-ft", "discriminative", "lora", "houlsby")
    """ways to adapt each backbone, a+b combines two; probe and scalar-mix always run, and alone if neither schemes nor backbones
    are given; with several numbers of labels, lp-ft beside them if no schemes are given; with fewer than 300 labels, one a text,
    contrast, too, if none are"""
    methods: Advanced[tuple[str, ...]] = ()
    """only these methods, called as in the table, or by the name of a scheme; default: all"""
    labels: Annotated[tuple[int, ...], BeforeValidator(_several), AfterValidator(increasing)] = ()
    """number of labelled texts, drawn anew for each seed: everything labelled that anything looks at; several, increasing: also
    what more labels would bring; default: all"""
    target: Advanced[float | None] = Field(None, gt=0, lt=1)
    """score to reach, with several numbers of labels; default: half the error of the best method at the largest of them"""
    save: str | None = None
    """save a method as a model, OUT/bundle: recommended, or its name in the table, such as stack. It is fitted again with the
    first seed: one more fit of each network in it"""
    resample: Advanced[bool] = False
    """draw a new split of all labelled texts with each seed, so that intervals also cover the chance of the split"""
    out: Effectless[str] = "runs/race"
    """folder of the run; with the folder of an earlier run, continue it"""
    details: Effectless[Advanced[bool]] = False
    """also print what its page has: every trial, tables and tests"""
    learning_rates: Annotated[tuple[LearningRate, ...], Field(min_length=1)] = (2e-4, 5e-4, 1.5e-3)
    """learning rates that each method chooses from; probe and scalar-mix also try ten times each"""
    selection: SelectionName | None = None
    """procedure that chooses settings: cross-validation on the labels, holdout (a fifth of them), or none (fixed, least time);
    default: with --labels, or without validation texts, none below 300 labels unless several learning rates are named, and
    cross-validation with more; otherwise holdout"""
    pool: FileInput[Advanced[str]] = "rest"
    """text of the task without labels, for methods that read it: rest (also the training texts beyond --labels), none, or a file"""
    seeds: int | None = Field(None, gt=0)
    """number of seeds; fewer than three give wide intervals; default: 10 if no backbone is fine-tuned, otherwise 5"""
    seed: Advanced[int] = Field(0, ge=0)
    """the first seed; a choice of learning rates without --labels has it for itself"""
    budget: Annotated[str, AfterValidator(duration)] | None = None
    """time for all trials, such as 30m; the same command runs the rest later"""
    estimate: bool = False
    """print the estimated time, trained parameters and saved size, then exit"""
    jobs: Effectless[Advanced[int]] = Field(1, gt=0)
    """trials at once; each gets its share of the cores"""
    threads: Effectless[Advanced[int | None]] = Field(None, gt=0)
    """threads of each trial, the same wherever it runs; default: those recorded in the folder, otherwise the share of the cores"""
    backend: Effectless[Advanced[Annotated[str, AfterValidator(known_backend)]]] = PROCESSES
    """place of the trials: processes (--jobs of this machine), or dask://HOST:PORT, the workers of a cluster"""
    scratch: Advanced[bool] = True
    """also train the same network from scratch"""
    drop_leaks: Advanced[bool] = False
    """drop training texts that are also in validation or test, and validation texts that are also in test"""
    drop_near_leaks: Advanced[bool] = False
    """drop these, and texts that are nearly the same as one of validation or test"""
    tune: Annotated[RaceTuneConfig, arg(name="")] = RaceTuneConfig()

    def completed(self) -> Self:
        """The settings with default backbones and schemes where none are named. Raises ``ConfigError`` if there is no backbone."""
        from warmstart.baselines import BASELINES
        from warmstart.interop.encoders import encoders_at_hand

        named = self.schemes != type(self).model_fields["schemes"].default
        if self.backbones or (self.methods and all(name in BASELINES for name in self.methods)):
            schemes = self.schemes if named or len(self.labels) < 2 else ("lp-ft",)
            return self.model_copy(update={"schemes": schemes})
        cheap = self.model_copy(update={"backbones": encoders_at_hand(), "scratch": False})
        if named:
            return cheap
        console.print("Nothing is fine-tuned, so that it takes minutes; --schemes full lora, or others, fine-tunes.")
        return cheap.model_copy(update={"schemes": ()})

    @property
    def fine_tuning(self) -> FineTuneConfig:
        """The settings of fine-tuning, before a method sets its scheme and learning rate."""
        return self.tune.complete()

    @property
    def numbers_of_labels(self) -> tuple[int | None, ...]:
        """Numbers of labelled texts of the trials, increasing; None: all."""
        return self.labels or (None,)

    def selection_with(self, labels: int | None) -> SelectionName:
        """The procedure that chooses the settings of a trial with this number of labels.

        The same at every number of labels, so that points of the curve compare: that of the smallest.
        """
        labels = self.labels[0] if len(self.labels) > 1 else labels
        default_rates = type(self).model_fields["learning_rates"].default
        names_rates = len(self.learning_rates) > 1 and self.learning_rates != default_rates
        if self.selection is None and labels is not None and labels < FEW_LABELS and not names_rates:
            return "none"
        return selection_or_default(self.selection, labels)


Metric = Literal["accuracy", "macro_f1", "micro_f1", "subset"]


FINE_TUNING = ("contrast",)
"""the best way with few labels (results/performance.md)"""


class FitConfig(LabelledTableFlags):
    """Make the best model that your labels allow within minutes, and say how good it will be on new texts."""

    data: Positional[TaskInput[str]]
    """texts and labels: a table (csv, tsv, xlsx, parquet, ndjson), a folder with a folder of texts per label, or a manifest; rows
    of a table without a label are texts to read; with --add, the folder of an earlier fit"""
    add: FileInput[Annotated[tuple[str, ...], UseAppendAction]] = ()
    """table of more labels, for the model of an earlier fit, whose folder is then DATA: the model of all labels takes its place if
    it is right on as many texts or more; the earlier one is kept in its folder before. For two tables: --add A --add B"""
    unlabelled: FileInput[tuple[str, ...]] = ()
    """files of more texts without labels"""
    votes: str | None = None
    """the column of DATA with the labels that a language model gives; rows without a label then teach by these votes, as far as
    they agree with your labels and help"""
    test: FileInput[str | None] = None
    """labelled test texts, in a table like DATA; default: each labelled text is left out in turn"""
    labels_file: FileInput[str | None] = None
    """file with descriptions of labels, for methods that read names: lines of a label, a tab and its description, a csv of the two
    columns, or YAML (label: description); labels that only this file names count as labels without a text"""
    metric: Metric | None = None
    """the score that chooses the best method and is reported: accuracy, or the mean F1 over labels (macro_f1), where a rare label
    counts as much as a frequent one; of several labels per text also micro_f1 (all labels together) and subset (all labels right);
    default: accuracy, of several labels micro_f1, or the manifest's metric"""
    random_sample: bool = False
    """the labelled texts are a random sample, so that their frequencies of labels hold for new texts; default: every label is as
    likely before a text is read"""
    columns: tuple[str, ...] = ()
    """other columns of the table that are read beside the text, such as price country; default: all of numbers, categories or
    dates that help, but none that gives the label away"""
    no_columns: bool = False
    """read the text alone"""
    minutes: float = Field(3, gt=0)
    """time limit in minutes, approximate"""
    encoders: FileInput[tuple[str, ...]] = ()
    """models that turn texts into vectors; default: those installed, but none that is slow or does not know the language"""
    schemes: tuple[SchemeName, ...] = FINE_TUNING
    """ways to fine-tune them (full, lora, …); one that would exceed --minutes is skipped"""
    out: Effectless[str] = "runs/fit"
    """folder of the run; the model is in its folder bundle"""
    seed: Advanced[int] = Field(0, ge=0)
    """draws the folds"""


class QuickstartConfig(ThreadsConfig):
    """See in a minute what few labels make and more labels bring, on text that every installation already has."""

    out: Effectless[str] = "runs/quickstart"
    """folder of the run; the model is in its folder bundle"""
    labels: Annotated[tuple[int, ...], Field(min_length=1), AfterValidator(increasing)] = (120, 240, 480)
    """numbers of labelled texts: the first makes the model, the others show what more would bring"""
    minutes: float = Field(1, gt=0)
    """time for comparing methods with the fewest labels, about"""
    seed: int = Field(0, ge=0)
    """draws the texts"""
    packages: Advanced[tuple[str, ...] | None] = None
    """packages whose documentation is read; default: the standard library and what warmstart depends on"""
