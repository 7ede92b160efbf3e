"""``study neurons``: which properties of tokens neurons correlate with, compared with chance and with untrained backbones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from tyro.conf import Positional

from warmstart.config import Advanced, Effectless, FileInput, ThreadsConfig
from warmstart.data.source import Source
from warmstart.errors import ConfigError, DataError
from warmstart.inspection.tokens import sample_passages
from warmstart.report.result import StudyResult
from warmstart.runs.steps import study_step
from warmstart.stats.formatting import model_name

if TYPE_CHECKING:
    from warmstart.data.encode import Encoded
    from warmstart.model.bundle import Bundle
    from warmstart.studies.neurons.measure import TokenProperties

_MIN_PASSAGES = 8
"""below this there are no intervals worth reporting"""


class StudyNeuronsConfig(ThreadsConfig):
    """Correlate every neuron with properties of each token, and show where the best of them are most active."""

    model: Positional[FileInput[str]]
    """any model: a bundle, or the folder of a run"""
    text: FileInput[tuple[str, ...]] = Field(min_length=1)
    """files or folders of text; .conllu files (.gz too) add parts of speech"""
    units: Literal["neurons", "states"] = "neurons"
    """what is studied: the inner layers of the blocks, or the dimensions of the hidden states between them"""
    neuron: tuple[str, ...] = ()
    """neurons to show, each as LAYER.INDEX, both from 1 (2.113); default: the best one of each property"""
    show: str | None = None
    """a text of your own, to be coloured by the activations"""
    passages: Advanced[int] = Field(500, ge=_MIN_PASSAGES)
    """number of passages or sentences of the text, drawn at random"""
    top: int = Field(5, gt=0, le=100)
    """number of passages shown for each neuron"""
    shifts: Advanced[int] = Field(20, gt=0, le=1000)
    """number of random circular shifts of the properties, for the permutation threshold"""
    control: bool = True
    """compare with eight untrained backbones of the same shape"""
    out: Effectless[str] = "runs/neurons"
    """folder of the run"""
    seed: int = Field(0, ge=0)
    """seed of every random choice"""


def study_neurons(config: StudyNeuronsConfig) -> StudyResult:
    """Correlate, print the findings and write the page; the ``study neurons`` command."""
    from warmstart.data.conllu import is_conllu
    from warmstart.heads.language_modeling import LMHead
    from warmstart.interop.load import load_model
    from warmstart.report.study import finish_study
    from warmstart.runs.run import Run
    from warmstart.studies.neurons.measure import NeuronOptions, measure_neurons, neuron_layout
    from warmstart.studies.neurons.page import neurons_sections, neurons_tiles
    from warmstart.studies.neurons.result import neurons_result

    bundle = load_model(config.model)
    layout, properties = neuron_layout(bundle.model, config.units), _properties(bundle, config)
    columns, own_text = [layout.column(name) for name in config.neuron], _own_text(bundle, config)
    folder = Run.open(config.out, config).folder
    options = NeuronOptions(config.units, config.shifts, config.control, columns, own_text, config.top)
    result = neurons_result(measure_neurons(bundle, properties, options, config.seed), model_name(config.model))
    sections = neurons_sections(result, config.shifts, config.top)
    step = None
    if isinstance(bundle.model.head, LMHead) and not any(map(is_conllu, config.text)):
        step = study_step("ablate", "How much the model needs each part", config.model, "--text", *config.text)
    tiles = neurons_tiles(result)
    return finish_study(replace(result, next_step=step), sections, config, folder, tiles=tiles)


def _properties(bundle: Bundle, config: StudyNeuronsConfig) -> TokenProperties:
    """The passages and the properties of their tokens."""
    from warmstart.data.conllu import is_conllu, read_conllu
    from warmstart.data.token_store import documents_of
    from warmstart.studies.neurons.measure import tagged_properties, text_properties

    tagged = [is_conllu(path) for path in config.text]
    if any(tagged) and not all(tagged):
        raise ConfigError("--text must be .conllu files only, or none of them, but there are both; run the study once for each")
    if any(tagged):
        sentences = [sentence for path in config.text for sentence in read_conllu(path)]
        properties = tagged_properties(bundle, sample_passages(sentences, config.passages, config.seed))
    else:
        documents = documents_of([Source(path=path) for path in config.text])
        properties = text_properties(bundle, sample_passages(documents, config.passages, config.seed))
    if properties.passages < _MIN_PASSAGES:
        raise DataError(
            f"correlations need at least {_MIN_PASSAGES} passages with tokens for their intervals, "
            f"but there are {properties.passages}; give more text, and separate its passages by blank lines"
        )
    return properties


def _own_text(bundle: Bundle, config: StudyNeuronsConfig) -> Encoded | None:
    """The user's own text, if there is one."""
    from warmstart.data.encode import encode

    if config.show is None:
        return None
    encoded = encode(bundle.tokenizer, [config.show], bundle.model.backbone.config.max_length)
    if not config.show.strip() or len(encoded.rows[0]) < 3:  # nothing but its frame
        raise DataError(f"--show must be a text with at least one token, but is {config.show!r}; give one, or leave --show out")
    return encoded
