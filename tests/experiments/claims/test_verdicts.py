"""Which difference is taken for which claim, on rows made by hand."""

import pytest

from pirl_plugin.experiments.claims.rows import Rows, at_time
from pirl_plugin.experiments.claims.statements import CLAIMS
from pirl_plugin.experiments.claims.verdicts import verdicts
from tests.helpers.claims_rows import LAYERS, SETTING, row

NINE = 362_880


def claim(name, rows):
    return {entry["id"]: entry for entry in verdicts(Rows(rows, SETTING))}[name]


def test_verdicts__name_each_of_the_papers_six_claims_once():
    found = verdicts(Rows([], SETTING))
    names = [entry["id"] for entry in found]
    assert len(set(names)) == len(names) == len(CLAIMS)
    assert {entry["verdict"] for entry in found} == {"undecided"}
    assert {entry["difference"] for entry in found} == {None}
    for topic in ("invariance", "layers", "lambda", "permutations", "negatives", "rotation"):
        assert any(name.startswith(topic) for name in names)


def test_equal_images__are_paired_by_seed():
    # Differences 4, 5, 6 whatever the seed's level: held, with the interval of test_statistics.
    rows = [row("npid", seed, 30 + 10 * seed) for seed in range(3)]
    rows += [row("pirl_jigsaw", seed, 34 + 11 * seed) for seed in range(3)]
    found = claim("pirl_over_npid", rows)
    assert (found["verdict"], found["difference"], found["seeds"]) == ("held", 5, [0, 1, 2])
    assert found["standard_error"] == pytest.approx(0.5774, abs=1e-4)
    assert found["interval"] == pytest.approx([2.5159, 7.4841], abs=1e-3)
    assert found["by_knn"]["difference"] == 2.5  # the kNN of these rows is half the linear
    assert claim("pirl_over_jigsaw", rows)["seeds"] == []


def test_tables_of_the_paper__have_a_verdict_by_best_layer_too():
    rows = [row("jigsaw", seed, 30) for seed in range(3)]
    rows += [row("pirl_jigsaw", seed, 36) for seed in range(3)]
    for one in rows:
        one["linear_by_layer"]["res3"] = 36 + one["seed"]
    found = claim("pirl_over_jigsaw", rows)
    assert (found["verdict"], found["difference"]) == ("held", 6)
    assert found["statement"].endswith(", on pooled res5")
    assert found["by_best_layer"]["verdict"] == "undecided"
    best = claim("pirl_over_jigsaw_best_layer", rows)
    assert (best["verdict"], best["difference"]) == ("undecided", 0)
    assert best["statement"].endswith(", each with its best layer, as the paper measures")
    assert best["source"] == "Table 2; ImageNet 63.6 against 45.7"
    assert "by_best_layer" not in best
    with_figures = {c.id for c in CLAIMS if c.source.startswith("Table ")}
    assert {name for name in with_figures if f"{name}_best_layer" in with_figures} == {
        name for name in with_figures if not name.endswith("_best_layer")
    }


def test_best_layer__is_one_for_all_seeds_of_a_method():
    """Each run's own best, res3 with 40 and res4 with 40, would gain 2 points from noise."""
    rows = [row("pirl_jigsaw", 0, 30), row("pirl_jigsaw", 1, 30), row("jigsaw", 0, 30)]
    rows[0]["linear_by_layer"] |= {"res3": 40, "res4": 37}
    rows[1]["linear_by_layer"] |= {"res3": 36, "res4": 40}
    rows[2]["linear_by_layer"] |= {"res5avg": 50}  # no layer of the paper's
    found = Rows(rows, SETTING)
    assert [(r["best_layer"], r["linear_best_top1"]) for r in found.of("pirl_jigsaw")] == [
        ("res4", 37),
        ("res4", 40),
    ]
    assert [r["linear_best_top1"] for r in found.of("jigsaw")] == [29]
    assert found.of("pirl_jigsaw")[0]["points"][0]["best_layer"] == "res4"


def test_npid__of_equal_images_is_the_papers_npidpp():
    source = {entry["id"]: entry["source"] for entry in verdicts(Rows([], SETTING))}
    assert source["pirl_over_npid_best_layer"].startswith("Table 2; ImageNet 63.6 against 59.0")
    assert source["pirl_over_npidpp"].startswith("not in the paper")


