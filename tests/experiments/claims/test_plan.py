"""What is trained, in which order, and what is one model in several sweeps."""

import pytest

from pirl_plugin.experiments.claims.methods import DEFAULT_METHODS
from pirl_plugin.experiments.claims.plan import (
    Job,
    evaluated,
    job_of,
    plan,
    sweep_jobs,
)

NINE = 362_880


def planned(methods=DEFAULT_METHODS, sweeps=("lambda", "permutations", "negatives"), seeds=3):
    return plan(methods, sweeps, seeds, min(2, seeds), 24, 10_000, 1024)


def test_plan__is_seed_by_seed_and_the_comparison_first():
    jobs = planned()
    assert [job.method for job in jobs[:10]] == [
        "random",
        "npid",
        "pirl_jigsaw",
        "jigsaw",
        "pirl_rotation",
        "rotation",
        "vissl_pirl",
        "supervised",
        "pirl_rotation_jigsaw",
        "npidpp",
    ]
    assert [job.seed for job in jobs[:30]] == [0] * 10 + [1] * 10 + [2] * 10
    assert not any(job.changed for job in jobs[:30])


def test_plan__trains_each_model_once():
    jobs = planned()
    assert len(set(jobs)) == len(jobs)
    # 30 of the comparison; of each of 2 seeds: one PIRL that all sweeps share, 3 × 4 others of
    # PIRL, and the jigsaw classifier at |T| = 10, 100, 1,000.
    assert len(jobs) == 30 + 2 * (1 + 12 + 3)
    assert [job for job in jobs if job == Job("pirl_jigsaw", 0, 12)]


def test_plan__gives_one_budget_but_for_npidpp():
    lengths = {job.method: job.epochs for job in planned(sweeps=(), seeds=1)}
    assert lengths.pop("random") == 0
    assert lengths.pop("npidpp") == 60
    assert set(lengths.values()) == {24}


def test_plan__of_some_methods_and_sweeps():
    assert planned(["npid"], (), 1) == [Job("npid", 0, 24)]
    assert [job.changed for job in planned((), ["lambda"], 1)] == [
        (("lambda", 0),),
        (("lambda", 0.25),),
        (),
        (("lambda", 0.75),),
        (("lambda", 1),),
    ]


def test_sweep_jobs__take_negatives_that_there_are():
    jobs = sweep_jobs("negatives", 12, 0, num_train=3_000, negatives=256)
    assert [dict(job.changed).get("negatives") for job in jobs] == [16, 64, None, 1_024, 1_500]
    # |D| / 2 = 300 is what the default comes to: the same model
    jobs = sweep_jobs("negatives", 12, 0, num_train=600, negatives=1_024)
    assert [dict(job.changed).get("negatives") for job in jobs] == [16, 64, 256, None]


def test_job__is_its_row_again():
    for job in planned():
        assert job_of(job.row()) == job


def test_job__sets_what_its_sweep_varies():
    job = Job("pirl_jigsaw", 1, 12, (("permutations", 10),))
    assert job.overrides == ("++config.DATA.TRAIN.TRANSFORMS.0.num_permutations=10",)
    assert job.title == "PIRL (jigsaw), |T| = 10, 12 epochs, seed 1"
    assert job.name == "pirl_jigsaw_permutations10_12epochs_seed1"


@pytest.mark.parametrize(
    ("epochs", "step", "expected"),
    [
        (24, 6, [6, 12, 18, 24]),
        (60, 6, [15, 30, 45, 60]),
        (12, 6, [12]),
        (13, 6, [6, 12, 13]),
        (0, 6, [0]),
    ],
)
def test_evaluated__each_step_and_the_end_a_sweep_at_its_end(epochs, step, expected):
    assert evaluated(epochs, step) == expected
