"""The magics, in an IPython without a kernel; see test_kernel.py for what only a kernel does."""

import inspect

import pytest
from clusters import BACKEND, RANKS, needs_release
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from teachdist.notebook import RanksError, load_ipython_extension, magics


@pytest.fixture(scope="module")
def shell():
    shell = InteractiveShell.instance()
    load_ipython_extension(shell)
    yield shell
    shell.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def ours(shell):
    """The object behind the magics; no ranks yet."""
    found = shell.magics_manager.registry["RanksMagics"]
    found.cluster, found._cells = None, []
    yield found
    found.cluster = None


@pytest.fixture
def run(shell, ours, cluster):
    """Run a magic on the shared cluster."""
    ours.cluster = cluster

    def run(line, cell=None):
        if cell is None:
            return shell.run_line_magic("ranks", line)
        return shell.run_cell_magic("ranks", line, cell)

    return run


def test_equal_answers_collapse(run, capsys):
    run("", "x = torch.arange(4.) + rank\ndist.all_reduce(x)\nx")
    assert capsys.readouterr().out == "[ranks 0-2] tensor([ 3.,  6.,  9., 12.])\n"
    run("", "print('root' if rank == 0 else 'worker')\nworld_size")
    assert (
        capsys.readouterr().out == "[rank 0] root\n         3\n[ranks 1-2] worker\n            3\n"
    )


def test_ranks_number_a_cell_as_the_notebook_does(run, shell, capsys):
    cell = "%%ranks\nget_ipython().displayhook.prompt_count"
    number = shell.run_cell(cell, store_history=True).execution_count
    assert capsys.readouterr().out == f"[ranks 0-2] {number}\n"


def test_on_some_ranks(run, capsys):
    run("--on 0,2", "rank")
    assert capsys.readouterr().out == "[rank 0] 0\n[rank 2] 2\n"


def test_long_tensors_are_abbreviated(run, capsys):
    run("", "torch.arange(1000)")
    assert capsys.readouterr().out == "[ranks 0-2] tensor([  0,   1,   2,  ..., 997, 998, 999])\n"


def test_predict(run, capsys):
    run("--predict", "# predict rank 0: 0\n# predict: 1\nrank")
    assert capsys.readouterr().out.splitlines()[-5:] == [
        "        predicted  got",
        "rank 0  0          0    yes",
        "rank 1  1          1    yes",
        "rank 2  1          2    no",
        "2 of 3 ranks as predicted",
    ]


def test_predict_without_a_prediction(run):
    with pytest.raises(UsageError, match="--predict needs a comment line such as"):
        run("--predict", "rank")


def test_as_script_has_the_cells_that_ran(run, capsys, tmp_path):
    run("", "y = rank")
    with pytest.raises(RanksError):
        run("", "y = 1 / 0")
    file = tmp_path / "job.py"
    run(f"--as-script {file}", "y + 1")
    text = file.read_text()
    assert "\ny = rank\n" in text
    assert "1 / 0" not in text
    assert text.rstrip().endswith("show(y + 1)\n\ndist.destroy_process_group()")
    assert f"torchrun --nproc-per-node {RANKS}" in capsys.readouterr().out
    run("--as-script", "y + 1")
    assert capsys.readouterr().out.rstrip() == text.replace(str(file), "script.py").rstrip()


@needs_release
def test_trace_draws_the_calls_of_the_cell(run, capsys):
    run("--trace", "y = torch.ones(6)\ndist.all_reduce(y)")
    shown = capsys.readouterr().out
    assert "all_reduce(float32[6], SUM)" in shown
    run("--trace", "1")
    assert "no collective of backend teachdist was called" in capsys.readouterr().out
    with pytest.raises(RanksError):
        run("--trace", "1 / 0")
    run("--trace --on 1", "2")
    assert "[rank 1] 2" in capsys.readouterr().out


def test_cells_have_the_numbers_of_the_notebook(shell, run, capsys):
    """As in a traceback: In[3] is the third cell, on the ranks as well."""
    run("", "1")
    code = (
        "from teachdist.diagnose.call_site import place\nplace((lambda: 0).__code__.co_filename, 7)"
    )
    done = shell.run_cell(f"%%ranks\n{code}", store_history=True)
    assert f"[ranks 0-2] 'cell {done.execution_count}, line 7'" in capsys.readouterr().out


def test_here_too(shell, run, capsys):
    run("--here", "def double(x):\n    return 2 * x\n\ndouble(4)")
    assert capsys.readouterr().out == "[ranks 0-2] 8\n"
    assert shell.user_ns["double"](5) == 10
    assert inspect.getsource(shell.user_ns["double"]) == "def double(x):\n    return 2 * x\n"
    with pytest.raises(ZeroDivisionError):
        run("--here", "print('first here'); 1 / 0")
    assert capsys.readouterr().out == "first here\n"


def test_here_is_left_out_when_the_ranks_refuse(shell, run, cluster):
    asked = cluster.execute("import time\ntime.sleep(100)", on=[1])
    with pytest.raises(UsageError, match="rank 1 still at work"):
        run("--here", "only_here_when_refused = 1")
    assert "only_here_when_refused" not in shell.user_ns

    def press_stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cluster.wait(asked, press_stop)


