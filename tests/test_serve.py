"""The server answers as the library does, whoever else asks; it refuses politely what is wrong, and who may not ask."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import weakref
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from helpers.curves import curve_of
from helpers.models import SENTENCES
from helpers.mutants import LABELS
from helpers.races import race_result
from helpers.restarts import adapt_record, comparison_of
from warmstart.data.task import Split
from warmstart.errors import ConfigError
from warmstart.estimators.encoder import TextEncoder
from warmstart.generation.generate import generate
from warmstart.generation.ngram_counts import NgramCounts
from warmstart.generation.sampling import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.inspection.activations import layer_names, text_states
from warmstart.inspection.attention import text_attention
from warmstart.inspection.lexicon import lexicon_from_text, static_embeddings
from warmstart.inspection.linear_probes import fit_linear_probe
from warmstart.inspection.occurrences import find_occurrences, mean_states
from warmstart.inspection.probes import standardize
from warmstart.model.bundle import Bundle
from warmstart.model.embed import embed
from warmstart.model.files import save
from warmstart.model.history import AdaptRecord, TaskRecord
from warmstart.stack.stack import Stack
from warmstart.stats.proportions import paired_proportions, sign_test, wilson_interval
from warmstart.tasks.predict import predict
from warmstart.tokenizer.tokenizer import Tokenizer

httpx = pytest.importorskip("httpx", reason="the server needs the extra 'serve', and its tests httpx")
pytest.importorskip("fastapi", reason="the server needs the extra 'serve'")

from helpers.served import asked, asked_for, asked_until_ready, client_of, cups_task, one_of_each, served  # noqa: E402
from warmstart.serve import replies  # noqa: E402
from warmstart.serve.app import Server, make_app  # noqa: E402
from warmstart.serve.computing import BusyError, Computer, Turns  # noqa: E402
from warmstart.serve.corpus import Corpus  # noqa: E402
from warmstart.serve.guard import AccessRules, Guard  # noqa: E402
from warmstart.serve.layer_probes import parts_of  # noqa: E402
from warmstart.serve.served import ServedModel, ServedModels, open_models  # noqa: E402

pytestmark = pytest.mark.usefixtures("socket_enabled")  # of the event loop with itself
BASIC = "Basic " + base64.b64encode(b"me:0123456789abcdef").decode()


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer) -> dict[str, Bundle | Stack]:
    """One of each kind."""
    return one_of_each(tokenizer)


@pytest.fixture
def server(models: dict[str, Bundle | Stack]) -> Iterator[Server]:
    """A server of all of them."""
    made = served(models)
    yield made
    made.close()


def test_a_model_is_described(server: Server) -> None:
    """By what it can do; a stack only predicts."""

    async def ask() -> Any:
        async with client_of(make_app(server, AccessRules())) as client:
            health, described, metrics = [await client.get(path) for path in ("/health", "/api/models", "/metrics")]
            schema, card = [await client.get(path) for path in ("/openapi.json", "/api/card?model=stack")]
            assert {one.status_code for one in (health, described, metrics, schema, card)} == {200}
            assert "stack of" in card.text or "mean of" in card.text
            assert set(schema.json()["paths"]) >= {"/api/predict", "/api/generate"}
            return {one["name"]: one for one in described.json()["models"]}

    found = asyncio.run(ask())
    assert found["causal"]["abilities"] == ["generate", "explain", "attention", "map", "tokens", "card"]
    assert found["labels"]["abilities"] == ["predict", "explain", "attention", "map", "tokens", "card"]
    assert found["stack"]["abilities"] == ["predict", "card"]
    assert found["vectors"]["abilities"] == ["embed", "attention", "map", "tokens", "card"]
    assert (found["sure"]["guarantees"], found["labels"]["guarantees"]) == (True, False)


@pytest.mark.parametrize("name", ["labels", "lora", "number", "stack"])
def test_many_clients_get_what_the_library_predicts(name: str, server: Server, models: dict[str, Bundle | Stack]) -> None:
    """Requests of one and of several texts at once, joined into batches: each gets its own answers."""
    requests = [SENTENCES[i : i + 1 + i % 3] for i in range(30) if SENTENCES[i : i + 1 + i % 3]]

    async def ask() -> list[Any]:
        async with client_of(make_app(server, AccessRules())) as client:
            return await asyncio.gather(
                *(client.post("/api/predict", json={"model": name, "inputs": list(texts)}) for texts in requests)
            )

    for texts, answer in zip(requests, asyncio.run(ask()), strict=True):
        assert answer.status_code == 200, answer.text
        for found, expected in zip(answer.json()["predictions"], predict(models[name], texts), strict=True):
            if name == "number":
                assert found["number"] == pytest.approx(expected["number"], abs=1e-4)
            else:
                assert found["label"] == expected["label"]
                assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=2e-4)
                assert found["confidence"] == pytest.approx(max(expected["probabilities"].values()), abs=2e-4)
    batches = server.metrics.registry.get_sample_value("warmstart_batch_requests_count")
    assert batches is not None
    assert batches < len(requests)


def test_a_guarantee_lets_the_model_abstain(server: Server) -> None:
    """Below the threshold there is no label; a model without texts for it says what to do."""
    body = {"inputs": list(SENTENCES[:5]), "target_error": 0.1}
    found = asked(server, "/api/predict", body | {"model": "sure"}).json()
    assert "at most 10% of predictions are wrong" in found["guarantee"] or "always abstains" in found["guarantee"]
    assert all((one["label"] is None) == one["abstained"] for one in found["predictions"])
    refused = asked(server, "/api/predict", body | {"model": "labels"})
    assert refused.status_code == 422
    assert "--calibration-fraction" in refused.json()["error"]


def test_a_continuation_is_streamed_as_it_would_be_whole(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """The texts of its events together are the text; every event has the probable tokens."""
    body = {"model": "causal", "prompt": "She holds", "max_new_tokens": 7, "seed": 3, "candidates": 4}
    whole = asked(server, "/api/generate", body).json()
    streamed = asked(server, "/api/generate", body | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in one.split("\n")) for one in streamed.text.strip().split("\n\n")]
    tokens = [json.loads(one["data"]) for one in events if one["event"] == "token"]
    last = json.loads(events[-1]["data"])
    causal = models["causal"]
    assert isinstance(causal, Bundle)
    assert last["text"] == whole["text"] == generate(causal, "She holds", GenerateConfig(max_new_tokens=7, seed=3))
    assert tokens == whole["steps"]
    assert last["text"].startswith("".join(one["text"] for one in tokens))
    assert all(len(one["candidates"]) == 4 for one in tokens)
    assert not server.streams


def test_an_answer_says_what_was_not_read(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """For each input, the tokens that do not fit; a text that fits exactly is read whole."""
    bundle = models["labels"]
    assert isinstance(bundle, Bundle)
    free = bundle.model.backbone.config.max_length - 2
    many = [" ".join(["tea"] * count) for count in range(free, 0, -1)]
    exact = next(text for text in many if len(bundle.tokenizer.encode([text])[0]) <= free)
    texts = ["tea", exact, "tea " * (free + 50)]
    found = asked(server, "/api/predict", {"model": "labels", "inputs": texts}).json()
    lengths = [len(ids) for ids in bundle.tokenizer.encode(texts)]
    assert found["unread"] == [max(0, length - free) for length in lengths]
    assert found["unread"][:2] == [0, 0] != found["unread"][2:]
    assert "1 of 3 texts" in found["cut"]


def test_predictions_pass_a_long_generation(server: Server) -> None:
    """They take turns: a prediction does not wait for the end of the text."""

    async def ask() -> tuple[Any, Any, bool]:
        async with client_of(make_app(server, AccessRules())) as client:
            body = {"model": "causal", "max_new_tokens": 600, "candidates": 1, "temperature": 5}
            long = asyncio.create_task(client.post("/api/generate", json=body))
            while not server.metrics.registry.get_sample_value("warmstart_generated_tokens_total"):
                await asyncio.sleep(0.01)
            quick = await client.post("/api/predict", json={"model": "labels", "inputs": ["a"]})
            went_first = not long.done()
            return quick, await long, went_first

    quick, long, went_first = asyncio.run(ask())
    assert quick.status_code == long.status_code == 200
    assert went_first or long.json()["ended"]


def test_vectors_and_tokens_are_those_of_the_library(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """In the order of the texts."""
    vectors, texts = models["vectors"], list(SENTENCES[:4])
    assert isinstance(vectors, Bundle)
    found = asked(server, "/api/embed", {"model": "vectors", "texts": texts}).json()["vectors"]
    torch.testing.assert_close(torch.tensor(found), embed(vectors, texts), atol=1e-5, rtol=1e-5)
    tokens = asked(server, "/api/tokens", {"model": "labels", "texts": texts}).json()["tokens"]
    assert [[one["id"] for one in row] for row in tokens] == vectors.tokenizer.encode(texts)


def test_errors_of_two_models_are_counted_by_class_slice_and_length(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """As by hand from what the library predicts; a text without a label is predicted only."""
    texts = [" ".join(["tea", *SENTENCES[i % 4].split()][: 1 + i % 5]) + f" {i}" for i in range(24)]
    labels = [None if i == 3 else LABELS[i % 2] for i in range(24)]
    slices = [None if i % 5 == 4 else ("web", "book")[i % 5 // 3] for i in range(24)]
    body = {"model": "labels", "other": "lora", "inputs": texts, "labels": labels}
    plain = asked(server, "/api/compare", body).json()["errors"]["groups"]
    found = asked(server, "/api/compare", body | {"slices": slices}).json()
    predicted = [[one["label"] for one in predict(models[name], texts)] for name in ("labels", "lora")]
    assert [[one["label"] for one in rows] for rows in found["predictions"]] == predicted
    groups = found["errors"]["groups"]
    assert [one["kind"] for one in groups] == ["all", "class", "class", "slice", "slice", "length", "length", "length"]
    assert [one for one in groups if one["kind"] != "slice"] == plain
    kept = [i for i in range(24) if i != 3]
    members = {"all": kept} | {label: [i for i in kept if labels[i] == label] for label in LABELS[:2]}
    members |= {name: [i for i in kept if slices[i] == name] for name in ("web", "book")}
    for one in groups:
        lengths = range(one.get("least", 0), one.get("most", 0) + 1)
        of = (
            [i for i in kept if len(texts[i].split()) in lengths]
            if one["kind"] == "length"
            else members[one.get("label", one.get("slice", "all"))]
        )
        right = np.array([[rows[i] == labels[i] for i in of] for rows in predicted], float)
        gap = paired_proportions([right[0]], [right[1]])
        assert one["count"] == len(of)
        assert [share["right"] for share in one["accuracies"]] == right.sum(axis=1).tolist()
        assert [share["low"] for share in one["accuracies"]] == [wilson_interval(row.mean(), len(of)).low for row in right]
        assert one["difference"] == {"value": gap.mean, "low": gap.low, "high": gap.high}
    assert sum(one["count"] for one in groups if one["kind"] == "length") == len(kept)
    whole = np.array([[rows[i] == labels[i] for i in kept] for rows in predicted])
    better, worse = int((whole[0] & ~whole[1]).sum()), int((whole[1] & ~whole[0]).sum())
    assert (found["errors"]["better"], found["errors"]["worse"]) == (better, worse)
    assert found["errors"]["p"] == sign_test(better, worse)
    many = asked(server, "/api/compare", body | {"inputs": ["a"] * 60, "labels": [None] * 60, "slices": [*map(str, range(60))]})
    assert (many.status_code, "at most 50 slices of the texts, but there are 60" in many.json()["error"]) == (422, True)
    assert "2 for 24 inputs" in asked(server, "/api/compare", body | {"slices": ["web"] * 2}).json()["error"]
    few = asked(server, "/api/compare", body | {"inputs": texts[:20], "labels": labels[:20]}).json()["errors"]
    assert (few["groups"][0]["count"], few["p"]) == (19, None)
    assert asked(server, "/api/compare", body | {"labels": [None] * 24}).json()["errors"] is None


def test_unknown_labels_are_named(server: Server) -> None:
    """With the model that lacks them and the labels that it knows; a model without one label per text is named, too."""

    def refusal(other: str, labels: list[str | None]) -> str:
        body = {"model": "labels", "other": other, "inputs": ["a"] * 3, "labels": labels}
        answer = asked(server, "/api/compare", body)
        assert answer.status_code == 422
        return str(answer.json()["error"])

    assert "'nonsense', 'other'" in (error := refusal("lora", ["other", "nonsense", None]))
    assert f"'labels' ({', '.join(LABELS)})" in error
    assert "'number' does not" in refusal("number", [LABELS[0], None, None])
    assert "2 for 3 inputs" in refusal("lora", [None, None])


@pytest.mark.parametrize("name", ["labels", "lora"])
def test_nearest_training_texts_are_those_of_scikit_learn(name: str, models: dict[str, Bundle | Stack]) -> None:
    """With their labels and cosines, nearest first; a training text is nearest to itself."""
    bundle, task = models[name], cups_task()
    assert isinstance(bundle, Bundle)
    server = Server(ServedModels([ServedModel.of(bundle, name, tasks=[task])]), 1024, 0.005, 64)
    asked_for = [task.train.texts[7], "She rubs a river"]
    found = asked_until_ready(server, {"inputs": asked_for, "count": 3}).json()
    described = ServedModel.of(bundle, name, tasks=[task]).describe()
    server.close()
    encoder = TextEncoder(bundle).fit([])
    vectors = encoder.transform(task.train.texts)
    reference = NearestNeighbors(n_neighbors=3, metric="cosine").fit(vectors)
    distances, _ = reference.kneighbors(encoder.transform(asked_for))
    np.testing.assert_allclose([[one["cosine"] for one in row] for row in found["nearest"]], 1 - distances, atol=2e-4)
    assert found["nearest"][0][0] == {"text": asked_for[0], "label": LABELS[7 % 3], "cosine": 1}
    every = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    assert found["random_pairs"] == pytest.approx((every @ every.T)[np.triu_indices(40, 1)].mean(), abs=2e-4)
    assert "nearest" in described["abilities"]


@pytest.mark.parametrize(("name", "validation"), [("labels", 24), ("lora", 0)])
def test_layer_probes_are_those_of_the_library(name: str, validation: int, models: dict[str, Bundle | Stack]) -> None:
    """Fitted on training texts, judged on texts that they have not seen; the test split is not read."""
    bundle, task = models[name], cups_task()
    assert isinstance(bundle, Bundle)
    held = tuple(f"{SENTENCES[i % 4]} {i + 50}" for i in range(validation))
    unread = Split((None,) * 3, np.zeros(3, dtype=np.int64))
    task = replace(task, validation=Split(held, np.arange(validation) % 3), test=unread)
    server = Server(ServedModels([ServedModel.of(bundle, name, tasks=[task])]), 1024, 0.005, 64)
    texts = ["She rubs a river", "a cat"]
    while (answer := asked(server, "/api/probe", {"inputs": texts})).status_code == 503:
        assert "try again soon" in answer.json()["error"]
    server.close()
    found, ((train, choosing, held_out), source) = answer.json(), parts_of(task)
    assert (found["held_out_of"], source) == (("validation",) * 2 if validation else ("training",) * 2)
    assert not {*train.texts} & {*choosing.texts} | {*train.texts} & {*held_out.texts} | {*choosing.texts} & {*held_out.texts}
    states = [torch.from_numpy(text_states(bundle, one)).transpose(0, 1) for one in (train.texts, choosing.texts, texts)]
    states = standardize(states[0], states[1:])
    labels = [torch.from_numpy(one.labels) for one in (train, choosing)]
    assert [one["layer"] for one in found["layers"]] == layer_names(bundle)
    for layer in range(len(found["layers"])):
        one, two, given = (part[layer : layer + 1] for part in states)
        shares = fit_linear_probe((one, labels[0]), (two, labels[1]), 3).logits(given).softmax(dim=1)
        for row, share in zip(found["probes"], shares, strict=True):
            assert row[layer]["label"] == LABELS[int(share.argmax())]
            assert row[layer]["probability"] == pytest.approx(float(share.max()), abs=2e-2)
    assert found["layers"][0]["converged"]


def test_layer_probes_of_too_few_texts_are_refused_alone(models: dict[str, Bundle | Stack]) -> None:
    """The server says what they need, and answers everything else."""
    labels, task = models["labels"], cups_task()
    assert isinstance(labels, Bundle)
    few = replace(task, train=task.train.take(np.array([0, 3])))
    server = Server(ServedModels([ServedModel.of(labels, "cups", tasks=[few])]), 1024, 0.005, 64)
    while (answer := asked(server, "/api/probe", {"inputs": ["a cat"]})).status_code == 503:
        pass
    predicted = asked(server, "/api/predict", {"inputs": ["a cat"]})
    server.close()
    assert (answer.status_code, predicted.status_code) == (422, 200)
    assert "'cups'" in answer.json()["error"]


def test_without_training_texts_the_server_says_how_to_give_them(server: Server) -> None:
    """A model that has no vector of a text cannot have any."""
    refused = asked(server, "/api/nearest", {"model": "labels", "inputs": ["a"]})
    assert (refused.status_code, "start the server with --texts TASK" in refused.json()["error"]) == (422, True)
    for name in ("stack", "causal", "choice"):
        assert "has no 'nearest'" in asked(server, "/api/nearest", {"model": name, "inputs": [["a", "b"]]}).json()["error"]


def test_training_texts_must_be_those_of_a_served_model(tmp_path: Path, models: dict[str, Bundle | Stack]) -> None:
    """A task with other labels is refused, and a model loaded again keeps its texts."""
    labels = models["labels"]
    assert isinstance(labels, Bundle)
    folder = save(labels, tmp_path / "cups")
    with pytest.raises(ConfigError, match=r"'cups' \(classification: wine, beer\) has other labels than cups"):
        open_models([str(folder)], [cups_task(("wine", "beer"))])
    server = Server(open_models([str(folder)], [cups_task()]), 1024, 0.005, 64)
    before = asked_until_ready(server, {"inputs": ["a cat"]}).json()
    server.models.reload("cups")
    assert asked_until_ready(server, {"inputs": ["a cat"]}).json() == before
    server.close()


def test_what_followed_in_a_corpus_stands_beside_what_is_probable(tmp_path: Path, models: dict[str, Bundle | Stack]) -> None:
    """The counts that a trace has; those of the probable tokens; also when the model is loaded again."""
    causal, text = models["causal"], tmp_path / "text.txt"
    assert isinstance(causal, Bundle)
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


def test_a_token_costs_one_look_at_the_corpus(models: dict[str, Bundle | Stack], monkeypatch: pytest.MonkeyPatch) -> None:
    """The context is looked up once, and the vocabulary is sorted once, for each token that is written."""
    causal, looked, ordered = models["causal"], list[int](), list[int]()
    assert isinstance(causal, Bundle)
    counts = NgramCounts(causal.tokenizer, SENTENCES)

    def longest(ids: Sequence[int], look: Any = counts.longest) -> Any:
        looked.append(len(ids))
        return look(ids)

    def order(*given: Any, most: Any = replies.most_probable) -> Any:
        ordered.append(1)
        return most(*given)

    monkeypatch.setattr(counts, "longest", longest)
    monkeypatch.setattr(replies, "most_probable", order)
    model, told = replace(ServedModel.of(causal, "causal"), counts=counts), list[dict[str, Any]]()
    replies.write_on(model, "She holds", GenerateConfig(max_new_tokens=5, seed=3), 4, told.append)
    assert len(looked) == len(ordered) == len(told)
    assert all(one["corpus"]["count"] for one in told)


def test_attention_is_that_of_the_library(server: Server, models: dict[str, Bundle | Stack]) -> None:
    """By layer and head, for every token; a long text is refused."""
    labels = models["labels"]
    assert isinstance(labels, Bundle)
    weights, encoded = text_attention(labels, "She holds")
    found = asked(server, "/api/attention", {"model": "labels", "text": "She holds"}).json()
    torch.testing.assert_close(torch.tensor(found["weights"]), torch.from_numpy(weights), atol=1e-3, rtol=0)
    assert len(found["tokens"]) == len(encoded.rows[0])


@pytest.mark.parametrize("layer", [None, 0, 2])
def test_a_map_has_the_words_of_the_text(layer: int | None, server: Server, models: dict[str, Bundle | Stack]) -> None:
    """The most frequent first, on the axes of scikit-learn's PCA, with the nearest in all dimensions."""
    bundle, text = models["labels"], "\n".join(SENTENCES)
    assert isinstance(bundle, Bundle)
    found = asked(server, "/api/map", {"model": "labels", "text": text, "layer": layer}).json()
    lexicon = lexicon_from_text(bundle.tokenizer, SENTENCES, 200)
    everyone = np.arange(len(lexicon))
    vectors = static_embeddings(bundle, lexicon)
    if layer is not None:
        vectors = mean_states(
            bundle, find_occurrences(bundle, SENTENCES, lexicon, dict.fromkeys(everyone.tolist(), 10), 0), everyone, layer
        )
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pca = PCA(2).fit(units)
    assert [(one["word"], one["count"]) for one in found["words"]] == list(zip(lexicon.words, lexicon.counts, strict=True))
    points = np.array([[one["x"], one["y"]] for one in found["words"]])
    np.testing.assert_allclose(np.abs(points), np.abs(pca.transform(units)), atol=2e-3)
    assert found["explained_variance"] == pytest.approx(pca.explained_variance_ratio_, abs=1e-3)
    cosines = units @ units.T - 2 * np.eye(len(units))
    assert [one["nearest"] for one in found["words"]] == [lexicon.words[i] for i in cosines.argmax(axis=1)]
    assert [one["cosine"] for one in found["words"]] == pytest.approx(cosines.max(axis=1), abs=1e-3)


