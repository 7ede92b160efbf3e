"""Documents and saved datasets made by hand, after the formats, with no other library than polars."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import polars as pl

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
PART = "word/document.xml"
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r" Target="{}" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"/></Relationships>'
)


def docx(file: Path, paragraphs: Sequence[str], *, body: str | None = None, part: str = PART, head: str = "") -> Path:
    """A Word document; ``body`` is XML instead of paragraphs, ``head`` what stands before it."""
    inside = "".join(f"<w:p><w:r><w:t>{escape(text)}</w:t></w:r></w:p>" for text in paragraphs) if body is None else body
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_rels/.rels", RELATIONS.format(part))
        archive.writestr(part, f'{head}<w:document xmlns:w="{WORD}"><w:body>{inside}</w:body></w:document>')
    return file


def pdf(file: Path, pages: Sequence[str], more: str = "") -> Path:
    """A PDF with a line of text on each page; ``more`` is put into its trailer."""
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, text in enumerate(pages):
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * i} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        ]
    data, places = "%PDF-1.4\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{one}\nendobj\n"
    rows = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    trailer = f"trailer\n<< /Size {size} /Root 1 0 R {more}>>\nstartxref\n{len(data)}\n%%EOF\n"
    file.write_bytes(f"{data}xref\n0 {size}\n0000000000 65535 f \n{rows}{trailer}".encode())
    return file


def saved_dataset(folder: Path, *tables: pl.DataFrame, features: Mapping[str, Any] | None = None) -> Path:
    """A folder as ``save_to_disk`` of the datasets library writes it, with a file for each table."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{len(tables):05d}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        table.write_ipc_stream(folder / name)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "0", "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    info = {"citation": "", "description": "", "features": features or {}, "homepage": "", "license": ""}
    (folder / "dataset_info.json").write_text(json.dumps(info), encoding="utf-8")
    return folder


def class_label(*names: str) -> dict[str, Any]:
    """The feature of a column of labels."""
    return {"names": [*names], "_type": "ClassLabel"}
