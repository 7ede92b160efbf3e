"""The server answers as the library does, whoever else asks; it refuses politely what is wrong, and who may not ask."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections.abc import Iterator
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
from warmstart.generation.sampling import GenerateConfig
from warmstart.generation.trace import trace
from warmstart.inspection.activations import layer_names, text_states
from warmstart.inspection.attention import text_attention
from warmstart.inspection.lexicon import lexicon_from_text, static_embeddings
from warmstart.inspection.linear_probes import fit_linear_probe
from warmstart.inspection.occurrences import find_occurrences, mean_states
from warmstart.inspection.probes import standardize
from warmstart.model.files import save
from warmstart.model.history import AdaptRecord, TaskRecord
from warmstart.model.inference import embed
from warmstart.stats.proportions import paired_proportions, sign_test, wilson_interval
from warmstart.tasks.predict import predict, raw_predictions
from warmstart.tokenizer.tokenizer import Tokenizer

httpx = pytest.importorskip("httpx", reason="the server needs the extra 'serve', and its tests httpx")
pytest.importorskip("fastapi", reason="the server needs the extra 'serve'")

from helpers.served import asked, asked_until_ready, client_of, cups_task, one_of_each, served  # noqa: E402
from warmstart.serve.app import Server, make_app  # noqa: E402
from warmstart.serve.corpus import Corpus  # noqa: E402
from warmstart.serve.guard import AccessRules  # noqa: E402
from warmstart.serve.layer_probes import parts_of  # noqa: E402
from warmstart.serve.served import ServedModel, ServedModels, open_models  # noqa: E402

pytestmark = pytest.mark.usefixtures("socket_enabled")  # sockets of the event loop with itself


@pytest.fixture(scope="module")
def models(tokenizer: Tokenizer) -> dict[str, Any]:
    """One of each kind."""
    return one_of_each(tokenizer)


def server_of(*models: ServedModel) -> Server:
    return Server(ServedModels([*models]), 1024, 0.005, 64)


@pytest.fixture
def server(models: dict[str, Any]) -> Iterator[Server]:
    """A server of all of them."""
    made = served(models)
    yield made
    made.close()


def test_a_model_is_described(server: Server) -> None:
    """By what it can do; a stack has no layers to look at."""

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
    assert found["stack"]["abilities"] == ["predict", "explain", "card"]
    assert found["vectors"]["abilities"] == ["embed", "attention", "map", "tokens", "card"]
    assert (found["sure"]["guarantees"], found["labels"]["guarantees"]) == (True, False)


def test_a_continuation_is_streamed_as_it_would_be_whole(server: Server, models: dict[str, Any]) -> None:
    """The texts of its events together are the text; every event has the probable tokens."""
    body = {"model": "causal", "prompt": "She holds", "max_new_tokens": 7, "seed": 3, "candidates": 4}
    whole = asked(server, "/api/generate", body).json()
    streamed = asked(server, "/api/generate", body | {"stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in one.split("\n")) for one in streamed.text.strip().split("\n\n")]
    tokens = [json.loads(one["data"]) for one in events if one["event"] == "token"]
    last = json.loads(events[-1]["data"])
    causal = models["causal"]
    assert last["text"] == whole["text"] == generate(causal, "She holds", GenerateConfig(max_new_tokens=7, seed=3))
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


def test_vectors_tokens_and_attention_are_those_of_the_library(server: Server, models: dict[str, Any]) -> None:
    """In the order of the texts; weights by layer and head, for every token."""
    vectors, texts = models["vectors"], list(SENTENCES[:4])
    found = asked(server, "/api/embed", {"model": "vectors", "texts": texts}).json()["vectors"]
    torch.testing.assert_close(torch.tensor(found), embed(vectors, texts), atol=1e-5, rtol=1e-5)
    tokens = asked(server, "/api/tokens", {"model": "labels", "texts": texts}).json()["tokens"]
    assert [[one["id"] for one in row] for row in tokens] == vectors.tokenizer.encode(texts)
    weights, encoded = text_attention(models["labels"], "She holds")
    found = asked(server, "/api/attention", {"model": "labels", "text": "She holds"}).json()
    torch.testing.assert_close(torch.tensor(found["weights"]), torch.from_numpy(weights), atol=1e-3, rtol=0)
    assert len(found["tokens"]) == len(encoded.rows[0])


def test_errors_of_two_models_are_counted_by_class_slice_and_length(server: Server, models: dict[str, Any]) -> None:
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
    made = [ServedModel.of(models[name], name, tasks=[task]) for name in ("stack", "labels")]
    server = Server(ServedModels(made), 1024, 0, 64)
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
    assert "has no 'probe'" in asked(server, "/api/probe", {"model": "stack", "inputs": [text]}).json()["error"]
    server.close()


def test_layer_probes_are_those_of_the_library(models: dict[str, Any]) -> None:
    """Fitted on training texts, judged on texts that they have not seen; the test split is not read."""
    held = Split(tuple(f"{SENTENCES[i % 4]} {i + 50}" for i in range(24)), np.arange(24) % 3)
    task = replace(cups_task(), test=Split((None,) * 3, np.zeros(3, dtype=np.int64)))
    for name, one in {"training": task, "validation": replace(task, validation=held)}.items():
        parts, source = parts_of(one)
        texts = [text for part in parts for text in part.texts]
        assert (source, len(texts)) == (name, len({*texts}))
    bundle, task, texts = models["labels"], replace(task, validation=held), ["She rubs a river", "a cat"]
    server = server_of(ServedModel.of(bundle, "labels", tasks=[task]))
    while (answer := asked(server, "/api/probe", {"inputs": texts})).status_code == 503:
        assert "try again soon" in answer.json()["error"]
    server.close()
    found, (train, choosing, _) = answer.json(), parts_of(task)[0]
    assert found["held_out_of"] == "validation"
    states = [torch.from_numpy(text_states(bundle, one)).transpose(0, 1) for one in (train.texts, choosing.texts, texts)]
    states = standardize(states[0], states[1:])
    labels = [torch.from_numpy(one.labels) for one in (train, choosing)]
    assert [one["layer"] for one in found["layers"]] == layer_names(bundle)
    for layer in range(len(found["layers"])):
        one, two, given = (part[layer : layer + 1] for part in states)
        shares = fit_linear_probe((one, labels[0]), (two, labels[1]), 3).logits(given).softmax(dim=1)
        for row, share in zip(found["probes"], shares, strict=True):
            assert row[layer]["label"] == LABELS[int(share.argmax())]
            # other batches give other last digits, with which the fit ends elsewhere in a flat valley
            assert row[layer]["probability"] == pytest.approx(float(share.max()), abs=5e-2)
    assert found["layers"][0]["converged"]


def test_training_texts_must_be_those_of_a_served_model(server: Server, models: dict[str, Any], tmp_path: Path) -> None:
    """A task with other labels is refused, a model loaded again keeps its texts, and too few, or none, are said to be."""
    folder = save(models["labels"], tmp_path / "cups")
    with pytest.raises(ConfigError, match=r"'cups' \(classification: wine, beer\) has other labels than cups"):
        open_models([str(folder)], [cups_task(("wine", "beer"))])
    made = Server(open_models([str(folder)], [cups_task()]), 1024, 0.005, 64)
    before = asked_until_ready(made, {"inputs": ["a cat"]}).json()
    made.models.reload("cups")
    assert asked_until_ready(made, {"inputs": ["a cat"]}).json() == before
    made.close()
    few = replace(cups_task(), train=cups_task().train.take(np.array([0, 3])))
    made = server_of(ServedModel.of(models["labels"], "cups", tasks=[few]))
    while (answer := asked(made, "/api/probe", {"inputs": ["a cat"]})).status_code == 503:
        pass
    assert (answer.status_code, "'cups'" in answer.json()["error"]) == (422, True)
    assert asked(made, "/api/predict", {"inputs": ["a cat"]}).status_code == 200
    made.close()
    refused = asked(server, "/api/nearest", {"model": "labels", "inputs": ["a"]})
    assert (refused.status_code, "start the server with --texts TASK" in refused.json()["error"]) == (422, True)
    for name in ("causal", "choice"):
        assert "has no 'nearest'" in asked(server, "/api/nearest", {"model": name, "inputs": [["a", "b"]]}).json()["error"]


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


def test_a_map_has_the_words_of_the_text(server: Server, models: dict[str, Any]) -> None:
    """The most frequent first, on the axes of scikit-learn's PCA, with the nearest in all dimensions; at any layer."""
    bundle, text = models["labels"], "\n".join(SENTENCES)
    lexicon = lexicon_from_text(bundle.tokenizer, SENTENCES, 200)
    everyone = np.arange(len(lexicon))
    occurrences = find_occurrences(bundle, SENTENCES, lexicon, dict.fromkeys(everyone.tolist(), 10), 0)
    for layer in (None, 0, 2):
        found = asked(server, "/api/map", {"model": "labels", "text": text, "layer": layer}).json()
        static = static_embeddings(bundle, lexicon)
        vectors = static if layer is None else mean_states(bundle, occurrences, everyone, layer)
        units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        pca = PCA(2).fit(units)
        assert [(one["word"], one["count"]) for one in found["words"]] == list(zip(lexicon.words, lexicon.counts, strict=True))
        points = np.array([[one["x"], one["y"]] for one in found["words"]])
        np.testing.assert_allclose(np.abs(points), np.abs(pca.transform(units)), atol=2e-3)
        assert found["explained_variance"] == pytest.approx(pca.explained_variance_ratio_, abs=1e-3)
        cosines = units @ units.T - 2 * np.eye(len(units))
        assert [one["nearest"] for one in found["words"]] == [lexicon.words[i] for i in cosines.argmax(axis=1)]
        assert [one["cosine"] for one in found["words"]] == pytest.approx(cosines.max(axis=1), abs=1e-3)


