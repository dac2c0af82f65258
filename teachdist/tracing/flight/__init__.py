"""Flight recorder dumps: what a dead job of NCCL or gloo left behind, put into a sentence.

    teachdist explain DIR

torch keeps the last calls of each rank in a ring (`TORCH_FR_BUFFER_SIZE`) and writes them to a file
per rank when the watchdog fires, or when asked.

    dumps.py    reads the files, pickle or JSON, without running anything that is in them
    judge.py    who is missing in which call of which group, who is in another call, and where
"""

from teachdist.tracing.flight.dumps import Dump, DumpError, is_dump, load
from teachdist.tracing.flight.judge import explain

__all__ = ["Dump", "DumpError", "explain", "is_dump", "load"]
