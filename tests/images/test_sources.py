"""What sources skip, count, refuse or infer: folders, lists, tables, tars, data sets."""

import io
import json
import os
import re
import subprocess
import tarfile
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, IterableDataset, Subset
from torchvision.datasets import ImageFolder

from pirl_plugin.images import prepare
from pirl_plugin.images.classes import NoLabels
from pirl_plugin.images.columns import Columns
from pirl_plugin.images.folders import find_splits, warn_skipped
from pirl_plugin.images.hugging_face import open_data_files
from pirl_plugin.images.image_dataset import ImageDataset, collate_views
from pirl_plugin.images.labeled import open_labeled
from pirl_plugin.images.names import DISK_FOLDER
from pirl_plugin.images.opening import FolderSource, open_source
from pirl_plugin.views.jigsaw import JigsawViews
from tests.helpers.images import save_gray
from tests.helpers.kinds import KINDS, add_member, gray, in_memory, path_of, write_kind


def test_image_folder__ignores_other_files(folder):
    """A single mask tar or feature table used to be read instead of all classes."""
    for name in ("masks.tar", "masks.tar.gz", "features.parquet", "index.npz"):
        (folder / name).touch()
        (folder / "a" / name).touch()
    for place, classes in ((folder, ["a", "b"]), (folder / "a", [])):
        source = open_source(place)
        assert isinstance(source, FolderSource)
        assert source.classes == classes


def test_system_folder__is_not_a_class(folder, caplog, subtests):
    for name in (
        "#recycle",
        "@Recycle",
        "@eaDir",
        "@tmp",
        "$RECYCLE.BIN",
        "~snapshot",
        "lost+found",
        "__MACOSX",
        "System Volume Information",
    ):
        with subtests.test(name=name):
            save_gray(folder / name / "3.png", 3)
            assert FolderSource(folder).labels().tolist() == [0, 1]
            assert f"{name}/ (1)" in caplog.text


def test_skipped_heic__names_package_to_install():
    counts = warn_skipped("photos", Counter({".heic": 2}))
    assert counts == ".heic (2); to read HEIC, pip install pillow-heif"


def test_folder__counts_unlabeled_images(folder, caplog):
    save_gray(folder / "0.png")
    assert FolderSource(folder).labels().tolist() == [-1, 0, 1]
    assert "1 of 3 images are unlabeled" in caplog.text


@pytest.mark.parametrize(
    ("names", "train", "test"),
    [
        (("train", "val"), "train", "val"),
        (("Train", "VALIDATION"), "Train", "VALIDATION"),
        (("train", "valid", "test"), "train", "valid"),
        (("train", "test", ".git"), "train", "test"),
        (("train", "bus", "car"), "train", None),  # a class named train
        (("cats", "dogs"), None, None),
    ],
)
def test_find_splits__recognizes_folders_of_public_datasets(names, train, test, tmp_path):
    for name in names:
        (tmp_path / name).mkdir()
    assert [path and path.name for path in find_splits(tmp_path)] == [train, test]


def test_folder_with_splits__is_refused_but_copied_by_prepare(tmp_path, capsys):
    for split in ("Train", "valid"):
        save_gray(tmp_path / "in" / split / "cat" / "a" / "1.png")
    with pytest.raises(ValueError, match=r"holds Train and valid\. Pass one, such as .*/in/Train"):
        open_source(tmp_path / "in")
    assert prepare.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]) == 0
    assert (tmp_path / "out" / "valid" / "cat" / "a" / "1.png").is_file()


