import pytest

from pirl_plugin.utils.our_configs import is_ours
from pirl_plugin.vissl.launch.environment import masked
from pirl_plugin.vissl.launch.failures import describe, write_tracebacks


class DistNetworkError(RuntimeError):
    pass


@pytest.mark.parametrize(
    ("error", "says", "is_cause"),
    [
        (
            RuntimeError("[gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:3"),
            "waited for it for config.HOOKS.PIRL_RUN.timeout_minutes = 10",
            False,
        ),
        (
            DistNetworkError("The client socket has timed out after 60s"),
            "rank 3 lost another",
            False,
        ),
        (
            DistNetworkError("The server socket has failed, code: -98, name: EADDRINUSE"),
            "config.DISTRIBUTED.RUN_ID: expected a free port",
            True,
        ),
        (KeyError("oops"), "rank 3 failed: KeyError: 'oops'", True),
        (RuntimeError("size\n  mismatch"), "rank 3 failed: RuntimeError: size mismatch", True),
        (SystemExit("pirl_plugin: no"), "no", True),
        (FloatingPointError("not finite on rank 3"), "not finite on rank 3", True),
    ],
)
def test_describe__is_one_sentence(error, says, is_cause):
    failure = describe(error, rank=3, timeout_minutes=10)
    assert says in failure.sentence
    assert "\n" not in failure.sentence
    assert failure.is_cause == is_cause


def test_write_tracebacks__survives_a_folder_that_is_gone(tmp_path):
    failure = describe(KeyError("oops"), rank=0, timeout_minutes=10)
    assert write_tracebacks([failure], tmp_path / "gone") is None
    assert "KeyError: 'oops'" in write_tracebacks([failure], tmp_path).read_text()


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("OMP_NUM_THREADS", "4", True),
        ("NCCL_DEBUG", "INFO", True),
        ("PYTHONPATH", "/code", True),
        ("SLURM_JOB_ID", "7", True),
        ("SLURM_JWT", "x", False),
        ("CUDA_API_KEY", "x", False),
        ("HF_TOKEN", "x", False),
        ("AWS_SECRET_ACCESS_KEY", "x", False),
        ("PGPASSWORD", "x", False),
        ("SOME_SERVICE", "x", False),
        ("no_proxy", "x", False),
    ],
)
def test_masked__shows_what_says_how_a_run_was_set_up(name, value, shown):
    assert (masked({name: value})[name] == value) is shown


def test_masked__hides_passwords_in_addresses():
    assert masked({"TORCH_URL": "http://me:pw@host/x"}) == {
        "TORCH_URL": "http://(not logged)@host/x"
    }


@pytest.mark.parametrize(
    ("config", "ours"),
    [
        ({"LOSS": {"name": "pirl_loss"}}, True),
        ({"LOSS": {"name": "simclr_info_nce_loss"}, "HOOKS": {"PERF_STATS": {}}}, False),
        ({"LOSS": {"name": "cross_entropy"}, "HOOKS": {"PIRL_INPUT": {}}}, True),
        ({"LOSS": {"name": "cross_entropy"}, "HOOKS": {"PIRL_RUN": {}}}, True),
        ({}, False),
    ],
)
def test_is_ours(config, ours):
    assert is_ours(config) is ours
