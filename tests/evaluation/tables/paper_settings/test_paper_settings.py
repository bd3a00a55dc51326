"""What the paper fixes for each row: the configs have it; a change of any key leaves the row."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from pirl_plugin.evaluation.tables.compare_settings import differences, flatten, settings_of
from pirl_plugin.evaluation.tables.paper_settings.benchmarks import BENCHMARKS, TRUNKS
from pirl_plugin.evaluation.tables.paper_settings.free import (
    FREE,
    LINEAR_FREE,
    PRETRAINING_FREE,
    SVM_FREE,
)
from pirl_plugin.evaluation.tables.paper_settings.pretraining import PRETRAINING
from pirl_plugin.evaluation.tables.run_origin import pretraining_differences
from tests.helpers import finished_runs
from tests.helpers.finished_runs import PRETRAININGS, WIDE, changed, composed, composed_once

NOWHERE = Path("nowhere")
COLUMNS = [("", column) for column in BENCHMARKS]
COLUMNS += [(row, column) for row, columns in TRUNKS.items() for column in columns]


def config_of(row, column):
    name = finished_runs.BENCHMARKS[column] if row != "PIRL-ens" else "ensemble_imagenet1k"
    return composed_once(f"config=benchmark/pirl/{name}", *([WIDE] if row == "PIRL-c2x" else []))


def fixed_of(row, column):
    return BENCHMARKS[column] | TRUNKS.get(row, {}).get(column, {})


def free_of(column):
    return [*FREE, *(SVM_FREE if column == "VOC07" else LINEAR_FREE)]


def every(fixed):
    return [(name, key) for name, settings in fixed.items() for key in flatten(settings)]


@pytest.mark.parametrize("row", PRETRAINING)
def test_pretraining__configs_are_their_rows(row):
    assert pretraining_differences(composed_once(*PRETRAININGS[row]), NOWHERE, row) == {}


@pytest.mark.parametrize("row", PRETRAINING)
def test_pretraining__configs_are_no_other_row(row):
    for other in set(PRETRAINING) - {row}:
        assert pretraining_differences(composed_once(*PRETRAININGS[row]), NOWHERE, other)


@pytest.mark.parametrize(("row", "key"), every(PRETRAINING))
def test_pretraining__any_other_value_leaves_the_row(row, key):
    config = changed(composed_once(*PRETRAININGS[row]), key)
    found = pretraining_differences(config, NOWHERE, row)
    assert any(name.removeprefix("pre-training ").startswith(key) for name in found)


@pytest.mark.parametrize(("row", "column"), COLUMNS)
def test_benchmarks__configs_are_their_columns(row, column):
    found = settings_of(config_of(row, column))
    assert differences(found, fixed_of(row, column), free_of(column)) == {}


@pytest.mark.parametrize(
    ("row", "column", "key"),
    [(row, column, key) for row, column in COLUMNS for key in flatten(fixed_of(row, column))],
)
def test_benchmarks__any_other_value_leaves_the_row(row, column, key):
    found = settings_of(changed(config_of(row, column), key))
    differ = differences(found, fixed_of(row, column), free_of(column))
    assert any(name.startswith(key) for name in differ)


def free_keys(config, free, fixed):
    keys = flatten(config)
    return [k for k in keys if k not in fixed and any(fnmatchcase(k, p) for p in free)]


@pytest.mark.parametrize("row", ["PIRL", "Jigsaw"])
def test_free__keys_may_have_any_value(row):
    config, free = composed(*PRETRAININGS[row]), [*FREE, *PRETRAINING_FREE]
    tested = 0
    for key in free_keys(config, free, flatten(PRETRAINING[row])):
        if key.endswith(("BATCHSIZE_PER_REPLICA", "NUM_NODES", "NUM_PROC_PER_NODE")):
            continue  # of the global batch
        assert pretraining_differences(changed(config, key), NOWHERE, row) == {}, key
        tested += 1
    assert tested > 100


def test_free__machines_of_equal_batch_and_rate():
    machine = "+config/pirl/machines=4node_8gpu"
    assert (
        pretraining_differences(composed_once(*PRETRAININGS["PIRL"], machine), NOWHERE, "PIRL")
        == {}
    )
    other = composed(*PRETRAININGS["PIRL"], "+config/pirl/machines=1node_8gpu")
    found = pretraining_differences(other, NOWHERE, "PIRL")
    assert found["pre-training global batch"] == (256, 1024)
    assert found["pre-training OPTIMIZER.param_schedulers.lr.start_value"] == (0.03, 0.12)


@pytest.mark.parametrize("row", ["PIRL", "Rotation"])
@pytest.mark.parametrize(("machine", "count"), [("1gpu", 8), ("1node_8gpu", 4)])
def test_free__micro_batches_that_make_the_papers_batch(machine, count, row):
    overlay, key = f"+config/pirl/machines={machine}", "config.TRAINER.PIRL_MICRO_BATCHES"
    config = composed_once(*PRETRAININGS[row], overlay, f"{key}={count}")
    assert config["TRAINER"]["TRAIN_STEP_NAME"] == "pirl_micro_batches"
    assert pretraining_differences(config, NOWHERE, row) == {}
    fewer = composed_once(*PRETRAININGS[row], overlay, f"{key}={count // 2}")
    assert pretraining_differences(fewer, NOWHERE, row)["pre-training global batch"] == (512, 1024)


@pytest.mark.parametrize(
    ("section", "row"),
    [("LOSS.pirl_loss.margin", "PIRL"), ("MODEL.TRUNK.RESNETS.DROPOUT", "PIRL"), ("NEW", "NPID")],
)
def test_pretraining__a_key_of_neither_table_counts_as_different(section, row):
    found = pretraining_differences(
        changed(composed_once(*PRETRAININGS[row]), section), NOWHERE, row
    )
    assert list(found) == [f"pre-training {section}"]


def test_pretraining__what_an_earlier_version_lacked_is_as_it_was():
    config = composed(*PRETRAININGS["PIRL"])
    for key in ("norm_constant_momentum", "term_weights"):
        config["LOSS"]["pirl_loss"].pop(key, None)
    del config["HOOKS"]["PIRL_INPUT"]
    assert pretraining_differences(config, NOWHERE, "PIRL") == {}
    del config["LOSS"]["pirl_loss"]["temperature"]
    assert list(pretraining_differences(config, NOWHERE, "PIRL")) == [
        "pre-training LOSS.pirl_loss.temperature"
    ]
