"""Traces: what real calls did, beside what was predicted, and as a file for Perfetto.

    with teachdist.trace() as t:            # record.py: this rank's rounds, bytes, times, values
        dist.all_reduce(x)

    traces = tracing.gather(t)              # gathered.py: {rank: its trace}, on every rank
    print(traces.blame())                   # blame.py: who kept whom waiting, because of what
    print(traces.check(rules="nccl"))       # would it hang elsewhere? (rules/)
    print(tracing.compare(traces))          # compare.py: predicted beside measured
    tracing.save_chrome(traces, "x.json")   # chrome.py: one track per rank, for ui.perfetto.dev

`teachdist.show(traces)` draws them (also view="timeline", "cost", "bytes", "matrix").
"""

from teachdist.tracing import whole_job
from teachdist.tracing.blame import Blame
from teachdist.tracing.causes import Reason
from teachdist.tracing.chrome import save_chrome
from teachdist.tracing.compare import Comparison, compare
from teachdist.tracing.gathered import gather
from teachdist.tracing.record import (
    Recorder,
    Trace,
    TracedCall,
    TracedRound,
    active,
    logs,
    recorder,
    trace,
)

__all__ = [
    "Blame",
    "Comparison",
    "Reason",
    "Recorder",
    "Trace",
    "TracedCall",
    "TracedRound",
    "active",
    "compare",
    "gather",
    "logs",
    "recorder",
    "save_chrome",
    "trace",
    "whole_job",
]