def damaged_is_named(server: Server, file: Path, path: str) -> None:
    """Whatever is in it, the answer says that the same command makes it again."""
    for damaged in ("{", "[]", '{"task": 3}', "[" * 100_000):
        file.write_text(damaged)
        refused = asked(server, path)
        assert (refused.status_code, f"run the same {file.stem} again" in refused.json()["error"]) == (422, True), damaged[:9]


def test_a_model_knows_the_race_that_it_came_from(tmp_path: Path, models: dict[str, Any]) -> None:
    """With all methods as the race ranks them; a damaged file is named, and another model has none."""
    folder, expected = tmp_path / "race", race_result({"full": 0.8, "probe": 0.7})
    task = TaskRecord(name="cats", type="classification", labels=LABELS, train=9)
    record = AdaptRecord(task=task, seed=0, settings={"method": "full"})
    save(replace(models["labels"], history=(record,)), folder / "bundle")
    (folder / "race.json").write_text(json.dumps(expected.to_dict()))
    other = save(models["labels"], folder / "cups")
    server = Server(open_models([str(folder), f"inside={folder / 'bundle'}", str(other)]), 1024, 0.005, 64)
    found = asked(server, "/api/race?model=race").json()
    assert asked(server, "/api/race?model=inside").json() == found | {"model": "inside"}
    assert (found["task"], found["labels"], found["seeds"], found["saved"]) == ("cats", 60, 3, "full")
    assert found["findings"] == expected.findings
    for one, ranked in zip(found["methods"], expected.ranking.methods, strict=True):
        interval = expected.interval(ranked)
        assert (one["method"], one["score"], one["low"], one["high"]) == (ranked.name, interval.mean, interval.low, interval.high)
    assert "has no 'race'" in asked(server, "/api/race?model=cups").json()["error"]
    damaged_is_named(server, folder / "race.json", "/api/race?model=race")
    server.close()


