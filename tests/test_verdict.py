"""What results say: a short first screen without a statistician's words, and findings that claim no more than intervals allow."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from helpers.bundles import language_bundle
from helpers.curves import SHAPE, curve_of, ranked
from helpers.fits import fit_result, quickstart_result
from helpers.races import FAMILIES, LADDER, race_result
from helpers.tasks import cats
from warmstart.commands.adapt.page import adapt_verdict
from warmstart.commands.fit.page import write_fit_page
from warmstart.commands.pretrain.result import PretrainResult
from warmstart.commands.race.page import interval_table
from warmstart.commands.settings import PretrainConfig
from warmstart.config import Config
from warmstart.data.audit import audit
from warmstart.data.source import Source
from warmstart.data.task import Split, Task
from warmstart.experiment.config import AdaptConfig
from warmstart.experiment.curve import CurveResult
from warmstart.experiment.race_verdict import _not_taken, race_verdict
from warmstart.experiment.ranking import RankedMethod
from warmstart.generation.sample import TextSample, sample_of
from warmstart.report.templates import verdict_html
from warmstart.runs.steps import TaskPlace, label_step, own_text, steps_after
from warmstart.runs.verdict import (
    MOST_LINES,
    NOT_CLEAR,
    Verdict,
    failures,
    failures_of_several,
    read_verdict,
    row_of,
    use_sentence,
    verdict_lines,
    write_verdict,
)
from warmstart.stats.comparison import MethodResult, MethodTable
from warmstart.stats.formatting import of_100
from warmstart.stats.intervals import Estimate
from warmstart.tokenizer.tokenizer import Tokenizer

BANNED = re.compile(r"\b(p|power|seeds?|draws?|significant\w*|null|confidence interval)\b", re.IGNORECASE)


def verdicts(folder: Path = Path("runs/some where")) -> dict[str, Verdict]:
    """One of each command."""
    race = race_result(LADDER, families=FAMILIES)
    fit = replace(fit_result(), task=replace(cats(), unlabelled_texts=("a boat",)))
    return {"fit": fit.verdict(folder, TaskPlace("mails.csv")), "race": race_verdict(race, folder)}


@pytest.mark.parametrize("name", verdicts())
def test_the_first_screen_is_short_and_needs_no_statistics(name: str) -> None:
    """At most 25 words in its headline, four rows, complete sentences, and steps that can be copied."""
    found = verdicts()[name]
    assert len(found.headline.split()) <= 25
    assert 2 <= len(found.rows) <= 4
    assert [sentence for sentence in found.sentences if BANNED.search(sentence) or not sentence.endswith((".", "?"))] == []
    assert all(step.command.startswith("warmstart ") and not step.title.endswith(".") for step in found.steps)
    assert "'runs/some where" in found.steps[0].command


def test_a_race_shows_the_scores_of_the_methods_that_it_names() -> None:
    """The recommended one first, then the best of the other side, both by their own scores."""
    result = race_result(LADDER, families=FAMILIES)
    found = race_verdict(result)
    own = {one.name: f"{of_100(np.mean(one.test_scores.scores))} of 100" for one in result.ranking.methods}
    assert [row.role for row in found.rows] == ["", "best without pretraining", "", ""]
    assert {row.name: row.score for row in found.rows[:3]}.items() <= own.items()
    assert found.rows[0].name == result.recommended.name
    assert found.rows[1].name == "TF-IDF + logistic regression"
    assert found.rows[0].score in found.headline


def test_a_race_says_why_a_higher_score_is_not_taken() -> None:
    """One screen has no larger number without a reason."""
    result = race_result(LADDER, families=FAMILIES)
    scored = race_verdict(result)
    higher = scored.rows[0]._replace(name="LoRA", score="99 of 100", ends=(0.99, 0.9, 1.0))
    said = _not_taken((scored.rows[0], higher))
    assert said.startswith("LoRA scores higher on the test texts, which may not choose: the texts that choose take ")
    assert len(said.split()) <= 25
    assert _not_taken((higher, scored.rows[0])) == ""


def test_a_terminal_shows_sixteen_lines_of_a_race(tmp_path: Path) -> None:
    """The verdict first, each method with one number, the next commands last, and no statistician's word."""
    found = race_verdict(race_result(LADDER, families=FAMILIES), tmp_path)
    lines = verdict_lines(replace(found, mind=()), "all runs: runs.csv, report: report.html")
    assert len(lines) <= MOST_LINES
    assert lines[0] == found.headline
    assert [row.name for row in found.rows if sum(line.startswith(f"  {row.name} ") for line in lines) != 1] == []
    assert lines[-len(found.steps) - 1] == "Next"
    assert [line for line in lines if BANNED.search(line)] == []


