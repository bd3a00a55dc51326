"""The user's own parts, as experiments.md prints them."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/guides/experiments.md"


def write_own_parts(folder):
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (folder / "my_parts.py").write_text(program)
