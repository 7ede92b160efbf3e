"""Shares of labels: covered by their intervals, better than labels alone, and withheld where the labels were picked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars
import pytest

import warmstart as ws
from helpers.figures import repeats
from warmstart.cli import main
from warmstart.commands.predict import predict
from warmstart.commands.settings import PredictConfig
from warmstart.data.text_key import key_hash, key_of
from warmstart.errors import DataError
from warmstart.model.bundle import Calibration, LeftOutAnswers
from warmstart.model.fitted import FittedBaseline
from warmstart.model.readout import LinearReadout
from warmstart.model.rows import WordRows
from warmstart.model.stack import Member, Stack
from warmstart.seeding import rng
from warmstart.stats.shares import LabelledSample, estimate_shares, sampled_alike, share_difference, with_known


def population(generator: np.random.Generator, shares: np.ndarray, count: int, quality: float, bias: np.ndarray) -> LabelledSample:
    """Texts of labels with these ``shares``, and predictions of a model that errs on purpose."""
    labels = np.eye(len(shares))[generator.choice(len(shares), count, p=shares)]
    logits = quality * labels + 1.2 * generator.normal(size=labels.shape) + np.log(shares + 1e-3) + bias
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return LabelledSample(labels, odds / odds.sum(axis=1, keepdims=True), np.ones(count))


SETTINGS = [(2, 20), (2, 100), (5, 20), (5, 300), (20, 100), (20, 400)]


@pytest.mark.proofs
@pytest.mark.parametrize(("classes", "labelled"), SETTINGS)
@pytest.mark.parametrize("quality", [0.0, 2.0, 4.0])
def test_shares_are_covered(classes: int, labelled: int, quality: float) -> None:
    """At least 94 of 100 intervals, also of rare labels and of differences of two groups; none is wider than by labels alone."""
    generator, held, rare, differences, width = rng(0, f"{classes} {labelled} {quality}"), [], [], [], np.zeros(2)
    for _ in range(repeats(1000, 150)):
        shares, bias = generator.dirichlet(np.ones(classes)), generator.normal(size=classes)
        groups = []
        for _ in range(2):
            sample = population(generator, shares, labelled, quality, bias)
            others = population(generator, shares, 1500, quality, bias)
            found, truth = estimate_shares(sample, others.predictions), others.labels.mean(axis=0)
            alone = estimate_shares(
                sample._replace(predictions=np.zeros_like(sample.predictions)), np.zeros_like(others.predictions)
            )
            covered = np.array([share.low <= value <= share.high for share, value in zip(found, truth, strict=True)])
            assert abs(sum(share.value for share in found) - 1) < 1e-9
            assert all(0 <= value <= 1 for share in found for value in share)
            held.append(covered.mean())
            rare.extend(covered[shares < 0.05])
            width += [np.mean([share.high - share.low for share in estimates]) for estimates in (found, alone)]
            groups.append((found[0], truth[0]))
            shares = generator.dirichlet(np.ones(classes))
        difference = share_difference(groups[0][0], groups[1][0])
        differences.append(difference.low <= groups[0][1] - groups[1][1] <= difference.high)
    noise = 2 * np.sqrt(0.05 * 0.95 / len(differences))
    ratio = width[0] / width[1]
    means = f"{np.mean(held):.3f} covered, {ratio:.2f} of the width by labels"
    print(f"{classes} labels, {labelled} texts, quality {quality}: {means}")
    assert np.mean(held) >= 0.94 - noise / 2
    assert np.mean(differences) >= 0.94 - noise
    assert len(rare) < 100 or np.mean(rare) >= 0.94 - 2 * np.sqrt(0.05 * 0.95 / len(rare))
    assert width[0] <= 1.01 * width[1] * (0.85 if quality > 3 else 1)


@pytest.mark.proofs
def test_labels_that_were_picked_are_noticed() -> None:
    """A random sample is doubted in about 1 of 100 cases at the level of 1%; equally many texts of each label nearly always."""
    generator, random, picked = rng(0, "picked"), [], []
    shares, bias = np.array([0.75, 0.15, 0.1]), np.array([0.3, 0.0, -0.3])
    for _ in range(repeats(500, 120)):
        others = population(generator, shares, 1500, 2.0, bias)
        random.append(sampled_alike(population(generator, shares, 100, 2.0, bias), others.predictions))
        many = population(generator, shares, 2000, 2.0, bias)
        rows = np.concatenate([np.flatnonzero(many.labels[:, label])[:33] for label in range(3)])
        picked.append(sampled_alike(many.take(rows), others.predictions))
    doubted, noticed = (np.mean(np.array(values) <= 0.01) for values in (random, picked))
    print(f"of 100 random samples {100 * doubted:.1f} are doubted, of 100 picked ones {100 * noticed:.1f}")
    assert np.mean(np.array(random) <= 0.01) <= 0.04
    assert np.mean(np.array(picked) <= 0.01) >= 0.95


def test_weights_undo_a_choice_of_texts() -> None:
    """Texts that were drawn three times as often as others count a third."""
    generator, shares = rng(0, "weights"), np.array([0.5, 0.3, 0.2])
    pool, errors = population(generator, shares, 4000, 2.0, np.zeros(3)), []
    wanted = np.where(pool.labels[:, 2] > 0, 3.0, 1.0)
    for _ in range(60):
        rows = generator.choice(4000, 200, replace=False, p=wanted / wanted.sum())
        sample = pool.take(rows)._replace(weights=1 / wanted[rows])
        errors.append([share.value for share in estimate_shares(sample, pool.predictions)] - pool.labels.mean(axis=0))
    assert np.abs(np.mean(errors, axis=0)).max() < 0.015


def test_known_texts_count_with_their_labels() -> None:
    """Shares among labelled texts and others together; among labelled texts alone nothing is uncertain."""
    sample = population(rng(0, "known"), np.array([0.6, 0.4]), 60, 3.0, np.zeros(2))
    others = population(rng(1, "known"), np.array([0.6, 0.4]), 40, 3.0, np.zeros(2))
    share = estimate_shares(sample, others.predictions)[0]
    both = with_known(share, 40, sample.labels[:, 0])
    assert both.value == pytest.approx((40 * share.value + sample.labels[:, 0].sum()) / 100)
    assert both.high - both.low == pytest.approx(0.4 * (share.high - share.low))
    assert with_known(share, 0, sample.labels[:, 0]).low == sample.labels[:, 0].mean()


WORDS = ("angry", "pleased")


def mails(count: int, seed: int, complaints: float = 0.3) -> tuple[list[str], np.ndarray]:
    """Texts, of which so many complain; four in five of these are angry, and one in five of the others."""
    chance = rng(seed, "mails")
    labels = (chance.random(count) < complaints).astype(int)
    angry = chance.random(count) < np.where(labels == 1, 0.8, 0.2)
    return [f"I am {WORDS[not one]} about {seed} {number}" for number, one in enumerate(angry)], labels


def counting_model(texts: list[str], labels: np.ndarray, random: tuple[bool, ...] = ()) -> Stack:
    """A model that takes who is angry for one who complains, with its answers to labelled texts."""
    words = FittedBaseline(WordRows(WORDS, word_pairs=False, idf=np.ones(2)), LinearReadout(2 * np.eye(2)[::-1], np.zeros(2)))
    stack = Stack((Member("words", words),), "classification", ("praise", "complaint"))
    left_out = LeftOutAnswers(
        labels=tuple((int(label),) for label in labels),
        probabilities=tuple(map(tuple, ws.predict(stack, texts).probabilities.tolist())),
        hashes=tuple(key_hash(key_of(text)).hex() for text in texts),
        random=random,
    )
    return Stack(stack.members, stack.type, stack.labels, (), Calibration(left_out=left_out))


def test_labels_correct_the_count_of_predictions() -> None:
    """Who is angry is counted as 38 of 100, who complains are 30; the interval holds the truth, and blank texts do not count."""
    texts, labels = mails(3000, 0)
    model = counting_model(texts[:300], labels[:300])
    counted = ws.shares(model, [*texts, "  "])
    assert np.mean([row["label"] == "complaint" for row in ws.predict(model, texts)]) > 0.36
    share = counted.groups[0].shares[1]
    assert share.low < labels.mean() < share.high
    assert share.high - share.low < 0.09
    assert "1 blank text is not counted" in counted.notes
    assert counted.sentence.startswith("Of 100 of the 3,000 texts, 6")
    assert "complaint (" in counted.sentence
    assert "complaint" in counted._repr_html_()


def test_groups_are_corrected_by_their_own_labels() -> None:
    """Dates are taken by month; a month with few labelled texts has no interval, and that is said."""
    texts, labels = mails(900, 0)
    counted = ws.shares(counting_model(texts[:200], labels[:200]), texts, [f"2026-0{1 + (n > 190)}-07" for n in range(900)])
    assert [(group.name, group.labelled) for group in counted.groups] == [("all texts", 200), ("2026-01", 191), ("2026-02", 9)]
    assert np.isnan(counted.groups[2].shares[0].low)
    assert any("2026-02" in note for note in counted.notes)
    assert counted.groups[1].shares[1].value == pytest.approx(labels[:191].mean())
    assert np.isnan(counted.difference("2026-01", "2026-02", "complaint").low)
    with pytest.raises(DataError, match="no group '2026-03'; did you mean '2026-02'. known: 2026-01, 2026-02, all texts"):
        counted.difference("2026-03", "2026-02", "complaint")
    with pytest.raises(DataError, match="all texts hold every group"):
        counted.difference("2026-01", "all texts", "complaint")
    with pytest.raises(DataError, match="no label 'complaints'; did you mean 'complaint'"):
        counted.difference("2026-01", "2026-02", "complaints")


def test_labels_that_were_picked_give_no_interval() -> None:
    """Half of the labelled texts complain, of all texts a tenth."""
    texts, labels = mails(200, 0, 0.5)
    counted = ws.shares(counting_model(texts, labels), mails(2000, 1, 0.1)[0])
    assert np.isnan(counted.groups[0].shares[0].low)
    assert "no random sample" in counted.notes[0]


def test_labels_that_were_drawn_at_random_correct_those_that_were_picked() -> None:
    """Of 400 labels 200 are of texts that were drawn at random; the others were picked, and most of them complain."""
    texts, labels = mails(3000, 0)
    picked = 200 + np.argsort(-labels[200:], kind="stable")[:200]
    rows = np.concatenate([np.arange(200), picked])
    chosen, drawn = [texts[row] for row in rows], (True,) * 200 + (False,) * 200
    counted = ws.shares(counting_model(chosen, labels[rows], drawn), texts)
    share = counted.groups[0].shares[1]
    assert share.low < labels.mean() < share.high
    assert counted.notes == ("Of the 400 labelled texts the 200 that were drawn at random correct the predictions",)
    assert counted.groups[0].labelled == 200
    assert ws.shares(counting_model(chosen, labels[rows]), texts).groups[0].shares[1].value > share.high
    known = ws.shares(counting_model(chosen, labels[rows], drawn), chosen).groups[0].shares[1]
    assert known.low == known.high == pytest.approx(labels[rows].mean())
    few = ws.shares(counting_model(chosen, labels[rows], (True,) * 10 + (False,) * 390), texts)
    assert not few.covered
    assert few.notes[0].startswith("Only 10 of the labelled texts were drawn at random")


def test_the_command_counts_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the terminal as bars, and as a table by its ending."""
    texts, labels = mails(600, 0)
    ws.save(counting_model(texts[:100], labels[:100]), tmp_path / "model")
    polars.DataFrame({"text": texts, "shop": ["north", "south"] * 300}).write_csv(tmp_path / "mails.csv")
    how = {"model": str(tmp_path / "model"), "file": str(tmp_path / "mails.csv"), "shares": True, "by": "shop"}
    predict(PredictConfig(**how))
    assert "north: 300, 50 of them labelled" in capsys.readouterr().out
    predict(PredictConfig(**how, out=str(tmp_path / "shares.csv")))
    rows = polars.read_csv(tmp_path / "shares.csv").rows(named=True)
    assert [(row["group"], row["label"]) for row in rows[:3]] == [
        ("all texts", "praise"),
        ("all texts", "complaint"),
        ("north", "praise"),
    ]
    assert all(row["low"] <= row["share"] <= row["high"] for row in rows)
    with pytest.raises(DataError, match="no column 'month': its columns are 'text', 'shop'"):
        predict(PredictConfig(**how | {"by": "month"}))
    assert main(["predict", how["model"], how["file"], "--by", "shop"]) == 2
    assert "--by counts the labels of each group, so it needs --shares" in capsys.readouterr().err


def test_shares_need_labelled_texts() -> None:
    """A model without them is refused, and so are texts that are blank, and groups without end."""
    texts, labels = mails(100, 0)
    model = counting_model(texts, labels)
    with pytest.raises(DataError, match="one has 9; fit one"):
        ws.shares(counting_model(texts[:9], labels[:9]), texts)
    with pytest.raises(DataError, match="no text of which to count"):
        ws.shares(model, [" "])
    with pytest.raises(DataError, match="at most 100, but there are 101"):
        ws.shares(model, ["a"] * 101, range(101))
