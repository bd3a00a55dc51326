"""``pirl-plugin configs`` and its command line."""

import subprocess
import sys

import yaml

from pirl_plugin import __version__
from pirl_plugin.cli import run
from pirl_plugin.vissl.configs import listed
from tests.helpers.configs import cases
from tests.helpers.programs import run_python


def test_configs__lists_every_config_with_description():
    found = {}
    for descriptions in listed().values():
        found |= descriptions
    names = [name.removeprefix("+config/").replace("=", "/") for name in found]
    assert sorted(names) == sorted(cases())
    assert all(10 < len(description) < 260 for description in found.values())


def test_configs__shows_composed_config_with_overrides(capsys):
    words = ["configs", "pretrain/pirl/quick_jigsaw", "config.TRAINER.PIRL_MICRO_BATCHES=2"]
    assert run(words) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["LOSS"]["pirl_loss"]["temperature"] == 0.2
    assert config["DATA"]["TRAIN"]["BATCHSIZE_PER_REPLICA"] == 64
    assert config["LOSS"]["pirl_loss"]["num_negatives"] == 1024


def test_cli__prints_version_and_refuses_unknown_command(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"pirl-plugin {__version__}\n"
    assert run(["quikstart"]) == 2
    assert "unknown command 'quikstart'" in capsys.readouterr().err


HELP = [[name, "--help"] for name in ("train", "quickstart", "knn", "linear")]


def test_commands__do_not_import_torch():
    code = (
        "import sys\n"
        "from pirl_plugin.cli import main\n"
        f"for words in {[['--version'], ['configs'], *HELP]}:\n"
        "    sys.argv = ['pirl-plugin', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code\n"
        "    assert not {'torch', 'matplotlib', 'numba'} & set(sys.modules), words"
    )
    run_python("-c", code)


def test_command__ends_quietly_on_closed_pipe():
    command = f"{sys.executable} -m pirl_plugin configs | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1
