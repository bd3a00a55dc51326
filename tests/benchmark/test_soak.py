import os
import subprocess
import sys

import pytest

from pirl_plugin.benchmark.soak import descendants, held, quarters

pytestmark = pytest.mark.skipif(
    not os.path.exists("/proc/self/smaps_rollup"), reason="needs Linux's /proc"
)


def samples(count, leak=0.0):
    return [
        {
            "step": 10.0 * i,
            "memory_mb": 100 + leak * i,
            "descriptors": 50.0,
            "shared_memory_mb": 1.0,
            "images_per_s": 30.0,
        }
        for i in range(1, count + 1)
    ]


def test_quarters__shows_what_grows():
    *rows, growth = quarters(samples(40, leak=2))
    assert [row["quarter"] for row in rows] == [1, 2, 3, 4]
    # Of 40 samples the second quarter's median is that of 11 … 20, the last one's that of 31 … 40.
    assert growth["memory_mb"] == pytest.approx(2 * 20, abs=2)
    assert growth["descriptors"] == 0


def test_quarters__needs_samples_in_each():
    with pytest.raises(SystemExit, match=r"there are 2 up to step 20; raise --steps"):
        quarters(samples(2))


def test_held__counts_what_was_started():
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:
        while len(descendants(process.pid)) < 2:
            pass
        found = held(process.pid)
        process.stdin.write(b"\n")
        process.stdin.close()
    assert found["processes"] == 2
    assert found["memory_mb"] > 1
    assert found["descriptors"] >= 6


@pytest.mark.slow
def test_soak__measures_a_run(image_folder, tmp_path):
    from pirl_plugin.benchmark.command import main

    options = ["soak", "--data", str(image_folder / "train"), "--images", "16", "--batch", "4"]
    main([*options, "--steps", "60", "--every", "0.5", "--json", str(tmp_path / "soak.json")])
    assert '"samples"' in (tmp_path / "soak.json").read_text()
