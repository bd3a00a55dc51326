"""The quickstart from end to end, in seconds, and what it refuses."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pirl_plugin.checkpoints.load import load_trunk, save_trunk
from pirl_plugin.evaluation.features import read_images
from pirl_plugin.models.resnet import new_trunk
from pirl_plugin.quickstart import command as quickstart_command
from pirl_plugin.quickstart import report as quickstart_report
from pirl_plugin.quickstart import run as quickstart
from pirl_plugin.quickstart.data import TRUNK, find_data
from pirl_plugin.views.jigsaw import JigsawViews

_ABOUT = {"seed", "epochs", "processor", "threads", "images_per_s", "seconds"}


def test_quickstart__writes_results_and_report(image_folder, tmp_path, capfd):
    out = tmp_path / "out"
    quickstart_command.main(["--data", str(image_folder), "--out", str(out), "--epochs", "2"])
    results = json.loads((out / "results.json").read_text())
    assert set(results) == {"random", "pirl", *_ABOUT}
    assert results["threads"] >= 1
    for name in ("random", "pirl"):
        assert set(results[name]) == {"linear_top1", "knn_top1"}
        assert all(0 <= value <= 100 for value in results[name].values())
    assert (results["seed"], results["epochs"]) == (0, 2)
    assert results["images_per_s"] > 0
    page = (out / "report.html").read_text()
    assert "Nearest neighbours" in page
    assert "kNN in the bank, %" in page  # of the first epoch at least, whatever it took
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing loaded from outside
    printed = capfd.readouterr().out
    assert "epoch 2" in printed
    assert "images/s" in printed

    with pytest.raises(SystemExit, match=r"holds the run of .*epochs 2 \(now 3\).*another folder"):
        quickstart_command.main(["--data", str(image_folder), "--out", str(out), "--epochs", "3"])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--help"], 0, "--epochs EPOCHS"),
        (["--epochs", "x"], 2, "argument --epochs: x: expected a whole number of at least 1"),
        (["--data", "nowhere"], 2, "--data = nowhere: expected a folder of images"),
    ],
)
def test_script__looks_at_its_options_before_it_installs(words, status, said, tmp_path):
    script = Path(__file__).parents[3] / "extra_scripts" / "quickstart.sh"
    environment = os.environ | {"PIRL_VENV": str(tmp_path / "venv"), "PIRL_PYTHON": sys.executable}
    done = subprocess.run(
        ["bash", script, *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == status
    assert said in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_quickstart__pretrains_on_a_flat_folder_and_says_what_it_cannot_measure(
    image_folder, tmp_path, capfd
):
    flat, out = tmp_path / "flat", tmp_path / "out"
    flat.mkdir()
    for i, path in enumerate(sorted((image_folder / "train").rglob("*.jpg"))[:8]):
        shutil.copy(path, flat / f"{i}.jpg")
    quickstart_command.main(["--data", str(flat), "--out", str(out), "--epochs", "1"])
    results = json.loads((out / "results.json").read_text())
    assert set(results) == _ABOUT
    assert (out / "report.html").is_file()
    assert "No accuracies will be measured" in capfd.readouterr().out

    quickstart_command.main(["--data", str(flat), "--out", str(out), "--epochs", "1"])
    assert json.loads((out / "results.json").read_text()) == results  # the times of pre-training


@pytest.mark.parametrize(
    ("given", "made", "said"),
    [
        ("grey", ["grey"], "{root}/grey has no train/CLASS/* and val/CLASS/*"),
        ("grey", ["grey/a", "grey/b"], "{root}/grey has no train/CLASS/* and val/CLASS/*"),
        ("grey", ["grey/train/a"], "{root}/grey has no val/CLASS/* or validation/CLASS/* beside"),
        (
            "grey",
            ["grey/train/a", "grey/val/a"],
            "{root}/grey/train has fewer than two folders of classes",
        ),
        ("grey/train", ["grey/train/a"], "{root}/grey has no val/CLASS/* or validation/CLASS/* be"),
        (
            "grey/train",
            ["grey/train/a", "grey/val/a"],
            "{root}/grey/train was given without {root}/grey/val; give --data {root}/grey",
        ),
    ],
)
def test_quickstart__says_why_it_measures_no_accuracy(
    given, made, said, image_folder, tmp_path, monkeypatch, capsys
):
    """It spoke of the folder above the one that was given."""

    def stop(*_):
        raise KeyboardInterrupt

    for folder in made:
        shutil.copytree(image_folder / "train" / "ants", tmp_path / folder)
    monkeypatch.setattr(quickstart, "pretrain", stop)
    words = ["--data", str(tmp_path / given), "--out", str(tmp_path / "out"), "--epochs", "1"]
    with pytest.raises(KeyboardInterrupt):
        quickstart_command.main(words)
    images, why, *_ = capsys.readouterr().out.splitlines()
    assert images.endswith("; 1 epoch")
    assert why.startswith(f"No accuracies will be measured: {said.format(root=tmp_path)}")


def test_quickstart__adds_up_the_seconds_of_its_commands(image_folder, tmp_path, monkeypatch):
    now = [0.0]

    def pretrain(data, out, epochs, seed):
        now[0] += 100
        if now[0] == 100:
            raise KeyboardInterrupt
        return out.parent / "random_init.torch", 5.0

    monkeypatch.setattr(quickstart, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(quickstart, "pretrain", pretrain)
    monkeypatch.setattr(quickstart, "write_quickstart_report", lambda *args, **kwargs: None)
    words = ["--data", str(image_folder / "train" / "ants"), "--out", str(tmp_path), "--epochs=2"]
    with pytest.raises(KeyboardInterrupt):
        quickstart_command.main(words)
    quickstart_command.main(words)
    assert json.loads((tmp_path / "results.json").read_text())["seconds"] == 200
    quickstart_command.main(words)  # its pre-training made again: of this command alone
    assert json.loads((tmp_path / "results.json").read_text())["seconds"] == 100


@pytest.mark.slow
def test_quickstart__sigterm_ends_the_run_that_it_started(image_folder, tmp_path):
    """The run saves and ends, and the same command goes on; it does not train on unattended."""
    out = tmp_path / "out"
    words = ["quickstart", "--data", str(image_folder), "--out", str(out), "--epochs", "500"]
    with subprocess.Popen(
        [sys.executable, "-m", "pirl_plugin", *words], stderr=subprocess.PIPE, text=True
    ) as process:
        log, until = out / "pretrain" / "console.log", time.monotonic() + 120
        while not (log.is_file() and "epoch 2" in log.read_text()):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.2)
        process.terminate()
        said = process.communicate(timeout=120)[1]
    assert process.returncode == 143
    assert said.splitlines()[-1] == (
        "pirl_plugin: SIGTERM: the command has ended; the same command goes on where it was"
    )
    last = log.read_text().splitlines()[-1]
    assert "stopped by SIGTERM after step" in last
    assert "which is saved" in last


def test_find_data__sees_folders_for_what_they_are(image_folder, tmp_path):
    data = find_data(image_folder)
    assert (data.train, data.val) == (image_folder / "train", image_folder / "val")
    assert (data.num_train, data.num_classes) == (20, 2)
    assert find_data(image_folder / "train" / "ants").val is None
    with pytest.raises(SystemExit, match="holds no image"):
        find_data(tmp_path)


def test_trunk__round_trips_through_the_hosts_checkpoint_format(tmp_path):
    trunk = new_trunk(TRUNK)
    save_trunk(trunk, tmp_path / "trunk.torch")
    loaded = load_trunk(tmp_path / "trunk.torch")
    for name, tensor in trunk.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    file = torch.load(tmp_path / "trunk.torch")
    del file["classy_state_dict"]["base_model"]["model"]["trunk"]["_feature_blocks.bn1.weight"]
    torch.save(file, tmp_path / "trunk.torch")
    with pytest.raises(ValueError, match=r"1 of 60 missing: bn1\.weight"):  # none is left at random
        load_trunk(tmp_path / "trunk.torch")


def test_read_images__leaves_unreadable_files_out_and_says_so(image_folder, tmp_path, caplog):
    folder = tmp_path / "images"
    shutil.copytree(image_folder / "val", folder)
    (folder / "ants" / "0.jpg").write_bytes(b"no image")
    images, paths = read_images(folder, size=32)
    assert images.shape == (7, 3, 32, 32)
    assert len(paths) == 7
    assert "ants/0.jpg" not in paths
    (said,) = [record.getMessage() for record in caplog.records]
    assert "1 of 8 images cannot be read and are left out; the first is ants/0.jpg: " in said


def test_find_data__counts_the_folders_and_wants_the_same_in_val(image_folder, tmp_path):
    """What was not seen here was refused, or measured as 0 %, after pre-training."""
    data = tmp_path / "data"
    shutil.copytree(image_folder, data)
    for split in ("train", "val"):
        (data / split / "empty").mkdir()
        (data / split / ".hidden").mkdir(exist_ok=split == "train")
    (data / "val" / ".hidden").rmdir()
    assert find_data(data).num_classes == 3
    (data / "val" / "stray.png").touch()
    with pytest.raises(SystemExit, match=r"stray\.png lies beside the folders of the classes"):
        find_data(data)
    (data / "val" / "stray.png").unlink()
    (data / "val" / "empty").rmdir()
    stray = next((data / "val").rglob("*.*")).rename(data / "val" / "stray.png")
    with pytest.raises(SystemExit, match=r"stray\.png lies beside the folders of the classes"):
        find_data(data)
    stray.unlink()
    with pytest.raises(SystemExit, match=r"the same classes in train and val; the folder 'empty'"):
        find_data(data)
    (data / "train" / "empty").rmdir()
    for file in (data / "val").rglob("*.jpg"):
        file.unlink()
    with pytest.raises(SystemExit, match=r"expected images in .*val, and there is none"):
        find_data(data)


def test_jigsaws__leave_out_an_image_that_cannot_be_read(image_folder, tmp_path):
    """The report ended in a traceback, after all the work."""
    shutil.copytree(image_folder, tmp_path / "data")
    data = find_data(tmp_path / "data")
    for file in (tmp_path / "data" / "train" / "ants").iterdir():
        file.write_bytes(b"damaged")
    views = JigsawViews(image_size=24, patches_crop_size=30, patch_size=8)
    shown = quickstart_report._jigsaws(data, 0, SimpleNamespace(views=views))
    assert 0 < len(shown) < quickstart_report._SHOWN


def test_find_data__takes_validation_for_val(image_folder, tmp_path):
    shutil.copytree(image_folder, tmp_path / "data")
    (tmp_path / "data" / "val").rename(tmp_path / "data" / "validation")
    assert find_data(tmp_path / "data").val == tmp_path / "data" / "validation"


def test_quickstart__refuses_in_one_sentence(image_folder, tmp_path, capsys):
    where = ["--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit):
        quickstart_command.main(["--data", str(tmp_path / "nowhere"), *where])
    assert "nowhere: expected a folder of images; there is none" in capsys.readouterr().err
    for option in ("--epochs=-3", "--epochs=0", "--seed=-1"):
        with pytest.raises(SystemExit) as stopped:
            quickstart_command.main(["--data", str(image_folder), *where, option])
        assert stopped.value.code == 2
        name, _, value = option.partition("=")
        assert f"argument {name}: {value}: expected" in capsys.readouterr().err
    assert not (tmp_path / "out" / "pretrain").exists()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_quickstart__beats_random_initialisation_by_5_points(seed, tmp_path):
    quickstart_command.main(["--out", str(tmp_path), "--seed", str(seed)])
    results = json.loads((tmp_path / "results.json").read_text())
    for measure in ("linear_top1", "knn_top1"):
        assert results["pirl"][measure] >= results["random"][measure] + 5