def test_equal_images__leave_out_seeds_without_a_pair():
    rows = [row("npid", 0, 30), row("npid", 1, 30), row("pirl_jigsaw", 1, 33)]
    found = claim("pirl_over_npid", rows)
    assert (found["verdict"], found["difference"], found["seeds"]) == ("undecided", 3, [1])


def test_runs_of_another_length__are_not_the_comparisons():
    rows = [row("npid", 0, 30), row("pirl_jigsaw", 0, 33, epochs=2)]
    assert claim("pirl_over_npid", rows)["seeds"] == []


def test_layers__are_compared_within_a_run():
    pirl = dict(zip(LAYERS, (20, 30, 35, 40, 44, 45), strict=True))
    jigsaw = dict(zip(LAYERS, (20, 30, 35, 38, 31, 30), strict=True))
    rows = [row("pirl_jigsaw", 0, 45) | {"linear_by_layer": pirl}]
    rows += [row("jigsaw", 0, 30) | {"linear_by_layer": jigsaw}]
    assert claim("layers_pirl", rows)["difference"] == 4
    assert claim("layers_jigsaw_peak", rows)["difference"] == 3  # 38 − 35
    assert claim("layers_jigsaw_fall", rows)["difference"] == 7  # 38 − 31


def swept(name, values, method="pirl_jigsaw", default=None):
    return [
        row(method, 0, top1, epochs=2, changed={} if value == default else {name: value})
        for value, top1 in values.items()
    ]


def test_lambda__is_compared_with_the_best_and_the_ends():
    values = {0: 30.0, 0.25: 35.0, 0.5: 36.0, 0.75: 34.0, 1: 20.0}
    rows = swept("lambda", values, default=0.5)
    found = claim("lambda_best", rows)
    assert (found["difference"], found["smallest_over"]) == (1, "λ = 0.25")  # 36 − 35
    assert claim("lambda_over_ends", rows)["difference"] == 11  # 36 − (30 + 20) / 2
    assert claim("lambda_best", rows[:-1])["seeds"] == []  # one is missing


def test_lambda__at_the_ends_is_no_test_of_whether_quality_depends_on_it():
    falling = {0: 40.0, 0.25: 36.0, 0.5: 33.0, 0.75: 31.0, 1: 30.0}
    rows = [
        one | {"seed": seed} for seed in range(3) for one in swept("lambda", falling, default=0.5)
    ]
    found = claim("lambda_over_ends", rows)
    assert found["verdict"] == "not held"  # of what it says, while quality does depend on λ
    assert found["statement"] == "λ = 0.5 is better than the mean of the ends λ = 0 and λ = 1"
    assert "no test of whether quality depends" in found["note"]


def test_lambda__rivals_are_not_chosen_seed_by_seed():
    # In each seed another rival is far ahead by noise; over the seeds all are as good as 0.5.
    noise = {0: (6, 0, 0, 0), 1: (0, 6, 0, 0), 2: (0, 0, 6, 0), 3: (0, 0, 0, 6)}
    rows = []
    for seed, ahead in noise.items():
        values = {value: 30.0 + more for value, more in zip((0, 0.25, 0.75, 1), ahead, strict=True)}
        for one in swept("lambda", {**values, 0.5: 31.5}, default=0.5):
            rows.append(one | {"seed": seed})
    found = claim("lambda_best", rows)
    assert (found["verdict"], found["difference"]) == ("undecided", 0)
    assert found["seeds"] == [0, 1, 2, 3]


def test_permutations__over_the_jigsaw_classifier_is_the_smallest_lead():
    rows = swept(
        "permutations", {1: 30.0, 10: 31.0, 100: 33.0, 1000: 34.0, NINE: 36.0}, default=NINE
    )
    rows += swept("permutations", {10: 27.0, 100: 32.0, 1000: 31.0}, "jigsaw", default=100)
    found = claim("permutations_over_jigsaw", rows)
    assert (found["difference"], found["smallest_over"]) == (1, "|T| = 100")  # 33 − 32
    assert claim("permutations_over_jigsaw", rows[:-1])["seeds"] == []  # one is missing
    assert claim("permutations_gain", rows)["difference"] == 6  # 36 − 30
    assert claim("permutations_gain_from_many", rows)["difference"] == 2  # 36 − 34


