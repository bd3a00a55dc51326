"""The package as a library: public names, loaded on first use, without VISSL."""

import pytest

import pirl_plugin
from tests.helpers.programs import run_python


def test_public_names__are_listed():
    assert set(pirl_plugin.__all__) <= set(dir(pirl_plugin))
    with pytest.raises(AttributeError, match="no attribute 'PIRLoss'"):
        pirl_plugin.PIRLoss  # noqa: B018


def test_import__loads_no_dependencies():
    code = (
        "import sys; before = set(sys.modules);import pirl_plugin;print(*set(sys.modules) - before)"
    )
    assert run_python("-c", code).stdout.split() == ["pirl_plugin"]


RIGHT = """
import torch
import pirl_plugin as pirl

data = pirl.ImageDataset("photos", pirl.JigsawViews(image_size=64, hue=0.1))
image: torch.Tensor = data[0]["images"]
f = pirl.PIRLHead(512, num_patches=9)
loss = pirl.PIRLLoss(len(data), estimator="info_nce", bank=pirl.BankConfig(momentum=0.9))
own = pirl.PIRLLoss(9, estimator=lambda positive, negatives: negatives.logsumexp(1) - positive)
embeddings = f(image)
value: torch.Tensor = loss(embeddings, [embeddings], torch.tensor([0, 1]))
loss.update(torch.tensor([0, 1]), embeddings)
rows = loss.bank.lookup(torch.arange(2))
"""
TYPOS = """
pirl.nonexistent
pirl.PIRLoss(9)
pirl.PIRLLoss(9, temprature=0.2)
pirl.PIRLLoss(9, bank=pirl.BankConfig(momentun=0.5))
pirl.PIRLHead(512, patches=9)
value.item(0).bakward()
data[0]["images"].shap
"""


# Parts of torch that the program does not need take mypy 13 of 19 s.
NOT_READ = (
    *("_decomp", "_dynamo", "_export", "_functorch", "_higher_order_ops", "_inductor", "_prims"),
    *("_refs", "_subclasses", "ao", "backends", "cuda", "distributed", "distributions", "export"),
    *("fx", "jit", "onnx", "profiler", "sparse", "testing", "utils._sympy"),
)
MYPY = f"""
[mypy]
strict = True

[mypy-{",".join(f"torch.{name}.*" for name in NOT_READ)},numpy.*,sympy.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_types__catch_every_typo_in_a_program(tmp_path):
    """In mypy's strict mode: correct lines have no error, and every typo has one."""
    (tmp_path / "mypy.ini").write_text(MYPY)
    program = tmp_path / "program.py"
    program.write_text(RIGHT + TYPOS)
    command = ["-m", "mypy", "--no-error-summary", program]
    result = run_python(*command, folder=tmp_path, check=False)
    lines = [int(line.split(":")[1]) for line in result.stdout.splitlines() if ": error:" in line]
    first = RIGHT.count("\n") + 2
    assert sorted(set(lines)) == list(range(first, first + 7)), result.stdout
