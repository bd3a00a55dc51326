"""The tutorial runs from its first cell to its last: in seconds, and, slow, as it is."""

import re
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def executed(folder, monkeypatch, **parameters):
    """The notebook after a run in a kernel of its own, with other values of its parameters."""
    notebook = nbformat.read(TUTORIAL, as_version=4)
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    for name, value in parameters.items():
        cell.source, count = re.subn(
            rf"^{name} = \d+", f"{name} = {value}", cell.source, flags=re.M
        )
        assert count == 1, name
    for variable, value in {
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "IPYTHONDIR": str(folder / "ipython"),
        "TMPDIR": str(folder),  # where the notebook draws its images
    }.items():
        monkeypatch.setenv(variable, value)
    client = nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(folder))
    return notebook


def printed(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def pictures(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum("image/jpeg" in output.get("data", {}) for output in outputs)


def test_tutorial__runs(tmp_path, monkeypatch):
    notebook = executed(tmp_path, monkeypatch, SECONDS=1, IMAGES=40)
    assert pictures(notebook) == 4  # the classes, two views, the neighbours
    assert re.search(
        r"^epoch 1: loss [\d.]+; kNN [\d.]+ %, chance 10\.0 %; ", printed(notebook), re.M
    )
    assert re.search(r"^after training: kNN [\d.]+ %", printed(notebook), re.M)


def test_tutorial__is_small():
    assert TUTORIAL.stat().st_size < 400_000


@pytest.mark.slow
def test_tutorial__learns_in_a_minute(tmp_path, monkeypatch):
    text = printed(executed(tmp_path, monkeypatch))
    before, after = re.findall(r"training: kNN ([\d.]+) %", text)
    assert float(after) > float(before) + 2