def test_list__finds_path_and_label_columns_by_name(folder, subtests):
    for name, text, paths, labels in (
        (
            "a.txt",
            "image\na/1.png 3\nb/2.png\t4\n",
            ["image", "a/1.png", "b/2.png"],
            ["", "3", "4"],
        ),
        ("b.txt", "# today\na/1.png big cat\nb/2.png\n", ["a/1.png", "b/2.png"], ["big cat", ""]),
        ("c.txt", "a/1.png\r\nb/2.png\r\n", ["a/1.png", "b/2.png"], ["a", "b"]),
        ("d.txt", "a/1.png\nb/2 3.png\n", ["a/1.png", "b/2 3.png"], ["a", "b"]),
        (
            "a.csv",
            "\ufeffLabel,Path\nu,a/1.png\nv,b/2.png\n",
            ["a/1.png", "b/2.png"],
            ["u", "v"],
        ),
        ("b.csv", "path;class\na/1.png;u\n\nb/2.png\n", ["a/1.png", "b/2.png"], ["u", ""]),
        ("c.tsv", "target\tfilepath\nnan\ta/1.png\nv\tb/2.png", ["a/1.png", "b/2.png"], ["", "v"]),
        ("d.csv", "image\na/1.png\nb/2.png\n", ["a/1.png", "b/2.png"], ["a", "b"]),
        ("e.csv", ",path\n0,a/1.png\n1,b/2.png\n", ["a/1.png", "b/2.png"], ["a", "b"]),
        (
            "metadata.jsonl",
            '{"file_name": "a/1.png", "label": 7}\n\n{"file_name": "b/2.png", "label": null}\n',
            ["a/1.png", "b/2.png"],
            ["7", ""],
        ),
        (
            "late.jsonl",  # the first row has no label
            '{"path": "a/1.png"}\n{"path": "b/2.png", "label": "v"}\n',
            ["a/1.png", "b/2.png"],
            ["", "v"],
        ),
        ("f.csv", "path,label\na/1.png,u,\nb/2.png,v,,\n", ["a/1.png", "b/2.png"], ["u", "v"]),
    ):
        with subtests.test(name=name):
            (folder / name).write_text(text, newline="")
            source = open_source(folder / name)
            assert source.paths() == [str(folder / path) for path in paths]
            assert [[*source.classes, ""][index] for index in source.labels()] == labels


@pytest.mark.parametrize("label", [["u", "v"], ["u"], {"u": 1}])
def test_list__with_multiple_labels_per_image_has_no_classes(label, folder):
    rows = [{"path": "a/1.png", "labels": label}, {"path": "b/2.png", "labels": "v"}]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(NoLabels, match=r"a\.jsonl: an image has the label .*, but class"):
        open_source(folder / "a.jsonl").labels()


def test_table__without_known_or_chosen_column_is_refused(folder, subtests):
    for header, columns, words in (
        ("a/1.png,u", {}, r"none of the columns a/1\.png, u has a known name"),
        ("scan,finding", {"label": "finding"}, "none of the columns scan, finding has a known"),
        ("path,breed", {}, r"none of the columns breed has .* such as label.* the label_column"),
        ("path,id,sex", {}, "none of the columns id, sex has a known name, such as label"),
        ("scan,finding", {"image": "scam"}, "image_column = scam is not a column"),
        ("path,finding", {"label": "findings"}, "label_column = findings is not a column of"),
    ):
        with subtests.test(words):
            cells = ",p" * header.count(",")
            (folder / "a.csv").write_text(f"{header}\na/1.png{cells}\nb/2.png{cells}\n")
            with pytest.raises(ValueError, match=words):
                open_source(folder / "a.csv", columns=Columns(**columns)).labels()


def test_table__uses_chosen_columns(folder):
    (folder / "a.csv").write_text("path;finding;scan\n-;u;a/1.png\n-;v;b/2.png\n")
    source = open_source(folder / "a.csv", columns=Columns("scan", "finding"))
    assert source.classes == ["u", "v"]
    assert source[1][1]


