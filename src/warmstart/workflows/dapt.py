"""Going on with pretraining on the task's own text before adaptation (Gururangan et al. 2020), if a pilot says that it pays.

The text is what the manifest calls unlabelled (their DAPT) and the training texts without their labels (TAPT); texts that also
stand in validation or test are left out and counted. It is read under the objective that made the model, with its language
head.

The pilot is a first share of the run. What it brought is seen on a held-out part of the text (the objective's loss) and on the
validation split (a logistic regression on frozen features). The run goes on only if both allow it: the loss fell by at least
one per cent, and the probe is not worse by more than one standard error of the paired difference. At the end the same is asked
again. Whatever does not pay is undone: the weights are then those that came, to the bit. The test split is never looked at.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from warmstart.data import Part, Source, Split, Task, documents_of, prepare
from warmstart.data.audit import same_as
from warmstart.data.batch import Rows, pretraining_batches
from warmstart.data.task import plain_text
from warmstart.engine import TrainConfig, Work, console, pick_device, train
from warmstart.errors import ConfigError, DataError
from warmstart.evaluate.language import held_out
from warmstart.evaluate.predict import encode_for
from warmstart.heads import ClassifyHeadConfig
from warmstart.model import Bundle, Model, swap_head
from warmstart.schemes import Language, SchemeOptions
from warmstart.schemes.features import pooled_layers
from warmstart.schemes.language import needed
from warmstart.seeding import derive

SHARE = 0.05
"""of the documents, held out to see what was learned of the text"""
LEAST_GAIN = 0.01
"""share by which the held-out loss must fall"""
LEAST_TEXTS = 40
PROBED = 2000
"""training texts that the probe reads at most"""


@dataclass(frozen=True)
class Evidence:
    """What is known at one moment."""

    moment: str
    loss: float
    """of the objective on held-out text, in nats"""
    probe: float
    """accuracy on the validation split of a logistic regression on frozen features"""
    noise: float
    """standard error of its difference to the first look, text by text"""
    seconds: float
    """of training so far"""


@dataclass(frozen=True)
class Continued:
    """What came of it."""

    bundle: Bundle
    """the model that goes on, or the one that came"""
    evidence: tuple[Evidence, ...]
    """before, after the pilot where there is one, and at the end where it came to that"""
    verdict: str
    """what was decided, and why"""


def continue_pretraining(
    bundle: Bundle, task: Task, options: SchemeOptions, seed: int, text: Split | None = None, apart: Split | None = None
) -> Continued:
    """Go on with pretraining ``bundle`` on the text of ``task``; its labelled training texts serve the probe.

    ``text``: training texts to read without labels, where these are more than the labelled ones. ``apart``: more texts that must
    not be read, because a promise is to be found on them. The bundle that comes back has one more entry in its history. Raises
    ``ModelError`` where the model has no language head, ``DataError`` where there is too little text.
    """
    if task.kind != "label":
        raise ConfigError(f"dapt's pilot needs one label a text, but '{task.name}' is of kind '{task.kind}'; leave dapt out")
    language = needed(Language.of(bundle))
    texts, dropped = gather(task, (text or task.train).texts, apart)
    if len(texts) < LEAST_TEXTS:
        raise DataError(
            f"to go on with pretraining, at least {LEAST_TEXTS} texts are needed, a part of which is held out, but "
            f"{len(texts)} came; give more under 'unlabelled', or leave dapt out"
        )
    console.print(f"going on with pretraining on {len(texts):,} texts; {dropped} left out that stand in validation or test")
    model = copy.deepcopy(bundle.model).to(pick_device())
    with TemporaryDirectory() as folder:
        kept, held = _rows(texts, bundle, language, Path(folder))
        look = _Look(bundle, task, held)
        evidence, verdict, spent = [look.at("before", model, 0.0)], "", 0.0
        parts = {"pilot": options.pilot, "end": 1 - options.pilot}
        for name in [name for name, share in parts.items() if share]:
            spent += _train(model, kept, options, (name, parts[name], seed))
            evidence.append(look.at(name, model, spent))
            pays, verdict = judge(evidence[0], evidence[-1])
            console.print(f"{name}: {verdict}", markup=False)
            if not pays:
                break
    if not pays:
        model.load_state_dict(bundle.model.state_dict())
    entry = {
        "command": "dapt",
        "objective": language.objective.plain(),
        "generates": bundle.generates,
        "task": task.name,
        "texts": len(texts),
        "dropped": dropped,
        "evidence": [asdict(one) for one in evidence],
        "kept": pays,
        "verdict": verdict,
        "seed": seed,
    }
    return Continued(replace(bundle, model=model.cpu().eval(), history=(*bundle.history, entry)), tuple(evidence), verdict)


def gather(task: Task, training: Iterable[Any], apart: Split | None = None) -> tuple[list[str], int]:
    """The task's text without labels, and how many texts were left out because validation or test has them too, or ``apart``."""
    hidden = [task.validation, task.test, *([apart] if apart else [])]
    secret = {same_as(plain_text(text)) for split in hidden for text in split.texts}
    found = [*documents_of(task.unlabelled), *map(plain_text, training)]
    kept = list(dict.fromkeys(text for text in found if same_as(text) not in secret))
    return kept, sum(same_as(text) in secret for text in found)


