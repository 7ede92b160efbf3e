"""torch.compile for the modules of a training step.

Only training steps run the compiled code; evaluation, taps and saving use the modules as they are. Each module is compiled once
for all steps of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from warmstart.errors import ConfigError


def check_compiler(device: torch.device) -> None:
    """Raise ``ConfigError`` if code for the CPU cannot be compiled because there is no C++ compiler."""
    if device.type != "cpu":
        return
    from torch._inductor import exc  # takes seconds to import
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except exc.InvalidCxxCompiler as error:
        raise ConfigError("--compile needs a C++ compiler, but none was found; install g++, or leave --compile out") from error


def compiles_by_default(device: torch.device) -> bool:
    """Whether steps are compiled unasked: on a GPU, if torch finds its compiler, and not with ``TORCHDYNAMO_DISABLE=1``."""
    return device.type == "cuda" and find_spec("triton") is not None


def compile_all(modules: Sequence[nn.Module]) -> list[tuple[nn.Module, Callable[..., Any]]]:
    """Each module with its compiled ``forward``, which torch compiles at the first call, once for each shape of input."""
    return [(module, torch.compile(module.forward)) for module in modules]


@contextmanager
def compiled(forwards: Sequence[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    """Let the modules run their compiled ``forward`` while this is open."""
    for module, forward in forwards:
        module.__dict__["forward"] = forward
    try:
        yield
    finally:
        for module, _ in forwards:
            del module.__dict__["forward"]
