"""The scikit-learn face: raw strings in, labels, numbers, tags or vectors out.

    ws.TextClassifier("runs/lm", scheme="lp-ft").fit(texts, labels).predict_proba(texts)

Each is an estimator as scikit-learn means it: clone, pipelines, grid search, cross-validation and whatever takes an estimator take
it too. Nothing is pickled when one is saved: it is a bundle.
"""

from warmstart.estimators.classifier import TextClassifier as TextClassifier
from warmstart.estimators.encoder import TextEncoder as TextEncoder
from warmstart.estimators.regressor import TextRegressor as TextRegressor
from warmstart.estimators.tagger import TokenTagger as TokenTagger
