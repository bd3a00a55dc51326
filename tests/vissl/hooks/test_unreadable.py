import logging
from types import SimpleNamespace

import pytest

from pirl_plugin.vissl.hooks.run_settings import RunSettings
from pirl_plugin.vissl.hooks.unreadable import UnreadableHook, UnreadableShare


def stops_after(share, steps):
    """Number of the step that is one too many; None if none is."""
    return next((i for i, (bad, images) in enumerate(steps) if share.exceeded(bad, images)), None)


@pytest.mark.parametrize(
    ("steps", "stops"),
    [
        ([(2, 8)] + [(0, 8)] * 99, None),  # broken files among the first images stop nothing
        ([(0, 8)] * 50 + [(8, 8)] * 50, 50),  # a mount that has gone: at once
        ([(1, 25)] * 100, None),  # 4 % broken throughout
        ([(1, 10)] * 100, 5),  # 10 %
        ([(5, 100), (0, 100), (5, 100)], None),  # looks back on 100 images and no further
    ],
)
def test_share__of_the_last_100_images_at_most_5_percent(steps, stops):
    assert stops_after(UnreadableShare(100, 0.05), steps) == stops


def test_share__of_1_never_stops():
    assert stops_after(UnreadableShare(100, 1.0), [(8, 8)] * 100) is None


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"max_unreadable": 5}, r"HOOKS.PIRL_RUN.max_unreadable = 5: expected a share"),
        ({"changed_data": "go on"}, r"changed_data = go on: expected one of refuse, match, keep"),
        ({"timeout_minutes": 0}, r"timeout_minutes = 0: expected minutes above 0"),
        ({"timeout": 5}, r"HOOKS.PIRL_RUN.timeout: expected a key .* nearest is timeout_minutes"),
    ],
)
def test_settings__are_refused_by_name(section, message):
    with pytest.raises(ValueError, match=message):
        RunSettings.from_config({"HOOKS": {"PIRL_RUN": section}})


def test_hook__names_each_file_once_in_the_log(caplog):
    """They were named on stderr alone, by the loader's workers."""
    bad = ["a.jpg"]
    data = SimpleNamespace(data_objs=[SimpleNamespace(unreadable_paths=lambda: bad)])
    task = SimpleNamespace(train=True, datasets={"train": data})
    hook = UnreadableHook(0.05)
    with caplog.at_level(logging.WARNING):
        hook.on_phase_end(task)
        bad.append("b.jpg")
        hook.on_phase_end(task)
        hook.on_phase_end(task)
    assert [record.message.rpartition(": ")[2] for record in caplog.records] == ["a.jpg", "b.jpg"]
