"""Markdown from records; the page in the documentation is the one of the records beside it."""

from pirl_plugin.benchmark.gpu_check.record import Record
from pirl_plugin.benchmark.gpu_check.tables import PAGE, RECORDS, page, read_records

MACHINE = {
    "gpu": "NVIDIA Made-up", "gpus": 1, "torch": "9.9", "processor": "P", "cores": 4,
    "gpu_memory_gb": 80.0, "compute_capability": "9.0",
}  # fmt: skip
LOSS = {
    "copy_bytes_per_s": 4e12,
    "rows": [
        {"estimator": "nce", "batch": 32, "negatives": 32000, "placement": "replicated",
         "seconds_median": 0.00025, "extra_bytes": 12_340_000, "bandwidth_fraction": 0.51,
         "speedup_over_vissl": None},
    ],
}  # fmt: skip
STEP = {
    "input_images_per_s": 350.0, "data": "drawn",
    "rows": [{"precision": "tf32", "batch": 64, "images_per_s": 1234.5, "ms_median": 51.8,
              "peak_gb": 9.87, "plugin_share": 0.0123, "workers_needed": 4}],
}  # fmt: skip


def test_page__has_the_machine_the_parts_and_the_figures(tmp_path):
    parts = {
        "tests: draw": {
            "status": "failed", "seconds": 3.2, "reason": "exit status 1: 1 failed",
            "results": {"passed": 2, "failed": {"test_x": "a | b"}, "skipped": {}},
        },
        "benchmark: loss, B = 32": {"status": "passed", "seconds": 60.0, "results": LOSS},
        "benchmark: step, tf32": {"status": "passed", "seconds": 50.0, "results": STEP},
    }  # fmt: skip
    Record(MACHINE, parts, ["tests: host"]).write(tmp_path / "made_up.json")
    text = page(read_records(tmp_path))
    machine = "1 × NVIDIA Made-up (80 GB, compute capability 9.0), 4 cores of P."
    assert f"## NVIDIA Made-up\n\n{machine}\n" in text
    assert "torch 9.9" in text
    counts = "exit status 1: 1 failed; 2 passed, 1 failed; test_x: a \\| b"
    row = f"| tests: draw | failed | 3.2 | {counts} |"
    assert row in text
    assert "Not run, for lack of time: tests: host." in text
    assert "A copy in the same run reads and writes 4,000 GB/s." in text
    assert "| nce | 32 | 32000 | replicated | 0.25 | 12.3 | 51 |  |" in text
    assert "Input pipeline on one core: 350 images/s; images: drawn." in text
    assert "| tf32 | 64 | 1,234 | 51.8 | 9.87 | 1.23 | 4 |" in text


def test_page__is_that_of_the_records_in_the_documentation():
    assert PAGE.read_text() == page(read_records(RECORDS))
    if not list(RECORDS.glob("*.json")):
        assert "have not run on a GPU" in PAGE.read_text()
