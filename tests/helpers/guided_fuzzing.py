"""The inputs of ``tests/test_fuzz.py``, guided by coverage: atheris mutates what reaches new lines of the package.

    python -m helpers.guided_fuzzing SECONDS [NAME]

Run in ``tests``, or as ``make fuzz`` (Linux: atheris is installed for it). Each kind of input has a process of its own, which
ends at the first foreign error, at an input that takes longer than ``SECONDS`` of the tests, or at more than ``MEGABYTES``; the
input lies then in ``runs/fuzz``, and the same command begins with it. Exit code 1 if any did.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "runs" / "fuzz"
"""what was found so far, which the next call goes on with"""
MEGABYTES = 2048
"""resident memory of a process, of which torch and the coverage take half"""


def main(seconds: int) -> int:
    """Fuzz each kind of input in turn, for so many seconds together."""
    import test_fuzz

    names = [name.removeprefix("test_") for name, test in vars(test_fuzz).items() if hasattr(test, "guided")]
    command = [sys.executable, "-m", "helpers.guided_fuzzing", f"{seconds // len(names)}"]
    failed = [name for name in names if subprocess.run([*command, name], check=False).returncode]
    print(f"failed: {', '.join(failed)}" if failed else f"no foreign error in {len(names)} kinds of input")
    return 1 if failed else 0


def fuzz(seconds: int, name: str) -> None:
    """Fuzz one kind of input; ends the process."""
    import atheris

    with atheris.instrument_imports(include=["warmstart"]):
        import test_fuzz
        from warmstart.commands import COMMANDS

        for command in COMMANDS.values():
            command.load()
    corpus = FOLDER / name
    corpus.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        run = getattr(test_fuzz, f"test_{name}").guided(Path(scratch))
        # -timeout=0: its alarm would take the place of the tests' own
        limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", "-timeout=0", "-max_len=4096", "-close_fd_mask=1"]
        atheris.Setup([sys.argv[0], str(corpus), f"-artifact_prefix={corpus}-", *limits], run)
        atheris.Fuzz()


if __name__ == "__main__":
    fuzz(int(sys.argv[1]), sys.argv[2]) if len(sys.argv) > 2 else sys.exit(main(int(sys.argv[1])))
