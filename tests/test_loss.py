"""The chunked loss equals torch's own, and so do its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import gradcheck

from warmstart.objectives import loss
from warmstart.objectives.loss import language_loss
from warmstart.types import IGNORE


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_equals_torchs_cross_entropy(monkeypatch: pytest.MonkeyPatch, with_bias: bool, chunk: int) -> None:
    """Loss and all gradients agree, for ragged targets and chunks of any size."""
    monkeypatch.setattr(loss, "CHUNK", chunk)
    torch.manual_seed(0)
    states = torch.randn(2, 5, 8, requires_grad=True)
    weight = torch.randn(11, 8, requires_grad=True)
    bias = torch.randn(11, requires_grad=True) if with_bias else None
    targets = torch.randint(0, 11, (2, 5))
    targets[0, 1:3] = IGNORE
    parts = [part for part in (states, weight, bias) if part is not None]
    ours = language_loss(states, weight, bias, targets)
    theirs = F.cross_entropy(F.linear(states, weight, bias).flatten(0, 1), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(torch.autograd.grad(3 * ours, parts), torch.autograd.grad(3 * theirs, parts), strict=True):
        torch.testing.assert_close(mine, other)


def test_gradients_pass_torchs_own_check() -> None:
    """Numerical differentiation in double precision agrees."""
    torch.manual_seed(0)
    states = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([[1, IGNORE, 4, 0]])
    assert gradcheck(lambda s, w: language_loss(s, w, None, targets), (states, weight), atol=1e-3, eps=1e-3)


def test_logits_of_all_positions_are_never_in_memory() -> None:
    """The largest tensor has ``chunk`` rows of logits, however many positions there are."""
    states, weight = torch.randn(1, 4096, 4), torch.randn(500, 4, requires_grad=True)
    targets = torch.randint(0, 500, (1, 4096))
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.numel())
            return out

    with Watch():
        language_loss(states, weight, None, targets).backward()
    assert largest <= loss.CHUNK * 500


def test_bfloat16_stays_close() -> None:
    """Under autocast the loss is summed in float32 and stays within one percent."""
    torch.manual_seed(0)
    states, weight = torch.randn(1, 64, 16), torch.randn(50, 16)
    targets = torch.randint(0, 50, (1, 64))
    full = language_loss(states, weight, None, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = language_loss(states, weight, None, targets)
    assert half.dtype is torch.float32
    torch.testing.assert_close(half, full, rtol=0.01, atol=0.0)


def test_no_targets_give_no_loss() -> None:
    """A batch in which nothing is predicted has loss 0, not nan."""
    states, weight = torch.randn(1, 3, 4), torch.randn(5, 4)
    assert float(language_loss(states, weight, None, torch.full((1, 3), IGNORE))) == 0.0