def raced(folder: Path, bundle: Bundle) -> Path:
    """The folder of a race that saved its method full."""
    record = AdaptRecord(
        task=TaskRecord(name="cats", type="classification", labels=LABELS, train=9), seed=0, settings={"method": "full"}
    )
    save(replace(bundle, history=(record,)), folder / "bundle")
    (folder / "race.json").write_text(json.dumps(race_result({"full": 0.8, "probe": 0.7}).to_dict()))
    return folder


def test_a_model_knows_the_race_that_it_came_from(tmp_path: Path, models: dict[str, Bundle | Stack]) -> None:
    """With all methods as the race ranks them; a damaged file is named, and another model has none."""
    labels = models["labels"]
    assert isinstance(labels, Bundle)
    folder, expected = raced(tmp_path / "race", labels), race_result({"full": 0.8, "probe": 0.7})
    other = save(labels, tmp_path / "race" / "cups")
    server = Server(open_models([str(folder), f"inside={folder / 'bundle'}", str(other)]), 1024, 0.005, 64)

    async def ask(name: str) -> Any:
        async with client_of(make_app(server, AccessRules())) as client:
            return await client.get(f"/api/race?model={name}")

    found = asyncio.run(ask("race")).json()
    assert asyncio.run(ask("inside")).json() == found | {"model": "inside"}
    assert (found["task"], found["labels"], found["seeds"], found["saved"]) == ("cats", 60, 3, "full")
    assert found["findings"] == expected.findings
    for one, ranked in zip(found["methods"], expected.ranking.methods, strict=True):
        interval = expected.interval(ranked)
        assert (one["method"], one["score"], one["low"], one["high"]) == (ranked.name, interval.mean, interval.low, interval.high)
    assert "has no 'race'" in asyncio.run(ask("cups")).json()["error"]
    for damaged in ("{", "[]", '{"task": 3}', "[" * 100_000):
        (folder / "race.json").write_text(damaged)
        refused = asyncio.run(ask("race"))
        assert (refused.status_code, "run the same race again" in refused.json()["error"]) == (422, True)
    server.close()


