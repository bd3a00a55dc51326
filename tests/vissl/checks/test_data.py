"""The checks of data before a launch."""

import os

import pytest
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.images.prepare import main
from pirl_plugin.vissl.checks.before_launch import CHECKS
from pirl_plugin.vissl.checks.data import check_data
from pirl_plugin.vissl.checks.images import check_images, num_images


def config(*overrides):
    overrides = ["config=pretrain/pirl/quick_jigsaw", *overrides]
    return convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)[1]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, r"is not a folder that exists.*config.DATA.TRAIN.DATA_PATHS=\[DIR\]"),
        ([], "holds no image"),
        (["notes.txt"], "holds no image"),
        (["one.jpg"], "1 image, and at least 2"),
    ],
)
def test_check_data__refuses_in_one_sentence(files, message, tmp_path, make_image):
    folder = tmp_path / "data"
    if files is not None:
        folder.mkdir()
        for name in files:
            if name.endswith(".txt"):
                (folder / name).write_text("no image")
            else:
                make_image(folder / name, seed=0)
    with pytest.raises(SystemExit, match=message) as stopped:
        check_data(config(f"config.DATA.TRAIN.DATA_PATHS=[{folder}]"))
    assert str(folder) in str(stopped.value)
    assert len(str(stopped.value).splitlines()) == 1


@pytest.mark.parametrize("kind", ["DATA", "LABEL"])
def test_check_data__names_missing_files_of_the_hosts_own_sources(kind, tmp_path):
    (tmp_path / "there.npy").touch()
    paths = {"DATA": tmp_path / "there.npy", "LABEL": tmp_path / "there.npy"}
    paths[kind] = tmp_path / "gone.npy"
    overrides = [
        f"config.DATA.TRAIN.{k}={v}"
        for key, path in paths.items()
        for k, v in ((f"{key}_SOURCES", "[disk_filelist]"), (f"{key}_PATHS", f"[{path}]"))
    ]
    message = rf"config\.DATA\.TRAIN\.{kind}_PATHS names '.*gone\.npy', which is not a file"
    with pytest.raises(SystemExit, match=message):
        check_data(config(*overrides))


def test_check_data__refuses_what_a_shell_would_have_expanded():
    with pytest.raises(SystemExit, match=r"TRAIN.DATA_PATHS = '~/photos': .* write \$HOME"):
        check_data(config("config.DATA.TRAIN.DATA_PATHS=['~/photos']"))


def test_check_data__says_how_to_name_data():
    with pytest.raises(SystemExit, match=r"no catalog lists 'pirl_folder'.*DATA_PATHS=\[DIR\]$"):
        check_data(config())
    with pytest.raises(SystemExit, match=r"no catalog lists 'imagenet1k_folder'.*PIRL_DATASETS="):
        check_data(config("config.DATA.TRAIN.DATASET_NAMES=[imagenet1k_folder]"))


