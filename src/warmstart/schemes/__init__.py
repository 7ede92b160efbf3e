"""What trains during adaptation: names, the values they make, and what applies them to a model."""

from warmstart.schemes.apply import apply_scheme as apply_scheme
from warmstart.schemes.apply import settled as settled
from warmstart.schemes.features import Features as Features
from warmstart.schemes.features import read_features as read_features
from warmstart.schemes.language import Language as Language
from warmstart.schemes.options import SchemeOptions as SchemeOptions
from warmstart.schemes.pretrained import interpolate as interpolate
from warmstart.schemes.pretrained import l2_sp as l2_sp
from warmstart.schemes.scheme import SCHEMES as SCHEMES
from warmstart.schemes.scheme import Scheme as Scheme
from warmstart.schemes.scheme import known_scheme as known_scheme
from warmstart.schemes.scheme import make_scheme as make_scheme
