"""The checks of classes before a launch."""

import json

import pytest
from vissl.utils.hydra_config import compose_hydra_configuration, convert_to_attrdict

from pirl_plugin.images.prepare import main
from pirl_plugin.vissl.checks.classes import check_classes

TOP_1 = "config.METERS.accuracy_list_meter.topk_values=[1]"
SPLITS = {"TRAIN": "train", "TEST": "val"}


@pytest.fixture
def classes(tmp_path, make_image):
    for split, names in (("train", "abc"), ("val", "ab")):
        for name in names:
            (tmp_path / split / name).mkdir(parents=True)
            make_image(tmp_path / split / name / "1.jpg", seed=0)
    return tmp_path


def linear(data, *overrides, name="linear_imagenet1k", files=SPLITS):
    paths = [f"config.DATA.{s}.DATA_PATHS=[{data / f}]" for s, f in files.items()]
    overrides = [f"config=benchmark/pirl/{name}", *paths, *overrides]
    return convert_to_attrdict(compose_hydra_configuration(overrides), dump_config=False)[1]


def test_check_classes__refuses_numbers_that_would_mean_other_classes(classes):
    with pytest.raises(SystemExit, match=r"3 and 2 subfolders: expected the same .* 'c' is in one"):
        check_classes(linear(classes))
    (classes / "val" / "c").mkdir()
    check_classes(linear(classes))


def test_check_classes__refuses_an_image_beside_the_classes(classes, make_image):
    """It shifted the numbers of all classes of its split."""
    (classes / "val" / "c").mkdir()
    make_image(classes / "val" / "stray.jpg", seed=0)
    with pytest.raises(
        SystemExit, match=r"TEST\.DATA_PATHS: .*val/stray\.jpg lies beside the fold"
    ):
        check_classes(linear(classes))


def test_check_classes__refuses_folders_without_classes(classes):
    """The host made one class of them, and the benchmark ended with 0 % and status 0."""
    with pytest.raises(SystemExit, match=r"TRAIN.DATA_PATHS: .*train/a has 0 subfolders: expected"):
        check_classes(linear(classes, files={"TRAIN": "train/a", "TEST": "val/a"}))


def test_check_classes__refuses_more_than_the_classifier_tells_apart(classes):
    (classes / "val" / "c").mkdir()
    with pytest.raises(
        SystemExit,
        match=r"NUM_CLASSES = 2: expected at least 3, as .*; set config.MODEL.HEAD.NUM_CLASSES=3",
    ):
        check_classes(linear(classes, "config.MODEL.HEAD.NUM_CLASSES=2", TOP_1))
    with pytest.raises(SystemExit, match=r"of 3 classes there is no top-5: .*; set .*topk_values="):
        check_classes(linear(classes, "config.MODEL.HEAD.NUM_CLASSES=3"))
    check_classes(linear(classes, "config.MODEL.HEAD.NUM_CLASSES=3", TOP_1))


@pytest.mark.parametrize(
    ("folders", "remedy"),
    [("abc", r"topk_values=\[1\]$"), ("abcdef", r"=\[1\], or config.MODEL.HEAD.NUM_CLASSES=6$")],
)
def test_check_classes__offers_a_number_of_classes_that_there_are(folders, remedy, classes):
    """It offered five, of three."""
    for split in SPLITS.values():
        for name in folders:
            (classes / split / name).mkdir(exist_ok=True)
    with pytest.raises(SystemExit, match=f"of 4 classes there is no top-5: .*{remedy}"):
        check_classes(linear(classes, "config.MODEL.HEAD.NUM_CLASSES=4"))


@pytest.mark.parametrize(("number", "lines"), [(3, 0), (5, 1)])
def test_check_classes__tells_of_outputs_without_a_class(number, lines, classes, capsys):
    (classes / "val" / "c").mkdir()
    check_classes(linear(classes, f"config.MODEL.HEAD.NUM_CLASSES={number}", TOP_1))
    said = capsys.readouterr().err.splitlines()
    assert len(said) == lines
    assert all(f"= 5: {classes / 'train'} has 3 subfolders; config." in line for line in said)


def sharded(data, *splits):
    """The linear benchmark of ``data``, with shards of these splits in place of the folders."""
    files, sources = dict(SPLITS), []
    for split in splits:
        folder = data / f"shards_{SPLITS[split]}"
        main([str(data / SPLITS[split]), str(folder), "--shards", "--workers", "1"])
        files[split] = folder.name
        for kind in ("DATA", "LABEL"):
            sources.append(f"config.DATA.{split}.{kind}_SOURCES=[pirl_disk_shards]")
    return linear(data, *sources, files=files)


@pytest.mark.parametrize("splits", [("TRAIN", "TEST"), ("TRAIN",), ("TEST",)])
def test_check_classes__compares_the_numbers_of_shards(splits, classes):
    (classes / "val" / "b").rename(classes / "val" / "c")
    with pytest.raises(SystemExit, match=r"has 'c' as class 1, and .*train has 'b': expected the"):
        check_classes(sharded(classes, *splits))


def test_check_classes__accepts_shards_that_lack_images_of_a_class(classes):
    check_classes(sharded(classes, "TRAIN", "TEST"))  # val has none of the last


def test_check_classes__compares_the_folders_of_a_list(classes):
    """A list that names images of some classes is numbered by all folders beside them."""
    files = {"TRAIN": "train/1percent.txt", "TEST": "val"}
    name = "semi_supervised_imagenet1k_1percent"
    (classes / files["TRAIN"]).write_text("a/1.jpg\nb/1.jpg\n")
    with pytest.raises(SystemExit, match=r"3 and 2 subfolders: expected the same .* 'c' is in one"):
        check_classes(linear(classes, name=name, files=files))
    (classes / "val" / "c").mkdir()
    check_classes(linear(classes, name=name, files=files))
    (classes / files["TRAIN"]).write_text("a/1.jpg\nd/1.jpg\n")
    with pytest.raises(SystemExit, match=r"names images in .*train/d, which is not a folder"):
        check_classes(linear(classes, name=name, files=files))


def test_check_classes__refuses_annotations_the_classifier_cannot_tell_apart(tmp_path):
    images = [{"id": n, "file_name": f"{n}.jpg"} for n in range(2)]
    for split, labels in (("train", (0, 8)), ("val", (9, 0))):
        annotations = [{"image_id": n, "category_id": label} for n, label in enumerate(labels)]
        content = json.dumps({"images": images, "annotations": annotations})
        (tmp_path / f"{split}2018.json").write_text(content)
    options = {"name": "linear_inaturalist18", "files": {"TRAIN": "", "TEST": ""}}
    message = r"at least 10, as the labels of TEST in .* go up to 9; set .*NUM_CLASSES=10"
    with pytest.raises(SystemExit, match=message) as stopped:
        check_classes(linear(tmp_path, "config.MODEL.HEAD.NUM_CLASSES=9", **options))
    assert len(str(stopped.value).splitlines()) == 1
    check_classes(linear(tmp_path, "config.MODEL.HEAD.NUM_CLASSES=10", **options))


def test_check_classes__refuses_labels_of_another_source_than_the_images(image_folder):
    """Shards beside a folder of test images were refused for having no subfolders."""
    shards = "config.DATA.TRAIN.DATA_SOURCES=[pirl_disk_shards]"
    said = (
        r"\['pirl_disk_folder'\]: .* set config\.DATA\.TRAIN\.LABEL_SOURCES=\[pirl_disk_shards\]$"
    )
    with pytest.raises(SystemExit, match=said):
        check_classes(linear(image_folder, shards))