def test_a_model_knows_the_learning_curve_around_it(tmp_path: Path, models: dict[str, Any]) -> None:
    """In the folder of a curve, itself or as a run there: scores and intervals by labels; a damaged file is named."""
    expected, folder = curve_of((16, 0.1, 0.01), (256, 0.02, 0.01)), tmp_path / "curve"
    for place in ("curve/one/bundle", "curve/two", "other/deep/in/bundle"):
        save(models["labels"], tmp_path / place)
    for place in ("curve", "other"):
        (tmp_path / place / "curve.json").write_text(json.dumps(expected.to_dict()))
    paths = [folder / "one", folder / "two", tmp_path / "other" / "deep" / "in"]
    server = Server(open_models([str(path) for path in paths]), 1024, 0.005, 64)
    found = asked(server, "/api/curve?model=one").json()
    assert asked(server, "/api/curve?model=two").json() == found | {"model": "two"}
    assert (found["task"], found["findings"]) == ("cats", expected.findings)
    for one, method in zip(found["methods"], expected.methods, strict=True):
        intervals = {labels: expected.interval(method, labels) for labels in (16, 256)}
        wanted = [(labels, interval.mean, interval.low, interval.high) for labels, interval in intervals.items()]
        assert one["method"] == method.name
        assert [(point["labels"], point["score"], point["low"], point["high"]) for point in one["points"]] == wanted
    assert "has no 'curve'" in asked(server, "/api/curve?model=in").json()["error"]
    damaged_is_named(server, folder / "curve.json", "/api/curve?model=one")
    server.close()


