"""The check's own flow, on a made-up device and with made-up parts: order, cuts, resume, exits."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from pirl_plugin.benchmark.gpu_check import command
from pirl_plugin.benchmark.gpu_check.parts import PARTS, ROOT, Part

SCRIPT = ROOT / "extra_scripts" / "gpu_check.sh"
FIGURES = "import json, sys; json.dump({'rows': [], 'n': 1}, open(sys.argv[-1][7:], 'w'))"
TESTS = """
import pytest
def test_a(): pass
@pytest.mark.skip(reason="needs two GPUs")
def test_b(): pass
"""


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A GPU that is not there, and the signal handler as it was."""
    monkeypatch.setattr(command, "find_devices", lambda: ["NVIDIA Made-up"])
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)


def benchmark(name, code=FIGURES, seconds=30.0, needs=()):
    return Part(f"benchmark: {name}", seconds, ("-c", code, "--json"), needs)


def pytest_part(path, text, name="made-up", needs=()):
    path.write_text(text)
    options = ("-m", "pytest", "-p", "no:cacheprovider", "-q", "-c", os.devnull)
    return Part(f"tests: {name}", 30.0, (*options, str(path), "--junitxml"), needs)


def check(out, parts, *arguments):
    status = command.main(["--out", str(out), *arguments], parts)
    return status, json.loads((out / "gpu.json").read_text())


def statuses(record):
    return {name.partition(": ")[2]: part["status"] for name, part in record["parts"].items()}


def test_check__records_what_each_part_found(tmp_path, capsys):
    parts = [benchmark("one"), pytest_part(tmp_path / "test_it.py", TESTS)]
    status, record = check(tmp_path / "out", parts)
    assert status == 0
    assert statuses(record) == {"one": "passed", "made-up": "passed"}
    assert record["parts"]["benchmark: one"]["results"] == {"rows": [], "n": 1}
    results = record["parts"]["tests: made-up"]["results"]
    assert results == {"passed": 1, "failed": {}, "skipped": {"test_b": "needs two GPUs"}}
    assert record["machine"]["gpu"] == "NVIDIA Made-up"
    assert record["machine"]["torch"] == torch.__version__
    assert record["left"] == []
    assert "1 passed, 1 skipped; needs two GPUs" in (tmp_path / "out/gpu.md").read_text()
    assert "== tests: made-up" in (tmp_path / "out/gpu.log").read_text()


def test_check__goes_on_where_it_was(tmp_path, capsys):
    counter = tmp_path / "count"
    counted = f"open({str(counter)!r}, 'a').write('x'); {FIGURES}"
    slow = benchmark("slow", "import time; time.sleep(60)", seconds=20.0)
    parts = [benchmark("quick", counted, seconds=0.1), slow, benchmark("long", seconds=3000.0)]
    began = time.monotonic()
    status, record = check(tmp_path, parts, "--minutes", "0.05")
    assert time.monotonic() - began < 20  # `slow` is not started: it needs 20 s
    assert status == 0
    assert statuses(record) == {"quick": "passed"}
    assert record["left"] == ["benchmark: slow", "benchmark: long"]
    said = capsys.readouterr().out
    assert (
        "Left for lack of time, the same command goes on: benchmark: slow, benchmark: long" in said
    )
    parts[2] = benchmark("long")
    status, record = check(tmp_path, [parts[0], parts[2]])
    assert statuses(record) == {"quick": "passed", "long": "passed"}
    assert record["left"] == []
    assert counter.read_text() == "x"  # what has passed is not run again


def test_check__cuts_a_part_at_its_time(tmp_path):
    slow = benchmark("slow", "import time; print('on', flush=True); time.sleep(60)", seconds=1.0)
    status, record = check(tmp_path, [slow], "--minutes", "0.03")
    assert (status, statuses(record)) == (0, {"slow": "cut"})
    assert record["left"] == ["benchmark: slow"]
    assert record["parts"]["benchmark: slow"]["reason"].startswith("cut after")
    hung = benchmark("slow", "import time; time.sleep(60)", seconds=0.2)
    status, record = check(tmp_path, [hung])
    assert (status, statuses(record)) == (1, {"slow": "failed"})
    assert "past its limit of 1 s" in record["parts"]["benchmark: slow"]["reason"]


def test_check__fails_where_a_part_does_and_tries_it_again_last(tmp_path, capsys):
    bad = "def test_bad(): assert 1 == 2, 'one is two'"
    parts = [
        pytest_part(tmp_path / "test_bad.py", bad, "bad"),
        benchmark("broken", "raise SystemExit('no such thing')"),
        benchmark("silent", "pass"),
        benchmark("good"),
    ]
    status, record = check(tmp_path, parts)
    assert status == 1
    assert statuses(record) == {
        "bad": "failed", "broken": "failed", "silent": "failed", "good": "passed",
    }  # fmt: skip
    reasons = {name: part.get("reason") for name, part in record["parts"].items()}
    assert reasons["benchmark: broken"] == "exit status 1: no such thing"
    assert reasons["benchmark: silent"] == "it ended well and left no results"
    assert "one is two" in record["parts"]["tests: bad"]["results"]["failed"]["test_bad"]
    assert "3 parts failed: tests: bad, benchmark: broken" in capsys.readouterr().out
    parts[0] = pytest_part(tmp_path / "test_bad.py", "def test_bad(): pass", "bad")
    status, record = check(
        tmp_path, [*parts[:1], benchmark("broken"), benchmark("silent"), parts[3]]
    )
    assert (status, set(statuses(record).values())) == (0, {"passed"})


def test_check__skips_by_name_what_is_not_installed(tmp_path):
    parts = [benchmark("peer", needs=("json", "no_such_module"))]
    parts.append(
        pytest_part(tmp_path / "test_no.py", TESTS.replace("def test_a(): pass", ""), "no")
    )
    status, record = check(tmp_path, parts)
    assert (status, statuses(record)) == (0, {"peer": "skipped", "no": "skipped"})
    assert record["parts"]["benchmark: peer"]["reason"] == "not installed here: no_such_module"
    assert record["parts"]["tests: no"]["reason"] == "needs two GPUs"
    assert record["left"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"machine": {"gpu": "NVIDIA Other"}}', "gpu = NVIDIA Made-up: expected NVIDIA Other"),
        ("nothing", "expected the record of a check"),
    ],
)
def test_check__refuses_a_record_that_it_cannot_go_on_with(tmp_path, text, message):
    (tmp_path / "gpu.json").write_text(text)
    with pytest.raises(SystemExit, match=message):
        command.main(["--out", str(tmp_path)], [])


def test_parts__are_files_and_commands_that_exist(tmp_path):
    files = {path.stem for path in (ROOT / "tests/gpu").glob("test_*.py")}
    named = {Path(part.arguments[-2]).stem for part in PARTS if part.is_tests}
    assert named == files
    for part in PARTS:
        assert part.command(tmp_path / "f")[-1].endswith(f"={tmp_path / 'f'}")
        assert part.seconds < 8 * 60
        if not part.is_tests:  # the options are right: help is shown, nothing is run
            arguments = [*part.command(tmp_path / "f", tmp_path)[3:], "--help"]
            code = f"import sys; from pirl_plugin.cli import run; run({arguments})"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_script__says_that_there_is_no_gpu(tmp_path):
    environment = {**os.environ, "PIRL_PYTHON": sys.executable, "PYTHONPATH": ""}
    done = subprocess.run(
        ["bash", str(SCRIPT), "--out", str(tmp_path / "out")],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stdout.startswith("pirl_plugin: no GPU that torch can use was found")
    assert not (tmp_path / "out").exists()