def test_list__is_refused_if_incomplete_or_of_another_format(folder, subtests):
    for name, text, words in (
        ("d.csv", "label,path\nx,a/1.png\nx,\n", "entry 2 has no 'path'"),
        ("c.csv", "path,label\na/1.png,x\nb/2.png,x, y\n", "row 3 has more cells than the header"),
        ("e.txt", "0001 cat\n0002 dog\n", "None of the first 2 files .* with their endings"),
        ("f.jsonl", '{"path": "a/1.png"}\nb/2.png\n', "line 2 is not a JSON"),
        ("train.cache", "a/1.png\nb/2.png\n", "not an image, a folder"),
        ("all.zip", "PK", "not an image, a folder.*Unzip it, and pass its folder"),
        ("g.npy", "a/1.png\nb/2.png\n", "expected an array .* of strings"),
    ):
        with subtests.test(name=name):
            (folder / name).write_text(text)
            with pytest.raises(ValueError, match=words):
                open_source(folder / name)


def test_disk_folder__names_other_formats(tmp_path):
    """Without an overlay a run expects a folder; it used to deny that an existing list exists."""
    (tmp_path / "a.csv").touch()
    with pytest.raises(ValueError, match=r"a\.csv is a file.* \+config/pirl/datasets=filelist"):
        open_source(tmp_path / "a.csv", DISK_FOLDER)
    for name in ("b.tar", "c.parquet", "d.zip"):
        path = tmp_path / "data" / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        with pytest.raises(ValueError, match=rf"contains no images, only .*\{path.suffix} \(1\)"):
            open_source(path.parent, DISK_FOLDER)


def write_tar(path, names):
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "PNG")
    with tarfile.open(path, "w") as tar:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = len(file.getvalue())
            tar.addfile(member, io.BytesIO(file.getvalue()))


def test_tar__is_refused_if_truncated_or_damaged(tmp_path):
    path = tmp_path / "a.tar"
    write_tar(path, ["0.png", "1.png", "2.png"])
    whole = path.read_bytes()
    end = whole.rindex(b"IEND") + 8
    assert len(open_source(tmp_path)) == 3
    for length in [*range(1, end, 97), 1024, 2048, 512 * -(-end // 512)]:
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"a\.tar is not a complete tar"):
            open_source(tmp_path)
    for damaged in (
        whole[:1024] + b"x" * 512 + whole[1536:],  # a damaged header
        whole + whole,  # two tars in one file: the second would be ignored
        whole[:1024].ljust(3 << 20, b"\0"),  # an interrupted copy, padded to full length
    ):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"a\.tar is not a complete tar"):
            open_source(tmp_path)


def png(level):
    file = io.BytesIO()
    gray(level).save(file, "PNG")
    return file.getvalue()


def test_table__logs_columns_only_if_there_is_a_choice(folder, caplog):
    (folder / "two.csv").write_text("path,label\na/1.png,x\n")
    (folder / "three.csv").write_text("path,label,split\na/1.png,x,0\n")
    open_source(folder / "two.csv")
    assert not caplog.records
    open_source(folder / "three.csv")
    assert "three.csv: paths from the column 'path', labels from 'label'" in caplog.text


def test_tar__counts_skipped_members_and_reads_hard_links(tmp_path, caplog):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "1.mask.png", png(1))  # a mask that precedes its image
        add_member(tar, "1.png", png(2))  # also a mask: the image is 1.jpg
        add_member(tar, "1.jpg", png(3))
        add_member(tar, "1.json", b"{}")
        add_member(tar, "2.png", png(4))
        add_member(tar, "2.png", png(5))  # the last one counts, as when unpacking
        add_member(tar, "x/v1.0.png", png(6))
        add_member(tar, "x/v1.1.png", png(7))
        add_member(tar, "x/._0.png", png(8))
        link = tarfile.TarInfo("3.png")
        link.type = tarfile.LNKTYPE
        link.linkname = "1.jpg"
        tar.addfile(link)
        link = tarfile.TarInfo("4.png")
        link.type = tarfile.SYMTYPE
        link.linkname = "1.jpg"
        tar.addfile(link)
    source = open_source(tmp_path)
    levels = {source.name_of(row): int(source[row][0][0, 0, 0]) for row in range(len(source))}
    expected = {"1.jpg": 3, "2.png": 5, "3.png": 3, "x/v1.0.png": 6, "x/v1.1.png": 7}
    assert levels == {f"a.tar:{name}": level for name, level in expected.items()}
    for reason in (
        "images beside an image with the same key (2)",
        "names that occur twice in a tar (1)",
        "links and devices (1)",
        ".json (1)",
    ):
        assert reason in caplog.text