def test_a_model_that_loses_is_not_recommended(tmp_path: Path) -> None:
    """The rival is named first, both scores stand beside each other, and the next step keeps the better method."""
    rows = (MethodResult("pretrained", (0.2, 0.26)), MethodResult("TF-IDF", (0.3, 0.38)), MethodResult("majority", (0.2,)))
    table, task = MethodTable("accuracy", rows), cats()
    result = SimpleNamespace(
        task=task,
        comparison=table,
        method="pretrained",
        transfer=table.compared()[0],
        control=None,
        labels=160,
        test_predictions=None,
        audit=audit(task),
    )
    found = adapt_verdict(result, tmp_path, AdaptConfig(model="lm", task="mails.csv"))  # type: ignore[arg-type]
    assert found.headline.startswith("Use TF-IDF")
    assert [row.name for row in found.rows] == ["TF-IDF", "this model", "always the most frequent label"]
    assert [step.command for step in found.steps] == ["warmstart race mails.csv --backbones lm --budget 30m --save recommended"], (
        "nothing that uses the model"
    )
    assert NOT_CLEAR in found.use


def test_only_texts_without_labels_are_labelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the table or of the file that was given beside it, in a new folder; those of a project go on in it."""
    monkeypatch.chdir(tmp_path)
    some, other = replace(cats(), unlabelled_texts=("a boat",)), replace(cats(), unlabelled=(Source(path="my pool.txt"),))
    table, flags = TaskPlace("t.csv"), TaskPlace("t.csv", ("--text-column", "a+b"))

    def labels(place: TaskPlace | None, task: Task) -> str | None:
        step = label_step(place, task, "Label more")
        return step.command if step else None

    assert labels(table, some) == "warmstart label --task t.csv --out labels"
    assert labels(flags, some) == "warmstart label --task t.csv --text-column a+b --out labels"
    assert labels(table, other) == "warmstart label 'my pool.txt' --task t.csv --out labels"
    assert labels(TaskPlace("t.yaml"), other) == "warmstart label --task t.yaml --out labels"
    for place, task in ((table, cats()), (None, some), (TaskPlace("t.csv", None), some)):
        assert labels(place, task) is None, "nothing to label, nowhere, or read as no flags say"
    (tmp_path / "labels").mkdir()
    assert labels(table, some) == "warmstart label --task t.csv --out labels-2"
    (tmp_path / "labels" / "project.sqlite").touch()
    assert labels(TaskPlace("labels/task/task.yaml"), some) == "warmstart label --out labels"


def test_a_model_is_tried_on_a_text_of_its_user() -> None:
    """One that needs no escapes, is no flag and is short; of long ones the beginning."""
    assert own_text(["-x y", "it's his", "word", "a  plain\ntext"]) == "a plain text"
    assert own_text(["it's his"]) == "it's his"
    assert own_text(["so " * 40]) == "so " * 15 + "so"
    assert own_text(["word", ("a", "pair")]) is None


def test_the_run_keeps_what_its_page_shows(tmp_path: Path) -> None:
    """Beside the model, where the folder and the bundle in it find it; what is damaged is none."""
    result = fit_result()
    write_fit_page(result, Config(), tmp_path)
    kept = read_verdict(tmp_path)
    assert kept == result.verdict(tmp_path)
    assert read_verdict(tmp_path / "bundle") == kept
    assert kept.headline in (tmp_path / "report.html").read_text()
    for damage in ("{", "[]", '{"headline": 1}'):
        (tmp_path / "verdict.json").write_text(damage)
        assert read_verdict(tmp_path) is None


def test_a_page_names_no_flag(tmp_path: Path) -> None:
    """The server's page shows the stored sentences; the terminal adds the flag."""
    late, good = "The time was too short for contrast and to say what more labels would add.", "It is good; a test says so."
    verdict = Verdict("news", "9 labels", 9, "Use it.", use=(late, good), flags={late: "--minutes gives more"})
    write_verdict(verdict, tmp_path)
    kept = read_verdict(tmp_path)
    assert kept is not None
    assert kept.use == (late, good)
    assert f"{late[:-1]}; --minutes gives more." in verdict_lines(verdict)


