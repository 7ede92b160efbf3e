"""A probe: a linear head on frozen features, at a learning rate that suits its few weights."""

from __future__ import annotations

from warmstart.config import Config
from warmstart.finetuning.scheme import Scheme

PROBE_RATE = 20.0
"""a head alone trains at this many times the learning rate that suits a whole network"""


def probe(options: Config) -> Scheme:
    """The head alone trains."""
    return Scheme(rate_factors={"head": PROBE_RATE})
