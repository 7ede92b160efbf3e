"""Named places inside a backbone where states can be read or replaced; free when unused.

``embedding``, ``blocks.0`` ... ``blocks.3`` (what each block gives), ``blocks.0.attention`` and ``blocks.0.feedforward`` (what each
branch adds). Every name is the module's own, so inserted modules can be tapped too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from warmstart.errors import ModelError, suggest

Edit = Callable[[Tensor], Tensor]


@contextmanager
def tapped(module: nn.Module, edits: Mapping[str, Edit]) -> Iterator[None]:
    """Within the context, each named part's output (B, T, D) passes through its function; what that returns goes on.

    ``with tapped(backbone, {"blocks.1": lambda x: x * 0}): ...`` erases block 1. Raises ``ModelError`` for an unknown name.
    """
    parts = dict(module.named_modules())
    for name in edits:
        if name not in parts:
            raise ModelError(f"there is no place '{name}' to tap; {suggest(name, (part for part in parts if part))}")
    hooks = [parts[name].register_forward_hook(_through(edit)) for name, edit in edits.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _through(edit: Edit) -> Callable[[nn.Module, Any, Any], Any]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)

    return hook
