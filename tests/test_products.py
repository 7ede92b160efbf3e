"""Products of matrices: both libraries give the same, forward and backward; the faster is chosen once and recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from warmstart.system import products
from warmstart.system.products import Linear, multiply, outer, product_library, use_product_library

ROOM = torch.randn(4096, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def small_too(onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN multiplies everything, however small."""
    monkeypatch.setattr(products, "ENOUGH", 0)


def gradients(layer: torch.nn.Linear, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of input, weight and bias."""
    x = x.clone().requires_grad_()
    layer.zero_grad()
    output = layer(x)
    output.square().sum().backward()
    return [output.detach(), x.grad, *(parameter.grad.clone() for parameter in layer.parameters())]  # type: ignore[list-item, union-attr]


@pytest.mark.usefixtures("small_too")
def test_a_layer_and_its_gradients_are_torchs() -> None:
    """Up to the order of the sums."""
    torch.manual_seed(0)
    for shape in ((3, 5, 8), (7, 8), (1, 8), (2, 1, 8)):
        for outputs, bias in ((1, True), (6, False), (20, True)):
            layer, plain = Linear(8, outputs, bias=bias), torch.nn.Linear(8, outputs, bias=bias)
            plain.load_state_dict(layer.state_dict())
            x = torch.randn(shape)
            for ours, theirs in zip(gradients(layer, x), gradients(plain, x), strict=True):
                torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("small_too")
def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    """A frozen layer gets none, and passes that of its input on."""
    layer = Linear(8, 4).requires_grad_(False)
    x = torch.randn(5, 8, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, layer.weight.sum(dim=0).expand(5, 8))
    assert layer.weight.grad is layer.bias.grad is None
    assert not layer(x.detach()).requires_grad


@pytest.mark.usefixtures("small_too")
@settings(max_examples=40)
@given(rows=st.integers(1, 9), inputs=st.integers(1, 9), outputs=st.integers(1, 9), stride=st.integers(1, 3), flip=st.booleans())
def test_operands_may_lie_in_memory_in_any_way(rows: int, inputs: int, outputs: int, stride: int, *, flip: bool) -> None:
    """Transposed, or every second or third number: the product is the same."""
    x = ROOM[: rows * inputs * stride].view(rows, -1)[:, ::stride]
    x = x.T.contiguous().T if flip else x
    weight, grad = (
        ROOM[1000 : 1000 + outputs * inputs].view(outputs, inputs),
        ROOM[2000 : 2000 + rows * outputs].view(rows, outputs),
    )
    torch.testing.assert_close(multiply(x, weight), x @ weight.T, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(multiply(grad, weight.T), grad @ weight, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outer(grad, x), grad.T @ x, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("small_too")
def test_under_autocast_torch_multiplies() -> None:
    """In bfloat16: the choice of a library concerns float32 alone."""
    layer, x = Linear(8, 4), torch.randn(5, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
        torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias), atol=0, rtol=0)


def test_a_library_is_chosen_once_for_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured is kept; a damaged file is measured again; what a run recorded is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(products, "_in_use", None)
    measured = iter(["onednn", "default"])
    monkeypatch.setattr(products, "_measure", lambda: next(measured))
    file = tmp_path / "warmstart" / "products.json"
    for content, expected in ((None, "onednn"), (None, "onednn"), ("{", "default")):
        if content:
            file.write_text(content)
        products._faster_library.cache_clear()
        assert product_library() == expected
        assert [*json.loads(file.read_text()).values()] == [expected]
    use_product_library("onednn")
    assert product_library() == "onednn"
    products._faster_library.cache_clear()


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is measured again by the next process."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(products, "_in_use", None)
    monkeypatch.setattr(products, "_measure", lambda: "default")
    products._faster_library.cache_clear()
    assert product_library() == "default"
    products._faster_library.cache_clear()


@pytest.mark.journeys
@pytest.mark.skipif(sys.platform == "win32", reason="limits of processor time are Unix's")
def test_a_limit_of_processor_time_is_no_trouble() -> None:
    """Under ``ulimit -t`` Linux counts the time of a process in ticks, longer than a product takes."""
    imported = "import torch; from warmstart.system.products import product_rate"
    code = f"{imported}; torch.set_num_threads(1); print(product_rate(torch.float32))"
    command = ["bash", "-c", f"ulimit -t 600; exec {sys.executable} -c '{code}'"]
    rate = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert 1e8 < float(rate) < 1e14
