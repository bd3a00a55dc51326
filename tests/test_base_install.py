"""The library without extras; for each command, its help and the extra it names."""

import json

import pytest

from pirl_plugin import cli
from tests.helpers.host_tools import write_checkpoint
from tests.helpers.programs import run_python
from tests.test_packaging import EXTRAS, declared

# jinja2 is an extra, but torch also installs it.
MISSING = declared(*EXTRAS) - declared() - {"jinja2"} | {"vissl", "classy_vision", "detectron2"}
RUN_ALL = """
import contextlib, io, json, sys
missing, library, commands = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(missing))  # an import of None is refused, as of no package
exec(library)
from pirl_plugin import cli
from pirl_plugin.system.failures import in_one_sentence
results = []
for words in commands:
    output = io.StringIO()
    status = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            with in_one_sentence():
                status = cli.run(words)
        except SystemExit as ended:
            status = ended.code or 0
    results.append([status, output.getvalue()])
json.dump(results, sys.__stdout__)
"""
LIBRARY = """
import torch
from pirl_plugin import PIRLHead, PIRLLoss

torch.manual_seed(0)
trunk, g, f = torch.nn.Linear(12, 32), PIRLHead(32, 8), PIRLHead(32, 8)
parameters = [p for module in (trunk, g, f) for p in module.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)
images = torch.randn(50, 12)
for placement in ("replicated", "sharded"):
    loss = PIRLLoss(50, embedding_dim=8, num_negatives=20, bank={"placement": placement})
    for step in range(3):
        rows = torch.randint(50, (8,))
        f_image = f(trunk(images[rows]))
        value = loss(f_image, g(trunk(images[rows] + 0.1 * torch.randn(8, 12))), rows)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        loss.update(rows, f_image)
        assert value.isfinite()
    assert loss.step == 3 and loss.bank.visited.any() and loss.norm_constant > 0
import pirl_plugin
for name in pirl_plugin.__all__:
    assert getattr(pirl_plugin, name).__doc__, name
"""
VISSL = "pip install 'pirl-plugin[vissl]'"
REPORT = "pip install 'pirl-plugin[report]'"
RUNS = {  # command -> arguments, and part of the message (None: needs no extra)
    "train": ("config=pretrain/pirl/own_images", VISSL),
    "quickstart": ("--out OUT/quickstart", REPORT),
    "knn": ("--checkpoint CHECKPOINT --data DATA --size 32 --k 3", None),
    "embed": ("--checkpoint CHECKPOINT --data DATA/val --size 32 --out OUT/embed.npz", None),
    "linear": ("--checkpoint CHECKPOINT --data DATA --out OUT/linear", "pip install scikit-learn"),
    "finetune": ("--checkpoint CHECKPOINT --data DATA --out OUT/finetune", VISSL),
    "export": ("--checkpoint CHECKPOINT --to detectron2 --out OUT/trunk.pkl", None),
    "prepare": ("DATA/val OUT/copy --size 32", None),
    "configs": ("pretrain/pirl/own_images", VISSL),
}


@pytest.fixture(scope="module")
def results(image_folder, tmp_path_factory):
    """Return status and output for all commands, by ``help`` or ``run`` and command name."""
    out = tmp_path_factory.mktemp("out")
    checkpoint = write_checkpoint(out / "trunk.torch", DEPTH=18, WIDTH_MULTIPLIER=0.25)
    places = {"CHECKPOINT": str(checkpoint), "DATA": str(image_folder), "OUT": str(out)}
    commands = {("help", name): [name, "--help"] for name in cli.COMMANDS}
    for name, (text, _) in RUNS.items():
        for place, path in places.items():
            text = text.replace(place, path)
        commands["run", name] = [name, *text.split()]
    words = json.dumps([sorted(MISSING), LIBRARY, list(commands.values())])
    child = run_python("-c", RUN_ALL, stdin=words, folder=out)
    return dict(zip(commands, json.loads(child.stdout), strict=True))


def test_command__shows_help_and_runs_or_names_extra(results, subtests):
    for name in cli.COMMANDS:
        with subtests.test(name=name):
            status, output = results["help", name]
            assert (status, f"usage: pirl-plugin {name}" in output) == (0, True), output
            status, output = results["run", name]
            expected = RUNS[name][1]
            if expected is None:
                assert status == 0, (status, output)
            else:
                assert expected in str(status)
                assert "traceback" not in str(status)
