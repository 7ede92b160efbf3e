"""The methods of a sweep: which take part, on which backbone, and the learning rates each one tries."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmstart.baselines import BASELINES, baselines_for
from warmstart.config import result_key
from warmstart.data.budget import LabelBudget
from warmstart.data.pool import texts_to_read
from warmstart.data.task import Task
from warmstart.errors import BundleError, ConfigError, suggest
from warmstart.experiment.inputs import bundle_at
from warmstart.experiment.trial import OWN_BACKBONE, Method
from warmstart.finetuning.config import FineTuneConfig
from warmstart.finetuning.finetune import check_scheme
from warmstart.finetuning.further import OWN_BACKBONE_SETTINGS, pretrain_on_own_text
from warmstart.finetuning.runs import SCRATCH
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.interop.encoders import find_model
from warmstart.model.files import load_bundle, save
from warmstart.model.folder import model_digest
from warmstart.model.model import parameter_counts
from warmstart.system.console import console
from warmstart.system.storage import sha256
from warmstart.tasks import task_type_of

VOTED_STACK = "stack with votes"
OWN = "own"
"""folder of the backbones that were pretrained on the task's own text, in the folder of the run"""


def list_methods(
    task: Task, backbones: Sequence[str], schemes: Sequence[str], tune: FineTuneConfig, *, scratch: bool, pool: bool = False
) -> list[Method]:
    """All methods, cheapest first; those that read the pool only if there is one.

    Raises ``ModelError`` or ``ConfigError`` if a scheme does not fit a backbone.
    """
    baselines, tuned = baselines_for(task, pool=pool, vectors=True), list[Method]()
    methods = [Method(name=name, family="baseline") for name, baseline in baselines.items() if not baseline.needs_vectors]
    for path, suffix in zip(backbones, _suffixes(backbones), strict=True):
        digest, bundle = bundle_digest(path), bundle_at(path)
        counts = parameter_counts(bundle.model)
        size = counts["embedding"] + counts["blocks"]
        own: dict[str, Any] = {"backbone": path, "backbone_digest": digest, "backbone_parameters": size}
        for name in (name for name, baseline in baselines.items() if baseline.needs_vectors):
            methods.append(Method(name=f"{name}{suffix}", family="frozen", scheme=name, **own))
        only_read = bundle.model.backbone.config.ngrams
        for scheme in dict.fromkeys(schemes):
            if only_read and not make_scheme(scheme).keeps_features:
                console.print(f"{path} is only read, so {scheme} does not train it")
                continue
            check_scheme(bundle, task, tune.model_copy(update={"scheme": scheme}))
            tuned.append(Method(name=f"{scheme}{suffix}", family="adapted", scheme=scheme, **own))
        if scratch and not only_read:
            tuned.append(Method(name=f"{SCRATCH}{suffix}", family="scratch", **own))
    methods += tuned
    task_type = task_type_of(task)
    stackable = task_type.probabilistic and (task.single_label or task_type.several_labels)
    return [*methods, stack_of(methods)] if stackable else methods


def only_named(methods: Sequence[Method], names: Sequence[str]) -> list[Method]:
    """The methods that are called so in the table, or by their scheme or family (scratch); all of them without names.

    Raises ``ConfigError`` for a name that no method has.
    """
    if not names:
        return [*methods]
    for name in names:
        if not any(name in _called(method) for method in methods):
            raise ConfigError(f"no method of this race is called {name}; {suggest(name, sorted({*map(_short, methods)}))}")
    kept = [method for method in methods if {*names} & _called(method)]
    return [stack_of(kept[:-1]) if method.combines else method for method in kept]


def _short(method: Method) -> str:
    return method.name if method.family == "baseline" else method.scheme or method.family


def _called(method: Method) -> set[str]:
    return {method.name, _short(method)}


def stack_of(methods: Sequence[Method]) -> Method:
    """The combination of the surest of these methods; another one with methods that read votes."""
    of = {"name": VOTED_STACK, "scheme": "votes"} if any(map(reads_votes, methods)) else {"name": "stack"}
    return Method(**of, family="stack", backbone_digest=sha256(json.dumps([method.id for method in methods]).encode()))


