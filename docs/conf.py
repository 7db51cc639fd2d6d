"""Sphinx: the documentation site. `make docs` builds it from the repository's Markdown pages and the docstrings."""

from __future__ import annotations

from importlib.metadata import version as installed
from pathlib import Path

from sphinx.application import Sphinx

project = "Ackwise"
release = version = installed("ackwise")
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**.md", "tests/README.md", "examples/**.md"]
exclude_patterns = ["build", ".venv*", "**/node_modules"]
html_theme = "furo"
html_title = "Ackwise"
html_copy_source = False

myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]
"""Some blocks show HTTP calls and diagrams that no lexer knows."""

default_role = "literal"
"""Docstrings put code into single backticks."""
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "imported-members": True, "show-inheritance": True}

_REDIRECT = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html"><title>Ackwise</title>\n'


def setup(app: Sphinx) -> None:
    """Pages keep the paths of the repository. The top of the site leads to the first page."""

    def redirect(app: Sphinx, problem: Exception | None) -> None:
        if problem is None:
            Path(app.outdir, "index.html").write_text(_REDIRECT)

    app.connect("build-finished", redirect)
