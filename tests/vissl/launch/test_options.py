"""Options that the training command does not have are answered with what it takes."""

import pytest

from pirl_plugin.vissl.launch.options import check_options
from pirl_plugin.vissl.launch.train import main

QUICK = "config=pretrain/pirl/quick_jigsaw"


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["--dryrun"], "--dry-run"),
        (["--dry_run=true"], "--dry-run"),
        (["--max-restart", "3"], "--max-restarts N"),
        (["--data", "tiny"], "config.DATA.TRAIN.DATA_PATHS=[DIR]"),
        (["--data=tiny"], "config.DATA.TRAIN.DATA_PATHS=[DIR]"),
        (["--config", "pretrain/pirl/quick_jigsaw"], "config=NAME"),
        (["--frobnicate"], "config.KEY=VALUE"),
    ],
)
def test_train__names_what_it_takes_in_place_of_an_option(words, instead):
    """Each was answered with ``write config=pretrain/pirl/jigsaw_8node``."""
    with pytest.raises(SystemExit) as stopped:
        main([QUICK, *words])
    assert str(stopped.value) == (
        f"pirl_plugin: {words[0]}: expected --dry-run, --max-restarts or KEY=VALUE; write {instead}"
    )


def test_check_options__lets_pass_what_the_command_takes():
    check_options([QUICK, "--dry-run", "+config/pirl/machines=cpu", "~config.A", "++config.B=-1"])