def reads_pool(method: Method) -> bool:
    """True if a method reads texts without labels."""
    return method.family in ("baseline", "frozen") and BASELINES[method.scheme or method.name].reads_pool


def reads_votes(method: Method) -> bool:
    """True if a method reads votes of a language model, or may combine methods that do."""
    name = method.scheme or method.name
    return method.scheme == "votes" if method.combines else name in BASELINES and BASELINES[name].reads_votes


FROZEN_RATE, SMALL_RATE, LARGE_RATE = 2e-3, 1e-3, 3e-4
"""learning rates that are good without a choice: with a frozen backbone, a small one and a large one, on development sets
(results/other.md); schemes multiply them for their own parts"""
LARGE = 10_000_000
"""parameters of a large backbone"""


def keeps_backbone(method: Method) -> bool:
    """True if no weight of a backbone trains: words, frozen vectors, and heads alone, which take seconds."""
    return not method.fine_tunes or (method.family == "adapted" and make_scheme(method.scheme).keeps_features)


def learning_rates_for(method: Method, rates: Sequence[float]) -> tuple[float, ...]:
    """The learning rates that a method tries, the one nearest to its default first; with a frozen backbone also ten times each."""
    if not method.fine_tunes:
        return ()
    frozen = keeps_backbone(method)
    larger = [float(f"{10 * rate:.6g}") for rate in rates if frozen]
    default = FROZEN_RATE if frozen else SMALL_RATE if method.backbone_parameters < LARGE else LARGE_RATE
    return tuple(sorted({*rates, *larger}, key=lambda rate: abs(math.log(rate / default))))


def own_backbone(budget: LabelBudget, folder: Path, pool: str) -> Path:
    """The folder of the backbone that is pretrained on the task's own text, made once and kept in the folder of the run.

    It reads the texts of the budget and those of the ``pool`` (as in ``task_pool``), and no label.
    """
    task, text = budget.whole, texts_to_read(budget, pool)
    bundle = folder / OWN / result_key(task.digest, text.texts, OWN_BACKBONE_SETTINGS, budget.seed)[:24] / OWN_BACKBONE
    if not bundle.is_dir():
        bundle.parent.mkdir(parents=True, exist_ok=True)
        save(pretrain_on_own_text(task.name, text, budget.seed), bundle)
    return bundle


def with_own_pretraining(method: Method, backbone: Path) -> Method:
    """The method itself; one on the backbone that was pretrained on the task's own text with the cost of that."""
    if method.backbone != str(backbone):
        return method
    if method.family == "scratch":
        return method.model_copy(update={"own_pretraining": "of the shape of the backbone that is pretrained on the task's text"})
    record = load_bundle(backbone).history[-1]
    seconds, texts = record.seconds or 0.0, record.data[-1].sizes["texts"]
    own = f"after {seconds:.0f} s of pretraining on {texts:,} texts of the task, once"
    return method.model_copy(update={"own_pretraining": own, "pretraining_seconds": seconds})


def bundle_digest(path: str) -> str:
    """Identifies a bundle by its manifest, which has the hash of every tensor. Raises ``BundleError`` if there is none."""
    if not ((place := find_model(path)) / "bundle.json").is_file():
        raise BundleError(
            f"each backbone must be a saved bundle, a run's folder or an encoder's name, but {path} is none; `warmstart import` "
            "makes a bundle"
        )
    return model_digest(str(place))


def _suffixes(backbones: Sequence[str]) -> list[str]:
    """Suffixes of the backbones in a method's name: empty if there is one, otherwise the folder's name."""
    if len(backbones) == 1:
        return [""]
    if len(set(backbones)) < len(backbones):
        raise ConfigError(
            f"each backbone must be named once, but the backbones are {', '.join(backbones)}; remove the repeated one"
        )
    short = [Path(path).parent.name if Path(path).name == "bundle" else Path(path).name for path in backbones]
    return [f" · {name if short.count(name) == 1 else path}" for name, path in zip(short, backbones, strict=True)]