def test_tar__reads_classes_from_folders(tmp_path):
    """Packed with ``tar -cf images.tar .`` or ``tar -cf images.tar *``."""
    for name in ("0.png", "none/1.png", "b/x/2.png"):
        save_gray(tmp_path / "in" / name, 40)
    for number, packed in enumerate((".", "*")):
        (tmp_path / f"{number}").mkdir()
        tar = tmp_path / f"{number}" / "images.tar"
        subprocess.run(f"cd {tmp_path / 'in'} && tar -cf {tar} {packed}", shell=True, check=True)
        for path in (tar, tar.parent):
            source = open_source(path)
            labels = [[*source.classes, None][label] for label in source.labels()]
            names = [source.name_of(row).rpartition(":")[2] for row in range(3)]
            found = dict(zip(names, labels, strict=True))
            assert found == {"0.png": None, "none/1.png": "none", "b/x/2.png": "b"}
    write_tar(tmp_path / "flat.tar", ["1.png"])
    with pytest.raises(NoLabels, match="neither class folders nor"):
        open_source(tmp_path / "flat.tar").labels()


class Items(list):
    """A list with one raising item."""

    def __getitem__(self, row):
        if row == 1:
            raise ZeroDivisionError("by hand")
        return super().__getitem__(row)


def test_bad_items__are_counted_by_row(caplog):
    image = torch.zeros(3, 9, 9, dtype=torch.uint8)
    source = open_source(Items([image, image, None, ("x", 3), {"image": None}, image.float()]))
    assert [source[row][1] for row in range(6)] == [True, *[False] * 5]
    assert source.unreadable_paths() == [f"Items[{row}]" for row in range(1, 6)]
    assert "Skipped unreadable image 1, Items[1]: ZeroDivisionError" in caplog.text


def test_empty_images__are_masked_and_counted():
    whole = torch.zeros(3, 9, 9, dtype=torch.uint8)
    items = [whole, whole[:, :0], whole[:, :, :0], np.zeros((0, 9, 3), np.uint8), whole]
    images = ImageDataset(items, JigsawViews(image_size=8))
    batch = collate_views([images[row] for row in range(5)])
    assert batch["index"].tolist() == [0, -1, -1, -1, 4]
    assert len(images.source.unreadable_paths()) == 3


def test_labels__are_read_through_subset_and_concat(folder):
    images = ImageFolder(folder)
    assert open_source(images.samples)[1][1]  # (path, class)
    assert open_source(images).labels().tolist() == [0, 1]
    joined = ConcatDataset([Subset(images, [1, 0]), images])
    assert open_source(joined).labels().tolist() == [1, 0, 0, 1]
    with pytest.raises(ValueError, match="no labels"):
        open_source([1, 2]).labels()


def test_hugging_face__explains_what_to_pass_for_several_splits(tmp_path):
    rows = [("a", gray(1)), ("b", gray(2))]
    write_kind("parquet", tmp_path / "hub", {"train": rows, "test": rows})
    import datasets

    splits = {split: in_memory(rows) for split in ("train", "test")}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"saved has no state\.json\. Pass .*/saved/train, or"):
        open_source(tmp_path / "saved")
    assert open_labeled(tmp_path / "saved").classes == ["a", "b"]
    with pytest.raises(ValueError, match=r"contains no images, only \.parquet \(2\)"):
        open_source(tmp_path / "hub" / "data")
    assert len(open_source(tmp_path / "hub" / "data" / "*.parquet")) == 4
    with pytest.raises(FileNotFoundError, match=r"no-\*\.parquet: no such file"):
        open_source(tmp_path / "no-*.parquet")


