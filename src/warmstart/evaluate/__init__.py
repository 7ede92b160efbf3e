"""Scores, how sure they are, and what they are to be compared with."""

from warmstart.evaluate.abstain import Bar as Bar
from warmstart.evaluate.abstain import find_bar as find_bar
from warmstart.evaluate.baselines import BASELINES as BASELINES
from warmstart.evaluate.baselines import BaselineResult as BaselineResult
from warmstart.evaluate.baselines import Labelled as Labelled
from warmstart.evaluate.compare import Comparison as Comparison
from warmstart.evaluate.compare import Row as Row
from warmstart.evaluate.compare import compared as compared
from warmstart.evaluate.compare import paired as paired
from warmstart.evaluate.language import held_out as held_out
from warmstart.evaluate.metrics import METRICS as METRICS
from warmstart.evaluate.metrics import Scores as Scores
from warmstart.evaluate.metrics import classification as classification
from warmstart.evaluate.predict import predict as predict
from warmstart.evaluate.seeds import Interval as Interval
from warmstart.evaluate.seeds import bootstrap as bootstrap
from warmstart.evaluate.seeds import interval as interval
