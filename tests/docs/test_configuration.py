"""The committed configuration reference is what the code says."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_page__is_up_to_date():
    script = runpy.run_path(str(DOCS / "make_configuration.py"))
    message = "run python docs/make_configuration.py"
    assert script["page"]() == script["PAGE"].read_text(), message