def test_a_page_with_a_server_has_a_box_and_buttons() -> None:
    """In place of commands; a step can be left out; texts are escaped and the box is not."""
    found = verdicts()["fit"]
    html = verdict_html(found, box="<input name=text>", actions={"serve": None, "label": "/label"})
    assert "<input name=text>" in html
    assert 'href="/label"' in html
    assert "warmstart predict" not in html
    assert "warmstart serve" not in html
    assert "warmstart export" in html
    assert "&lt;b&gt;" in verdict_html(Verdict("<b>", "", 0, "Use it."))


def test_a_score_that_is_hardly_known_is_no_number() -> None:
    """Wider than 40 points: the texts that are too few are named instead."""
    wide = Estimate(0.6, 0.3, 0.8)
    assert use_sentence("A", "accuracy", wide, "22 test texts") == "Use A; 22 test texts are too few to say how often it is right."
    assert row_of("A", "accuracy", wide).ends is None
    assert use_sentence("stack", "accuracy", wide, "22 test texts").startswith("Use stack (several methods, averaged); ")
    assert use_sentence("A", "macro_f1", Estimate(0.8, 0.7, 0.9), "") == "Use A: macro-F1 0.80 on new texts (likely 0.70 to 0.90)."


def test_failures_name_the_surest_mistakes_and_the_weakest_label() -> None:
    """Of three labels also the pair that is confused most."""
    labels = np.array([0, 0, 1, 1, 2])
    sure = np.array([[0.9, 0.1, 0], [0.2, 0.8, 0], [0.6, 0.4, 0], [0.7, 0.3, 0], [0, 0, 1]])
    mistakes, said = failures(Split((*"abcde",), labels), sure, ["x", "y", "z"])
    assert [one.text for one in mistakes] == ["b", "d", "c"]
    assert said == ('Most confused: "y" taken for "x", 2 of 2 times.', 'Weakest label: "y", right on 0 of 2.')
    assert failures(Split(("a",), labels[:1]), sure[:1], ["x", "y", "z"]) == ((), ())


def test_a_mistake_is_shown_once_however_often_its_text_was_copied() -> None:
    """With one label per text or several: of near copies the surest stands for all."""
    texts = (*(f"Ticket {number}: my lamp is broken again" for number in range(4711, 4717)), "a chair of oak has come")
    sure = np.array([0.7, 0.8, 0.95, 0.75, 0.9, 0.65, 0.6])
    chances, several = np.stack([1 - sure, sure], axis=1), np.tile([1, 0], (7, 1))
    one_label = failures(Split(texts, np.zeros(7, dtype=np.int64)), chances, ["x", "y"])[0]
    many = failures_of_several(Split(texts, several), 1 - several, chances, ["x", "y"])
    assert [one.text for one in one_label] == [one.text for one in many] == [texts[2], texts[6]]


def test_the_quickstart_names_the_model_that_it_saved() -> None:
    """Its headline, its chart and its file are of one model; what pretraining bought follows."""
    result = quickstart_result()
    assert result.rows[0].name in result.fit.headline
    assert "60 of 100" in {row.score for row in result.rows}


def test_what_is_saved_goes_into_one_file_if_a_page_can_hold_it(tmp_path: Path) -> None:
    """A stack as well as a network; numbers, and what SentencePiece's tokenizer reads, are for other programs."""
    sentencepiece = {"type": "classification", "normalizer": {"normalizers": [{"type": "NFC"}, {"type": "Precompiled"}]}}
    for number, (name, saved, form) in enumerate((
        ("bundle.json", {"type": "classification"}, "page"), ("bundle.json", {"type": "regression"}, "onnx"),
        ("bundle.json", {"head": {"kind": "multilabel"}}, "page"), ("bundle.json", {"head": {"kind": "regression"}}, "onnx"),
        ("backbones/1/tokenizer.json", sentencepiece, "onnx"),
    )):  # fmt: skip
        file = tmp_path / str(number) / "bundle" / name
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(saved))
        assert f"--to {form}" in steps_after(tmp_path / str(number), cats(), None)[-1].command


