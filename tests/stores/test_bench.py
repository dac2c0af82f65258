from teachdist.stores import bench


def test_measure():
    times = bench.measure(batches=2, calls=3)
    assert set(times) == {"add", "get", "check"}
    for row in times.values():
        assert row["ours"] > 0
        assert row["ratio"] == row["ours"] / row["torch"]


def test_the_table(monkeypatch, capfd):
    row = {"ours": 30.0, "torch": 20.0, "ratio": 1.5}
    monkeypatch.setattr(bench, "measure", lambda: {"add": row})
    bench.main()
    assert capfd.readouterr().out.splitlines()[1].split() == [
        "add",
        "30.0",
        "us",
        "20.0",
        "us",
        "1.50",
    ]