def test_hugging_face__masks_missing_images_in_memory():
    import datasets

    features = datasets.Features({"photo": datasets.Image(), "label": datasets.Value("int64")})
    image = Image.new("RGB", (9, 9))
    columns = {"photo": [image, None, image], "label": [4, 5, 6]}
    data = datasets.Dataset.from_dict(columns, features=features)
    source = open_source(data)
    assert [source[row][1] for row in range(3)] == [True, False, True]
    assert (source.classes, source.labels().tolist()) == (["4", "5", "6"], [0, 1, 2])
    with pytest.raises(ValueError, match="expected a map-style data set"):
        open_source(data.to_iterable_dataset())
    with pytest.raises(ValueError, match=r"expected a map-style data set.* got a DatasetDict"):
        open_source(datasets.DatasetDict({"train": data}))


class Stream(IterableDataset):
    """An empty iterable data set."""

    def __iter__(self):
        """Yield nothing."""
        yield from ()


@pytest.mark.parametrize("stream", [Stream(), iter([1, 2])])
def test_streams__are_refused(stream):
    with pytest.raises(ValueError, match=r"expected a map-style data set, with len\(data\)"):
        open_source(stream)


def test_open__refuses_pipes_without_waiting(tmp_path):
    (tmp_path / "tars").mkdir()
    for pipe, opened in (("list.txt", "list.txt"), ("tars/0.tar", "tars")):
        os.mkfifo(tmp_path / pipe)
        with pytest.raises((OSError, ValueError), match="is not a regular file"):
            open_source(tmp_path / opened)


def test_list__names_first_line_not_in_utf8(folder, tmp_path, subtests):
    """A cp1252 list used to be accepted, and paths were written in bytes that pandas refuses."""
    save_gray(folder / "é" / "é.png")
    for name, text, line in (
        ("a.csv", "path,label\na/1.png,x\né/é.png,y\n", 3),
        ("a.txt", "a/1.png x\né/é.png y\n", 2),
        ("a.tsv", "path\tlabel\ré/é.png\tcafé\r", 1),
        ("a.jsonl", '{"path": "é/é.png"}\n', 1),
    ):
        for encoding, is_read in (
            ("utf-8", True), ("utf-8-sig", True), ("cp1252", False), ("utf-16", False),
        ):  # fmt: skip
            with subtests.test(name=name, encoding=encoding):
                (folder / name).write_bytes(text.encode(encoding))
                if is_read:
                    assert str(folder / "é" / "é.png") in open_source(folder / name).paths()
                else:
                    line = line if encoding == "cp1252" else 1
                    with pytest.raises(ValueError, match=f"is not UTF-8: line {line} has the byte"):
                        open_source(folder / name)
    np.save(folder / "a.npy", np.array([b"a/1.png", "é/é.png".encode("cp1252")]))
    with pytest.raises(ValueError, match=r"a\.npy: expected an array"):
        open_source(folder / "a.npy")


