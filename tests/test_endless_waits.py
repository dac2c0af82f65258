"""Every wait of the package has an end, or a reason not to have one that is written down here.

Read from the source: a call of wait, join, acquire, get or select without any argument waits for
ever. Those that are left may: a daemon thread asleep until there is something to do, or a wait
whose end follows from another one.
"""

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "teachdist"
NAMES = {"wait", "join", "acquire", "get", "select", "communicate"}
MAY = {
    (
        "backend/native/delegate.py",
        "work.wait()",
    ): "a Work looks up every tick; its job has a deadline",
    (
        "backend/group/communicator.py",
        "work.wait()",
    ): "a Work looks up every tick; its job has a deadline",
    ("backend/native/native_work.py", "self.wait()"): "its own wait",
    (
        "backend/native/native_work.py",
        "self._theirs.wait()",
    ): "NCCL's: queues on a stream, returns at once",
    ("backend/work.py", "self.wait()"): "its own wait",
    ("tiny.py", "self.wait()"): "called when the work is over",
    (
        "backend/execution/call_order.py",
        "self._running.acquire()",
    ): "nobody holds it when no turn is open",
    ("backend/execution/call_order.py", "self._queue.get()"): "a daemon thread without work",
    ("backend/work.py", "self._queue.get()"): "a daemon thread without work",
    (
        "backend/work.py",
        "done.wait()",
    ): "a thread closes the profiler's event, and does nothing else",
    ("links/p2p/messages.py", "self._work.wait()"): "a daemon thread without work",
    ("bench/cases.py", "work.wait()"): "a Work",
    ("bench/command.py", "process.join()"): "the benchmark's own ranks, whose calls have deadlines",
    (
        "bench/measure.py",
        "multiprocessing.parent_process().join()",
    ): "a daemon thread that ends its process with the command",
    ("bench/delays.py", "handle.wait()"): "a Work",
    ("tracing/lines.py", "self._thread.join()"): "it wakes when it is told that it is over",
    ("bench/predicted.py", "work.wait()"): "a Work",
    ("rehearse/actors.py", "self.baton.acquire()"): "taken when it is made",
    ("rehearse/scheduler.py", "actor.baton.acquire()"): "a rank's thread, until it gets the baton",
    ("rehearse/scheduler.py", "me.baton.acquire()"): "a rank's thread, until it gets the baton",
    ("rehearse/communicator.py", "work.wait()"): "a Work: a hang is known at once",
    ("rehearse/state.py", "kind.get()"): "no wait: the state of random numbers",
    ("rehearse/waits.py", "self._gate.acquire()"): "taken when it is made",
    ("rehearse/waits.py", "self.acquire()"): "a rank's lock: a hang is known at once",
    ("rehearse/waits.py", "f.wait()"): "a future of a rank: a hang is known at once",
    ("testing/pool.py", "process.join()"): "processes that have just been killed",
    ("stores/bench.py", "results.get()"): "the benchmark's own client",
    ("stores/bench.py", "client.join()"): "the benchmark's own client",
}


def endless():
    """(file, text of the call) of every wait without an argument."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in NAMES
                and not (node.args or node.keywords)
            ):
                yield path.relative_to(PACKAGE).as_posix(), ast.unparse(node)


def test_waits_without_an_end_are_known():
    assert set(endless()) == set(MAY)
