from teachdist.notebook.cells import who


def test_a_line_per_value():
    names = [{"x": "int 1", "y": "int 5"}, {"x": "int 1", "y": "int 6"}, {"x": "int 1"}]
    assert who.who_table(names).splitlines() == [
        "x  ranks 0-2  int 1",
        "y  rank 0     int 5",
        "   rank 1     int 6",
    ]


def test_no_names():
    assert who.who_table([{}, {}]) == "no cell has defined a name"
