"""A sweep as SLURM jobs: submitted side by side, found again, and each run submitted once."""

import json
import subprocess
from pathlib import Path

import pytest
import submitit

from pirl_plugin.evaluation.linear_run import final_checkpoint
from pirl_plugin.quickstart import launchers
from pirl_plugin.quickstart.launchers import Slurm, make_all
from pirl_plugin.quickstart.runs import Run
from pirl_plugin.quickstart.sweep import command as sweep_command


@pytest.fixture
def cluster(monkeypatch):
    """In place of SLURM: jobs end when the test says so, with or without a result."""

    class Cluster:
        def __init__(self):
            self.jobs = []  # folders, in the order of their submission
            self.ended = set()  # numbers of jobs
            self.refuses = False

        def submit(self, command, stdout, stderr, check):
            found = next(word for word in command if word.startswith("config.CHECKPOINT.DIR="))
            assert "config.SLURM.PARTITION=learn" in command
            stdout.write("a banner\n")
            if not self.refuses:
                self.jobs.append(Path(found.partition("=")[2]))
                stdout.write(f"SUBMITTED: {len(self.jobs)}\n")
            stdout.flush()
            return subprocess.CompletedProcess(command, int(self.refuses))

        def end(self, job, finished):
            self.ended.add(str(job))
            if finished:
                (self.jobs[job - 1] / "done").touch()

    cluster = Cluster()

    class Job:
        def __init__(self, folder, job_id):
            self.job_id = job_id

        def done(self):
            return self.job_id in cluster.ended

    monkeypatch.setattr(subprocess, "run", cluster.submit)
    monkeypatch.setattr(submitit, "SlurmJob", Job)
    monkeypatch.setattr(launchers.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(Run, "finished", lambda self: (self.folder / "done").exists())
    return cluster


@pytest.fixture
def chains(tmp_path):
    """Two chains of two runs."""
    return {
        name: [Run(f"{name} {step}", tmp_path / name / step, ("config=x",)) for step in ("a", "b")]
        for name in ("one", "two")
    }


def test_slurm__submits_side_by_side_and_each_run_once(chains, cluster, monkeypatch):
    story = [(1, True), (3, True), (2, True), (4, True)]  # how the jobs end, in time

    def look_again(seconds):
        assert seconds == 30
        cluster.end(*story.pop(0))

    monkeypatch.setattr(launchers.time, "sleep", look_again)
    ended = []
    assert make_all(chains, Slurm("learn"), lambda: ended.append(len(cluster.jobs))) == {}
    names = [f"{folder.parent.name}/{folder.name}" for folder in cluster.jobs]
    assert names == ["one/a", "two/a", "one/b", "two/b"]
    assert ended == [3, 4]


def test_slurm__takes_up_jobs_of_an_earlier_sweep(chains, cluster, monkeypatch):
    def stop(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(launchers.time, "sleep", stop)
    with pytest.raises(KeyboardInterrupt):
        make_all(chains, Slurm("learn"), list)
    assert len(cluster.jobs) == 2
    # Job 1 goes on, job 2 was cancelled meanwhile: it alone is submitted again.
    cluster.end(2, finished=False)
    with pytest.raises(KeyboardInterrupt):
        make_all(chains, Slurm("learn"), list)
    assert [folder.parent.name for folder in cluster.jobs] == ["one", "two", "two"]
    # A full disk left no number: it ended this and every later sweep in a traceback.
    (chains["one"][0].folder / "slurm_job").write_text("")
    with pytest.raises(KeyboardInterrupt):
        make_all(chains, Slurm("learn"), list)
    assert [folder.parent.name for folder in cluster.jobs] == ["one", "two", "two", "one"]


def test_slurm__a_job_that_ends_unfinished_is_a_failure(chains, cluster, monkeypatch):
    story = [(1, False), (2, True), (3, True)]
    monkeypatch.setattr(launchers.time, "sleep", lambda seconds: cluster.end(*story.pop(0)))
    failures = make_all(chains, Slurm("learn"), list)
    assert list(failures) == ["one"]
    assert "one a ended unfinished: see" in failures["one"]
    assert str(chains["one"][0].folder / "slurm") in failures["one"]
    assert [folder.name for folder in cluster.jobs] == ["a", "a", "b"]


def test_slurm__quotes_a_submission_that_is_refused(chains, cluster):
    cluster.refuses = True
    failures = make_all(chains, Slurm("learn"), list)
    assert list(failures) == ["one", "two"]
    assert "one a was not submitted (exit status 1)" in failures["one"]
    assert "a banner" in failures["one"]


def test_slurm__gives_each_run_a_port_of_its_own(chains):
    words = [word for runs in chains.values() for run in runs for word in Slurm("p").command(run)]
    ports = {word for word in words if word.startswith("config.SLURM.PORT_ID=")}
    assert len(ports) == 4
    assert all(20_000 <= int(port.partition("=")[2]) < 32_000 for port in ports)


@pytest.mark.slow
def test_slurm__runs_through_the_hosts_launcher(image_folder, tmp_path, monkeypatch):
    """Where there is no SLURM, submitit runs the jobs on this machine."""
    monkeypatch.setattr(Slurm, "interval", 1.0)
    out = tmp_path / "out"
    one = "config.OPTIMIZER.num_epochs=1"
    sweep_command.main(
        [
            "lambda", "--scale", "quick", "--data", str(image_folder), "--out", str(out),
            "--slurm", "any", "--values", "0", one, "--linear", one,
        ]
    )  # fmt: skip
    assert final_checkpoint(out / "pirl_0" / "pretrain")
    (row,) = json.loads((out / "results.json").read_text())["results"]
    assert 0 <= row["best_top1"] <= 100


def test_slurm__takes_a_list_of_partitions(chains):
    words = Slurm("gpu,long").command(next(iter(chains.values()))[0])
    assert "config.SLURM.PARTITION='gpu,long'" in words