def test_negatives__slope_is_per_doubling():
    rows = swept("negatives", {16: 30.0, 64: 31.0, 256: 32.0, 1024: 33.0, 4096: 34.0}, default=1024)
    assert claim("negatives", rows)["difference"] == pytest.approx(0.5)  # 1 point in 2 doublings


def test_invariance__is_the_classifiers_distance_minus_pirls():
    pirl = {"mean": 0.5, "std": 0.1, "different_mean": 1.0}
    jigsaw = {"mean": 1.2, "std": 0.3, "different_mean": 1.5}
    rows = [
        row("pirl_jigsaw", 0, 40, invariance=pirl),
        row("jigsaw", 0, 30, invariance=jigsaw),
    ]
    assert claim("invariance_mean", rows)["difference"] == pytest.approx(0.7)
    assert claim("invariance_spread", rows)["difference"] == pytest.approx(0.2)
    for name in ("invariance_mean", "invariance_spread"):
        assert claim(name, rows)["note"].startswith("measured in different spaces")
    assert claim("invariance_relative", rows)["difference"] == pytest.approx(0.3)  # 0.8 − 0.5
    assert "by_knn" not in claim("invariance_mean", rows)
    assert claim("invariance_relative_rotation", rows)["difference"] is None
    rotations = [
        row("pirl_rotation", 0, 40, invariance=jigsaw),
        row("rotation", 0, 30, invariance=pirl),
    ]
    found = claim("invariance_relative_rotation", [*rows, *rotations])
    assert found["difference"] == pytest.approx(-0.3)  # 0.5 − 0.8
    assert claim("invariance_relative_own", rows)["verdict"] == "undecided"  # an older file
    for found, share in ((pirl, 0.6), (jigsaw, 0.7)):
        found["own_statistics"] = {"mean": share, "std": 0.1, "different_mean": 1.0}
    assert claim("invariance_relative_own", rows)["difference"] == pytest.approx(0.1)
    assert claim("invariance_relative", rows)["difference"] == pytest.approx(0.3)


def test_invariance__of_an_older_kind_is_not_averaged_with_the_newer():
    old = {"mean": 0.5, "std": 0.1, "different_mean": 1.0}
    new = {**old, "mean": 0.8, "own_statistics": old}
    rows = [
        row(method, seed, 40, invariance=old if seed else new)
        for method in ("pirl_rotation", "rotation")
        for seed in range(3)
    ]
    assert claim("invariance_relative_rotation", rows)["seeds"] == [0]
    of_old_alone = [r for r in rows if r["seed"]]
    assert claim("invariance_relative_rotation", of_old_alone)["seeds"] == [1, 2]


def test_at_time__is_on_the_line_between_points():
    found = row("npid", 0, 40, seconds=40)  # 10, 20, 30, 40 % after 10, 20, 30, 40 s
    assert at_time(found, 15, "linear_top1", start=5) == 15
    assert at_time(found, 5, "linear_top1", start=5) == 7.5  # half way from 5 to 10
    assert at_time(found, 99, "linear_top1", start=5) == 40


def test_equal_time__is_what_each_has_when_the_shorter_ends():
    rows = [
        row("random", 0, 5, epochs=0, seconds=0),
        row("pirl_jigsaw", 0, 40, seconds=80),
        row("npid", 0, 36, seconds=20),
        row("npidpp", 0, 44, epochs=10, seconds=40),  # epochs · 2.5
    ]
    # NPID ends at 20 s with 36, where PIRL has come to 10; the longer one at 40 s with 44.
    assert claim("pirl_over_npid_equal_time", rows)["difference"] == 10 - 36
    assert claim("pirl_over_npidpp_equal_time", rows)["difference"] == 20 - 44
    assert claim("pirl_over_npid", rows)["difference"] == 4
    shorter = row("pirl_jigsaw", 0, 60, epochs=2, seconds=40)  # of a sweep, whose rivals have none
    assert claim("pirl_over_npid_equal_time", [*rows, shorter])["difference"] == 10 - 36
    assert claim("pirl_over_npid_equal_time", rows[1:])["seeds"] == []  # where does it start?
