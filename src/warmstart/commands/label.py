"""``label``: people give labels in the browser, a model learns along and chooses texts, and an estimate says when it is enough.

The project, its files and their import and export and its page are in ``app``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field
from tyro.conf import Positional, arg

from warmstart.app.guard import AccessSettings, missing_extra
from warmstart.config import Advanced, Effectless
from warmstart.data.files import open_text
from warmstart.data.source import LabelledTableFlags
from warmstart.errors import ConfigError, StorageError
from warmstart.runs.steps import command
from warmstart.system.console import console
from warmstart.system.limits import YAML_BYTES
from warmstart.system.locks import LOCK, holder_of

WORD_VECTORS = "words"
"""name that stands for vectors made from the words of the pool, without a model"""
LISTED_LABELS = 20
"""new labels that an import names"""

if TYPE_CHECKING:
    from warmstart.app.exchange import ImportSummary
    from warmstart.app.pool import PoolTexts
    from warmstart.app.project import Project
    from warmstart.app.session import LabelSession
    from warmstart.data.task import Task
    from warmstart.model.bundle import Bundle


class LabelConfig(AccessSettings, LabelledTableFlags):
    """Label texts in the browser; the same --out continues a project with its settings."""

    pool: Positional[tuple[str, ...]] = ()
    """texts to label: files or globs with a text on each line, or tables (--text-column); not needed to go on"""
    out: Effectless[str]
    """folder of the project"""
    labels: tuple[str, ...] = ()
    """names of the labels, with spaces or commas between; more can be added on the page"""
    type: Literal["classification", "tagging"] | None = None
    """unit of a label: a text (classification, the default) or a word (tagging)"""
    task: str | None = None
    """a table or a manifest whose name, type and labels are taken; its training texts are labelled already, its test texts never
    shown, and rows of a table without a label are still to be labelled"""
    guidelines: str | None = None
    """guidelines for labelling: a file, or the words themselves"""
    price: float | None = Field(None, gt=0)
    """price of one label, for the estimated cost of more labels"""
    target: float | None = Field(None, gt=0, lt=1)
    """accuracy to reach, such as 0.9; the page says when it is proven"""
    judge: str | None = None
    """name of the person who settles disagreements; default: whoever has not answered that text"""
    suggest: Advanced[Literal["yes", "no"] | None] = None
    """whether the label that the model finds likely stands beside texts that are not drawn at random, to be accepted by Enter; only
    the others then tell the accuracy; default: as before, at first no"""
    mixture: tuple[str, ...] = ()
    """how the next text is drawn, such as random=0.5 uncertain=0.3 diverse=0.2 (the default); doubtful=0.05 and overlap=0.1 are
    shares of all turns, for likely wrong labels and for second answers"""
    vectors: str | None = None
    """a model whose frozen vectors the learner reads, or "words": vectors made from the words of the pool; default: as before, at
    first words"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """import labels from tables, then exit: csv, tsv, json, ndjson or parquet with the columns text, label and, if known, person"""
    export: str | None = None
    """write the labels and a task.yaml into this folder, then exit"""
    export_test: Literal["fraction", "random"] = "fraction"
    """test texts of the export: a fraction of all labelled texts, or the randomly drawn ones"""
    form: Advanced[Literal["csv", "ndjson"] | None] = None
    """format of exported labels; default: csv, for tagging ndjson"""
    safe_csv: Advanced[bool] = False
    """write ' before cells of an exported csv that a spreadsheet would run as formulas"""
    add: bool = False
    """add the texts of POOL to the project"""
    seed: Advanced[int] = 0
    """seed of the draws"""

    @property
    def names(self) -> tuple[str, ...]:
        """The labels; one word with commas in it are several."""
        several = self.labels[0].split(",") if len(self.labels) == 1 else self.labels
        return tuple(name.strip() for name in several)


