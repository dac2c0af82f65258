"""From a call to bytes under way: which algorithm, whose rounds, in which order.

options.py     what the user may choose: per group, for a stretch of code, for a process
own_files.py   algorithms from files that the environment names
selection.py   which algorithm a call runs by, alike on all ranks
dispatch.py    the plan and the fingerprint that belong to it
plan.py        the rounds of this rank, worked out once
script.py      the same rounds with tensors in place of chunks
executor.py    runs them
lengths.py     how long the chunks are that a rank only passes on
call_order.py  one call at a time, in the order in which they were made
observed.py    a call that somebody watches: a trace, or the log
profiling.py   events for torch's profiler
"""