def test_a_model_knows_the_learning_curve_around_it(tmp_path: Path, models: dict[str, Bundle | Stack]) -> None:
    """In the folder of a curve, itself or as a run there: scores and intervals by labels; a damaged file is named."""
    labels, expected = models["labels"], curve_of((16, 0.1, 0.01), (256, 0.02, 0.01))
    assert isinstance(labels, Bundle)
    save(labels, tmp_path / "curve" / "one" / "bundle")
    save(labels, tmp_path / "curve" / "two")
    save(labels, tmp_path / "other" / "deep" / "in" / "bundle")
    file = tmp_path / "curve" / "curve.json"
    file.write_text(json.dumps(expected.to_dict()))
    (tmp_path / "other" / "curve.json").write_text(file.read_text())
    paths = [tmp_path / "curve" / "one", tmp_path / "curve" / "two", tmp_path / "other" / "deep" / "in"]
    server = Server(open_models([str(path) for path in paths]), 1024, 0.005, 64)
    found = asked_for(server, "/api/curve?model=one").json()
    assert asked_for(server, "/api/curve?model=two").json() == found | {"model": "two"}
    assert (found["task"], found["findings"]) == ("cats", expected.findings)
    assert [one["method"] for one in found["methods"]] == [method.name for method in expected.methods]
    for one, method in zip(found["methods"], expected.methods, strict=True):
        assert [point["labels"] for point in one["points"]] == [16, 256]
        for point in one["points"]:
            interval = expected.interval(method, point["labels"])
            assert (point["score"], point["low"], point["high"]) == (interval.mean, interval.low, interval.high)
    assert "has no 'curve'" in asked_for(server, "/api/curve?model=in").json()["error"]
    for damaged in ("{", "[]", '{"task": 3}', "[" * 100_000):
        file.write_text(damaged)
        refused = asked_for(server, "/api/curve?model=one")
        assert (refused.status_code, "run the same curve again" in refused.json()["error"]) == (422, True)
    server.close()


