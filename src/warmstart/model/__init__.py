"""A model, and the bundle that keeps it."""

from warmstart.model.account import Account as Account
from warmstart.model.account import account_for as account_for
from warmstart.model.account import skeleton as skeleton
from warmstart.model.bundle import Bundle as Bundle
from warmstart.model.calibration import Calibration as Calibration
from warmstart.model.files import load as load
from warmstart.model.files import save as save
from warmstart.model.flops import Load as Load
from warmstart.model.model import Model as Model
from warmstart.model.model import fresh_head as fresh_head
from warmstart.model.model import parameter_counts as parameter_counts
from warmstart.model.model import swap_head as swap_head
