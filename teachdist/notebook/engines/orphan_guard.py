"""Run a module, and end with the process that started us.

A notebook kernel can be killed at any moment. What it started must notice by itself: there is
nobody left to tell it. A process whose parent died is handed to another parent, so asking "who
is my parent?" now and then is enough, on every Unix. (Linux could send a signal instead, but it
fires when the starting *thread* ends, and kernels start things from short-lived threads.)

    python -m teachdist.notebook.engines.orphan_guard [--remove=DIRECTORY] MODULE ...

``DIRECTORY`` (connection files of a cluster that nobody can reach any more) is removed when
orphaned: by a process of its own, since the dying ones still write there.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
import time

LOOK_EVERY = 0.3  # seconds
AGAIN = 75  # exit code of a process that asks to be started anew


def orphaned(parent):
    """Whether the process ``parent``, which started us, has ended."""
    return os.getppid() != parent


_REMOVE = """
import os, shutil, sys, time
until = time.monotonic() + 20
while os.path.exists(sys.argv[1]) and time.monotonic() < until:
    time.sleep(0.5)
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""


def _end_with(parent, directory):
    while not orphaned(parent):
        time.sleep(LOOK_EVERY)
    if directory:
        command = [sys.executable, "-I", "-S", "-c", _REMOVE, directory]
        subprocess.Popen(command, start_new_session=True)
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)  # us, and what the module has started
    os._exit(1)


def main():
    """Run a module named on the command line, watched by a thread."""
    parent = os.getppid()
    directory = None
    if sys.argv[1].startswith("--remove="):
        directory = sys.argv.pop(1).removeprefix("--remove=")
    module = sys.argv.pop(1)
    watch = threading.Thread(target=_end_with, args=(parent, directory), name="guard", daemon=True)
    watch.start()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
