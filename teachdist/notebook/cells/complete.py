"""Completion and help in ``%%ranks`` cells: the names are those of the ranks, so rank 0 is asked.

The flags of the magics are completed too.
"""

import concurrent.futures

from teachdist.notebook import arguments
from teachdist.notebook.engines import rank

_DEADLINE = 0.5  # seconds: typing must not wait


def install(shell, cluster_of):
    """Add completion, and in a kernel help; ``cluster_of()`` is the cluster that runs, or None."""
    matcher = _matcher(cluster_of)
    shell.Completer.custom_matchers.append(matcher)
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.do_inspect = _inspecting(kernel.do_inspect, cluster_of)
    return matcher


def _matcher(cluster_of):
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher()
    def ranks_matcher(context):
        lines = context.full_text.splitlines() or [""]
        line = lines[context.cursor_line][: context.cursor_position]
        if line.lstrip().startswith(("%ranks ", "%%ranks ")):
            texts = arguments.completions(line)
        elif lines[0].lstrip().startswith("%%ranks"):
            texts = ask(cluster_of(), rank.complete, line) or []
        else:
            texts = []
        token = context.token
        before = token.rpartition(".")[0]
        texts = [before + text if text.startswith(".") else text for text in texts]
        return {
            "completions": [SimpleCompletion(text) for text in texts if text.startswith(token)],
            "suppress": bool(texts),
            "matched_fragment": token,
        }

    return ranks_matcher


def _inspecting(here, cluster_of):
    """``do_inspect`` of a kernel that asks rank 0 about what stands in a ``%%ranks`` cell."""

    def do_inspect(code, cursor_pos, detail_level=0, omit_sections=()):
        found = None
        if code.lstrip().startswith("%%ranks"):
            found = ask(cluster_of(), rank.inspect, code, cursor_pos, detail_level)
        if found is None:
            return here(code, cursor_pos, detail_level, omit_sections)
        return {"status": "ok", **found}

    return do_inspect


def ask(cluster, function, *args):
    """What rank 0 answers to a function of ``rank.py``; None if it is busy, slow or gone."""
    task = None if cluster is None else cluster.ask_aside(0, function, *args)
    if task is None:
        return None
    concurrent.futures.wait([task.future], timeout=_DEADLINE)
    return task.value if task.done and task.failure is None else None
