"""A report of made-up results, and its page as HTML."""

from html.parser import HTMLParser

import numpy as np

from pirl_plugin.quickstart.page.page import Neighbors, Report, write_report

RUN = {"seed": 3, "epochs": 24, "images_per_s": 1195.4, "seconds": 312.4}


ACCURACIES = {
    "random": {"linear_top1": 40.25, "knn_top1": 30.5},
    "pirl": {"linear_top1": 62.5, "knn_top1": 28.0},
}


def picture(level=0, size=12):
    return np.full((size, size, 3), level, np.uint8)


def report(**changes):
    base = {
        "title": "PIRL on <scenes> & photos",
        "results": {**RUN, **ACCURACIES},
        "loss_curve": [(1, 7.0), (50, 5.5), (1200, 4.25)],
        "jigsaws": [(picture(1), picture(2), [picture(3 + i, 4) for i in range(9)])],
        "neighbors": [
            Neighbors(
                picture(20),
                "cat",
                [(picture(21), "cat"), (picture(22), "dog")],
                [(picture(23), "dog")],
            )
        ],
        "settings": {"trunk": "ResNet-10", "command": "python -m pirl_plugin x --name 'a b'"},
    }
    return Report(**{**base, **changes})


class Page(HTMLParser):
    """Collects the tags and the visible words of a page, and that every tag is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def written(tmp_path, **changes):
    path = tmp_path / "new" / "folder" / "report.html"
    write_report(path, report(**changes))
    assert [other.name for other in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")