def label(config: LabelConfig) -> None:
    """The ``label`` command: open or make the project; read labels into it or write them, and end; else serve until it is ended."""
    from warmstart.app.choosing import Mixture

    Mixture.of(_shares(config.mixture))
    encoder = None
    if config.vectors and config.vectors != WORD_VECTORS:  # a model that cannot be loaded is not recorded
        from warmstart.interop.encoders import find_model
        from warmstart.model.files import load_bundle

        encoder = load_bundle(find_model(config.vectors))
    rules = config.rules()
    if config.add and not config.pool:
        raise ConfigError("--add takes the new texts of files into a project; name the files, or leave --add out")
    if config.export is None and not config.imports:
        try:
            from warmstart.app.label_routes import make_label_app
            from warmstart.app.running import listen, run
        except ImportError as error:
            raise missing_extra("label", error) from None
    with _project(config) as project:
        if config.imports:
            from warmstart.app.exchange import import_files
            from warmstart.app.pool import held_out_texts

            console.print(import_sentence(import_files(project, config.imports, held_out_texts(project), config.reading)))
        console.print(project_sentence(project))
        if config.export is not None:
            _export(project, config)
        elif config.imports:
            from warmstart.app.training import after_labelling

            console.print(*after_labelling(project), sep="\n")
        if config.export is not None or config.imports:
            return
        with (  # an address that is taken is said before the vectors are made
            listen(config.host, config.port) as listening,
            _session(project, config.seed, encoder) as session,
        ):
            run(make_label_app(session, rules), listening, config.host)


@contextmanager
def _session(project: Project, seed: int = 0, encoder: Bundle | None = None) -> Iterator[LabelSession]:
    """People label; at the end it is said how good the model is, and what comes next."""
    from warmstart.app.session import LabelSession
    from warmstart.app.training import after_labelling

    with closing(LabelSession.open(project, seed, encoder)) as session:
        try:
            yield session
        finally:
            trained = session.training.verdict
            sentence = trained.headline if trained else session.status()["sentence"]
            console.print(*filter(None, [sentence, *after_labelling(project)]), sep="\n")


@contextmanager
def labelling(folder: str, model: str) -> Iterator[LabelSession]:
    """A session on the project in a folder; a new one has the texts and labels from which the run of a model learned.

    Raises ``ConfigError`` if there is no project, and the run names no table or task.
    """
    from warmstart.runs.made_of import run_of, task_named

    config = LabelConfig(out=folder)
    if not _is_project(folder):
        run = run_of(model)
        task = task_named(run) if run else None
        if task is None or not task.path.exists():
            words = ["--task", str(task.path)] if task else []
            raise ConfigError(
                f"{folder} must hold a project, or the table from which {model} learned must be where it was, but neither is so; "
                f"make a project first, with `{command('label', *words, '--out', folder)}`"
            )
        config = LabelConfig.build({"out": folder, "task": str(task.path), **task.flags.to_dict()})
    with _project(config, labelled=True) as project:
        console.print(project_sentence(project))
        with _session(project) as session:
            yield session


def _is_project(folder: str) -> bool:
    from warmstart.app.tables import BACKUP, DATABASE

    return any((Path(folder) / name).exists() for name in (DATABASE, BACKUP))


def _project(config: LabelConfig, *, labelled: bool = False) -> Project:
    """The project of the folder, with all that the settings add; made if there is none, also of texts that are all ``labelled``."""
    from warmstart.app.exchange import take_rows
    from warmstart.app.pool import read_pool, task_answers, task_to_label
    from warmstart.app.project import Project

    there = _is_project(config.out)
    if there and config.export and (server := holder_of(Path(config.out) / LOCK)):
        raise StorageError(
            f"{config.out} is being labelled (process {server.process}); the button Export of its page writes the task meanwhile"
        )
    project = Project.open(config.out) if there else None
    try:
        manifest = config.task or (project.task if project and config.pool else None)
        table = _table(config) or dict(project.table if project else {})
        task = task_to_label(manifest, table) if manifest else None
        rows = task_answers(task) if task and config.task else []
        pool = read_pool(config.pool, task, config.reading) if config.pool or not project else None
        if pool:
            console.print("".join(pool_sentences(pool)), end="")
        if project is None:
            texts = pool.texts if pool else ()
            project = _made(config, texts or tuple(row.text for row in rows if labelled), task)
            if task and (held_out := sum(map(len, task.held_out().values()))):
                console.print(f"{held_out:,} labelled texts of '{task.name}' are held out for test, and never shown.")
            project.change_settings(**_settings(config) | _installed_vectors(config, project))
        else:
            _check_settings(project, config, task)
            if pool and config.pool:
                _compare_pools(project, pool.texts, add=config.add)
            project.set(guidelines=_guidelines(config.guidelines), price=config.price)
            before = project.settings
            for name, value in project.change_settings(**_settings(config)).items():
                console.print(changed_sentence(name, value, getattr(before, name)))
        take_rows(project, rows)
    except BaseException:
        if project is not None:
            project.close()
        raise
    return project


