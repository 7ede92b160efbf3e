"""The stack that turns token ids into states."""

from warmstart.backbone.attention import Attention as Attention
from warmstart.backbone.attention import Cache as Cache
from warmstart.backbone.backbone import BELOW as BELOW
from warmstart.backbone.backbone import Backbone as Backbone
from warmstart.backbone.backbone import States as States
from warmstart.backbone.block import GATED as GATED
from warmstart.backbone.config import PRESETS as PRESETS
from warmstart.backbone.config import BackboneConfig as BackboneConfig
from warmstart.backbone.taps import tapped as tapped
