"""The face of Python: what takes a classifier of scikit-learn takes ours; models and tasks in memory are compared."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

import warmstart as ws
from helpers.bundles import language_bundle
from helpers.tasks import cats
from warmstart import estimators
from warmstart.data.task import Task
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.estimators import TextClassifier, TextEncoder, TextRegressor, TokenTagger
from warmstart.model.bundle import Bundle
from warmstart.model.files import save
from warmstart.tasks.load import load_task, save_task
from warmstart.tokenizer.tokenizer import Tokenizer

pytestmark = pytest.mark.usefixtures("few_baselines")
TASK = cats()
TEXTS = list(TASK.train.texts)
Y = np.array(TASK.labels)[TASK.train.labels]


@pytest.fixture(scope="module")
def origin(tokenizer: Tokenizer) -> Bundle:
    return language_bundle(tokenizer)


@pytest.fixture
def make(origin: Bundle) -> Callable[..., TextClassifier]:
    """A quick classifier on the tiny backbone."""

    def made(**changes: object) -> TextClassifier:
        given = {"learning_rate": 5e-3, "epochs": 6, "batch": 8, "settings": {"train": {"precision": "float32"}}} | changes
        return TextClassifier(origin, **given)

    return made


def test_it_learns_and_gives_the_classes_it_was_given(make: Callable[..., TextClassifier]) -> None:
    """Strings or numbers come back as they came; rows of probabilities sum to one; score is accuracy."""
    model = make().fit(TEXTS, Y)
    assert set(model.predict(TEXTS)) <= {"cat", "other"}
    assert model.score(TEXTS, Y) > 0.8
    assert model.predict_proba(TEXTS).sum(axis=1) == pytest.approx(np.ones(len(TEXTS)))
    numbers = make().fit(TEXTS, (Y == "cat") * 7)
    assert numbers.classes_.tolist() == [0, 7]
    np.testing.assert_array_equal(numbers.predict(TEXTS) == 7, numbers.predict_proba(TEXTS)[:, 1] > 0.5)


def test_the_same_seed_gives_the_same_model(make: Callable[..., TextClassifier]) -> None:
    """Fitting twice, or a clone, changes nothing; the backbone that was given stays as it was."""
    one = make()
    before = {name: tensor.clone() for name, tensor in one.backbone.model.state_dict().items()}
    first = one.fit(TEXTS, Y).predict_proba(TEXTS)
    np.testing.assert_array_equal(first, one.fit(TEXTS, Y).predict_proba(TEXTS))
    np.testing.assert_array_equal(first, clone(one).fit(TEXTS, Y).predict_proba(TEXTS))
    assert all((before[name] == tensor).all() for name, tensor in one.backbone.model.state_dict().items())
    assert clone(one).get_params(deep=False).keys() == one.get_params(deep=False).keys()
    assert not hasattr(clone(one), "bundle_")


def test_random_state_is_what_scikit_learn_means_by_it(make: Callable[..., TextClassifier]) -> None:
    """A generator gives the seed, the same one from the same state; None gives any; what is neither is refused."""
    seeds = [
        make(epochs=1, random_state=state).fit(TEXTS, Y).bundle_.history[-1].seed
        for state in (np.random.RandomState(3), np.random.RandomState(3), None, np.int64(5))
    ]
    assert seeds[0] == seeds[1] != seeds[2]
    assert seeds[3] == 5
    with pytest.raises(ValueError, match="cannot be used to seed"):
        make(random_state="x").fit(TEXTS, Y)


def test_the_best_of_several_seeds_is_kept(make: Callable[..., TextClassifier]) -> None:
    """Chosen on the share held out, of which no text is trained on."""
    model = make(seeds=3, epochs=1).fit(TEXTS, Y)
    assert len(model.validation_scores_) == 3
    assert model.bundle_.history[-1].seed == model.validation_scores_.argmax()
    assert model.bundle_.history[-1].data[0].sizes == {"train": 54, "validation": 6}


def test_saving_is_a_bundle_and_no_pickle(make: Callable[..., TextClassifier], tmp_path: Path) -> None:
    """Saved, loaded, the same probabilities; what loads it is any bundle with labels."""
    model = make(scheme="lora").fit(TEXTS, Y)
    again = TextClassifier.load(model.save(tmp_path / "b"))
    np.testing.assert_array_equal(again.predict_proba(TEXTS), model.predict_proba(TEXTS))
    np.testing.assert_array_equal(again.predict(TEXTS), model.predict(TEXTS))
    assert {file.suffix for file in (tmp_path / "b").iterdir()} == {".json", ".safetensors", ".md"}


def test_pipelines_searches_and_curves_take_it(make: Callable[..., TextClassifier]) -> None:
    """Pipeline, GridSearchCV, cross_val_predict, learning_curve, unmodified."""
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    assert make_pipeline(lower, make()).fit(TEXTS, Y).score(TEXTS, Y) > 0.7
    search = GridSearchCV(make(epochs=2), {"learning_rate": [1e-5, 5e-3], "scheme": ["full", "probe"]}, cv=2).fit(TEXTS, Y)
    assert search.best_params_["learning_rate"] == 5e-3
    said = cross_val_predict(make(epochs=2), TEXTS, Y, cv=2, method="predict_proba")
    assert said.shape == (60, 2)
    sizes, _, scores = learning_curve(make(epochs=2), TEXTS, Y, train_sizes=[10, 20], cv=2, shuffle=True, random_state=0)
    assert (sizes.tolist(), scores.shape) == ([10, 20], (2, 2))


def test_cleanlab_finds_wrong_labels_with_it(make: Callable[..., TextClassifier]) -> None:
    """Four labels turned round are among the issues that cleanlab names from cross-validated probabilities."""
    cleanlab = pytest.importorskip("cleanlab.filter", reason="pip install cleanlab to run this test")
    wrong = np.array(["other", "cat"])[1 - TASK.train.labels[:4]]
    labels = (np.concatenate([wrong, Y[4:]]) == "cat").astype(int)
    said = cross_val_predict(make(), TEXTS, labels, cv=3, method="predict_proba")
    issues = cleanlab.find_label_issues(labels, said, return_indices_ranked_by="self_confidence", n_jobs=1)
    assert len({0, 1, 2, 3} & set(issues[:6].tolist())) >= 3


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_mapie_makes_prediction_sets_with_it(make: Callable[..., TextClassifier]) -> None:
    """Split conformal sets around a fitted classifier hold the label about as often as was asked."""
    classification = pytest.importorskip("mapie.classification", reason="pip install mapie to run this test")
    model = make(epochs=3).fit(TEXTS, (Y == "cat").astype(int))
    wrapped = classification.SplitConformalClassifier(estimator=model, confidence_level=0.9, prefit=True)
    held = np.array(TASK.test.texts, dtype=object)
    wrapped.conformalize(held, TASK.test.labels)
    _, sets = wrapped.predict_set(np.array(TASK.validation.texts, dtype=object))
    assert sets[np.arange(20), TASK.validation.labels, 0].mean() >= 0.75


def test_the_encoder_feeds_other_estimators(origin: Bundle) -> None:
    """(N, D) states of any layer; a logistic regression on them learns; the last is what a head reads."""
    encoder = TextEncoder(origin).fit(TEXTS)
    states = encoder.transform(TEXTS)
    assert states.shape == (60, 16) == (60, len(encoder.get_feature_names_out()))
    assert make_pipeline(TextEncoder(origin, layer=1), LogisticRegression(max_iter=1000)).fit(TEXTS, Y).score(TEXTS, Y) > 0.8
    assert not np.allclose(states, TextEncoder(origin, layer=0).fit_transform(TEXTS))
    with pytest.raises(ModelError, match=r"layer must be from -1 to 2, but is 3"):
        TextEncoder(origin, layer=3).fit(TEXTS)


def test_the_encoder_that_is_installed_is_the_default(origin: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle holds its name and the hash of its weights, and opens only with these; without one, what to do is said."""
    save(origin, tmp_path / "small")
    monkeypatch.setattr(estimators, "installed", lambda one: one is estimators.ENCODERS["e5"])
    monkeypatch.setattr(estimators, "find_model", lambda name: tmp_path / "small")
    assert np.array_equal(TextEncoder().fit_transform(TEXTS), TextEncoder(origin).fit_transform(TEXTS))
    monkeypatch.setattr(estimators, "find_model", lambda name: tmp_path / "small" if name == "e5" else None)
    written = pickle.dumps(encoder := TextEncoder("e5").fit(TEXTS))
    assert len(written) < 1000
    assert np.array_equal(pickle.loads(written).transform(TEXTS), encoder.transform(TEXTS))
    monkeypatch.setattr(estimators, "load_bundle", lambda place: replace(origin, model=copy.deepcopy(origin.model).apply(_doubled)))
    with pytest.raises(ModelError, match="the weights of e5 are not those that were pickled"):
        pickle.loads(written)
    monkeypatch.setattr(estimators, "installed", lambda one: None)
    with pytest.raises(ConfigError, match="or an encoder must be installed"):
        TextClassifier().fit(TEXTS, Y)


