"""Completion in ``%%ranks`` cells: the names are those of the ranks, so rank 0 is asked."""

import concurrent.futures

from teachdist.notebook.engines import rank

_DEADLINE = 0.5  # seconds: typing must not wait


def install(shell, cluster_of):
    """Add a matcher to IPython; ``cluster_of()`` is the cluster that runs now, or None."""
    from IPython.core.completer import SimpleCompletion, context_matcher

    @context_matcher()
    def ranks_matcher(context):
        cluster = cluster_of()
        if cluster is None or not context.full_text.lstrip().startswith("%%ranks"):
            return {"completions": [], "suppress": False}
        line = context.full_text.splitlines()[context.cursor_line]
        texts = ask(cluster, line[: context.cursor_position])
        token = context.token
        return {
            "completions": [SimpleCompletion(text) for text in texts if text.startswith(token)],
            "suppress": bool(texts),
        }

    shell.Completer.custom_matchers.append(ranks_matcher)
    return ranks_matcher


def ask(cluster, line):
    """Completions of a line that ends at the cursor; none if the ranks are busy or slow."""
    task = cluster.ask_aside(0, rank.complete, line)
    if task is None:
        return []
    concurrent.futures.wait([task.future], timeout=_DEADLINE)
    return task.value if task.done and task.failure is None else []
