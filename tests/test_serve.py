"""The server answers as the library does, whoever else asks; it refuses politely what is wrong, and who may not ask."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from helpers.models import SENTENCES
from helpers.mutants import LABELS
from helpers.served import asked, asked_until_ready, client_of, cups_task, events_of, server_of
from helpers.served import models as models
from helpers.served import server as server
from warmstart.app.guard import TOKEN_VARIABLE, AccessRules
from warmstart.app.models import Corpus, ServedModel, open_models
from warmstart.app.replies import write_on
from warmstart.app.routes import Server, make_app
from warmstart.commands.serve import ServeConfig
from warmstart.errors import ConfigError
from warmstart.estimators import TextEncoder
from warmstart.experiment.config import FitConfig
from warmstart.generation.generate import generate
from warmstart.generation.settings import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.model.files import save
from warmstart.model.inference import embed
from warmstart.runs.run import Run
from warmstart.tasks.predict import raw_predictions

pytestmark = pytest.mark.usefixtures("socket_enabled")  # sockets of the event loop with itself


def test_a_model_is_described(server: Server) -> None:
    """By what it can do, and by its card; a stack has no layers to look at."""
    found = {one["name"]: one for one in asked(server, "/api/models").json()["models"]}
    assert found["causal"]["abilities"] == ["generate", "explain", "tokens", "card"]
    assert found["labels"]["abilities"] == ["predict", "explain", "tokens", "card"]
    assert found["stack"]["abilities"] == ["predict", "explain", "card"]
    assert found["vectors"]["abilities"] == ["embed", "tokens", "card"]
    assert (found["sure"]["guarantees"], found["labels"]["guarantees"]) == (True, False)
    assert "stack of" in (card := asked(server, "/api/card?model=stack").text) or "mean of" in card


def test_a_continuation_is_streamed_as_it_would_be_whole(server: Server, models: dict[str, Any]) -> None:
    """The texts of its events together are the text; every event has the probable tokens."""
    body = {"model": "causal", "prompt": "She holds", "max_new_tokens": 7, "seed": 3, "candidates": 4}
    whole = asked(server, "/api/generate", body).json()
    streamed = asked(server, "/api/generate", body | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *events, (_, last) = events_of(streamed)
    tokens = [data for _, data in events]
    written = generate(models["causal"], "She holds", GenerateConfig(max_new_tokens=7, seed=3))
    assert last["text"] == whole["text"] == written
    assert tokens == whole["steps"]
    assert last["text"].startswith("".join(one["text"] for one in tokens))
    assert all(len(one["candidates"]) == 4 for one in tokens)
    assert not server.streams


def test_an_answer_says_what_was_not_read(server: Server, models: dict[str, Any]) -> None:
    """For each input, the tokens that do not fit; a text that fits exactly is read whole."""
    bundle = models["labels"]
    free = bundle.model.backbone.config.max_length - 2
    many = [" ".join(["tea"] * count) for count in range(free, 0, -1)]
    exact = next(text for text in many if len(bundle.tokenizer.encode([text])[0]) <= free)
    texts = ["tea", exact, "tea " * (free + 50)]
    found = asked(server, "/api/predict", {"model": "labels", "inputs": texts}).json()
    lengths = [len(ids) for ids in bundle.tokenizer.encode(texts)]
    assert found["unread"] == [max(0, length - free) for length in lengths]
    assert found["unread"][:2] == [0, 0] != found["unread"][2:]
    assert "1 of 3 texts" in found["cut"]


def test_predictions_pass_a_long_generation(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take turns: a prediction does not wait for the end of the text."""
    begun = threading.Event()

    def write_and_note(model: Any, prompt: str, config: Any, top: int, on_token: Callable[[dict[str, Any]], None]) -> Any:
        return write_on(model, prompt, config, top, lambda token: (begun.set(), on_token(token)))

    monkeypatch.setattr("warmstart.app.routes.write_on", write_and_note)

    async def ask() -> tuple[Any, Any, bool]:
        async with client_of(make_app(server, AccessRules())) as client:
            body = {"model": "causal", "max_new_tokens": 600, "candidates": 1, "temperature": 5}
            long = asyncio.create_task(client.post("/api/generate", json=body))
            await asyncio.to_thread(begun.wait)
            quick = await client.post("/api/predict", json={"model": "labels", "inputs": ["a"]})
            went_first = not long.done()
            return quick, await long, went_first

    quick, long, went_first = asyncio.run(ask())
    assert quick.status_code == long.status_code == 200
    assert went_first or long.json()["ended"]


