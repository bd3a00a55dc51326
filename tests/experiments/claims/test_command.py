"""The command: what is run, what is not run again, what a failure costs."""

import json
import shutil

import pytest
import torch

from pirl_plugin.experiments.claims import report, workers
from pirl_plugin.experiments.claims.plan import Job
from tests.helpers.claims_command import claims, recorded, with_recipe
from tests.helpers.claims_rows import row
from tests.helpers.host_tools import write_classes


def test_command__makes_each_model_and_writes_what_it_found(image_folder, tmp_path, made, capsys):
    claims(image_folder, tmp_path, "--seeds", "1")
    # 80 images are 4 epochs of 20
    assert made == [Job("random", 0, 0), Job("npid", 0, 4), Job("pirl_jigsaw", 0, 4)]
    content = json.loads((tmp_path / "claims.json").read_text())
    assert {run["method"] for run in content["runs"]} == {"random", "npid", "pirl_jigsaw"}
    assert content["setting"]["epochs"] == 4
    assert [c["difference"] for c in content["claims"] if c["id"] == "pirl_over_npid"] == [0]
    assert (tmp_path / "tables.md").is_file()
    assert made.drawn == [tmp_path] * 4  # at the start, and after each model
    printed = capsys.readouterr().out
    assert "Model 2 of 3: NPID, 4 epochs, seed 0; about" in printed
    assert "left" in printed


