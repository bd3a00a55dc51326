import logging

import pytest
from torch import distributed
from vissl.config import AttrDict
from vissl.engines import train
from vissl.trainer.train_task import SelfSupervisionTask

from pirl_plugin.vissl.launch.failures import RankError
from pirl_plugin.vissl.launch.rank import run_rank

CONFIG = AttrDict({"HOOKS": {"PIRL_RUN": {}}, "LOSS": {"name": "pirl_loss"}})


def replaced():
    return [
        train.print_system_env_info,
        distributed.init_process_group,
        SelfSupervisionTask._build_loss,
        logging.getLogRecordFactory(),
    ]


def test_run_rank__leaves_the_host_as_it_was():
    before = replaced()
    during = run_rank(replaced, CONFIG, rank=0)
    assert all(now is not then for now, then in zip(during, before, strict=True))
    assert all(now is then for now, then in zip(replaced(), before, strict=True))


def test_run_rank__logs_an_error_without_its_traceback(caplog, monkeypatch):
    for name in ("PIRL_PLUGIN_TRACEBACK", "HYDRA_FULL_ERROR"):
        monkeypatch.delenv(name, raising=False)

    seen = []

    def work():
        try:
            raise KeyError("oops")
        except KeyError:
            logging.getLogger("host").exception("it failed")

    assert logging.raiseExceptions
    run_rank(lambda: work() or seen.append(logging.raiseExceptions), CONFIG, rank=0)
    assert seen == [False]  # or a full disk would give a traceback for each line of the log
    assert logging.raiseExceptions
    assert [record.exc_info for record in caplog.records] == [None]


def test_run_rank__names_rank_and_error():
    def work():
        raise KeyError("oops")

    with pytest.raises(RankError) as raised:
        run_rank(work, CONFIG, rank=3)
    assert raised.value.failure.sentence == "rank 3 failed: KeyError: 'oops'"
    assert "in work" in raised.value.failure.traceback


@pytest.mark.parametrize("status", [0, 143, None])
def test_run_rank__passes_exit_statuses_on(status):
    with pytest.raises(SystemExit) as raised:
        run_rank(lambda: (_ for _ in ()).throw(SystemExit(status)), CONFIG, rank=0)
    assert raised.value.code == status
