"""What trains during adaptation."""

from warmstart.schemes.scheme import SCHEMES as SCHEMES
from warmstart.schemes.scheme import Scheme as Scheme
from warmstart.schemes.scheme import apply_scheme as apply_scheme
