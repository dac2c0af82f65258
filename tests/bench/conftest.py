"""The results of one tiny run of the benchmark, which the tests here share."""

import json

import pytest

from teachdist.bench import main


class Tiny:
    """What a tiny run printed and wrote: `table` (lines), `found` (its JSON), `json`, `plot`."""

    def __init__(self, table, json_file, plot):
        self.table = table.splitlines()
        self.json, self.plot = json_file, plot
        self.found = json.loads(json_file.read_text())


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Two ranks, three operations, one small and one middle size, both kinds of links."""
    import contextlib
    import io

    folder = tmp_path_factory.mktemp("bench")
    arguments = ["--ranks", "2", "--ops", "all_reduce,p2p,barrier", "--sizes", "8,65536", "--quick"]
    arguments += ["--links", "shm,tcp", "--json", str(folder / "found.json")]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*arguments, "--plot", str(folder / "plot.svg")]) == 0
    return Tiny(printed.getvalue(), folder / "found.json", folder / "plot.svg")
