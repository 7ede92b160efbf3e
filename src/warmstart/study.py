"""The studies, as the command line has them: ``ws.study.probe(ws.study.ProbeConfig(models=("runs/lm",), tasks=("tasks/",)))``.

Each takes its settings, writes its page and its data into ``out``, and returns what it found.
"""

from warmstart.workflows.studies.ablate import AblateConfig, ablate
from warmstart.workflows.studies.attention import AttentionConfig, attention
from warmstart.workflows.studies.drift import DriftConfig, drift
from warmstart.workflows.studies.explain import ExplainConfig, explain
from warmstart.workflows.studies.lab import LabConfig, lab
from warmstart.workflows.studies.map import MapConfig
from warmstart.workflows.studies.map import study_map as map
from warmstart.workflows.studies.neurons import NeuronsConfig, neurons
from warmstart.workflows.studies.objectives import ObjectivesConfig, objectives
from warmstart.workflows.studies.pairs import PairsConfig, pairs
from warmstart.workflows.studies.probe import ProbeConfig
from warmstart.workflows.studies.probe import study_probe as probe

__all__ = [
    "AblateConfig",
    "AttentionConfig",
    "DriftConfig",
    "ExplainConfig",
    "LabConfig",
    "MapConfig",
    "NeuronsConfig",
    "ObjectivesConfig",
    "PairsConfig",
    "ProbeConfig",
    "ablate",
    "attention",
    "drift",
    "explain",
    "lab",
    "map",
    "neurons",
    "objectives",
    "pairs",
    "probe",
]
