"""The benchmark of the pipeline: what it writes, what it refuses, and what it times."""

import functools
import json

import pytest

from pirl_plugin.benchmark.command import main
from pirl_plugin.benchmark.images import image_folder as links
from pirl_plugin.benchmark.loaders import loader_table
from pirl_plugin.benchmark.timing import interleave, ratio


def test_pipeline__writes_a_row_for_each_pipeline(image_folder, tmp_path, capsys):
    data, file = image_folder / "train", tmp_path / "new" / "rows.json"
    counts = ["--images", "4", "--rounds", "2", "--workers", "0"]
    main(["pipeline", "--data", str(data), "--json", str(file), *counts])
    figures = json.loads(file.read_text())
    assert figures["machine"]["torch"]
    found = {(row["transform"], row["pipeline"]): row for row in figures["rows"]}
    ours = ("fused", "normalised", "decode")
    vissl = ("vissl", "vissl_filelist")
    assert set(found) == {
        *(("jigsaw", name) for name in (*vissl, *ours)),
        *(("rotation", name) for name in (*vissl, *ours)),
        *(("rotation_jigsaw", name) for name in ours),
    }
    for (transform, name), row in found.items():
        assert 0 < row["ms_min"] <= row["ms_median"]
        assert row["images_per_s_per_core"] == pytest.approx(1e3 / row["ms_median"])
        ratios = {"ratio_to_vissl": "vissl", "ratio_to_filelist": "vissl_filelist"}
        for key, peer in ratios.items():
            if transform == "rotation_jigsaw":
                assert row[key] is None
            elif name == peer:
                assert row[key] == 1
            else:
                assert row[key] > 0
        assert row["decode_share"] == 1 if name == "decode" else row["decode_share"] > 0
    for transform in ("jigsaw", "rotation", "rotation_jigsaw"):  # reads, and something more
        assert found[transform, "normalised"]["ms_min"] > 0.8 * found[transform, "fused"]["ms_min"]
    shown = capsys.readouterr().out
    assert all(title in shown for title in ("images/s/core", "its filelist's", "decode's share"))


@pytest.mark.slow
def test_loaders__ours_start_faster_and_need_no_more_memory(image_folder):
    with links(image_folder / "train", 20) as folder:
        vissl, ours = loader_table(folder, workers=1)
    assert ours["later_first_batch_s"] < vissl["later_first_batch_s"]
    assert ours["worker_rss_mb"] <= vissl["worker_rss_mb"]
    assert ours["worker_pss_mb"] <= vissl["worker_pss_mb"]


def test_images__leaves_out_what_vissl_cannot_read(tmp_path, make_image, capsys):
    for number in range(5):
        make_image(tmp_path / f"{number}.jpg", number)
    (tmp_path / "3.jpg").write_bytes(b"no image")
    with links(tmp_path, 10) as folder:
        names = sorted(path.name for path in (folder / "all").iterdir())
    assert names == ["00000.jpg", "00001.jpg", "00002.jpg", "00003.jpg"]
    assert f"left out: {tmp_path / '3.jpg'}: " in capsys.readouterr().out


def test_images__refuses_a_folder_without_images(tmp_path):
    with pytest.raises(SystemExit, match=r"0 readable images in .*expected at least 2"):
        links(tmp_path, 10).__enter__()
    with pytest.raises(SystemExit, match="nowhere is not a folder that exists"):
        links(tmp_path / "nowhere", 10).__enter__()


def test_timing__calls_in_turn_and_measures():
    calls = []
    takes = {"slow": 4, "quick": 1}

    def clock():
        return sum(takes[name] for name in calls)

    functions = {name: functools.partial(calls.append, name) for name in takes}
    seconds = interleave(functions, rounds=3, clock=clock)
    assert calls[2:] == ["slow", "quick", "quick", "slow", "slow", "quick"]
    assert seconds == {"slow": [4, 4, 4], "quick": [1, 1, 1]}
    assert ratio(seconds["slow"], seconds["quick"]) == 4
    with pytest.raises(ValueError, match="rounds is 0; expected at least 1"):
        interleave({"slow": list}, rounds=0)
