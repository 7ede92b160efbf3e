"""What a model costs: parameters, FLOPs and memory by formula, and measured values if there are any."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from warmstart.cost.flops import Flops, flops_per_token
from warmstart.cost.memory import Memory, inference_memory, training_memory
from warmstart.cost.parameters import Parameters, count_parameters
from warmstart.cost.workload import Workload
from warmstart.model.model import Model
from warmstart.notebook import Shown


@dataclass(frozen=True)
class Cost(Shown, view="report.notebook:cost_view"):
    """Parameters, FLOPs and memory of a model."""

    parameters: Parameters
    flops: Flops
    training_memory: Memory
    inference_memory: Memory
    measured: dict[str, float] = field(default_factory=dict)
    """``training`` and ``inference`` peaks in bytes, ``seconds`` of a step, ``tokens_per_second``, ``flops_per_second``"""

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, fit for JSON."""
        return asdict(self)


def cost_of(model: Model, workload: Workload) -> Cost:
    """The cost of ``model``, with or without storage, as it is: ``requires_grad`` says what trains, inserted adapters count.

    >>> model = without_storage(BackboneConfig.build(PRESETS["lab"]), 50_001, ClassificationHeadConfig(classes=2))
    >>> cost_of(model, Workload()).parameters.totals["total"]
    10968602
    """
    return Cost(
        count_parameters(model),
        flops_per_token(model, workload),
        training_memory(model, workload),
        inference_memory(model, workload),
    )
