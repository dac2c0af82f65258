"""`pytest --nbval notebooks` with one cluster for all notebooks.

Starting ranks takes seconds; new processes in a running cluster take one. So the cluster starts
once per test session, and notebooks find it through an environment variable: `%ranks 4` then
means four new ranks there. Without this file they start their own, and pass as well.
"""

import os
from pathlib import Path

SHARED_RANKS = 4
_started = []


def pytest_collection_finish(session):
    """Start the cluster if notebooks will run."""
    if session.config.option.collectonly or not session.config.getoption("nbval", False):
        return
    if not any(str(item.path).endswith(".ipynb") for item in session.items):
        return
    from teachdist import Cluster
    from teachdist.notebook.magics import SHARED

    if not session.config.option.nbval_sanitize_with:
        session.config.option.nbval_sanitize_with = str(Path(__file__).with_name("sanitize.cfg"))

    os.environ["TEACHDIST_LIVE"] = "0"  # nbval compares what is left at the end of a cell
    # Hints of waiting ranks come only on a slow machine, and hold times.
    os.environ.update(TEACHDIST_LOG="error", TORCH_CPP_LOG_LEVEL="ERROR")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    cluster = Cluster(SHARED_RANKS)
    _started.append(cluster)
    os.environ[SHARED] = str(cluster.connection_file)


def pytest_sessionfinish():
    """End it."""
    while _started:
        _started.pop().stop()