def test_vectors_and_tokens_are_those_of_the_library(server: Server, models: dict[str, Any]) -> None:
    """In the order of the texts."""
    vectors, texts = models["vectors"], list(SENTENCES[:4])
    found = asked(server, "/api/embed", {"model": "vectors", "texts": texts}).json()["vectors"]
    torch.testing.assert_close(torch.tensor(found), embed(vectors, texts), atol=1e-5, rtol=1e-5)
    tokens = asked(server, "/api/tokens", {"model": "labels", "texts": texts}).json()["tokens"]
    assert [[one["id"] for one in row] for row in tokens] == vectors.tokenizer.encode(texts)


@pytest.mark.parametrize("name", ["labels", "lora"])
def test_nearest_training_texts_are_those_of_scikit_learn(name: str, models: dict[str, Any]) -> None:
    """With their labels and cosines, nearest first; a training text is nearest to itself."""
    bundle, task = models[name], cups_task()
    model = ServedModel.of(bundle, name, tasks=[task])
    server, asked_for = server_of(model), [task.train.texts[7], "She rubs a river"]
    found = asked_until_ready(server, {"inputs": asked_for, "count": 3}).json()
    server.close()
    encoder = TextEncoder(bundle).fit([])
    vectors = encoder.transform(task.train.texts)
    reference = NearestNeighbors(n_neighbors=3, metric="cosine").fit(vectors)
    distances, _ = reference.kneighbors(encoder.transform(asked_for))
    np.testing.assert_allclose([[one["cosine"] for one in row] for row in found["nearest"]], 1 - distances, atol=2e-4)
    assert found["nearest"][0][0] == {"text": asked_for[0], "label": LABELS[7 % 3], "cosine": 1}
    every = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert found["random_pairs"] == pytest.approx((every @ every.T)[np.triu_indices(40, 1)].mean(), abs=2e-4)
    assert "nearest" in model.describe()["abilities"]


def test_a_stack_is_explained_and_has_its_nearest_texts(models: dict[str, Any]) -> None:
    """Each word by what the label loses without it; nearest are the texts whose vectors of its first network are."""
    task, text = cups_task(), "She holds the cat"
    server = server_of(*(ServedModel.of(models[name], name, tasks=[task]) for name in ("stack", "labels")))
    found = asked(server, "/api/explain", {"model": "stack", "text": text, "target": LABELS[1]}).json()
    shares = raw_predictions(models["stack"], [text, "holds the cat", "She the cat", "She holds cat", "She holds the"])[:, 1]
    assert (found["words"], found["target"], found["faithfulness"]) == (text.split(), LABELS[1], {})
    assert found["probability"] == pytest.approx(shares[0])
    np.testing.assert_allclose(found["importance"]["erasure"], np.log(shares[0] / shares[1:]), atol=1e-5)
    for body in ({"text": "a " * 101}, {"text": " "}, {"text": text, "target": "coffee"}):
        assert asked(server, "/api/explain", {"model": "stack"} | body).status_code == 422
    nearest = [asked_until_ready(server, {"model": name, "inputs": [text]}).json()["nearest"] for name in ("stack", "labels")]
    assert [one["text"] for one in nearest[0][0]] == [one["text"] for one in nearest[1][0]]
    assert all(-1 <= one["cosine"] <= 1 + 1e-6 for row in nearest for one in row[0])
    server.close()


def test_training_texts_must_be_those_of_a_served_model(server: Server, models: dict[str, Any], tmp_path: Path) -> None:
    """A task with other labels is refused, a model loaded again keeps its texts, and one without any says how to give it some."""
    folder = save(models["labels"], tmp_path / "cups")
    with pytest.raises(ConfigError, match=r"'cups' \(classification: wine, beer\) has other labels than cups"):
        open_models([str(folder)], [cups_task(("wine", "beer"))])
    made = Server(open_models([str(folder)], [cups_task()]), 1024, 0.005, 64)
    before = asked_until_ready(made, {"inputs": ["a cat"]}).json()
    made.models.reload("cups")
    assert asked_until_ready(made, {"inputs": ["a cat"]}).json() == before
    made.close()
    refused = asked(server, "/api/nearest", {"model": "labels", "inputs": ["a"]})
    assert (refused.status_code, "start the server with --texts TASK" in refused.json()["error"]) == (422, True)
    for name in ("causal", "tags"):
        assert "has no 'nearest'" in asked(server, "/api/nearest", {"model": name, "inputs": [["a", "b"]]}).json()["error"]