@pytest.mark.parametrize(
    ("chosen", "score", "seed", "saved", "seeds"),
    [(True, 0.7, 6, 1, [5, 6, 7]), (False, 0.8, 5, 0, [5, 6, 7]), (True, 0.75, 6, None, None)],
    ids=["the best on validation", "the first", "an average"],
)
def test_a_model_knows_its_restarts(
    chosen: bool, score: float, seed: int, saved: int | None, seeds: list[int] | None, models: dict[str, Bundle | Stack]
) -> None:
    """The scores of each seed from its record, and which was saved; of baselines and of a single run nothing is shown."""
    labels = models["labels"]
    assert isinstance(labels, Bundle)
    record = adapt_record(chosen, score, seed)
    alone = record.model_copy(update={"comparison": comparison_of({"pretrained": (0.7,)})})
    bundles = {"many": replace(labels, history=(record,)), "one": replace(labels, history=(alone,))}
    server = Server(ServedModels([ServedModel.of(bundle, name) for name, bundle in bundles.items()]), 1024, 0.005, 64)
    assert asked_for(server, "/api/restarts?model=many").json() == {
        "model": "many", "task": "cups", "metric": "accuracy", "test_texts": 40, "seeds": seeds, "saved": saved,
        "methods": [
            {"method": "pretrained", "test": [0.8, 0.7, 0.6], "validation": [0.6, 0.9, 0.7]},
            {"method": "from scratch", "test": [0.5, 0.4, 0.6], "validation": None},
        ],
    }  # fmt: skip
    assert "has no 'restarts'" in asked_for(server, "/api/restarts?model=one").json()["error"]
    server.close()