def test_a_typo_leaves_the_ranks_alone(run, capsys):
    run("", "kept = 7")
    for line in ("65", f"{RANKS} --backend glo", f"{RANKS} --launcher frok", "stats", "x"):
        with pytest.raises(UsageError):
            run(line)
    run("", "kept")
    assert capsys.readouterr().out == "[ranks 0-2] 7\n"


def test_who(run, cluster, capsys):
    cluster.restart()
    run("", "x = rank // 2\nt = torch.ones(2, 3)")
    run("who")
    assert capsys.readouterr().out.splitlines() == [
        "t  ranks 0-2  Tensor float32[2, 3] [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]",
        "x  ranks 0-1  int 0",
        "   rank 2     int 1",
    ]


def test_output_again_and_to_a_file(run, capsys, tmp_path):
    run("--on 0", "print('a' * 30_000)")
    capsys.readouterr()
    run("output")
    text = f"[rank 0] {'a' * 30_000}\n"
    assert capsys.readouterr().out == text
    run(f"output {tmp_path / 'all.txt'}")
    assert (tmp_path / "all.txt").read_text() == text
    assert "30,009 characters" in capsys.readouterr().out


def test_help(run, capsys):
    run("--help")
    assert "where each rank is" in capsys.readouterr().out
    run("--help", "1")
    assert "--as-script [FILE]" in capsys.readouterr().out


def test_a_cell_on_the_wrong_side_gets_a_hint(shell, run, capsys):
    run("", "only_there = 1")
    shell.run_cell("only_there")
    assert "hint: 'only_there' is known on the ranks; begin the cell with %%ranks" in (
        capsys.readouterr().err
    )
    shell.run_cell("only_in_the_notebook = 1")
    with pytest.raises(RanksError) as caught:
        run("", "only_in_the_notebook")
    assert "'only_in_the_notebook' is defined in the notebook's own" in caught.value.hint


def test_tracebacks_have_the_lines_of_the_notebook(run):
    with pytest.raises(RanksError) as caught:
        run("", "def f():\n    return missing\n\nif rank == 1:\n    f()")
    shown = "\n".join(caught.value._render_traceback_())
    assert "rank 1 failed first" in shown
    assert "line 6" in shown, "the magic's own line is line 1"
    assert "NameError" in shown


@needs_release
def test_tracebacks_do_not_show_the_machinery(run):
    with pytest.raises(RanksError) as caught:
        run("", "if rank == 1:\n    1 / 0\ndist.barrier()")
    for failure in caught.value.failures:
        text = "\n".join(failure.traceback)
        assert "Cell" in text
        assert "site-packages" not in text
        assert "communicator.py" not in text


def test_output_before_a_failure_is_shown(run, capsys):
    with pytest.raises(RanksError):
        run("", "print('before')\n1 / 0")
    assert capsys.readouterr().out == "[ranks 0-2] before\n"


def test_syntax_errors_too(run):
    with pytest.raises(RanksError, match="ranks 0-2: SyntaxError"):
        run("", "foo(")


def test_status_restart_and_again(run, capsys):
    run("status")
    assert capsys.readouterr().out == "[ranks 0-2] idle\n"
    run("", "x = 5")
    run(f"{RANKS} --backend {BACKEND}")
    assert capsys.readouterr().out == f"{RANKS} ranks ready, backend {BACKEND}\n"
    with pytest.raises(RanksError, match="NameError"):
        run("", "x")


def test_px_works_on_the_same_ranks(run, ours, shell, capsys):
    ours._activate_px()
    shell.run_line_magic("px", "z = rank * 2")
    run("", "z")
    assert "[rank 2] 4" in capsys.readouterr().out


def test_ranks_in_the_cluster_of_the_environment(ours, shell, cluster, monkeypatch, capsys):
    monkeypatch.setenv(magics.SHARED, str(cluster.connection_file))
    shell.run_line_magic("ranks", f"2 --backend {BACKEND}")
    shell.run_cell_magic("ranks", "", "rank")
    assert capsys.readouterr().out.splitlines() == [
        f"2 ranks ready, backend {BACKEND}",
        "[rank 0] 0",
        "[rank 1] 1",
    ]
    shell.run_line_magic("ranks", "stop")
    cluster.restart()


@pytest.mark.parametrize(
    ("line", "cell", "says"),
    [
        ("0", None, "%ranks: the number of ranks must be 1 to 64, got 0"),
        ("-1", None, "%ranks: the number of ranks must be 1 to 64, got -1"),
        ("1000", None, "%ranks: the number of ranks must be 1 to 64, got 1000"),
        ("x", None, "%ranks: expected %ranks N .*; got 'x'"),
        ("2 --launcher nonsense", None, "%ranks: unknown launcher 'nonsense'"),
        ("2 --nonsense", None, "%ranks: unrecognized arguments: --nonsense"),
        ("", None, "%ranks: no ranks are running; start some: %ranks 4"),
        ("stop now", None, "%ranks: unrecognized arguments: now"),
        ("", "1", "%%ranks: no ranks are running; start some: %ranks 4"),
    ],
)
def test_wrong_arguments_are_one_line(ours, shell, line, cell, says):
    given = ("ranks", line) if cell is None else ("ranks", line, cell)
    run = shell.run_line_magic if cell is None else shell.run_cell_magic
    with pytest.raises(UsageError, match=says) as caught:
        run(*given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "says"), [("--on 0,7", "no rank 7"), ("--on x", "expected ranks")]
)
def test_wrong_ranks(run, line, says):
    with pytest.raises(UsageError, match=says):
        run(line, "1")