def _made(config: LabelConfig, texts: Sequence[str], task: Task | None) -> Project:
    """A new project."""
    from warmstart.app.project import Project
    from warmstart.data.annotations import OUTSIDE_NAME

    if not config.pool and not texts:
        also = ", which may be those of --import" if config.imports else ""
        raise ConfigError(f"{config.out} holds no project yet; name files with texts to make one{also}")
    names = dict.fromkeys((*(task.labels if task else ()), *config.names))
    kind = task.type if task else config.type or "classification"
    if config.type not in (None, kind):
        raise ConfigError(f"the type must be that of the task, which is {kind}, but is {config.type}; leave --type out")
    names.pop(OUTSIDE_NAME if kind == "tagging" else "", None)
    if len(config.names) != len(set(config.names)):
        raise ConfigError("each label needs its own name, but --labels repeats one; name each once")
    if not names and not config.imports:
        raise ConfigError("there must be labels to choose from; name them with --labels, --task or --import")
    return Project.create(
        config.out,
        name=task.name if task else Path(config.out).resolve().name,
        type="tagging" if kind == "tagging" else "classification",
        labels=[*names],
        texts=texts,
        guidelines=_guidelines(config.guidelines) or "",
        price=config.price,
        task=str(task.manifest.resolve()) if task and task.manifest else "",
        table=_table(config) if task else {},
    )


def _table(config: LabelConfig) -> dict[str, Any]:
    """The flags that say how a table is read."""
    return {name: value for name in LabelledTableFlags.model_fields if (value := getattr(config, name)) not in (None, True)}


def _settings(config: LabelConfig) -> dict[str, Any]:
    """The settings that the project keeps until another start changes them; None: as before."""
    vectors = config.vectors
    if vectors and (there := Path(vectors)).exists():
        vectors = str(there.resolve())  # a later start may be made elsewhere
    return {
        "vectors": "" if vectors == WORD_VECTORS else vectors,
        "target": config.target,
        "mixture": _shares(config.mixture) or None,
        "suggest": config.suggest and config.suggest.replace("no", ""),
        "judge": config.judge and config.judge.strip(),
    }


READ_AT_ONCE = 5000
"""texts of a pool that an installed encoder reads before the first one is shown, unless --vectors names it: half a minute"""


def _installed_vectors(config: LabelConfig, project: Project) -> dict[str, str]:
    """The encoder whose vectors help the learner of a new project, if one is installed that has read the language."""
    served = config.export is None and not config.imports
    if config.vectors is not None or not served or project.type == "tagging" or len(project.texts) > READ_AT_ONCE:
        return {}
    from warmstart.commands.fit.command import encoders_for

    names, _ = encoders_for((), project.texts)
    if not names:
        return {}
    console.print(f"The learner reads vectors of {names[0]}, which is installed; --vectors words does without.")
    return {"vectors": names[0]}


def _check_settings(project: Project, config: LabelConfig, task: Task | None) -> None:
    """Take in new labels. Raises ``ConfigError`` for settings that a project cannot change."""
    if config.type not in (None, project.type):
        raise ConfigError(f"the type of a project stays, and this one is {project.type}; leave --type out, or choose another --out")
    manifest = str(task.manifest.resolve()) if task and task.manifest else ""
    if config.task and manifest != project.task:
        raise ConfigError(
            f"the task of a project stays, and this one has {project.task or 'none'}; leave --task out, or choose another --out"
        )
    known = project.label_ids()
    for name in dict.fromkeys(config.names):
        if name.strip() not in known:
            project.add_label(name, "")


def _compare_pools(project: Project, texts: Sequence[str], *, add: bool) -> None:
    """Raise ``ConfigError`` if files hold other texts than the project, unless the new ones are to be added."""
    from warmstart.app.tables import IMPORTED

    imported = {draw.text for draw in project.draws() if draw.queue == IMPORTED}
    new = {*texts}.difference(project.texts)
    missing = {text for number, text in enumerate(project.texts) if number not in imported}.difference(texts)
    if (new or missing) and not add:
        raise ConfigError(
            f"the files must hold the texts of the project in {project.folder}, but {len(new):,} of them are new and "
            f"{len(missing):,} are missing; --add takes the new ones in (none is removed), or leave the files out to go on"
        )
    added = project.add_texts(texts)
    if add:
        console.print(f"{added:,} texts are new.")


def _guidelines(guidelines: str | None) -> str | None:
    """The words of a file, or the words themselves."""
    if guidelines is None or "\n" in guidelines or len(guidelines) > 255:
        return guidelines
    meant = Path(guidelines).suffix and " " not in guidelines.strip()  # a file, even if there is none
    if not meant and not Path(guidelines).is_file():
        return guidelines
    with open_text(Path(guidelines), "utf-8") as text:
        return text.read(YAML_BYTES)


