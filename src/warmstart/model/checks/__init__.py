"""Checks of a model. A new check is a function that measures one number, and one row in ``CHECKS``.

``warmstart doctor`` runs all of them; some also run before a bundle is saved, and those that read what was stored with it whenever
it is loaded. No check reads a text of the user's, and none asks what the code promises of every model, such as that
padding and batch mates change no output: tests prove that (``tests/test_rows.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor

from warmstart.model.bundle import Bundle
from warmstart.model.checks import measures
from warmstart.model.checks.check import CheckResult, ModelCheck, Moment, Subject
from warmstart.registry import Registry

OF_LARGEST = "of the largest"
EDITED = "copy the folder again, or save the model again from the run that made it"
FROM_SETTINGS = "build the model from its settings, and save that"
NAMED_TOLERANCE = 1e-3
"""of a probability, which may be as small as the rounding of the outputs that it comes from; other names are further off"""
SAVE: tuple[Moment, ...] = ("save",)
LOAD: tuple[Moment, ...] = ("load",)

CHECKS: Registry[ModelCheck[Subject]] = Registry(
    "check",
    {
        "stored tokens": ModelCheck(
            measures.stored_tokens,
            "The tokenizer splits and frames the test texts as when it was saved.",
            "the tokenizer splits the test texts differently: {value} tokens differ",
            EDITED,
            limit=0,
            moments=LOAD,
        ),
        "stored vocabulary": ModelCheck(
            measures.stored_vocabulary,
            "Each token has the id, and each row of embedding and learned positions the values, of the day it was saved.",
            "{value} tokens have another id, or another row in the embedding, than when it was saved",
            EDITED,
            limit=0,
            moments=LOAD,
        ),
        "stored outputs": ModelCheck(
            measures.stored_outputs,
            "Outputs for the stored rows are those of the day it was saved.",
            f"outputs differ from the stored ones by {{value}} {OF_LARGEST}",
            EDITED,
            moments=LOAD,
        ),
        "stored predictions": ModelCheck(
            measures.stored_predictions,
            "Each label, found by its name, has the predictions that it had when it was saved; so have numbers.",
            f"predictions, found by label name, differ from the stored ones by {{value}} {OF_LARGEST}",
            EDITED,
            limit=NAMED_TOLERANCE,
            moments=LOAD,
        ),
        "stored calibration": ModelCheck(
            measures.stored_calibration,
            "Calibrated predictions are those of the day it was saved.",
            f"calibrated predictions differ from the stored ones by {{value}} {OF_LARGEST}",
            EDITED,
            limit=NAMED_TOLERANCE,
            moments=LOAD,
        ),
        "stored length": ModelCheck(
            measures.stored_length,
            "A text that is too long is cut where it was cut when it was saved.",
            "a text that is too long is cut {value} tokens further on or earlier than when it was saved",
            EDITED,
            limit=0,
            moments=LOAD,
        ),
        "finite": ModelCheck(
            measures.finite,
            "Every number in the weights is finite.",
            "{value} numbers in the weights are nan or infinite",
            "train again with a lower learning rate, or from an earlier checkpoint",
            limit=0,
            moments=SAVE,
        ),
        "one dtype": ModelCheck(
            measures.one_dtype,
            "Every tensor is float32.",
            "{value} tensors are not float32",
            "convert the model with `model.float()`",
            limit=0,
            moments=SAVE,
        ),
        "bfloat16": ModelCheck(
            measures.bfloat16,
            "Products in bfloat16 give nearly the same states.",
            "with bfloat16 products, states are off by {value} of their length",
            "use --precision float32; weights of very different sizes cause it",
            limit=0.2,
        ),
        "evaluation mode": ModelCheck(
            measures.evaluation_mode,
            "No module is in training mode, and two readings of the same rows agree: dropout is off.",
            f"modules are in training mode, or two readings of the same rows differ: {{value}} (modules, or {OF_LARGEST})",
            "call `model.eval()`; a module that still draws at random must look at `self.training`",
            moments=SAVE,
        ),
        "tied weights": ModelCheck(
            measures.tied,
            "The weight of a tied language head is the embedding, or equal to it.",
            f"the head shares the embedding by its settings, but differs by {{value}} {OF_LARGEST}",
            "set `tied=False` in the head's settings, or set `head.weight = backbone.embedding.weight`",
            moments=SAVE,
        ),
        "position table": ModelCheck(
            measures.position_table,
            "Rotary and sinusoidal tables are those of the settings (base, scaling, length).",
            f"the table of positions differs from that of the settings by {{value}} {OF_LARGEST}",
            FROM_SETTINGS,
            moments=SAVE,
        ),
        "maximum length": ModelCheck(
            measures.maximum_length,
            "As many positions as the settings say; a longer row is refused, a longer text is cut.",
            "the longest row is {value} tokens off the maximum length of the settings",
            "correct `max_length` in the backbone's settings",
            limit=0,
            moments=SAVE,
        ),
        "dead units": ModelCheck(
            measures.dead,
            "No branch of a block, and no head, gives every token the same in most dimensions.",
            "in one branch of a block, or in the head, {value} of the dimensions never change",
            "look for weights that are zero; prune the layer, or train again",
            limit=0.5,
        ),
        "objective": ModelCheck(
            measures.objective,
            "Its direction, and whether it generates, are those of the objective that it was trained on.",
            "its direction, or whether it generates, is not that of its objective",
            "correct `causal` of the model, or `generates` in the record of its history",
            limit=0,
            moments=SAVE,
        ),
        "tokenizer round trip": ModelCheck(
            measures.tokenizer_round_trip,
            "Tokens, decoded and encoded again, are the same.",
            "of the test texts, {value} decoded and encoded again have other tokens",
            "use the tokenizer as its library saved it; some normalisers cannot be undone",
            limit=0,
        ),
        "vocabulary size": ModelCheck(
            measures.vocabulary_size,
            "Embedding and head have a row for each token, and few others.",
            "the sizes of tokenizer, embedding and head do not fit each other",
            "load the tokenizer that the weights were trained with",
            limit=0,
        ),
        "label names": ModelCheck(
            measures.labels_in_order,
            "Label names differ from each other, and none is that of another class of the task in its history.",
            "{value} label names are empty, repeated, or those of other classes of the task that it was trained on",
            "give `labels` in the order of the classes that it was trained on",
            limit=0,
            moments=SAVE,
        ),
        "temperature": ModelCheck(
            measures.temperature,
            "The temperature lies within its own interval.",
            "the temperature lies outside its own interval",
            "calibrate again with `warmstart adapt`",
            limit=0,
            moments=SAVE,
        ),
    },
)
"""Every check, by the name that ``warmstart doctor`` prints."""


def run_checks(bundle: Bundle, stored: Mapping[str, Tensor] | None = None, moment: Moment | None = None) -> list[CheckResult]:
    """Every check of a model, or those of a moment; ``stored`` is the self-test that was saved with it."""
    subject = Subject(bundle, stored or {})
    return [check(name, subject) for name, check in CHECKS.items() if moment is None or moment in check.moments]


def faults(results: Iterable[CheckResult]) -> Sequence[str]:
    """What is wrong, one phrase for each check that failed; empty if all is well."""
    return [f"{one.note} ({one.title})" for one in results if one.status == "fail"]
