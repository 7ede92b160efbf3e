"""What follows a saved model (findings, files of figures, the report): if it fails, the error says where the model is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warmstart.errors import ReportError


@contextmanager
def model_is_saved(folder: Path) -> Iterator[None]:
    """Raises ``ReportError`` that names the saved model in place of any other error in the context."""
    try:
        yield
    except AssertionError:
        raise  # a fault of ours, which shows its traceback
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ReportError(
            f"the model is complete in {folder} and can be used, but its report cannot be written: {reason[:300]}; "
            "once that is mended, the same command writes the report"
        ) from error
