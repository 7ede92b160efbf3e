"""The smallest spreadsheets."""

from __future__ import annotations

import zipfile
from io import BytesIO
from typing import Any


def workbook(*sheets: list[list[Any]]) -> bytes:
    """The smallest .xlsx file with these rows."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    numbers = range(1, len(sheets) + 1)
    listed = "".join(f'<sheet name="S{n}" sheetId="{n}" r:id="r{n}"/>' for n in numbers)
    links = "".join(f'<Relationship Id="r{n}" Type="{office}/worksheet" Target="worksheets/s{n}.xml"/>' for n in numbers)
    relations = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    with zipfile.ZipFile(data := BytesIO(), "w") as archive:
        archive.writestr("[Content_Types].xml", '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>')
        archive.writestr(
            "_rels/.rels",
            f'{relations}<Relationship Id="r" Type="{office}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        archive.writestr("xl/workbook.xml", f'<workbook {main} xmlns:r="{office}"><sheets>{listed}</sheets></workbook>')
        archive.writestr("xl/_rels/workbook.xml.rels", f"{relations}{links}</Relationships>")
        for n, rows in zip(numbers, sheets, strict=True):
            cells = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            archive.writestr(f"xl/worksheets/s{n}.xml", f"<worksheet {main}><sheetData>{cells}</sheetData></worksheet>")
    return data.getvalue()


def cell(value: Any) -> str:
    return f"<c><v>{value}</v></c>" if isinstance(value, int) else f'<c t="inlineStr"><is><t>{value}</t></is></c>'