def test_an_explanation_names_every_word(server: Server) -> None:
    """With the importance by three methods, and how faithful each is; too long a text is refused."""
    found = asked(server, "/api/explain", {"model": "labels", "text": "She holds the cat", "target": "tea"}).json()
    assert [one.strip() for one in found["words"]] == ["She", "holds", "the", "cat"]
    assert set(found["importance"]) == {"erasure", "gradient x input", "integrated gradients"} == set(found["faithfulness"])
    assert all(len(values) == 4 for values in found["importance"].values())
    refused = asked(server, "/api/explain", {"model": "labels", "text": "a " * 500})
    assert (refused.status_code, "words" in refused.text or "fit" in refused.text) == (422, True)


WRONG: list[tuple[str, Any, int]] = [
    ("/api/predict", {"inputs": []}, 422),
    ("/api/predict", {"inputs": ["a"] * 1001}, 422),
    ("/api/predict", {"inputs": "a"}, 422),
    ("/api/predict", {"inputs": [1]}, 422),
    ("/api/predict", {"inputs": ["a"], "more": 1}, 422),
    ("/api/predict", {"inputs": ["a"], "model": "nobody"}, 404),
    ("/api/predict", {"inputs": ["a"], "model": "../../etc/passwd"}, 404),
    ("/api/predict", {"inputs": ["a"], "model": "causal"}, 422),
    ("/api/predict", {"inputs": [["a", "b", "c"]], "model": "labels"}, 422),
    ("/api/predict", {"inputs": ["a"], "model": "choice"}, 422),
    ("/api/predict", {"inputs": [["a", "b", "c", "d"]], "model": "choice"}, 422),
    ("/api/predict", {"inputs": ["a" * 100_001], "model": "labels"}, 422),
    ("/api/predict", {"inputs": ["a"], "model": "labels", "target_error": 1.5}, 422),
    ("/api/compare", {"model": "labels", "inputs": ["a"], "labels": [None]}, 422),
    ("/api/compare", {"model": "labels", "other": "nobody", "inputs": ["a"], "labels": [None]}, 404),
    ("/api/compare", {"model": "labels", "other": "lora", "inputs": ["a"] * 1001, "labels": [None] * 1001}, 422),
    ("/api/compare", {"model": "labels", "other": "lora", "inputs": [["a", "b", "c"]], "labels": [None]}, 422),
    ("/api/compare", {"model": "labels", "other": "lora", "inputs": ["a"], "labels": [3]}, 422),
    ("/api/generate", {"model": "masked", "prompt": "a"}, 422),
    ("/api/generate", {"model": "causal", "temperature": 0}, 422),
    ("/api/generate", {"model": "causal", "max_new_tokens": 10**9}, 422),
    ("/api/generate", {"model": "causal", "seed": -1}, 422),
    ("/api/embed", {"model": "labels", "texts": ["a"]}, 422),
    ("/api/explain", {"model": "labels", "text": ""}, 422),
    ("/api/explain", {"model": "labels", "text": "a b", "target": "no such label"}, 422),
    ("/api/map", {"model": "labels", "text": "cat dog"}, 422),
    ("/api/map", {"model": "labels", "text": " 1 + 2 "}, 422),
    ("/api/map", {"model": "labels", "text": "cat dog river", "layer": 3}, 422),
    ("/api/map", {"model": "stack", "text": "cat dog river"}, 422),
    ("/api/reload", {"model": "nobody"}, 404),
    ("/api/nothing", {}, 404),
]


