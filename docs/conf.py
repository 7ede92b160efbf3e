"""The documentation as a site: ``make docs`` builds it, without a network, from the pages of this folder and from the code."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

from warmstart import __version__

project = "warmstart"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "pages", "generated_reference"]
exclude_patterns = ["_extensions", "_build"]
root_doc = "index"
html_theme = "furo"
html_title = "warmstart"
html_static_path, html_favicon = ["pictures"], "pictures/logo.svg"
html_show_sphinx = html_copy_source = html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "default", "github-dark"
myst_heading_anchors = 4
myst_enable_extensions = ["strikethrough"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
smartquotes = False  # they turn --flags into dashes
linkcheck_anchors = False