def test_tar__refuses_labels_not_in_utf8(tmp_path):
    """Differently encoded labels used to become the same class."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add_member(tar, "1.png", png(1))
        add_member(tar, "1.cls", "é".encode("cp1252"))
    with pytest.raises(ValueError, match="can't decode byte"):
        open_source(tmp_path)


@pytest.mark.parametrize("second", ["a/1.png", "./a/1.png", "b/../a/1.png"])
def test_list__with_conflicting_labels_has_no_classes(second, folder):
    """It used to be evaluated as a classification task."""
    (folder / "a.csv").write_text(f"path,label\na/1.png,u\nb/2.png,v\n{second},v\n")
    with pytest.raises(NoLabels, match=r"a/1\.png has two labels, u and v"):
        open_source(folder / "a.csv").labels()
    (folder / "a.csv").write_text(f"path,label\na/1.png,u\nb/2.png,v\n{second},u\na/1.png,\n")
    assert open_source(folder / "a.csv").labels().tolist() == [0, 1, 0, -1]


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("content", ["empty", "cut", "text"])
def test_hugging_face__names_damaged_file(kind, content, tmp_path):
    root = write_kind(kind, tmp_path, {"train": [("a", gray(1)), ("b", gray(2))]})
    (file,) = root.glob("*/*.parquet" if kind == "parquet" else "*/*.arrow")
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "text": b"x" * 99}[content])
    with pytest.raises(ValueError, match=rf"{re.escape(str(file))} cannot be read"):
        open_source(path_of(kind, root, "train"))


def test_hugging_face__refuses_state_without_files(tmp_path):
    (tmp_path / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(ValueError, match=r"state\.json names no files"):
        open_source(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a[1]", "a?{b,c}"])
def test_folder__name_is_not_a_glob_pattern(name, kind, tmp_path):
    root = write_kind(kind, tmp_path / name, {"train": [("a", gray(1)), ("b", gray(2))]})
    path = path_of(kind, root, "train")
    source = open_source(next(root.glob("*/*.parquet")) if kind == "parquet" else path)
    assert (source.classes, source[1][0].unique().tolist()) == (["a", "b"], [2])


@pytest.mark.parametrize("name", ["$HOME", "${A}.parquet", "a::b", "zip::http:"])
def test_parquet__refuses_names_that_datasets_expands(name, tmp_path):
    with pytest.raises(ValueError, match="rename the file or folder"):
        open_data_files([str(tmp_path / name / "a.parquet")])


def test_parquet__rows_open_no_file_outside_the_folder(tmp_path, caplog, monkeypatch):
    import datasets

    save_gray(tmp_path / "secret.png", 1)
    save_gray(tmp_path / "data" / "mine.png", 2)
    (tmp_path / "data" / "link.png").symlink_to(tmp_path / "secret.png")
    paths = [str(tmp_path / "secret.png"), "../secret.png", "link.png", "http://localhost:9/x.png"]
    paths += ["mine.png", str(tmp_path / "data" / "mine.png")]
    image = [{"bytes": None, "path": path} for path in paths]
    features = datasets.Features(image=datasets.Image())
    data = datasets.Dataset.from_dict({"image": image}, features)
    monkeypatch.setattr(type(data), "_estimate_nbytes", lambda self: 1)
    data.to_parquet(tmp_path / "data" / "a.parquet")
    source = open_source(tmp_path / "data" / "a.parquet")
    assert [source[row][1] for row in range(6)] == [False] * 4 + [True] * 2
    assert "its row names a file outside" in caplog.text


def test_hugging_face__fetches_no_row_from_a_server(monkeypatch):
    import datasets

    image = [{"bytes": None, "path": "http://localhost:9/x.png"}] * 2
    features = datasets.Features(image=datasets.Image())
    data = datasets.Dataset.from_dict({"image": image}, features)
    monkeypatch.setattr("socket.socket.connect", None)  # any request would raise another error
    for held in (
        data, data.with_format("torch"), data.with_format("numpy"), Subset(data, [1, 0]),
        ConcatDataset([data, Subset(data.with_format("torch"), [0])]),
    ):  # fmt: skip
        source = open_source(held)
        assert [source[row][1] for row in range(len(held))] == [False] * len(held)
    with pytest.raises(ValueError, match="has its own transform"):
        open_source(data.with_transform(lambda rows: rows))


def test_prepare__writes_one_utf8_line_per_name(tmp_path):
    (tmp_path / "in").mkdir()
    save_gray(tmp_path / "in" / "1.png")
    for name in (b"a\nb.png", b"\x1b[31m.png", b"\xe9.png"):
        (tmp_path / "in" / os.fsdecode(name)).write_bytes(b"no image")
    assert prepare.main([str(tmp_path / "in"), str(tmp_path / "out"), "--workers", "0"]) == 0
    lines = (tmp_path / "out" / "unreadable.txt").read_text("utf-8").splitlines()
    assert len(lines) == 3
    assert all(map(str.isprintable, lines))