def test_what_was_bought_is_short_and_has_both_scores() -> None:
    """Whoever wins: of 100 new texts, 85 by the encoder, and those by words."""
    for words in (50, 84, 95):
        bought = quickstart_result(words / 100).bought
        assert len(bought.split()) <= 25
        assert "85" in bought
        assert str(words) in bought


def test_the_terminal_shows_every_number_of_labels_in_few_lines() -> None:
    """At most two lines come before these, while it computes."""
    lines = quickstart_result().lines(Path("q"), Path("q/report.html"))
    assert len(lines) <= MOST_LINES - 2
    table = [line.split()[-2:] for line in lines[3:5]]
    assert table == [["85", "90"], ["60", "80"]]


def test_pretraining_stops_paying_only_where_little_lead_is_left() -> None:
    """Where the interval goes up to many points, nothing is claimed; where it ends below two, the claim has its interval."""
    clear = ((16, 0.10, 0.01), (32, 0.10, 0.01))
    for names in (("",), (" · a", " · b")):
        wide, narrow, unknown, again = (
            " ".join(curve_of(*clear, *rows, names=names).findings)
            for rows in ([(64, 0.05, 0.06)], [(64, 0.001, 0.005)], [], [(64, 0.001, 0.005), (128, 0.05, 0.06)])
        )
        lead = f"at 64 labels{{}}: the lead over from scratch{names[0]} is"
        assert f"Whether pretraining stops paying {lead.format(' is uncertain')} +5.0 points (" in wide
        assert f"Pretraining stops paying {lead.format('')} +0.1 points (-" in narrow
        assert "stops paying" not in unknown
        assert "is uncertain" in again


def test_the_report_has_the_interval_over_seeds_alone_below_that_over_both() -> None:
    """Two rows per method, and the second column says what an interval covers; one seed has the texts alone."""
    found = curve_of((16, 0.1, 0.01), (32, 0.1, 0.02))
    assert interval_table(found).header == ("method", "95% interval over", "16 labels", "32 labels")
    both, alone, *_ = interval_table(found).rows
    assert (both[1], alone[1]) == ("seeds and texts", "seeds alone")
    assert both[2].startswith("90.0% (")
    assert alone[2] == found.at(found.pretrained, 16).test_scores.over_seeds.ends
    one = replace(found, rankings={n: tuple(each.with_seeds({0}) for each in row) for n, row in found.rankings.items()})
    assert [row[1] for row in interval_table(one).rows] == ["texts alone"] * 2


def test_differences_are_corrected_for_their_number() -> None:
    """A lead that is just significant alone is not among six sizes, unless the others are as clear."""
    found = curve_of((16, 0.05, 0.035))
    assert 0.01 < found.lead(found.others[0], 16).p < 0.05
    assert found.findings[0].startswith("With 16 labels, lp-ft is better than from scratch: +5.0 points (")
    many = curve_of((16, 0.05, 0.035), *((2**power, 0.0, 0.035) for power in range(5, 10)))
    first = "No significant difference between lp-ft and from scratch at any number of labels. A run of this size finds a lead of "
    assert many.findings[0].startswith(first)
    assert " points in 4 of 5 cases; with 10 seeds about " in many.findings[0]


def test_rivals_that_never_differ_share_a_sentence() -> None:
    """A ladder of baselines would otherwise fill the findings with sentences that say the same."""
    found = curve_of((16, 0.0, 0.03), (32, 0.0, 0.03), names=(" · a", " · b"))
    [sentence] = [one for one in found.findings if "any of" in one]
    assert sentence == (
        "No significant difference between lp-ft · a and any of from scratch · a, from scratch · b at any number of labels."
    )
    assert sum("A run of this size" in one for one in found.findings) == 1, "said of what transfer bought"


def test_one_seed_claims_nothing() -> None:
    """Lead or no lead: a curve of one seed says neither better nor worse (it said one of them in three of four null curves)."""
    full = curve_of((16, 0.2, 0.01), (32, 0.0, 0.01))
    found = replace(full, rankings={n: tuple(one.with_seeds({0}) for one in row) for n, row in full.rankings.items()})
    assert found.lead(found.others[0], 16).p < 0.001
    assert not found.significant
    assert found.findings[0] == "One seed cannot show whether lp-ft and from scratch differ; use more seeds."
    assert not any(word in " ".join(found.findings) for word in ("better", "worse", "stops paying", "worth"))


