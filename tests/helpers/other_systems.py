"""What Windows and macOS lack or do otherwise, for children on Linux: a ``sitecustomize`` that Python reads before our first line.

Modules, functions and signals are hidden from warmstart alone, as the standard library of Linux needs them; so is /proc, which
libraries replace on other systems. What Windows does to files (no open file is replaced or removed, text gets CRLF, some names
are refused) holds for everybody. Neither drive letters nor what libraries do there can be seen so.
"""

from __future__ import annotations

import builtins
import errno
import io
import multiprocessing
import os
import re
import shutil
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

NO_MODULES = {"fcntl", "grp", "pwd", "resource", "syslog", "termios"}
"""modules that Windows lacks"""
LACKING = {
    "os": {
        "fork",
        "forkpty",
        "getpgid",
        "getuid",
        "geteuid",
        "killpg",
        "mkfifo",
        "sched_getaffinity",
        "setsid",
        "sysconf",
        "uname",
    },
    "signal": {"SIGKILL", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCHLD", "setitimer", "alarm", "pthread_sigmask"},
    "socket": {"AF_UNIX", "socketpair"},
}
"""and what it lacks of others"""
BAD_NAME = re.compile(r'[<>:"|?*\\\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
"""names that Windows refuses; a backslash is a separator there"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """The environment of a child on such a system, and of the children that it starts. Its ``sitecustomize`` lies in ``folder``."""
    (folder / "sitecustomize.py").write_text("from helpers import other_systems\nother_systems.begin()\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LC_", "LANG"))}
    source = [str(folder), str(Path(__file__).parents[1]), *(path for path in sys.path if path.endswith("src"))]
    return kept | {"PYTHONPATH": os.pathsep.join(source), "PYTHONWARNDEFAULTENCODING": "1", "OMP_NUM_THREADS": "1"} | more


def begin() -> None:
    """Become such a system."""
    warnings.filterwarnings("error", category=EncodingWarning, module="warmstart")
    multiprocessing.set_start_method("spawn", force=True)
    _hide_modules()
    _translate_newlines()
    for name in ("replace", "rename", "unlink", "remove"):
        setattr(os, name, _refusing_open_files(getattr(os, name)))
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    sys.addaudithook(_audit)


def _hide_modules() -> None:
    usual = builtins.__import__
    stand_ins = {"msvcrt": _msvcrt(), "ctypes": _stand_in("ctypes", set(), CDLL=_no_library)}
    stand_ins |= {name: _stand_in(name, lacking) for name, lacking in LACKING.items()}
    stand_ins["os"].O_BINARY = 0  # type: ignore[attr-defined]
    stand_ins["socket"].SO_EXCLUSIVEADDRUSE = stand_ins["socket"].SO_REUSEADDR  # type: ignore[attr-defined]

    def importing(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if level == 0 and globals and str(globals.get("__name__")).partition(".")[0] == "warmstart":
            if name in NO_MODULES:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            if name in stand_ins:
                return stand_ins[name]
        return usual(name, globals, locals, fromlist, level)

    builtins.__import__ = importing


def _stand_in(name: str, lacking: set[str], **other: Any) -> types.ModuleType:
    real = __import__(name)
    module = types.ModuleType(name)
    module.__dict__.update({key: value for key, value in vars(real).items() if key not in lacking} | other)
    return module


def _no_library(name: str | None, *rest: Any, **named: Any) -> Any:
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    raise FileNotFoundError(f"Could not find module {name!r} (or one of its dependencies)")


def _msvcrt() -> types.ModuleType:
    """Locks of bytes, as Windows has them; other processes are refused with EACCES."""
    import fcntl

    def locking(handle: int, mode: int, count: int) -> None:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, count, os.lseek(handle, 0, os.SEEK_CUR), os.SEEK_SET)

    def refused(handle: int, mode: int, count: int) -> None:
        try:
            locking(handle, mode, count)
        except OSError as error:
            raise PermissionError(errno.EACCES, "Permission denied") from error

    module = types.ModuleType("msvcrt")
    module.__dict__.update(locking=refused, LK_NBLCK=2)
    return module


def _translate_newlines() -> None:
    usual = io.open

    @wraps(usual)
    def opening(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if "b" not in mode and newline is None and set(mode) & set("wax+"):
            newline = "\r\n"
        elif "b" not in mode and encoding is None:
            encoding = io.text_encoding(encoding, 3)
        return usual(file, mode, buffering, encoding, errors, newline, *rest, **named)

    io.open = builtins.open = opening  # type: ignore[assignment]


def _refusing_open_files(usual: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(usual)
    def refusing(*paths: Any, **named: Any) -> Any:
        for path in paths:
            place = os.path.join(os.path.realpath(os.path.dirname(os.fsdecode(path))), os.path.basename(os.fsdecode(path)))
            for used in _used_files():
                if used == place or used.startswith(place + os.sep):
                    raise PermissionError(errno.EACCES, f"{used} is used by this process", path)
        return usual(*paths, **named)

    return refusing


def _used_files() -> set[str]:
    """The files that this process has opened, or mapped into its memory."""
    handles = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
    handle = os.open("/proc/self/maps", os.O_RDONLY)
    with os.fdopen(handle, "rb") as maps:
        mapped = {os.fsdecode(line.split(None, 5)[5]).rstrip("\n") for line in maps if b" /" in line}
    return handles | mapped


def _audit(event: str, values: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir") and isinstance(values[0], str | bytes | os.PathLike):
        path = os.fsdecode(values[0])
        if path.startswith("/proc/") and not _asked_by_others():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        writes = event == "open" and isinstance(values[2], int) and values[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)
        if writes and not path.startswith("/dev/"):
            _check_name(path)
    elif event == "os.mkdir":
        _check_name(os.fsdecode(values[0]))
    elif event == "os.rename":
        _check_name(os.fsdecode(values[1]))


def _check_name(path: str) -> None:
    if BAD_NAME.search(os.path.basename(path.rstrip("/"))):
        raise OSError(errno.EINVAL, "The filename, directory name, or volume label syntax is incorrect", path)


def _asked_by_others() -> bool:
    """Whether it is not warmstart that opens a file, itself or by the standard library."""
    library, own = sysconfig.get_path("stdlib"), (_audit.__code__, _asked_by_others.__code__)
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        in_library = code.co_filename.startswith((library, "<frozen")) and "site-packages" not in code.co_filename
        if not in_library and code not in own and code.co_name != "opening":
            return not str(frame.f_globals.get("__name__")).startswith("warmstart")
        frame = frame.f_back
    return True