def _doubled(module: torch.nn.Module) -> None:
    with torch.no_grad():
        for weight in module.parameters(recurse=False):
            weight *= 2


MISTAKES: list[tuple[object, list[str], str]] = [
    ("one text", ["a"], "texts must be a list, but are one string"),
    (["a", None], ["a", "b"], "every text must be a string, but one is None"),
    ([["a", "b"]], ["a"], "texts must be a flat list, but have the shape"),
    ([], [], "there must be at least one text"),
    (["a", "b", "c"], ["a", "b"], "3 texts and 2 labels"),
    (["a", "b"], ["x", "x"], "every label is"),
]


def test_mistakes_are_told(make: Callable[..., TextClassifier]) -> None:
    """What must hold, and what came; unknown schemes and fields."""
    for texts, labels, said in MISTAKES:
        with pytest.raises(DataError, match=said):
            make().fit(texts, labels)
    with pytest.raises(ConfigError, match="unknown scheme 'lorra'"):
        make(scheme="lorra").fit(TEXTS, Y)
    with pytest.raises(ConfigError, match="unknown key 'poling'"):
        make(settings={"poling": "mean"}).fit(TEXTS, Y)


CHECKS = [
    estimator_checks.check_estimator_cloneable,
    estimator_checks.check_estimator_tags_renamed,
    estimator_checks.check_valid_tag_types,
    estimator_checks.check_estimator_repr,
    estimator_checks.check_no_attributes_set_in_init,
    estimator_checks.check_parameters_default_constructible,
    estimator_checks.check_get_params_invariance,
    estimator_checks.check_set_params,
    estimator_checks.check_mixin_order,
]
"""Every check that hands over no data. The others hand over tables of numbers, which are no texts: scikit-learn itself skips them
all for an estimator whose tags say that it takes strings."""


