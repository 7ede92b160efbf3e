"""Training the rows of the embedding that a run reads is training the embedding, and leaves all other rows as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from helpers.bundles import classifier, finetune_config, language_bundle, make_task
from warmstart.finetuning import scheme
from warmstart.finetuning.finetune import FineTuneResult, fine_tune
from warmstart.finetuning.inputs import EncodedTask
from warmstart.finetuning.losses import LanguageTask
from warmstart.finetuning.scheme import EmbeddingRows, apply_scheme
from warmstart.finetuning.schemes.registry import make_scheme
from warmstart.tokenizer.tokenizer import Tokenizer


def tuned(names: str, tokenizer: Tokenizer, *, weight_decay: float = 0.0) -> FineTuneResult:
    """A run of a few epochs that keeps its best weights."""
    model, config = classifier(tokenizer), finetune_config(names, keep="best")
    train = config.train.model_copy(update={"weight_decay": weight_decay})
    encoded = EncodedTask.of(make_task(), model, tokenizer)
    assert len(encoded.training_ids()) < scheme.WORTHWHILE * tokenizer.vocab_size or not scheme.WORTHWHILE
    return fine_tune(
        model, encoded, config.model_copy(update={"train": train}), 0, language=LanguageTask.of(language_bundle(tokenizer))
    )


@pytest.mark.parametrize("names", ["full", "lp-ft", "gradual+discriminative", "full+scalar-mix", "houlsby+lm-loss"])
def test_schemes_give_the_same_with_rows_set_apart(names: str, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, predictions, scores of the evaluations and the number of trainable parameters are those of the whole embedding."""
    rows = tuned(names, tokenizer)
    monkeypatch.setattr(scheme, "WORTHWHILE", 0.0)
    whole = tuned(names, tokenizer)
    weights, expected = rows.model.weights(), whole.model.weights()
    assert weights.keys() == expected.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, expected[name], atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(rows.test_predictions, whole.test_predictions, atol=1e-4)
    assert (rows.curve, rows.trainable) == (whole.curve, whole.trainable)


def test_words_that_training_texts_lack_keep_their_vectors(tokenizer: Tokenizer) -> None:
    """Weight decay changes the rows of tokens that were read, and no others."""
    before = classifier(tokenizer).backbone.embedding.weight.detach().clone()
    run = tuned("full", tokenizer, weight_decay=0.5)
    after = run.model.backbone.embedding.weight.detach()
    read = EncodedTask.of(make_task(), classifier(tokenizer), tokenizer).training_ids()
    changed = (after != before).any(dim=1).nonzero().flatten().tolist()
    assert set(changed) <= set(read.tolist())
    assert len(changed) >= len(read) - 1, "all tokens but padding are moved"


def test_a_token_that_no_text_has_is_refused(tokenizer: Tokenizer) -> None:
    """While rows are set apart, another token has no vector, and raises instead of reading a wrong one."""
    model = classifier(tokenizer)
    rows = EmbeddingRows(model.backbone, apply_scheme(model, make_scheme("full")), np.array([1, 5, 9]))
    assert torch.isfinite(model(torch.tensor([[5, 9, 1]]))).all()
    with pytest.raises(IndexError):
        model(torch.tensor([[5, 7]]))
    with rows.whole():
        assert torch.isfinite(model(torch.tensor([[5, 7]]))).all()
