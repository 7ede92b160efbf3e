"""What trains during adaptation."""

from warmstart.adapt.scheme import SCHEMES as SCHEMES
from warmstart.adapt.scheme import Scheme as Scheme
from warmstart.adapt.scheme import apply_scheme as apply_scheme
