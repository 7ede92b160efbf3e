"""The text of a mail in an .eml file: its subject, and its body without markup; no other headers, no attachments.

The standard library reads the format. A body in plain text is preferred; of a mail that has only HTML the words are read.
"""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from html.parser import HTMLParser
from pathlib import Path

from warmstart.data.files import open_bytes
from warmstart.errors import DataError

_UNSEEN = ("script", "style", "title")
_BREAKS = ("br", "div", "h1", "h2", "h3", "li", "p", "tr")


class _Words(HTMLParser):
    """What of a page is read: its text, a line for each block."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.seen = list[str](), True

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen = tag not in _UNSEEN
        self.parts += ["\n"] * (tag in _BREAKS)

    def handle_endtag(self, tag: str) -> None:
        self.seen = True

    def handle_data(self, data: str) -> None:
        self.parts += [re.sub(r"\s+", " ", data)] * self.seen


def mail_text(file: Path) -> str:
    """The subject, a blank line and the body of a mail. Raises ``DataError`` for a file that cannot be read as one."""
    with open_bytes(file) as binary:
        data = binary.read()
    try:
        mail = message_from_bytes(data, policy=policy.default)
        part = mail.get_body(("plain", "html"))
        if part is not None and part.get_content_charset() is None:
            part.set_param("charset", "utf-8")
        subject, body = str(mail["subject"] or ""), part.get_content() if part is not None else ""
        if part is not None and part.get_content_subtype() == "html":
            words = _Words()
            words.feed(body)
            words.close()
            body = "\n".join(filter(None, map(str.strip, "".join(words.parts).split("\n"))))
    except Exception as error:  # the library raises whatever comes of a damaged header
        raise DataError(f"{file} cannot be read as a mail ({type(error).__name__}: {error}); save it again, or as text") from None
    return f"{subject}\n\n{body}".strip().encode(errors="replace").decode()
