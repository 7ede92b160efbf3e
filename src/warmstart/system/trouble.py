"""Errors from outside of our code (memory, open files, paths, other libraries) as one sentence with a remedy."""

from __future__ import annotations

import errno

COMMANDING = frozenset({*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)})
"""characters that command a terminal, or turn the direction of what follows: file names, labels and texts may hold them"""
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in COMMANDING}
_CURES = {
    errno.EMFILE: "raise the limit of this shell with `ulimit -n 4096`, or close other programs",
    errno.ENFILE: "close other programs: the system has no more file handles",
    errno.ENOSPC: "free some space, or set TMPDIR to a folder on another disk; the same command then goes on",
    errno.ENOMEM: "close other programs, or compute on a machine with more memory",
    errno.ELOOP: "remove the symbolic link that leads to itself",
    errno.ENAMETOOLONG: "choose a shorter name",
}
"""remedies for an error of the system, by its number"""
_MEMORY = (
    "close other programs, or choose a smaller --batch with a larger --accumulate, a smaller --max-length or a smaller model; "
    "`warmstart cost` estimates what a model needs"
)


def explain_trouble(error: BaseException) -> str | None:
    """The sentence for an error that the system or another library raised; None for all others, which are faults of ours."""
    reason = " ".join(str(error).split())
    if is_memory(error):
        return f"there is not enough memory{f' ({reason[:200]})' if reason else ''}; {_MEMORY}"
    if isinstance(error, OSError):
        cure = cure_of(error)
        return f"{error.filename or 'the system'}: {error.strerror or error}" + (f"; {cure}" if cure else "")
    if isinstance(error, ValueError) and "embedded null" in reason:
        return "a path must not hold a NUL character, but one does; correct it"
    if isinstance(error, RuntimeError) and reason.startswith("Symlink loop"):
        return f"a path must lead somewhere, but there is a {reason[0].lower()}{reason[1:]}; {_CURES[errno.ELOOP]}"
    if isinstance(error, RecursionError):
        return "a file that was read is nested too deeply; check that it is what the command expects"
    if type(error).__name__ == "PanicException":  # of any library in Rust; it is no Exception, and belongs to no module
        advice = "check the files that were given, the last one read first: cut it in halves to find the row, and correct that"
        return f"a library failed on this input ({reason[:200]}); {advice}"
    return None


def cure_of(error: OSError) -> str | None:
    """The remedy for an error of the system; None if that depends on what was tried."""
    return _CURES.get(error.errno or 0)


def on_one_line(message: str) -> str:
    r"""A message with escapes, such as ``\x1b`` or ``\n``, for characters of file names that would command a terminal."""
    return message.translate(_ESCAPES)


def is_memory(error: BaseException) -> bool:
    """True if memory ran out, in Python, in torch on the processor or on a GPU."""
    signs = ("allocate memory", "not enough memory", "out of memory", "Storage size calculation overflowed", "invalid buffer size")
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs))