@pytest.mark.parametrize(("path", "body", "status"), WRONG)
def test_a_wrong_request_is_told_what_is_wrong(path: str, body: Any, status: int, server: Server) -> None:
    """With the status and the words for it, and nothing of our code."""
    answer = asked(server, path, body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error
    assert "Traceback" not in error


RAW = {
    "no JSON": b"{", "a number": b"1", "nothing": b"", "a list": b"[]", "deep": b"[" * 100_000, "no text": b"\xff\xfe",
    "half a surrogate": b'{"inputs": ["\\ud800"], "model": "labels"}',
    "a huge number": b'{"inputs": ["a"], "top": ' + b"9" * 5000 + b"}",
    "not a number": b'{"model": "causal", "temperature": NaN}', "infinite": b'{"model": "causal", "temperature": 1e999}',
    "a key twice": b'{"inputs": ["a"], "inputs": 3}', "a NUL": b'{"inputs": ["a"], "model": "\\u0000"}',
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("path", ["/api/predict", "/api/generate", "/api/reload"])
def test_malformed_bodies_are_refused(name: str, path: str, server: Server) -> None:
    """None of them is a fault of the server."""

    async def ask() -> Any:
        async with client_of(make_app(server, AccessRules())) as client:
            return await client.post(path, content=RAW[name], headers={"content-type": "application/json"})

    answer = asyncio.run(ask())
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.json()["error"]


def ask_with(server: Server, rules: AccessRules, headers: Sequence[tuple[str, str]], body: bytes = b"") -> Any:
    async def ask() -> Any:
        async with client_of(make_app(server, rules)) as client:
            return await client.post("/api/predict", headers=list(headers), content=body)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("host", "evil.example")], 421),
        ([("host", "127.0.0.1.evil.example")], 421),
        ([("host", "[::1")], 421),
        ([("host", "localhost:8000")], 422),
        ([("origin", "http://evil.example")], 403),
        ([("origin", "null")], 403),
        ([("origin", "http://[")], 403),
        ([("origin", "http://[::1")], 403),
        ([("origin", "http://]")], 403),
        ([("origin", "")], 403),
        ([("host", ""), ("origin", "http://[")], 421),
        ([("host", "localhost:8000"), ("origin", "http://localhost:9000")], 403),
        ([("host", "localhost:8000"), ("origin", "http://localhost:8000")], 422),
        ([("content-length", "99999999999999999999")], 413),
    ],
)
def test_other_hosts_and_origins_are_refused(headers: list[tuple[str, str]], status: int, server: Server) -> None:
    """So that no page of another site can ask in somebody's name."""
    answer = ask_with(server, AccessRules(), headers, b"{}")
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_token_is_needed_where_there_is_one(server: Server) -> None:
    """For all but the health; a wrong one is no use."""
    rules = AccessRules(token="0123456789abcdef")
    for headers, status in (
        ([], 401),
        ([("authorization", "Bearer no")], 401),
        ([("authorization", "Bearer 0123456789abcdef")], 422),
        ([("authorization", BASIC)], 422),
    ):
        assert ask_with(server, rules, headers, b"{}").status_code == status

    async def ask() -> Any:
        async with client_of(make_app(server, rules)) as client:
            return [(await client.get(path)).status_code for path in ("/health", "/metrics", "/openapi.json")]

    assert asyncio.run(ask()) == [200, 401, 401]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def test_a_long_body_and_many_requests_are_refused() -> None:
    """Whatever the header says of its length; a client that waits may ask again."""
    now = 0.0
    app = Guard(echo, AccessRules(most_bytes=100, rate=10), lambda: now)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 10

    async def ask() -> list[int]:
        nonlocal now
        async with client_of(app) as client:
            found = [(await client.post("/", content=chunks())).status_code]
            found += [(await client.get("/")).status_code for _ in range(10)]
            now = 0.11
            return [*found, (await client.get("/")).status_code]

    statuses = asyncio.run(ask())
    assert statuses == [413, *[200] * 9, 429, 200]


