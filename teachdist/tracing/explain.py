"""`teachdist explain`: a job that is over says why it was slow, or what it died of.

    teachdist explain DIR             # traces that TEACHDIST_TRACE=DIR has left

prints a sentence, a table by rank and one by line; `--picture FILE.svg` draws when each rank
computed, waited and moved bytes, with the critical path.
"""

import argparse
import sys
from pathlib import Path

from teachdist.tracing.blame import blame
from teachdist.tracing.files import load


def main(arguments):
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="teachdist explain", description="Why was a job slow? From its traces."
    )
    parser.add_argument("path", help="a trace, or the folder with the traces of all ranks")
    parser.add_argument("--picture", metavar="FILE.svg", help="draw who computed and waited when")
    given = parser.parse_args(arguments)
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