@pytest.mark.parametrize("change", ["none", "elsewhere", "changed", "gone"])
def test_training_texts_of_a_run_are_shown_by_themselves(
    change: str, models: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the table is still what the run read, from wherever the server is started; nothing is printed of how it is read."""
    monkeypatch.chdir(tmp_path)
    table, task = tmp_path / "cups.tsv", cups_task()
    rows = [f"{i}\t{text}\t{LABELS[i % 3]}" for i, text in enumerate(task.train.texts)]
    table.write_text("\n".join(["id\twords\tcup", *rows]), encoding="utf-8")
    run = Run.open("runs/fit", FitConfig(data="cups.tsv", text_column="words", label_column="cup", out="runs/fit"))
    save(models["labels"], run.folder / "bundle")
    capsys.readouterr()
    if change == "elsewhere":
        monkeypatch.chdir(tmp_path.parent)
    elif change == "changed":
        table.write_text(table.read_text(encoding="utf-8").replace("cat", "dog"), encoding="utf-8")
    elif change == "gone":
        table.unlink()
    made = Server(open_models([str(tmp_path / "runs" / "fit")]), 1024, 0.005, 64, True)
    assert made.training_texts.looked.wait(60)
    shown = change in ("none", "elsewhere")
    answer = asked_until_ready(made, {"inputs": [task.train.texts[7]], "count": 1})
    assert (answer.status_code == 200, "nearest" in next(iter(made.models)).abilities) == (shown, shown)
    if shown:
        assert answer.json()["nearest"][0][0] == {"text": task.train.texts[7], "label": LABELS[7 % 3], "cosine": 1}
    made.close()
    assert "column" not in capsys.readouterr().err


def test_training_texts_are_shown_by_themselves_on_this_machine_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token, another name or another address says that others ask, who must not read them unless --texts says so."""
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    for settings in ({"host": "0.0.0.0"}, {"token": "x" * 16}, {"allowed_hosts": ("models.example.org",)}):
        assert not ServeConfig.build({"models": ("m",), **settings}, "settings").alone
    assert ServeConfig(models=("m",)).alone


def test_what_followed_in_a_corpus_stands_beside_what_is_probable(tmp_path: Path, models: dict[str, Any]) -> None:
    """The counts that a trace has; those of the probable tokens; also when the model is loaded again."""
    causal, text = models["causal"], tmp_path / "text.txt"
    text.write_text("\n\n".join(SENTENCES))
    folder, corpus = save(causal, tmp_path / "causal"), Corpus(str(text))
    server = Server(open_models([str(folder)], corpus=corpus), 1024, 0.005, 64)
    server.models.reload("causal")
    body = {"prompt": "She holds", "max_new_tokens": 6, "seed": 3, "candidates": 4}
    found = asked(server, "/api/generate", body).json()["steps"]
    server.close()
    counts = corpus.counts(causal.tokenizer)
    expected = trace(causal, "She holds", GenerateConfig(max_new_tokens=6, seed=3), 4, counts).steps
    for step, wanted in zip(found, expected, strict=False):
        assert wanted.corpus
        assert step["corpus"]["count"] == wanted.corpus.count
        assert tuple(step["corpus"]["context"]) == wanted.corpus.context
        assert [(one["token"], one["count"]) for one in step["corpus"]["followed"]] == list(wanted.corpus.most_common)
        assert step["corpus"]["kl_divergence"] == wanted.corpus.kl_divergence
        known = dict(wanted.corpus.most_common)
        for one, count in zip(step["candidates"], step["corpus"]["candidates"], strict=True):
            assert known.get(one["token"], count) == count
    labels = save(replace(models["labels"]), tmp_path / "labels")  # type: ignore[arg-type, type-var]
    with pytest.raises(ConfigError, match="--corpus is for models that generate text, but none of labels does"):
        open_models([str(labels)], corpus=corpus)


def test_an_explanation_names_every_word(server: Server) -> None:
    """With the importance by three methods, and how faithful each is."""
    found = asked(server, "/api/explain", {"model": "labels", "text": "She holds the cat", "target": "tea"}).json()
    assert [one.strip() for one in found["words"]] == ["She", "holds", "the", "cat"]
    assert set(found["importance"]) == {"erasure", "gradient x input", "integrated gradients"} == set(found["faithfulness"])
    assert all(len(values) == 4 for values in found["importance"].values())


def test_a_model_that_was_loaded_again_is_forgotten(tmp_path: Path, models: dict[str, Any]) -> None:
    """Its thresholds do not keep it in memory."""
    sure = models["sure"]
    served_models = open_models([str(save(sure, tmp_path / "sure"))])
    old = weakref.ref(served_models.get("sure"))
    assert served_models.get("sure").threshold(0.3, 0.95) is served_models.get("sure").threshold(0.3, 0.95)
    served_models.reload("sure")
    assert old() is None
