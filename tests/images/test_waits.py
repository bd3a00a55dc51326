"""Whatever reads an image or lists a folder in this process limits how long it waits."""

import os

from pirl_plugin.evaluation.sorting import sort_images
from pirl_plugin.images import source as sources
from pirl_plugin.images.opening import open_source
from pirl_plugin.system.watcher import current, watching
from tests.helpers.images import save_gray


def test_reads_and_listings__are_waits(tmp_path, monkeypatch):
    def recording(function):
        def call(path):
            wait = current().waits.innermost()
            activities.append("" if wait is None else wait.activity())
            return function(path)

        return call

    def no_links(*arguments):
        raise OSError  # so the image is copied

    activities = []
    folder = tmp_path / "images" / "ants"
    folder.mkdir(parents=True)
    save_gray(folder / "1.png")
    monkeypatch.setattr(os, "scandir", recording(os.scandir))
    monkeypatch.setattr(os, "symlink", no_links)
    monkeypatch.setattr(sources, "read_file", recording(sources.read_file))
    with watching():
        source = open_source(tmp_path / "images")
        listed = set(activities)
        activities.clear()
        assert source.pixel_type == sources.RGB
        assert source[0][1]
        sort_images(tmp_path / "sorted", source, [0], ["a"])
    assert listed == {f"opening {tmp_path / 'images'}", f"opening {folder}"}
    assert set(activities) == {f"reading {folder / '1.png'}"}
    assert len(activities) >= 3