def test_a_full_queue_refuses() -> None:
    """At once, while those that wait are answered."""
    go, computer = threading.Event(), Computer(10, 0, 2)
    busy = computer.submit("slow", ["a"], 1, lambda inputs: go.wait() and inputs)
    while computer.waiting:
        pass
    waiting = [computer.submit("slow", [one], 1, lambda inputs: inputs) for one in "bc"]
    with pytest.raises(BusyError):
        computer.submit("slow", ["d"], 1, lambda inputs: inputs)
    go.set()
    assert [list(one.result(10)) for one in (busy, *waiting)] == [["a"], ["b"], ["c"]]
    computer.stop()
    with pytest.raises(BusyError):
        computer.submit("slow", ["d"], 1, lambda inputs: inputs)


def test_the_fault_of_one_request_is_not_that_of_others() -> None:
    """A batch that fails is computed again request by request."""
    go, computer = threading.Event(), Computer(100, 0, 10)

    def inverse(inputs: Sequence[int]) -> list[float]:
        go.wait()
        return [1 / one for one in inputs]

    futures = [computer.submit("inverse", [one], 1, inverse) for one in (1, 2, 0, 4)]
    go.set()
    assert [futures[i].result(10) for i in (0, 1, 3)] == [[1], [0.5], [0.25]]
    with pytest.raises(ZeroDivisionError):
        futures[2].result(10)
    computer.stop()


