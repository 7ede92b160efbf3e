"""Written answers: what is predicted, what counts as right, names never seen, and the whole life of a model that answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers.figures import repeats
from helpers.models import make_language_model
from helpers.results import answers_result
from warmstart.cli import main
from warmstart.commands.adapt.command import adapt
from warmstart.data.scorings import read_ledger
from warmstart.errors import ConfigError, DataError, ModelError
from warmstart.experiment.answers import split_calibration_questions
from warmstart.experiment.config import AdaptConfig
from warmstart.model.bundle import Bundle, Language
from warmstart.model.files import load_bundle, save
from warmstart.objectives.config import ObjectiveConfig
from warmstart.stats.comparison import SIGNIFICANT
from warmstart.stats.differences import paired_difference
from warmstart.stats.formatting import percent, percent_range
from warmstart.stats.proportions import wilson_interval
from warmstart.stats.splits import THIS_SPLIT
from warmstart.tasks.answers import (
    Answer,
    AnsweredQuestions,
    answer_batches,
    answer_threshold,
    exact_matches,
    generate_answers,
    load_answer_task,
    question_rows,
)
from warmstart.tasks.load import load_task
from warmstart.tasks.predict import predict
from warmstart.tasks.trained_on import proper_names, unseen_names
from warmstart.tokenizer.settings import TokenizerConfig
from warmstart.tokenizer.tokenizer import Tokenizer
from warmstart.tokenizer.train import train_tokenizer
from warmstart.types import IGNORE

PEOPLE = {"Ada Byron": "London", "Emil Post": "Riga", "Rosa Parks": "Paris", "Otto Loewi": "Vienna"}
QUESTIONS = AnsweredQuestions(tuple(f"Where was {name} born?" for name in PEOPLE), tuple(PEOPLE.values()))


@pytest.fixture(scope="module")
def letters() -> Tokenizer:
    """A character tokenizer that can spell the questions."""
    return train_tokenizer([*QUESTIONS.questions, *QUESTIONS.answers] * 3, TokenizerConfig(type="character", sentinels=0))


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    """A manifest of questions; the same people stand in all splits, so that a model can learn them by heart."""
    rows = [f"{question}\t{right}\n" for question, right in zip(QUESTIONS.questions, QUESTIONS.answers, strict=True)]
    (tmp_path / "all.txt").write_text("".join(rows * 7))
    for name in ("validation", "test"):
        (tmp_path / f"{name}.txt").write_text("".join(rows))
    file = tmp_path / "places.yaml"
    file.write_text(
        "name: places\ntype: answers\nsource: {pattern: '^(?P<text>[^\\t]+)\\t(?P<label>.+)$'}\n"
        "train: all.txt\nvalidation: validation.txt\ntest: test.txt\n"
    )
    return file


def test_only_the_answer_is_predicted(letters: Tokenizer) -> None:
    """A row is [EOS] question [MASK] answer; the targets are the answer and the [MASK] after it, wherever padding begins."""
    batch = answer_batches(letters, QUESTIONS, 64, (4, 1), 0)(0)[0]
    mask, eos = letters.specials.mask, letters.specials.eos
    spelled = {tuple(row) for row in letters.encode(QUESTIONS.answers)}
    for ids, targets in zip(batch.ids.tolist(), batch.targets.tolist(), strict=True):
        predicted = [id_ for id_ in targets if id_ != IGNORE]
        assert ids[0] == eos
        assert tuple(predicted[:-1]) in spelled
        assert predicted[-1] == mask
        first = targets.index(predicted[0])
        assert ids[first] == mask, "the answer's first letter is predicted where the question ends"
        assert ids[first + 1 : first + len(predicted)] == predicted[:-1]
    assert batch.count == sum(len(row) + 1 for row in spelled)


def test_long_questions_lose_their_beginning(letters: Tokenizer) -> None:
    """The end of a question says what is asked, so it stays; an answer as long as the row is refused with the numbers."""
    (row,) = question_rows(letters, ["Where was Ada Byron born?"], 8)
    assert len(row) == 8
    assert letters.decode(row) == " born?"[-6:]
    with pytest.raises(DataError, match="a question and its answer must fit into 8 tokens, but one answer alone has 6"):
        answer_batches(letters, QUESTIONS, 8, (2, 1), 0)


def test_proper_names_are_found() -> None:
    """Runs of capitalised words, without the first word of the question and without punctuation at the end."""
    assert proper_names("Where was Ada King Lovelace born?") == ["Ada King Lovelace"]
    assert proper_names("Did Ada meet Charles Babbage?") == ["Ada", "Charles Babbage"]
    assert proper_names("Where was it?") == []
    asked = ["Where was Ada Byron born?", "Where was Ada Post born?"]
    known = ["Emil Post. Emil Post is a man.", "Ada Byron was born in London."]
    assert unseen_names(asked, known) == [[], ["Ada Post"]], "a name counts as seen only if all of it occurs"


def test_exact_matches() -> None:
    """White space at the ends does not matter; everything else does."""
    given = [Answer("London", 1.0), Answer("riga", 1.0), Answer("Paris", 0.2), Answer("", 0.0)]
    assert exact_matches(given, QUESTIONS).tolist() == [True, False, True, False]


def test_confidence_is_the_answers_probability(letters: Tokenizer) -> None:
    """The product over its tokens and its end, between 0 and 1; 0 if it did not end."""
    model = make_language_model(vocab_size=letters.vocab_size, max_length=64)
    given = generate_answers(model, letters, QUESTIONS.questions, max_tokens=5)
    assert all(0 <= one.confidence <= 1 for one in given)
    assert [len(one.text) <= 5 for one in given] == [True] * 4


def test_manifests_of_answers(manifest: Path) -> None:
    """Splits are those of the files, or depend on the seed alone; settings that do not apply to answers are refused."""
    task = load_answer_task(manifest)
    assert (len(task.train), len(task.validation), len(task.test)) == (28, 4, 4)
    distinct = "".join(f"Who is number {n}?\tme\n" for n in range(32))
    (manifest.parent / "all.txt").write_text(distinct)
    manifest.write_text(manifest.read_text().replace("validation.txt", "4"))
    task = load_answer_task(manifest)
    assert (len(task.train), len(task.validation)) == (28, 4)
    assert not {*task.train.questions} & {*task.validation.questions}
    assert load_answer_task(manifest).train == task.train
    manifest.write_text(manifest.read_text() + "limit: 3\n")
    with pytest.raises(ConfigError, match="'labels' and 'limit' do not apply to generated answers"):
        load_answer_task(manifest)
    with pytest.raises(ConfigError, match="a task of type answers has no labels; adapt, evaluate and predict alone read it"):
        load_task(manifest)
    manifest.write_text(manifest.read_text().replace("type: answers\n", ""))
    with pytest.raises(ConfigError, match="'type: answers', but this one is of type classification"):
        load_answer_task(manifest)


@pytest.mark.parametrize("flags", [["--scheme", "lora"], ["--labels", "4"], ["--selection", "none"], ["--drop-leaks"]])
def test_a_setting_that_answers_do_not_heed_is_refused(
    flags: list[str], manifest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the model is read."""
    assert main(["adapt", "nowhere", str(manifest), *flags]) == 2
    assert f"{flags[0]} does nothing for a task whose answers are generated; remove it" in " ".join(capsys.readouterr().err.split())


