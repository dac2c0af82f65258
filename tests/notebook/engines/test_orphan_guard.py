"""Nothing of a cluster outlives the process that started it, however that ends."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from clusters import GONE_WITHIN, assert_gone

PROGRAM = """
import json, os, psutil, sys
from teachdist import Cluster

cluster = Cluster(2, "gloo", launcher=sys.argv[1])
pids = [child.pid for child in psutil.Process().children(recursive=True)]
print(json.dumps([pids, str(cluster.connection_file)]), flush=True)
sys.stdin.readline()  # until told, or killed
if sys.argv[2] == "cut short":
    cluster._processes._cluster.stop_engines_sync()  # and no further
    os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(
    ("how", "launcher"), [("kill", "fork"), ("exit", "fork"), ("kill", "stock")]
)
def test_no_orphans(how, launcher):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, launcher, how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        pids, connection_file = json.loads(program.stdout.readline())
        processes = [psutil.Process(pid) for pid in pids]
        assert len(processes) >= 6
        if how == "kill":
            program.kill()
        else:
            program.stdin.write("\n")
    assert_gone(processes)
    deadline = time.monotonic() + GONE_WITHIN
    while Path(connection_file).parents[1].exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
