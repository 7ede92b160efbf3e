"""The text of a .pdf file, by pypdf, an extra (``pip install "warmstart[pdf]"``).

Pages are read in a process of their own that watches its memory and its time, because a PDF may come from anywhere and expand
without limit. Scanned pages hold pictures, no text.
"""

from __future__ import annotations

import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

from warmstart.data.files import most_bytes, open_bytes
from warmstart.data.watched import COPIES, run_watched
from warmstart.errors import DataError

_IMPORTS = "import json, logging, warnings, pypdf"
_PAGES = """
logging.disable()
warnings.simplefilter("ignore")
try:
    reader = pypdf.PdfReader(sys.argv[1])
    if reader.is_encrypted and not reader.decrypt(""):
        raise ValueError("it needs a password; save it without one")
    found = {"pages": [page.extract_text() for page in reader.pages]}
except MemoryError:
    raise
except Exception as error:
    found = {"wrong": f"{type(error).__name__}: {error}"}
sys.stdout.write(json.dumps(found))
"""


def pdf_text(file: Path) -> str:
    """The text of the pages of a PDF, with a blank line between. Raises ``DataError`` for a file that is none or holds no text."""
    if find_spec("pypdf") is None:
        raise DataError(f'{file} is a PDF, and reading it needs pypdf, which is not installed; pip install "warmstart[pdf]"')
    with open_bytes(file) as binary:
        data = binary.read()
    if b"%PDF-" not in data[:1024]:
        raise DataError(f"{file} must be a PDF, but is not; correct the file or name its format")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "a.pdf")
        copy.write_bytes(data)
        run = run_watched(_IMPORTS, _PAGES, copy, COPIES * most_bytes(file), file)
    try:
        found = json.loads(run.stdout)
    except ValueError:
        found = {"wrong": "pypdf ended without an answer"}
    if "wrong" in found:
        reason = str(found["wrong"]).splitlines()[0][:200]
        raise DataError(f"{file} cannot be read as PDF ({reason}); save it again as PDF, or as text")
    pages = [clean for page in found["pages"] if (clean := page.encode(errors="replace").decode().strip())]
    if not pages:
        raise DataError(
            f"{file} must hold text, but its {len(found['pages'])} pages hold none; if they are scanned, recognise the text first"
        )
    return "\n\n".join(pages)
