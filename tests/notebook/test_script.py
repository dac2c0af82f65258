import os
import subprocess
import sys

from teachdist.notebook.script import as_script

CELLS = [
    ("x = torch.ones(2) * rank\n%time 1", None),
    ("y = 'ä'; None", None),
    ("text = '''one\ntwo'''\ndist.all_reduce(x)", None),
    ("x", [1]),
    ("if rank == 0:\n    print(text)", None),
]


def test_the_program_does_what_the_cells_did(tmp_path):
    file = tmp_path / "job.py"
    file.write_text(as_script(CELLS, 2, "gloo", file.name))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    done = subprocess.run(
        [*command, str(file)],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 1] tensor([1., 1.])", "one", "two"]


def test_head_and_shape():
    text = as_script([("x = 1;\nx;", None), ("print(1)", None), ("foo(", None)], 4, "gloo", "a.py")
    assert text.startswith('"""Run with: torchrun --nproc-per-node 4 a.py"""')
    assert 'dist.init_process_group("gloo")' in text
    assert "show(x" not in text
    assert "show(print(1))" in text
    assert "y = 1; show(y)" in as_script([("y = 1; y", None)], 2, "gloo")
    assert text.endswith("foo(\n\ndist.destroy_process_group()\n")
