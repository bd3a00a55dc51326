"""No command runs code from the current folder, or sends a request."""

import json
import signal
import sys
from importlib.metadata import packages_distributions

import pytest

from pirl_plugin.cli import COMMANDS
from tests.helpers.commands import arguments, write_checkpoint
from tests.helpers.programs import run_python
from tests.helpers.server import recording_server

START = "from pirl_plugin.cli import main; main()"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A folder with modules for all importable names; each leaves its name in a file."""
    folder = tmp_path_factory.mktemp("planted")
    names = sys.stdlib_module_names | packages_distributions().keys()
    for name in filter(str.isidentifier, names):
        text = f"open({str(folder / 'ran')!r}, 'a').write(__name__ + ' ')\nraise ImportError\n"
        (folder / f"{name}.py").write_text(text)
    return folder


# Like the console script, a script whose own folder, not the current one, is on the path.
RUN_ALL = """
import json, os, sys
from pirl_plugin.cli import main
if __name__ == "__main__":
    for words in json.load(sys.stdin):
        sys.argv[1:] = words
        try:
            main()
        except SystemExit as ended:
            if ended.code or os.path.exists("ran"):
                sys.exit(f"{words[0]}: {ended.code}")
"""
TRAINS_TWICE = ("quickstart", "finetune")


@pytest.mark.slow
@pytest.mark.parametrize(
    "commands",
    [
        pytest.param([name for name in COMMANDS if name not in TRAINS_TWICE], id="others"),
        *(pytest.param([name], id=name) for name in TRAINS_TWICE),
    ],
)
def test_commands__run_no_code_from_current_folder_and_send_no_request(
    commands, checkpoint, planted, image_folder, tmp_path
):
    """All commands run in one process, because each would import torch; they start others."""
    script = tmp_path / "bin" / "script.py"
    script.parent.mkdir()
    script.write_text(RUN_ALL)
    words = []
    for name in commands:
        out = tmp_path / f"out of {name}"
        out.mkdir()
        words.append(arguments(name, checkpoint, image_folder, out, ranks=1))
    with recording_server() as (address, requests):
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), address)
        done = run_python(script, stdin=json.dumps(words), folder=planted, check=False, **proxies)
    assert requests == []
    ran = planted / "ran"
    assert not ran.exists(), (done.stderr[-500:], ran.read_text())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_module__ignores_modules_in_current_folder(tmp_path):
    for name in ("yaml", "urllib"):  # pathlib imports urllib
        (tmp_path / f"{name}.py").write_text("raise SystemExit('planted')")
    words = ["export", "--checkpoint", "gone.pth", "--to", "vissl", "--out", "out.torch"]
    done = run_python("-m", "pirl_plugin", *words, folder=tmp_path, check=False)
    assert done.stderr.endswith("argument --checkpoint: gone.pth does not exist\n")


def test_interrupt__after_command_leaves_no_traceback():
    late = f"import atexit, signal; atexit.register(signal.raise_signal, signal.SIGINT); {START}"
    done = run_python("-c", late, "--version", check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
