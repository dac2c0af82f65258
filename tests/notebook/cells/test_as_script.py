import contextlib
import io

from ranks import run_ranks

from teachdist.notebook.cells.as_script import as_script

CELLS = [
    ("x = torch.ones(2) * rank\n%time 1", None),
    ("y = 'ä'; None", None),
    ("text = '''one\ntwo'''\ndist.all_reduce(x)", None),
    ("x", [1]),
    ("if rank == 0:\n    print(text)", None),
]


def run_program(text):
    """What a program prints, run as torchrun would run it."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(text, "job.py", "exec"), {"__name__": "__main__"})
    return printed.getvalue().splitlines()


def test_the_program_does_what_the_cells_did():
    text = as_script(CELLS, 2, "gloo")
    assert run_ranks(2, run_program, text, backend=None) == [
        ["one", "two"],
        ["[rank 1] tensor([1., 1.])"],
    ]


def test_head_and_shape():
    text = as_script([("x = 1;\nx;", None), ("print(1)", None), ("foo(", None)], 4, "gloo", "a.py")
    assert text.startswith('"""Run with: torchrun --nproc-per-node 4 a.py"""')
    assert 'dist.init_process_group("gloo")' in text
    assert "show(x" not in text
    assert "show(print(1))" in text
    assert "y = 1; show(y)" in as_script([("y = 1; y", None)], 2, "gloo")
    assert text.endswith("foo(\n\ndist.destroy_process_group()\n")


MAGIC = """\
t = %time 3
dist.all_reduce?
if rank == 0:
    !ls
text = '''
what?
%no magic
'''
"""


def test_help_and_magics_are_left_out_and_texts_are_not():
    text = as_script([(MAGIC, None), ("%%time\nx", None)], 2, "gloo")
    compile(text, "job.py", "exec")
    assert "\n# only in a notebook: t = %time 3\n# only in a notebook: dist.all_reduce?\n" in text
    assert "\n    pass  # only in a notebook: !ls\n" in text
    assert "what?\n%no magic\n" in text
    assert "# only in a notebook: %%time\nshow(x)" in text