def test_the_default_target_is_never_perfection() -> None:
    """Half the error is rounded, not the score: 99.2% leads to 99.6%, not to 100%."""
    for score, target in ((0.992, 0.996), (0.9, 0.95), (0.875, 0.938), (0.5, 0.75)):
        found = CurveResult(cats(), {16: (ranked("lp-ft", "adapted", score, 0.01 * SHAPE),)}, (), {}, None, audit(cats()))
        assert found.target == pytest.approx(target, abs=6e-4)
        assert found.target < 1


def test_no_test_score_chooses_what_labels_are_worth() -> None:
    """The rival is the best with the most labels, compared where it is behind: both on the texts that choose."""
    full = curve_of((16, -0.02, 0.01), (32, 0.02, 0.01), (64, 0.02, 0.01), names=(" · a", " · b"))

    def with_validation(one: RankedMethod, score: float) -> RankedMethod:
        return replace(one, runs=tuple(replace(run, validation=score) for run in one.runs))

    chosen = {"lp-ft · a": 0.9, "lp-ft · b": 0.8, "from scratch · a": 0.5, "from scratch · b": 0.7}
    rankings = {n: tuple(with_validation(one, chosen[one.name]) for one in row) for n, row in full.rankings.items()}
    found = replace(full, rankings=rankings)
    assert (found.worth.labels, found.worth.rival.name) == (16, "from scratch · b"), "although it is ahead there on test"
    assert any(one.startswith("16 labels with lp-ft · a are worth ") for one in found.findings)
    behind = {n: tuple(with_validation(one, 0.9 - one.validation) for one in row) for n, row in rankings.items()}
    assert replace(full, rankings=behind).worth is None


def pretrained(metrics: dict[str, float], times: int = 1) -> PretrainResult:
    """A minute of training that read its text so often."""
    text, made = (
        SimpleNamespace(total_tokens=1000, counts=SimpleNamespace(words=5000)),
        SimpleNamespace(tokens=1000 * times, seconds=60.0, steps=10),
    )
    sample = TextSample('It writes: "a → b".', "a")
    return PretrainResult(SimpleNamespace(generates=True), "causal", made, metrics, (text, text), sample=sample)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metrics", "headline"),
    [
        ({"loss": 3.0, "word_perplexity": 669.3}, "It has barely begun (perplexity 669 per word): give it an hour."),
        ({"loss": 3.0, "perplexity": 40.2}, "It has learned a part (perplexity 40 per token): it gets better with an hour."),
        ({"loss": 1.0, "perplexity": 5.0, "word_perplexity": 21}, "It knows this kind of text (perplexity 21 per word)"),
        ({}, "How far it has come is unknown"),
    ],
)
def test_pretraining_says_how_far_the_model_has_come(metrics: dict[str, float], headline: str) -> None:
    """By the perplexity per word, or per token where a text has no likelihood, beside a sample of what the model writes."""
    found = pretrained(metrics).verdict(PretrainConfig())
    assert found.headline.startswith(headline)
    assert found.use[0] == 'It writes: "a → b".'
    assert [step.name for step in found.steps] == [*(["pretrain"] if "knows" not in headline else []), "generate", "serve"]


def test_a_model_that_fills_gaps_is_shown_filling_one(tokenizer: Tokenizer) -> None:
    """The longest word that is one token becomes the gap; three words are named beside the one that stood there."""
    found = sample_of(language_bundle(tokenizer), "She holds the cat")
    assert found is not None
    assert re.fullmatch(
        r'It fills in "She ____ the cat" with ".*" or ".*" or ".*"; the text has "holds"\.', found.sentence, re.DOTALL
    )


def test_a_small_text_that_was_read_often_is_not_read_longer() -> None:
    """More text is asked for."""
    found = pretrained({"loss": 5.0, "word_perplexity": 400.0}, times=17).verdict(PretrainConfig())
    assert found.headline.endswith("give it more text.")
    assert [step.name for step in found.steps] == ["generate", "serve"]