def test_scikit_learns_own_checks() -> None:
    """As far as text input allows."""
    for model in (TextClassifier(), TextRegressor(), TokenTagger(), TextEncoder()):
        for check in CHECKS:
            check(type(model).__name__, model)


QUICK = {"learning_rate": 5e-3, "epochs": 12, "batch": 8, "settings": {"train": {"precision": "float32"}}}


def test_a_regressor_learns_numbers(origin: Bundle, tmp_path: Path) -> None:
    """In the units of its targets; cross-validation and grid search take it; saved, it says the same."""
    numbers = 1000 + 10 * (Y == "cat") + np.arange(len(Y)) % 3
    model = TextRegressor(origin, **QUICK).fit(TEXTS, numbers)
    said = model.predict(TEXTS)
    assert said.shape == (60,)
    assert 995 < said.mean() < 1015
    assert model.score(TEXTS, numbers) > 0.5
    again = TextRegressor.load(model.save(tmp_path / "b"))
    np.testing.assert_array_equal(again.predict(TEXTS), said)
    search = GridSearchCV(TextRegressor(origin, **QUICK), {"epochs": [1, 2]}, cv=2).fit(TEXTS, numbers)
    assert search.predict(TEXTS).shape == (60,)
    with pytest.raises(ModelError, match="TextClassifier needs a classification model, but"):
        TextClassifier.load(tmp_path / "b")
    with pytest.raises(DataError, match="finite number"):
        model.fit(TEXTS, np.where(Y == "cat", np.nan, 1.0))


