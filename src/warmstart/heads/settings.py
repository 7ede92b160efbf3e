"""The settings of heads that commands have, too: of every head, of windows, and of the language-modeling head."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer

from warmstart.config import Advanced, Config, InFile
from warmstart.registry import Registry

HeadActivation = Literal["none", "tanh", "relu", "gelu"]
POOLING_NAMES = Registry("pooling", dict.fromkeys(("mean", "last", "first", "appended")))
"""the names of ``POOLINGS``"""
PoolingName = Annotated[str, AfterValidator(POOLING_NAMES.known)]
WindowPooling = Literal["none", "mean", "max", "attention"]


class WindowSettings(Config):
    """The treatment of texts that are longer than the model reads."""

    windows: Advanced[WindowPooling] = "none"
    """texts longer than the model reads: none, they are cut; mean, max or attention (learned weights), they are read in windows
    that overlap, and the windows' states are joined so"""
    window_overlap: InFile[float] = Field(0.25, ge=0, le=0.9)
    """windows: the fraction of a window that it shares with the next one, at least"""
    max_windows: InFile[int] = Field(0, ge=0)
    """windows: the most of a text, from its beginning; what comes after them is cut and counted; 0: no limit"""

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without windows these settings decide nothing: files and identities are as if there were none."""
        values: dict[str, Any] = handler(self)
        return values if self.windows != "none" else {key: value for key, value in values.items() if key not in _KEYS}

    @property
    def window_settings(self) -> WindowSettings:
        """These settings alone."""
        return WindowSettings(**{key: getattr(self, key) for key in _KEYS})

    @property
    def unweighted(self) -> WindowSettings:
        """These settings where nothing is learned: the mean in place of attention."""
        return WindowSettings(**dict(self.window_settings) | ({"windows": "mean"} if self.windows == "attention" else {}))


_KEYS = tuple(WindowSettings.model_fields)
CUT = WindowSettings()
"""no windows: what does not fit is cut"""


class HeadConfig(Config):
    """The settings of a head."""

    kind: str
    """name of this head in files, as in the table ``HEADS``"""

    @property
    def window_settings(self) -> WindowSettings:
        """The treatment of texts that are too long: they are cut, unless the head can join windows."""
        return CUT


class TaskHeadConfig(HeadConfig):
    """The settings of a head for a labelled task."""


class NewLMHeadConfig(Config):
    """The head of a language model that is pretrained."""

    tied: bool = True
    """share the weight with the token embedding (Press and Wolf 2017)"""
    bias: bool = False
    """a bias for every token of the vocabulary"""


class LMHeadConfig(NewLMHeadConfig, HeadConfig):
    """A head that predicts the next (or the masked) token, with the layer that only imported models have."""

    kind: Literal["language-modeling"] = "language-modeling"
    """name of this head in files"""
    transform: bool = False
    """one more layer before the logits: linear, gelu, layer norm (BERT)"""
    transform_bias: bool = True
    """transform: the layer and its norm have a bias"""
    norm_eps: float = Field(1e-5, gt=0)
    """transform: constant that the norm adds to the variance, for stability"""
