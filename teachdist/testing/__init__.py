"""Tests of distributed code without a cluster: a pytest plugin, and an order for ranks.

plugin.py       what pytest calls: the marker `ranks`, the option --ranks-real
body.py         a test's body, and the arguments that each rank is given
rehearsed.py    the body on virtual ranks: threads of this process, one of them running at a time
processes.py    the body on real ranks: a process for each
pool.py         processes that take one function after the other
failures.py     what pytest shows of the failures of several ranks
sequencer.py    "rank 0 here before rank 1 there"

Nothing here is imported by a pytest run that does not use the marker, except the plugin itself.
"""


def __getattr__(name):
    if name == "Sequencer":  # asked for by tests alone, as it imports torch
        from teachdist.testing.sequencer import Sequencer

        return Sequencer
    raise AttributeError(f"module 'teachdist.testing' has no attribute {name!r}")


__all__ = ["Sequencer"]
