"""Reading or replacing the outputs of named modules inside a backbone; free when unused.

``embedding``, ``blocks.0`` ... ``blocks.3`` (the output of each block), ``blocks.0.attention`` and ``blocks.0.feedforward`` (what
each branch adds). Every name is the module's own, so inserted adapters can be tapped too.
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
    """Within the context, each named module's output (B, T, D) is replaced by what its function returns for it.

    ``with tapped(backbone, {"blocks.1": lambda x: x * 0}): ...`` erases block 1. Raises ``ModelError`` for an unknown name.
    """
    modules = dict(module.named_modules())
    for name in edits:
        if name not in modules:
            raise ModelError(f"there is no module '{name}' to tap; {suggest(name, (known for known in modules if known))}")
    hooks = [modules[name].register_forward_hook(_edit_output(edit)) for name, edit in edits.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _edit_output(edit: Edit) -> Callable[[nn.Module, Any, Any], Any]:
    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return (edit(output[0]), *output[1:]) if isinstance(output, tuple) else edit(output)

    return hook
