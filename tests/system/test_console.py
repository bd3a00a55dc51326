"""What a person reads at the end of a run."""

import torch

from pirl_plugin.system.console import next_commands


def test_next_commands__of_the_quickstart_name_the_data_of_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "runs" / "a b"
    file = out / "checkpoint.torch"
    drawn = next_commands(file, out / "sample_data" / "train", quickstart=out)
    assert "--data DIR" in drawn["The same on your own images"]
    assert f"'{out}_own'" in drawn["The same on your own images"]
    own = next_commands(file, tmp_path / "my photos", quickstart=out)
    longer = own["A longer training of a larger network on these images"]
    assert "machines=cpu" in longer
    assert f"'{tmp_path}/my photos'" in longer.replace("'\"'\"'", "'")