def test_command__hides_folders_in_what_it_commits(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    text = (tmp_path / "claims.json").read_text() + (tmp_path / "tables.md").read_text()
    assert str(tmp_path) not in text
    assert str(image_folder) not in text
    setting = json.loads((tmp_path / "claims.json").read_text())["setting"]
    assert setting["command"].startswith("pirl-plugin claims --data DATA --out OUT --methods")


def test_command__does_not_repeat_what_is_recorded(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    made.clear()
    claims(image_folder, tmp_path, "--seeds", "2")
    assert {job.seed for job in made} == {1}


def test_command__resumes_from_a_committed_file_without_folders(image_folder, tmp_path, made):
    claims(image_folder, tmp_path / "first", "--seeds", "1")
    committed = (tmp_path / "first" / "claims.json").rename(tmp_path / "committed.json")
    made.clear()
    claims(image_folder, tmp_path / "second", "--seeds", "1", "--resume", str(committed))
    assert made == []
    assert len(json.loads((tmp_path / "second" / "claims.json").read_text())["runs"]) == 3


def test_command__goes_on_after_a_failure(image_folder, tmp_path, made):
    made.failing = ("npid",)
    with pytest.raises(SystemExit, match=r"1 of 3 models failed; .*\n  NPID, 4 epochs, seed 0: "):
        claims(image_folder, tmp_path, "--seeds", "1")
    assert [job.method for job in made] == ["random", "npid", "pirl_jigsaw"]
    made.clear()
    made.failing = ()
    claims(image_folder, tmp_path, "--seeds", "1")
    assert [job.method for job in made] == ["npid"]


def test_command__goes_on_where_a_report_fails(image_folder, tmp_path, made, monkeypatch, capsys):
    """Out of memory, say: it ended the command, and every later one."""

    def fail(out, rows):
        raise MemoryError("no memory for figures")

    monkeypatch.setattr(report, "write_figures", fail)
    with pytest.raises(SystemExit) as ended:
        claims(image_folder, tmp_path, "--seeds", "1")
    said = "verdicts, tables or figures: MemoryError: no memory for figures"
    assert str(ended.value).splitlines()[1:] == [f"  {said}"]  # once
    assert len(made) == len(recorded(tmp_path / "claims.json")["runs"]) == 3
    assert capsys.readouterr().err.splitlines() == [said] * 4


def test_command__says_where_seconds_are_unknown(image_folder, tmp_path, made, monkeypatch, capsys):
    """No clock saw the run; every report divided by zero."""

    def make(job, workspace):
        found = row(job.method, job.seed, 40.0, job.epochs)
        for part in (found, *found["points"]):
            part.update({"seconds": None, "wall_seconds": None})
        return found

    monkeypatch.setattr(workers, "make", make)
    claims(image_folder, tmp_path, "--seeds", "1", "--methods", "npid")
    assert "kNN 20.0, seconds unknown; about" in capsys.readouterr().out
    claims(image_folder, tmp_path, "--seeds", "1", "--methods", "npid", "--report-only")


def test_command__goes_on_where_invariance_fails(image_folder, tmp_path, made, monkeypatch):
    def make(job, workspace):
        return row(job.method, job.seed, 40.0, job.epochs)

    monkeypatch.setattr(workers, "make", make)
    with pytest.raises(SystemExit, match=r"\n  PIRL \(jigsaw\), 4 epochs, seed 0: no invariance$"):
        claims(image_folder, tmp_path, "--seeds", "1")
    assert len(recorded(tmp_path / "claims.json")["runs"]) == 3


def test_again__makes_finished_models_of_a_method(image_folder, tmp_path, made, capsys):
    claims(image_folder, tmp_path, "--seeds", "2")
    made.clear()
    capsys.readouterr()
    claims(image_folder, tmp_path, "--seeds", "1", "--again", "pirl_jigsaw", "npid")
    assert {(job.method, job.seed) for job in made} == {("npid", 0), ("pirl_jigsaw", 0)}
    assert "NPID, 4 epochs, seed 0; PIRL (jigsaw), 4 epochs, seed 0" in capsys.readouterr().out
    assert len(recorded(tmp_path / "claims.json")["runs"]) == 6


def test_again__is_the_way_out_of_another_recipe(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    with_recipe(tmp_path / "claims.json", "npid", "0123")
    made.clear()
    claims(image_folder, tmp_path, "--seeds", "1", "--again", "npid")
    assert [job.method for job in made] == ["npid"]


def test_command__refuses_another_setting_in_the_same_folder(image_folder, tmp_path, made):
    claims(image_folder, tmp_path, "--seeds", "1")
    with pytest.raises(SystemExit, match=r"setting\.epochs = 4: expected 2"):
        claims(image_folder, tmp_path, "--seeds", "1", "--images-seen", "40")


def test_command__refuses_runs_of_another_recipe(image_folder, tmp_path, made):
    """They were taken for runs of this one."""
    claims(image_folder, tmp_path, "--seeds", "1")
    made.clear()
    file = with_recipe(tmp_path / "claims.json", "npid", "0123")
    said = r"claims\.json: .* another made these: NPID, 4 epochs, seed 0; remove their rows"
    with pytest.raises(SystemExit, match=said):
        claims(image_folder, tmp_path, "--seeds", "2")
    other = ["--seeds", "1", "--resume", str(file)]
    for more in ([], ["--dry-run"]):
        with pytest.raises(SystemExit, match=said):
            claims(image_folder, tmp_path / "second", *other, *more)
    assert made == []
    claims(image_folder, tmp_path, "--report-only")  # of one file, whatever made its runs


def test_command__refuses_a_folder_that_another_process_works_in(image_folder, tmp_path, made):
    import fcntl

    with (tmp_path / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit, match="expected a folder that no other process works in"):
            claims(image_folder, tmp_path)
    assert made == []


def test_jobs__are_at_most_the_cores(image_folder, tmp_path, made, capsys):
    """Each would take the time of others, which is measured."""
    with pytest.raises(SystemExit):
        claims(image_folder, tmp_path, "--jobs", "500", "--threads", "64")
    assert "--jobs = 500 of 64 thread(s): expected at most the " in capsys.readouterr().err


def test_failures__are_listed_with_the_sentence_of_the_run(
    image_folder, tmp_path, made, monkeypatch
):
    """The list said of each that it had failed, and the sentence about the disk was far above."""

    def make(job, workspace):
        raise SystemExit(
            "pirl_plugin: it failed with exit status 65; the end of out/console.log:\n"
            "INFO: epoch 3\npirl_plugin: the disk is full\nand more"
        )

    monkeypatch.setattr(workers, "make", make)
    with pytest.raises(SystemExit, match=r"again:\n  NPID, 4 epochs, seed 0: the disk is full$"):
        claims(image_folder, tmp_path, "--seeds", "1", "--methods", "npid")


def test_failures__of_a_run_that_was_killed_have_its_last_line(
    image_folder, tmp_path, made, monkeypatch
):
    """The list ended in a colon, after the model's name for the second time."""

    def make(job, workspace):
        raise SystemExit(
            f"pirl_plugin: {job.title} failed with exit status -9; the end of out/console.log:\n"
            "INFO: epoch 2\nINFO: epoch 3\n"
        )

    monkeypatch.setattr(workers, "make", make)
    expected = (
        r"again:\n  NPID, 4 epochs, seed 0: failed with exit status -9; the end of "
        r"out/console\.log: INFO: epoch 3$"
    )
    with pytest.raises(SystemExit, match=expected):
        claims(image_folder, tmp_path, "--seeds", "1", "--methods", "npid")


@pytest.mark.parametrize("content", [b"\xff\xd8\xff", b"[]", b'{"runs": []}'])
@pytest.mark.parametrize("more", [[], ["--dry-run"]])
def test_resume__from_another_kind_of_file_is_refused(content, more, image_folder, tmp_path, made):
    (tmp_path / "photo.jpg").write_bytes(content)
    with pytest.raises(SystemExit, match=r"photo\.jpg: expected a claims\.json"):
        claims(image_folder, tmp_path / "out", "--resume", str(tmp_path / "photo.jpg"), *more)


def test_dry_run__prints_the_models(image_folder, tmp_path, made, capsys):
    claims(image_folder, tmp_path / "out", "--seeds", "1", "--dry-run")
    assert capsys.readouterr().out.splitlines() == [
        "Random initialisation, seed 0",
        "NPID, 4 epochs, seed 0",
        "PIRL (jigsaw), 4 epochs, seed 0",
        "3 models, 0 of them finished; about 0:01:30 left",
    ]
    assert not (tmp_path / "out").exists()


def test_dry_run__says_what_is_finished(image_folder, tmp_path, made, capsys):
    claims(image_folder, tmp_path, "--seeds", "1", "--methods", "npid")
    capsys.readouterr()
    more = ["--seeds", "1", "--methods", "npid", "pirl_jigsaw", "--dry-run"]
    claims(image_folder, tmp_path, *more)
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["NPID, 4 epochs, seed 0: finished", "PIRL (jigsaw), 4 epochs, seed 0"]
    assert said[2].startswith("2 models, 1 of them finished; about 0:")


def test_unlabelled_images__are_refused(image_folder, tmp_path):
    with pytest.raises(SystemExit, match=r"--data = .*: expected train/CLASS/"):
        claims(image_folder / "train" / "ants", tmp_path)


def test_sweep_seeds__beyond_the_seeds_are_refused(image_folder, tmp_path, capsys):
    """They were left out without a word."""
    with pytest.raises(SystemExit):
        claims(image_folder, tmp_path, "--seeds", "2", "--sweep-seeds", "3")
    assert "--sweep-seeds = 3: expected at most --seeds, 2" in capsys.readouterr().err


def test_jobs__beyond_the_gpus_are_refused(image_folder, tmp_path, made, monkeypatch, capsys):
    """A worker without a GPU failed each model of the queue in seconds."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # which asks for a driver
    with pytest.raises(SystemExit):
        claims(image_folder, tmp_path, "--scale", "gpu", "--jobs", "2")
    assert "--jobs = 2: expected at most one a GPU, and 1 can be seen" in capsys.readouterr().err
    claims(image_folder, tmp_path, "--scale", "gpu", "--jobs", "2", "--dry-run")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SystemExit):
        claims(image_folder, tmp_path, "--scale", "gpu")
    assert "--scale = gpu: expected a GPU, and none can be seen" in capsys.readouterr().err
    claims(image_folder, tmp_path, "--scale", "gpu", "--dry-run")


def test_data__of_one_class_is_refused_for_what_it_lacks(tmp_path):
    write_classes(tmp_path, {"train": 4, "val": 2}, separable=True, classes=1)
    with pytest.raises(SystemExit, match=r"two classes or more, and found 1 in .*train and a val;"):
        claims(tmp_path, tmp_path / "out")
    shutil.rmtree(tmp_path / "val")
    with pytest.raises(SystemExit, match=r"and found 1 in .*train and no val; give a labelled"):
        claims(tmp_path, tmp_path / "out")
