"""``pirl-plugin claims`` on few images, and what its ``claims.json`` holds."""

import json

from pirl_plugin.experiments.claims import command

MODELS = ["--methods", "random", "npid", "pirl_jigsaw", "--sweeps", "--images-seen", "80"]


def claims(image_folder, out, *arguments):
    command.main(["--data", str(image_folder), "--out", str(out), *MODELS, *arguments])


def recorded(file):
    return json.loads(file.read_text())


def with_recipe(file, method, digest):
    """The file, in which a run of a method was made with a recipe."""
    content = recorded(file)
    for run in content["runs"]:
        if run["method"] == method:
            run["made_with"] = {"recipe": digest, "hardware": "h", "precision": "float32"}
    file.write_text(json.dumps(content))
    return file
