"""Sphinx configuration; ``bash extra_scripts/build_docs.sh`` builds the site."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pirl_plugin import __version__  # noqa: E402

project = "pirl_plugin"
author = copyright = "The pirl_plugin authors"
version = release = __version__

extensions = [
    "myst_nb",  # Markdown pages and the tutorial notebook
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",  # Google-style docstrings
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",  # tabs
]
nb_execution_mode = "force"  # the tutorial runs in each build, and an error ends the build
nb_execution_raise_on_error = True
nb_merge_streams = True  # the lines of a loop in one block
nb_execution_timeout = 1800  # seconds; the tutorial trains for some minutes on a busy server
myst_enable_extensions = ["colon_fence"]  # formulas are plain text: no page loads MathJax
myst_heading_anchors = 3
exclude_patterns = ["_build"]
autodoc_typehints = "none"  # the docstrings give shapes and dtypes
autodoc_member_order = "bysource"
napoleon_use_rtype = False
nitpicky = False
rst_prolog = ".. |D| replace:: \\|D\\|\n"  # |D| in docstrings is the number of images

html_theme = "furo"
html_title = f"pirl_plugin {version}"
html_static_path = ["static"]
html_css_files = ["wide.css"]