def test_a_model_knows_its_restarts(models: dict[str, Any]) -> None:
    """The scores of each seed from its record, and which was saved; of baselines and of a single run nothing is shown."""
    records = {
        "best on validation": adapt_record(True, 0.7, 6),
        "first": adapt_record(False, 0.8, 5),
        "average": adapt_record(True, 0.75, 6),
    }
    alone = records["average"].model_copy(update={"comparison": comparison_of({"pretrained": (0.7,)})})
    server = server_of(
        *(ServedModel.of(replace(models["labels"], history=(one,)), name) for name, one in (records | {"alone": alone}).items())
    )
    for name, saved in {"best on validation": 1, "first": 0, "average": None}.items():
        assert asked(server, f"/api/restarts?model={name}").json() == {
            "model": name, "task": "cups", "metric": "accuracy", "test_texts": 40,
            "seeds": [5, 6, 7] if saved is not None else None, "saved": saved,
            "methods": [
                {"method": "pretrained", "test": [0.8, 0.7, 0.6], "validation": [0.6, 0.9, 0.7]},
                {"method": "from scratch", "test": [0.5, 0.4, 0.6], "validation": None},
            ],
        }, name  # fmt: skip
    assert "has no 'restarts'" in asked(server, "/api/restarts?model=alone").json()["error"]
    server.close()


def test_an_explanation_names_every_word(server: Server) -> None:
    """With the importance by three methods, and how faithful each is; too long a text is refused."""
    found = asked(server, "/api/explain", {"model": "labels", "text": "She holds the cat", "target": "tea"}).json()
    assert [one.strip() for one in found["words"]] == ["She", "holds", "the", "cat"]
    assert set(found["importance"]) == {"erasure", "gradient x input", "integrated gradients"} == set(found["faithfulness"])
    assert all(len(values) == 4 for values in found["importance"].values())
    refused = asked(server, "/api/explain", {"model": "labels", "text": "a " * 500})
    assert (refused.status_code, "words" in refused.text or "fit" in refused.text) == (422, True)


def test_a_model_that_was_loaded_again_is_forgotten(tmp_path: Path, models: dict[str, Any]) -> None:
    """Its thresholds do not keep it in memory."""
    sure = models["sure"]
    served_models = open_models([str(save(sure, tmp_path / "sure"))])
    old = weakref.ref(served_models.get("sure"))
    assert served_models.get("sure").threshold(0.3, 0.95) is served_models.get("sure").threshold(0.3, 0.95)
    served_models.reload("sure")
    assert old() is None