def test_the_life_of_a_model_that_answers(manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It learns four people by heart, is saved and loaded, answers, and abstains below a threshold and for unknown people."""
    text = tmp_path / "people.txt"
    text.write_text("".join(f"{name} was born in {place}.\n" for name, place in PEOPLE.items()) * 4)
    shape = ["--width", "32", "--depth", "2", "--heads", "2", "--feedforward", "64", "--max-length", "64"]
    objective = ["--objective", "span", "--form", "prefix-suffix", "--held-out", "none", "--document", "line"]
    letters_ = ["--tokenizer.type", "character", "--tokenizer.sentinels", "0"]
    lm, out = tmp_path / "lm", tmp_path / "answers"
    assert main(["pretrain", str(text), "--out", str(lm), "--steps", "3", *objective, *letters_, *shape]) == 0
    train = {"steps": 150, "batch": 16, "learning_rate": 5e-3, "weight_decay": 0.0}
    given = {"model": str(lm), "task": str(manifest), "out": str(out), "seeds": 1, "scratch_epochs": 1, "tune": {"train": train}}
    result = adapt(AdaptConfig.build(given))
    assert result.comparison.rows[0].scores == (1.0,)
    assert (len(result.task.validation), result.threshold.examples) == (2, 2), "half of the questions choose, the others guarantee"
    assert all(sentence.endswith(".") for sentence in result.findings)
    assert THIS_SPLIT in result.findings
    assert THIS_SPLIT in (out / "bundle" / "README.md").read_text(encoding="utf-8")
    assert json.loads(json.dumps(result.to_dict()))["findings"] == result.findings
    assert result.ledger.scorings == read_ledger(load_answer_task(manifest)).scorings == 3, "each run, and the most common answer"
    assert result.ledger.sentence in (out / "report.html").read_text()
    assert main(["evaluate", str(out), str(manifest)]) == 0
    assert main(["doctor", str(out)]) == 0
    capsys.readouterr()
    asked = ["Where was Emil Post born?", "Where was Max Weber born?"]
    assert main(["predict", str(out), *asked, "--corpus", str(text)]) == 0
    known, unknown = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (known["answer"], "unseen_names" in known) == ("Riga", False)
    assert unknown["unseen_names"] == ["Max Weber"]
    assert [one["answer"] for one in predict(load_bundle(out / "bundle"), asked)] == ["Riga", unknown["answer"]]
    assert predict(load_bundle(out / "bundle"), asked[0]) == {"answer": "Riga", "confidence": known["confidence"]}
    assert unknown["answer"] is not None, "without a threshold it answers all the same, but flags the name"
    assert main(["predict", str(out), *asked, "--target-error", "0.05"]) == 0
    assert [json.loads(line)["answer"] for line in capsys.readouterr().out.splitlines()] == [None, None], (
        "four examples give no guarantee"
    )


def test_a_bidirectional_model_cannot_answer(
    letters: Tokenizer, manifest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A masked language model does not generate; it is refused before anything is trained or written."""
    model = make_language_model(vocab_size=letters.vocab_size, causal=False)
    language = Language(objective=ObjectiveConfig(name="masked"))
    masked = save(Bundle(model, letters, language=language), tmp_path / "masked")
    assert main(["adapt", str(masked), str(manifest), "--out", str(tmp_path / "out")]) == 2
    assert "this model is bidirectional; pretrain one with --objective causal, span or hybrid" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_errors_among_answers_have_intervals() -> None:
    """Those of the saved model over questions, copies counting once; mean error rates of methods over seeds and questions."""
    result = answers_result()
    _, answered, risks = result.abstention_findings()
    best = result.best.test
    given = best.confidence >= result.threshold.threshold
    count, wrong = int(given.sum()), int((~best.correct[given]).sum())
    assert answered.startswith(
        f"Of the 200 test questions the saved model, whose seed is the best on validation, answers {count} ("
    )

    def ends(independent: int) -> str:
        rate, low, high = wilson_interval(wrong / count, independent)
        return f", {wrong} of them wrongly: {percent(rate)} (95% interval {percent_range(low, high)}, over the questions)."

    assert answered.endswith(ends(count))
    copies = replace(result.task, test=replace(result.task.test, questions=("Where?",) * 200))
    assert replace(result, task=copies).abstention_findings()[1].endswith(ends(1))
    assert risks.startswith("Mean error rate over all thresholds (AURC), 95% over 3 seeds and the test questions: pretrained 8")
    assert re.search("Undecided: pretrained is (ahead of|behind|level with) from scratch", risks)
    assert "over 3 seeds and the test questions). A run of this size finds a lead of " in risks
    one = answers_result(1).abstention_findings()[2]
    assert "Pretrained and from scratch differ by" in one
    assert "on one seed, which shows nothing about other seeds" in one


@pytest.mark.proofs
def test_few_equal_methods_differ_in_their_mean_risk() -> None:
    """Two methods that are right equally often, 3 seeds, 200 questions: false claims in at most 5%, coverage at least 94%.

    Both give or take two Monte-Carlo errors; the true difference is 0.
    """
    held, claimed = [], []
    for draw in range(repeats(80, 50)):
        result = answers_result(draw=draw)
        gap = paired_difference(*(result._mean_risk(runs) for runs in result.runs.values()))
        held.append(gap.low <= 0 <= gap.high)
        claimed.append(gap.p < SIGNIFICANT)
    print(f"coverage {np.mean(held):.3f}, false claims {np.mean(claimed):.3f}")
    error = np.sqrt(0.05 * 0.95 / len(held))
    assert np.mean(held) >= 0.94 - 2 * error
    assert np.mean(claimed) <= 0.05 + 2 * error


def test_calibration_questions_choose_nothing(manifest: Path) -> None:
    """They are disjoint from the validation questions that remain; both together are the questions of the manifest."""
    task = load_answer_task(manifest)
    numbered = replace(task, validation=AnsweredQuestions(tuple("abcdefgh"), tuple("ABCDEFGH")))
    rest, calibration = split_calibration_questions(numbered, 0.25)
    assert (len(rest.validation), len(calibration)) == (6, 2)
    assert sorted((*rest.validation.questions, *calibration.questions)) == list("abcdefgh")
    assert [question.upper() for question in calibration.questions] == list(calibration.answers)
    assert (rest.train, rest.test) == (task.train, task.test)


def test_a_bar_needs_held_out_answers(letters: Tokenizer) -> None:
    """A language model that was not trained to answer has none."""
    bundle = Bundle(make_language_model(vocab_size=letters.vocab_size), letters)
    with pytest.raises(ModelError, match="has no held-out answers"):
        answer_threshold(bundle, 0.1, 0.95)