def test_a_tagger_learns_tags(origin: Bundle, tmp_path: Path) -> None:
    """One tag a word, in the words' order; words beyond the longest row have none; what does not match is refused."""
    words = [text.rstrip(".").split() for text in TEXTS]
    tags = [["THE" if word == "the" else "CAT" if word.startswith("cat") else "O" for word in row] for row in words]
    model = TokenTagger(origin, **QUICK).fit(words, tags)
    said = model.predict(words)
    assert [len(row) for row in said] == [len(row) for row in words]
    assert model.score(words, tags) > 0.8
    assert model.classes_.tolist() == sorted({tag for row in tags for tag in row})
    again = TokenTagger.load(model.save(tmp_path / "b"))
    assert again.predict(words) == said
    assert clone(model).get_params()["epochs"] == 12
    long = model.predict([["cat"] * 100])[0]
    assert len(long) == 100
    assert long[-1] is None
    for texts, targets, what in (
        (words, [["O"]] * 60, "each word needs one tag"),
        (TEXTS, tags, "a list of words"),
        (words[:3], tags, "3 texts and 60 lists of tags"),
        (words, [["O"] * len(row) for row in words], "at least two tags"),
    ):
        with pytest.raises(DataError, match=what):
            TokenTagger(origin).fit(texts, targets)


def test_few_texts_all_learn(make: Callable[..., TextClassifier]) -> None:
    """With cross-validation every text is trained on and scored out of fold; with none nothing is scored."""
    model = make(selection="cross-validation", epochs=2, seeds=2).fit(TEXTS, Y)
    record = model.bundle_.history[-1]
    assert record.data[0].sizes == {"train": 60}
    assert record.notes == ("60 labels: all of them learn, and 5-fold cross-validation on them chooses.",)
    assert record.seed == int(np.argmax(model.validation_scores_))
    assert model.bundle_.calibration.interval, "the temperature is fitted out of fold"
    plain = make(selection="none", epochs=2, seeds=2).fit(TEXTS, Y)
    assert np.isnan(plain.validation_scores_).all()
    assert plain.bundle_.calibration is None
    assert plain.bundle_.history[-1].seed == 0
    assert plain.bundle_.history[-1].notes == ("60 labels: all of them learn, and none chooses the settings of a network.",)
    assert make(epochs=1).fit(TEXTS, Y).bundle_.history[-1].notes == ("60 labels: 54 to learn, 6 to choose.",)
    with pytest.raises(ConfigError, match="selection must be one of cross-validation, holdout, none, but is 'folds'"):
        make(selection="folds").fit(TEXTS, Y)
    numbers = TextRegressor(make().backbone, selection="cross-validation", **QUICK | {"epochs": 1}).fit(TEXTS, np.arange(60.0))
    assert numbers.validation_scores_.shape == (1,)