def test_who_left_is_not_computed_for() -> None:
    """A cancelled request is passed over."""
    go, computer, seen = threading.Event(), Computer(1, 0, 10), list[str]()

    def note(inputs: Sequence[str]) -> Sequence[str]:
        go.wait()
        seen.extend(inputs)
        return inputs

    futures = [computer.submit("note", [one], 1, note) for one in "abc"]
    while computer.waiting > 2:
        pass
    futures[1].cancel()
    go.set()
    futures[2].result(10)
    computer.stop()
    assert seen == ["a", "c"]


def test_turns_are_given_in_order() -> None:
    """Who offers the lock goes behind those who wait."""
    turns, order, started = Turns(), list[str](), threading.Event()

    def other(name: str) -> None:
        with turns:
            order.append(name)

    with turns:
        threads = []
        for name in "bc":
            threads.append(threading.Thread(target=other, args=(name,)))
            threads[-1].start()
            while len(turns._waiting) < len(threads):
                started.wait(0.001)
        turns.offer()
        order.append("a")
    for thread in threads:
        thread.join()
    assert order == ["b", "c", "a"]


def test_a_model_that_was_loaded_again_is_forgotten(tmp_path: Path, models: dict[str, Bundle | Stack]) -> None:
    """Its thresholds do not keep it in memory."""
    sure = models["sure"]
    assert isinstance(sure, Bundle)
    served_models = open_models([str(save(sure, tmp_path / "sure"))])
    old = weakref.ref(served_models.get("sure"))
    assert served_models.get("sure").threshold(0.3, 0.95) is served_models.get("sure").threshold(0.3, 0.95)
    served_models.reload("sure")
    assert old() is None


def test_models_have_names_of_their_own(models: dict[str, Bundle | Stack]) -> None:
    """Two of one name are refused."""
    with pytest.raises(Exception, match="each model must have a name of its own"):
        ServedModels([ServedModel.of(models["labels"], "one"), ServedModel.of(models["lora"], "one")])