def judge(before: Evidence, after: Evidence) -> tuple[bool, str]:
    """Whether it pays, and the sentence that says why."""
    gain = 1 - after.loss / before.loss
    way = "fell" if gain >= 0 else "rose"
    said = (
        f"the held-out loss {way} by {abs(100 * gain):.1f} % ({before.loss:.3f} to {after.loss:.3f} nats), and a probe on frozen "
        f"features answers {100 * after.probe:.1f} % of the validation texts rightly, where it was {100 * before.probe:.1f} % "
        f"(standard error of the difference {100 * after.noise:.1f})"
    )
    pays = gain >= LEAST_GAIN and after.probe >= before.probe - after.noise
    return pays, f"{said}: {'it pays' if pays else 'it does not pay; the weights stay as they came'}"


def _rows(texts: list[str], bundle: Bundle, language: Language, folder: Path) -> tuple[Rows, Rows]:
    """The text as pretraining reads it: what is trained on, and what is held out."""
    file = folder / "text.ndjson"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    sources, tokenizer = [Source(path=str(file))], bundle.tokenizer
    stores = [prepare(sources, tokenizer, folder, Part(share=SHARE, held_out=held)) for held in (False, True)]
    tokens = bundle.model.backbone.config.max_tokens
    kept, held = (Rows(store, tokenizer.vocabulary(), language.objective, tokens) for store in stores)
    if not len(kept):
        raise DataError(
            f"to go on with pretraining, the text must fill a row of {kept.stride + 1} tokens, but has {len(stores[0].tokens)}; "
            "give more text under 'unlabelled', or leave dapt out"
        )
    return kept, held


def _train(model: Model, rows: Rows, options: SchemeOptions, part: tuple[str, float, int]) -> float:
    """Train for a share of the plan; ``part`` is (name, share, seed). Returns the seconds it took."""
    name, share, seed = part
    settings = TrainConfig(epochs=options.dapt_epochs * share, learning_rate=options.dapt_rate, warmup=0.1, weight_decay=0.01)
    steps = settings.count_steps(len(rows), rows.mean_tokens, epochs=1)
    start = derive(seed, "dapt", name)  # the two parts read the text in orders of their own
    work = Work(pretraining_batches(rows, settings.batch, 1, start), steps, start, title=f"going on with pretraining, {name}")
    return train(model, work, settings).seconds


class _Look:
    """Looks at a model without changing it: always at the same held-out text, with the same probe."""

    def __init__(self, bundle: Bundle, task: Task, held: Rows) -> None:
        self.tokenizer, self.held = bundle.tokenizer, held
        places = np.random.default_rng(0).permutation(len(task.train))[:PROBED]
        self.train, self.validation = task.train.take(np.sort(places)), task.validation
        self.first: np.ndarray | None = None

    def at(self, moment: str, model: Model, seconds: float) -> Evidence:
        """What is known now."""
        model.eval()
        figures = held_out(model, self.held)
        losses = [value for name, value in figures.items() if name.endswith("loss")]
        right = self._probe(model)
        self.first = right if self.first is None else self.first
        noise = float((right - self.first).std(ddof=1) / np.sqrt(len(right)))
        return Evidence(moment, float(np.mean(losses)), float(right.mean()), noise, seconds)

    def _probe(self, model: Model) -> np.ndarray:
        reader = swap_head(model, ClassifyHeadConfig(classes=2), 0)  # its scores are not read
        parts = [encode_for(reader, self.tokenizer, split.texts) for split in (self.train, self.validation)]
        known, unknown = (pooled_layers(reader, part, self.tokenizer.specials.pad)[:, -1].numpy() for part in parts)
        probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(known, self.train.labels)
        return np.asarray(probe.predict(unknown) == self.validation.labels, dtype=float)