def test_models_and_tasks_in_memory_are_compared_and_leave_no_file(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recommended method is fitted and predicts; what was written for that is gone with the comparison."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    task = Task.from_lists(TEXTS, [*Y], test=0.3, unlabelled=["He holds a dog."], name="pets")
    found = ws.compare(language_bundle(tokenizer), task, labels=20, seeds=2)
    assert {"majority", "naive Bayes + EM", "probe"} <= {*found.table["method"]}
    assert not {"full", "from scratch"} & {*found.table["method"]}, "nothing is fine-tuned unless it is named"
    predicted = ws.predict(found.fit("NBSVM"), ["She holds the cat."])
    assert predicted.probabilities.shape == (1, 2)
    assert [*tmp_path.glob("warmstart-*")]
    del found
    gc.collect()
    assert not [*tmp_path.glob("warmstart-*")]


def test_only_the_methods_that_are_named_run(tokenizer: Tokenizer) -> None:
    """By their names in the table, of schemes, or ``scratch``; one that no method has is an error."""
    task = Task.from_lists(TEXTS, [*Y])
    found = ws.compare(language_bundle(tokenizer), task, methods=("NBSVM", "full", "scratch"), labels=(8, 16), seeds=1)
    assert {*found.table["method"]} == {"NBSVM", "full", "from scratch"}
    assert [*found.curve.rankings] == [8, 16]
    with pytest.raises(ConfigError, match="no method of this race is called bayes"):
        ws.compare(language_bundle(tokenizer), task, methods=("bayes",))
    alone = ws.compare((), task, methods=("majority", "NBSVM"), labels=20, seeds=1)
    assert {*alone.table["method"]} == {"NBSVM", "majority"}, "which need no pretrained model"


def test_a_folder_keeps_what_has_run(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison finds its trials, and runs none."""
    given = {"methods": ("NBSVM",), "labels": 20, "seeds": 2, "out": tmp_path / "kept"}
    first = ws.compare((), Task.from_lists(TEXTS, [*Y]), **given)  # type: ignore[arg-type]
    monkeypatch.setattr("warmstart.experiment.execution.run_trial", lambda *_: pytest.fail("ran"))
    again = ws.compare((), Task.from_lists(TEXTS, [*Y]), **given)  # type: ignore[arg-type]
    assert again.to_dict() == first.to_dict()


def test_tasks_are_made_of_lists_and_tables() -> None:
    """Strings, lists and numbers make the three types; a frame is read by the names of its columns."""
    texts = [f"text {number}" for number in range(10)]
    assert (one := Task.from_lists(texts, ["a", "b"] * 5)).labels == ("a", "b")
    assert (one.type, len(one.train), len(one.test)) == ("classification", 8, 2)
    several = Task.from_lists(texts, [{"a"}, ["a", "b"]] * 5, test=(["another"], [[]]))
    assert (several.type, several.train.labels.tolist()[:2]) == ("multilabel", [[1, 0], [1, 1]])
    assert several.test.labels.tolist() == [[0, 0]]
    assert Task.from_lists(texts, np.linspace(0, 1, 10)).type == "regression"  # type: ignore[arg-type]
    frame = polars.DataFrame({"body": texts, "topic": [1, 2] * 5})
    table = Task.from_table(frame, text="body", label="topic", test=frame)
    assert (table.labels, table.train.texts, table.test.texts) == (("1", "2"), tuple(texts), tuple(texts))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", None], "some labels are missing; give such texts as 'unlabelled'"),
        (["a"], "there must be as many labels as texts, but there are 1 and 2"),
        (["a", 1.5], "labels must be of one kind, but there are classification and regression"),
    ],
)
def test_labels_that_make_no_task_are_refused(labels: list[object], message: str) -> None:
    """With what must hold and what came."""
    with pytest.raises(DataError, match=message):
        Task.from_lists(["one", "two"], labels)


def test_texts_without_labels_in_memory_are_saved_with_the_task(tmp_path: Path) -> None:
    """The task that is read back has them in a file."""
    file = save_task(Task.from_lists(TEXTS, [*Y], unlabelled=["a dog", "a river"]), tmp_path / "task")
    assert load_task(file).unlabelled[0].path.endswith("unlabelled.ndjson")
