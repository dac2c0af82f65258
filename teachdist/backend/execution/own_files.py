"""Your own algorithms for a program that knows nothing of them: TEACHDIST_ALGORITHMS.

The variable names Python files (several: separated as in PATH). Each is executed once in every
process, when it makes its first group on this backend. What it decorates with
`@teachdist.algorithm` is proven and can be chosen by name from then on, so

    TEACHDIST_ALGORITHMS=mine.py TEACHDIST_ALL_REDUCE=mine torchrun --nproc-per-node 4 train.py

trains on your all-reduce, and train.py stays as it is.
"""

import os
import runpy
import threading
from pathlib import Path

_loaded: set[str] = set()
_lock = threading.Lock()


def load_own_files():
    """Execute the files that the environment names and that have not been executed yet.

    Raises:
        ValueError: there is no such file.
        Refused: an algorithm in it is wrong; the message is the counter-example.
    """
    for name in filter(None, os.environ.get("TEACHDIST_ALGORITHMS", "").split(os.pathsep)):
        path = Path(name).resolve()
        if not path.is_file():
            raise ValueError(
                f"TEACHDIST_ALGORITHMS={name}: there is no file {path}; name a Python file that "
                "registers algorithms with @teachdist.algorithm"
            )
        with _lock:
            if str(path) in _loaded:
                continue
            try:
                runpy.run_path(str(path))
            except Exception as error:
                error.add_note(f"in {path}, which TEACHDIST_ALGORITHMS names")
                raise
            _loaded.add(str(path))
