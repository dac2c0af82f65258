"""`teachdist explain`: a job that is over says why it was slow, or what it died of.

    teachdist explain DIR             # traces that TEACHDIST_TRACE=DIR has left
    teachdist explain DIR             # or dumps of torch's flight recorder, of NCCL or gloo

Of traces it prints a sentence, a table by rank and one by line; `--picture FILE.svg` draws when
each rank computed, waited and moved bytes, with the critical path. Of dumps it says who is missing
in which call, who is in another, and where in the program.
"""

import argparse
import sys
from pathlib import Path

from teachdist.tracing import flight
from teachdist.tracing.blame import blame
from teachdist.tracing.files import load


def main(arguments):
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="teachdist explain",
        description="Why was a job slow, or what did it die of? From its traces, or from dumps of "
        "torch's flight recorder.",
    )
    parser.add_argument("path", help="a trace, or a folder with a file for each rank")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw who computed and waited when")
    given = parser.parse_args(arguments)
    if Path(given.path).is_dir() and flight.is_dump(given.path):
        print(flight.explain(flight.load(given.path)))
        return 0
    found = blame_of(given.path)
    print(found)
    if given.picture:
        Path(given.picture).write_text(found.svg(), encoding="utf-8")
    return 0


def blame_of(path):
    """The `Blame` of what is stored under a path."""
    stored = load(path)
    return blame(
        {rank: one.log for rank, one in stored.items()},
        {rank: one.host for rank, one in stored.items()},
        {rank: one.lines for rank, one in stored.items()},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