@pytest.mark.parametrize("source", ["disk_folder", "disk_filelist"])
def test_check_data__names_a_path_of_the_hosts_own_sources(source, image_folder):
    hosts = [f"config.DATA.TRAIN.DATA_SOURCES=[{source}]"]
    with pytest.raises(SystemExit, match=r"TRAIN.DATA_PATHS names '/nowhere', which is not"):
        check_data(config(*hosts, "config.DATA.TRAIN.DATA_PATHS=[/nowhere]"))
    check_data(config(*hosts, f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"))


def test_check_data__names_labels_that_are_not_there(image_folder):
    labels = ["config.DATA.TRAIN.LABEL_SOURCES=[disk_filelist]"]
    labels.append("config.DATA.TRAIN.LABEL_PATHS=[/labels.npy]")
    with pytest.raises(SystemExit, match=r"LABEL_PATHS names '/labels.npy', which is not"):
        check_data(config(f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]", *labels))


def test_check_data__names_a_path_of_the_catalog():
    from vissl.data.dataset_catalog import VisslDatasetCatalog

    for path, source in (("/a", "pirl_disk_folder"), ("/b", "disk_folder")):
        VisslDatasetCatalog.register_data("pirl_folder", {"train": [path, ""], "val": [path, ""]})
        try:
            with pytest.raises(SystemExit, match=f"{path}'?,? (is not a folder|which is not)"):
                check_data(config(f"config.DATA.TRAIN.DATA_SOURCES=[{source}]"))
        finally:
            VisslDatasetCatalog.remove("pirl_folder")


def test_check_data__accepts_a_folder_of_images(image_folder):
    check_data(config(f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]"))


def test_checks__leave_a_source_of_another_plugin_alone(image_folder):
    """Its images were taken for ours by its name's beginning, and their count failed."""
    found = config(f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]")
    assert num_images(found) == 20
    found.DATA.TRAIN.DATA_SOURCES = ["pirl_disk_of_another_plugin"]
    assert num_images(found) is None


def test_check_images__counts_them_for_a_draw_without_replacement(image_folder):
    found = config(
        f"config.DATA.TRAIN.DATA_PATHS=[{image_folder / 'train'}]",
        "config.LOSS.pirl_loss.replacement=false",
        "config.LOSS.pirl_loss.num_negatives=20",
    )
    with pytest.raises(SystemExit, match="num_negatives = 20: expected at most 19 without"):
        check_images(found)
    found.LOSS.pirl_loss.num_negatives = 19
    check_images(found)


@pytest.mark.parametrize(
    "folders",
    [[""], ["ants", "bees"], [str(i) for i in range(20)], ["ants/a", "ants/b", "bees/a/b"]],
)
def test_check_images__looks_at_files_spread_over_the_folder(folders, tmp_path, make_image):
    """Eight bad files at the beginning of the list stopped a run that 99 % of the images allow."""
    for folder in folders:
        (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
        for number in range(40 // len(folders)):
            make_image(tmp_path / "data" / folder / f"{number:02}.jpg", seed=0)
    found = config(f"config.DATA.TRAIN.DATA_PATHS=[{tmp_path / 'data'}]")
    files = sorted((tmp_path / "data").rglob("*.jpg"))
    for file in files[:30]:
        file.write_bytes(b"")
    check_images(found)
    for file in files[30:]:
        file.write_bytes(b"")
    with pytest.raises(SystemExit, match=r"none of 8 files looked at in .*: the file is empty"):
        check_images(found)


def test_check_images__looks_beside_a_folder_of_bad_images(tmp_path, make_image):
    """Only the subfolder was looked at."""
    (tmp_path / "broken").mkdir()
    for number in range(10):
        make_image(tmp_path / f"{number}.jpg", seed=0)
        (tmp_path / "broken" / f"{number}.jpg").touch()
    check_images(config(f"config.DATA.TRAIN.DATA_PATHS=[{tmp_path}]"))


def test_checks__read_images_inside_shards(image_folder, tmp_path):
    shards = tmp_path / "shards"
    main([str(image_folder / "train"), str(shards), "--shards", "7", "--workers", "1"])
    ours = config(
        f"config.DATA.TRAIN.DATA_PATHS=[{shards}]",
        "config.DATA.TRAIN.DATA_SOURCES=[pirl_disk_shards]",
        f"config.CHECKPOINT.DIR={tmp_path / 'out'}",
        "config.LOSS.pirl_loss.num_negatives=8",
    )
    for check in CHECKS:
        check(ours)
    for tar in shards.glob("*.tar"):
        before = tar.stat()
        tar.write_bytes(b"x" * before.st_size)
        os.utime(tar, ns=(before.st_atime_ns, before.st_mtime_ns))  # as the index has it
    with pytest.raises(SystemExit, match=r"none of .* the first being .*\.tar:ants/0\.jpg: "):
        check_images(ours)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["DATA_PATHS=[a,b]", "DATA_SOURCES=[pirl_disk_folder,pirl_disk_folder]"],
            r"DATA_SOURCES = .*: expected one, as the rows of a memory bank are of one data set;",
        ),
        (["DATA_PATHS=[a,b]"], r"DATA_PATHS = .*: expected 1, .*; name one folder, or one list of"),
        (
            ["DATA_PATHS=[a]", "DATASET_NAMES=[a,b]"],
            r"DATASET_NAMES = \['a', 'b'\]: expected 1, o",
        ),
    ],
)
def test_sources__are_one(overrides, message):
    """The host gave views of the first folder alone, whose trunk was that of a run on it."""
    with pytest.raises(SystemExit, match=message):
        config(*(f"config.DATA.TRAIN.{override}" for override in overrides))
