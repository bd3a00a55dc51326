"""Logs of one JSON object a line."""

from pirl_plugin.utils.json_lines import read_json_lines


def test_read_json_lines__leaves_out_what_was_cut_short(tmp_path):
    log = tmp_path / "stdout.json"
    assert read_json_lines(log) == []
    log.write_text('{"ep": 0}\n{"ep": 1, "lo{"ep": 2}\n\n7\n{"ep": 3}\n{"ep": 4, "l')
    assert read_json_lines(log) == [{"ep": 0}, {"ep": 3}]
