"""Models on disk: saved and loaded by the same functions, whether a network or a stack.

``folder.py`` has the form of the folder, ``bundle_files.py`` a network's files, ``stack_files.py`` those of a stack. Saving ends
with a reload in a fresh process, before the folder is put in place.
"""

from __future__ import annotations

import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from warmstart.errors import BundleError, ConfigError, ModelError, UncheckedWarning
from warmstart.model.bundle import Bundle
from warmstart.model.bundle_files import bundle_contents, read_bundle
from warmstart.model.folder import free_for_model, is_model, read_manifest, write_files
from warmstart.system.limits import refused_if_malformed
from warmstart.system.storage import atomic_folder

if TYPE_CHECKING:
    from warmstart.model.stack import Stack


def save(model: Bundle | Stack, folder: str | Path) -> Path:
    """Write a model and check it: reload it in a fresh process, compare outputs, then put it in place. Returns the folder.

    Raises ``StorageError`` if it cannot be written and ``BundleError`` if the outputs differ; either way the previous contents of
    ``folder`` stay. A folder that is not a model is never replaced. If the check itself cannot run (no second process, no memory
    for one), the model is kept with an ``UncheckedWarning``, and the command line exits with code 1.
    """
    target = free_for_model(folder)
    with _fresh_reader() as reads:
        contents = _contents(model)
        with atomic_folder(target) as aside:
            write_files(aside, contents)
            reason = reads(aside)
    if reason:
        warnings.warn(
            f"{target} is saved, but could not be checked in a fresh process: {reason}; run `warmstart doctor {target}`",
            UncheckedWarning,
            stacklevel=2,
        )
    return target


def _contents(model: Bundle | Stack) -> dict[str, bytes]:
    """The files of a model, by name."""
    if isinstance(model, Bundle):
        return bundle_contents(model)
    from warmstart.model.stack_files import stack_contents

    return stack_contents(model)


def load_saved(folder: str | Path, *, selftest: bool = True) -> Bundle | Stack:
    """The model in a folder. Raises ``BundleError`` that names a missing, damaged or exchanged file or tensor.

    It must also reproduce its stored outputs; ``selftest=False`` is for the doctor, which says which of them differ.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    if "members" not in manifest:
        with refused_if_malformed(BundleError, f"{folder} must hold a sound bundle", "do not use it, or copy it again"):
            return read_bundle(folder, manifest, selftest=selftest)
    from warmstart.model.stack_files import read_stack

    sound = f"{folder} must hold a sound stack"
    with refused_if_malformed(BundleError, sound, "do not use it, or copy it again", also=(ConfigError, ModelError)):
        return read_stack(folder, manifest, selftest=selftest)


def load_bundle(folder: str | Path, *, selftest: bool = True) -> Bundle:
    """The network in a folder, as ``load_saved`` reads it. Raises ``BundleError`` for a stack."""
    model = load_saved(folder, selftest=selftest)
    if not isinstance(model, Bundle):
        raise BundleError(f"{folder} must be a bundle, but is a stack, which has no single network; `ws.load` reads it")
    return model


@contextmanager
def _fresh_reader() -> Iterator[Callable[[Path], str | None]]:
    """A fresh process that gets ready to load a saved model, while the model is still being written.

    It has seen no model before. What comes lets it load a folder, and returns the reason if that was not possible; it raises
    ``BundleError`` if the model cannot be loaded, or does something else than it did.
    """
    from warmstart.system.processes import started_python

    with ExitStack() as ended:
        try:
            process = ended.enter_context(started_python(_READER))
        except OSError as error:
            reason = f"no process could be started ({error.strerror or error})"
            yield lambda _folder: reason
        else:
            yield partial(_read_afresh, process)


def _read_afresh(process: subprocess.Popen[str], folder: Path) -> str | None:
    _, errors = process.communicate(str(folder.resolve()))
    if process.returncode == 0:
        return None
    reason = errors.strip().splitlines()[-1] if errors.strip() else f"exit code {process.returncode}"
    if process.returncode == EXIT_BUNDLE_WRONG:
        raise BundleError(f"the saved model does not reproduce itself in a fresh process: {reason}")
    return reason


EXIT_BUNDLE_WRONG = 3
"""exit code of the fresh process if the bundle itself is wrong"""
_READER = f"""
from warmstart.model.files import load_saved
folder = sys.stdin.read()
if not folder:
    sys.exit()
try:
    load_saved(folder)
except MemoryError:
    raise
except Exception as error:
    print(f"{{type(error).__name__}}: {{error}}", file=sys.stderr)
    sys.exit({EXIT_BUNDLE_WRONG})
"""
"""program of a fresh reader: a folder comes on its standard input, once the model is written; nothing comes if it is not"""


def remove_model(run: Path) -> bool:
    """Remove the model in the folder of a run, which is of other data than the run is now; returns whether there was one."""
    if there := is_model(run / "bundle"):
        shutil.rmtree((run / "bundle").resolve())
    return there
