"""One training loop, and what it needs."""

from warmstart.engine.config import TrainConfig as TrainConfig
from warmstart.engine.device import busy as busy
from warmstart.engine.device import describe_machine as describe_machine
from warmstart.engine.device import pick_device as pick_device
from warmstart.engine.log import console as console
from warmstart.engine.log import read_metrics as read_metrics
from warmstart.engine.loop import Trained as Trained
from warmstart.engine.loop import Work as Work
from warmstart.engine.loop import train as train
from warmstart.engine.optim import Group as Group
from warmstart.engine.reading import read as read
