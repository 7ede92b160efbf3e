"""A baseline that was run, in a form that can be saved; or why there is none."""

from __future__ import annotations

from dataclasses import replace

from warmstart.baselines.choice import BaselineRun
from warmstart.errors import ModelError
from warmstart.model.bundle import Bundle
from warmstart.stack.fitted import FittedBaseline
from warmstart.stack.readout import ConstantReadout, LinearReadout, NeighbourReadout, PerLabelReadout
from warmstart.stack.rows import BackboneVectors, VectorRows, WordRows


def fitted_baseline(run: BaselineRun, vectors: Bundle | None = None) -> FittedBaseline:
    """The model that predicted the test split; ``vectors``, with an embedding head, gives the vectors that it read.

    Raises ``ModelError`` with the reason if the baseline cannot be saved.
    """
    rows, readout = run.reading.saved, run.predict
    if not isinstance(readout, LinearReadout | NeighbourReadout | ConstantReadout | PerLabelReadout):
        raise ModelError(f"this baseline has nothing to save: {run.note}")
    if isinstance(readout, ConstantReadout):
        return FittedBaseline(None, readout)
    if isinstance(rows, VectorRows):
        assert vectors is not None, "vectors are saved with their backbone"
        rows = replace(rows, vectors=BackboneVectors(vectors))
    assert isinstance(rows, WordRows | VectorRows), "a readout of numbers has rows that can be saved"
    return FittedBaseline(rows, readout)