def _shares(mixture: Sequence[str]) -> dict[str, float]:
    """``("random=0.5", "uncertain=0.5")``, or the same with a comma -> name and share of each."""
    shares = {}
    for word in (part for entry in mixture for part in entry.split(",") if part.strip()):
        name, _, share = word.partition("=")
        try:
            shares[name.strip()] = float(share)
        except ValueError:
            raise ConfigError(f"a mixture must be written as random=0.5 uncertain=0.5, but one part is '{word}'") from None
    return shares


def _export(project: Project, config: LabelConfig) -> None:
    from warmstart.app.exchange import export, formula_texts
    from warmstart.runs.steps import learning_step, terminal_lines

    form = config.form or ("ndjson" if project.type == "tagging" else "csv")
    written = export(project, config.export or "", form, config.export_test, safe_csv=config.safe_csv)
    parts = [f"{count:,} {name}" for name, count in written.items() if name != "task"]
    console.print(f"{written['task']}: {' and '.join(parts)} texts.")
    if form == "csv" and not config.safe_csv and (formulas := formula_texts(project)):
        console.print(
            f"{formulas:,} texts or labels begin with =, +, -, @ or a tab, which spreadsheets run as formulas; --safe-csv writes ' "
            "before them."
        )
    if config.export_test == "random" and not project.task:
        others = len(project.labelled()) - int(written["test"])
        console.print(
            f"The test texts were drawn at random from those without an answer; {others / len(project.texts):.1%} of the pool were "
            "labelled otherwise: the smaller that share, the more the test texts are like the pool."
        )
    elif "test" not in written:
        console.print(
            "fit learns from all labelled texts, each left out in turn to say how good it is; other commands hold out a fifth of "
            "them for test."
        )
        if any(draw.component not in ("", "random") for draw in project.draws()):
            console.print(
                "Some were chosen because the model was unsure of them or they are unlike others, so scores are not those of new "
                "texts; --export-test random writes a test split of texts that were drawn at random."
            )
    console.print(*terminal_lines([learning_step(project.type, written["task"])]), sep="\n")


# ------------------------------------------------------------------------------------------------ sentences


def project_sentence(project: Project) -> str:
    """The state of the project, and the settings with which it goes on."""
    kept = ", ".join(f"{name} {_words(value)}" for name, value in vars(project.settings).items() if value not in ("", None, {}))
    return (
        f"{project.folder}: {len(project.labelled()):,} of {len(project.texts):,} texts are labelled, with "
        f"{len(project.labels())} labels; {len(project.disagreements()):,} disagreements." + f" Settings: {kept}." * bool(kept)
    )


def changed_sentence(name: str, value: Any, before: Any) -> str:
    """That a setting of the project is another one."""
    return f"Changed for this project: {name} was {_words(before)} and is {_words(value)} from now on."


def _words(value: Any) -> str:
    """A setting as it is written on the command line."""
    shares = value.items() if isinstance(value, Mapping) else ()
    return " ".join(f"{name}={share:g}" for name, share in shares) or str(value or "the default")


def pool_sentences(pool: PoolTexts) -> list[str]:
    """Lines about texts that were left out of the files."""
    repeated = [f"{pool.repeated:,} texts are repeated, and are taken once.\n"] if pool.repeated else []
    left_out = [f"{pool.left_out:,} texts are left out: they are like test or validation texts of the task.\n"]
    return [*repeated, *(left_out if pool.left_out else [])]


def import_sentence(summary: ImportSummary) -> str:
    """The summary of an import."""
    people = len(summary.people)
    parts = [
        f"{summary.answers:,} answers of {people} {'person' if people == 1 else 'people'} are imported",
        f"{summary.new_texts:,} texts are new" if summary.new_texts else "",
        f"new labels: {_listed(summary.new_labels)}" if summary.new_labels else "",
        f"{summary.unlabelled:,} rows have no label" if summary.unlabelled else "",
        f"{summary.left_out:,} rows are left out, for their texts are like test or validation texts" if summary.left_out else "",
        f"{summary.known:,} rows had been imported before" if summary.known else "",
    ]
    return "; ".join(part for part in parts if part) + "."


def _listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - LISTED_LABELS:,} more" if len(names) > LISTED_LABELS else ""
    return f"{', '.join(names[:LISTED_LABELS])}{more}"
