"""The site that `make docs` builds from the pages of the repository as they are. Sphinx reads this file.

A warning is an error there, so a link or an anchor that leads nowhere fails the build. Nothing is loaded from elsewhere
when pages are read.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sphinx.application import Sphinx

from wtb import __version__ as release

project = "WTB"
copyright = "the authors of WTB"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/reference/*.rst",
    "deploy/README.md",
    "examples/*/README.md",
    "simulations/*.md",
]
root_doc = "README"
suppress_warnings = ["misc.highlighting_failure"]  # a block of JSON may have a line "..."

# What leads where, by what a reader wants to do. A page that is in no list is a warning.
NAVIGATION = {
    "Tutorials": ["docs/index", "docs/first-sweep", "docs/langgraph-tutorial", "docs/nightly"],
    "Set up": ["docs/install", "docs/workers", "deploy/README", "docs/data"],
    "Write workflows": ["docs/authoring", "docs/langgraph", "docs/people"],
    "Run sweeps": [
        "docs/cases",
        "docs/costs",
        "docs/evaluators",
        "docs/judges",
        "docs/control",
        "docs/rollback",
    ],
    "Read results": ["docs/results"],
    "Keep quality": ["docs/regressions", "docs/ci"],
    "Serve others": ["docs/access", "docs/policy"],
    "Use it from programs": ["docs/python", "docs/agents"],
    "Reference": [
        "docs/sweep-file",
        "docs/workflow-reference",
        "docs/built-in-evaluators",
        "docs/operations",
        "docs/api",
        "docs/json",
        "docs/events",
        "docs/configuration",
        "docs/pages",
    ],
    "Explanations": [
        "docs/tree",
        "docs/statistics",
        "docs/simulated",
        "docs/isolation",
        "docs/security",
        "docs/reliability",
        "docs/other-tools",
    ],
    "See examples": [
        "examples/retrieval/README",
        "examples/langgraph/README",
        "examples/judges/README",
        "examples/research/README",
        "examples/ci/README",
    ],
    "More references": ["docs/reference/index", "simulations/figures", "CHANGELOG"],
    "Change WTB": ["ARCHITECTURE", "docs/decisions", "CONTRIBUTING"],
}

html_theme = "furo"
html_title = f"WTB {release}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 4  # as code hosts make them

default_role = "code"  # docstrings have names between single backticks
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "inherited-members": False}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False


def name_files(app: Sphinx, name: str, source: list[str]) -> None:
    """Show the names of files, which comments in the pages say."""
    source[0] = re.sub(r"(?m)^<!-- file: (\S+) -->\n+```(\w+)$", r"```{code-block} \2\n:caption: \1\n", source[0])


def add_navigation(app: Sphinx, name: str, source: list[str]) -> None:
    """Append the navigation to the first page."""
    if name == root_doc:
        for caption, pages in NAVIGATION.items():
            lines = ["```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```"]
            source[0] += "\n" + "\n".join(lines) + "\n"


def name_the_first_page(app: Sphinx, error: Exception | None) -> None:
    """Have the first page under the name that servers look for, too."""
    if error is None and app.builder.name == "html":
        shutil.copyfile(Path(app.outdir) / f"{root_doc}.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> None:
    app.connect("source-read", name_files)
    app.connect("source-read", add_navigation)
    app.connect("build-finished", name_the_first_page)
