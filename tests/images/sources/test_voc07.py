"""VOC07 from what it unpacks to."""

import pytest

from pirl_plugin.images.sources.voc07 import VOC07Source


@pytest.fixture
def voc(tmp_path):
    lists = tmp_path / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / "cat_trainval.txt").write_text("000002 -1\n000001  1\n")
    (lists / "bird_trainval.txt").write_text("000001  0\n000002  1\n")
    (lists / "trainval.txt").write_text("000001\n000002\n")
    (lists / "cat_test.txt").write_text("000003  1\n000004 -1\n")
    (lists / "bird_test.txt").write_text("000003 -1\n000004 0\n")
    return tmp_path


def test_voc07__labels_are_in_the_order_of_the_classes(voc):
    source = VOC07Source(voc)
    assert source.paths() == [str(voc / "JPEGImages" / f"00000{n}.jpg") for n in (1, 2)]
    # bird: difficult in 1, present in 2; cat: present in 1, absent from 2
    assert source.labels().tolist() == [[-1, 1], [1, 0]]
    assert VOC07Source(voc, "test").labels().tolist() == [[0, 1], [-1, 0]]
    assert source.class_root() is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("dog_trainval.txt", "000001 2\n", "holds '000001 2'; expected an image and 1, -1 or 0"),
        ("dog_trainval.txt", "000009 1\n", "list different images"),
    ],
)
def test_voc07__refuses(file, content, message, voc):
    (voc / "ImageSets" / "Main" / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        VOC07Source(voc)


def test_voc07__names_what_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"has no ImageSets/Main/<class>_test\.txt"):
        VOC07Source(tmp_path, "test")
    with pytest.raises(ValueError, match="split = 'val': expected train or test; name"):
        VOC07Source(tmp_path, "val")
