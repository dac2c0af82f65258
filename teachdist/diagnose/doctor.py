"""`teachdist doctor`: what is every rank of this job doing? Asked from outside, while it hangs.

    teachdist doctor                       every job on this host
    teachdist doctor --store HOST:PORT     the job that meets at this store, on all its hosts
    teachdist doctor --job DIR             the job whose ranks run with TEACHDIST_JOB=DIR
    teachdist doctor --stacks              and the Python stacks of every rank

It prints a table for each group and a sentence: who waits for whom, who called something else,
who has died. Nothing is stopped, and no rank has to answer: what it was doing is written on its
page of the board (see `links/board/writer.py`) before it began to wait.
"""

import argparse
import sys
import time
from pathlib import Path

from teachdist.diagnose import stacks, verdict
from teachdist.diagnose.snapshot import ABSENT, CALL, CLOSED, DEAD, GONE, SILENT, USER
from teachdist.diagnose.survey import Survey, cards_in, cards_of_store, open_store
from teachdist.links.rendezvous.address import this_host
from teachdist.words import table

_STATES = {
    CALL: "in call",
    USER: "user code",
    GONE: "left",
    DEAD: "dead",
    ABSENT: "not joined",
    SILENT: "no answer",
    CLOSED: "gone",
}
_COLUMNS = ("rank", "pid", "state", "call", "since", "what", "where")
_WIDEST = 60


def examine(store=None, job=None):
    """All groups that can be seen: a list of `survey.Group`.

    store: "host:port" of a job's TCPStore, or a store object. job: a directory (TEACHDIST_JOB).
    Neither: everything on this host.
    """
    if store is not None:
        store = open_store(store) if isinstance(store, str) else store
        return Survey().cards(cards_of_store(store)).groups()
    if job is not None:
        return Survey().cards(cards_in(job)).groups()
    return Survey().host().groups()


def report(groups, with_stacks=False):
    """The table and the sentence of each group, as text; and the stacks of each process."""
    if not groups:
        return (
            "no ranks of backend teachdist are to be seen; a job on other hosts is found by "
            "--store HOST:PORT, or by --job DIR if its ranks run with TEACHDIST_JOB=DIR"
        )
    texts = [_of_group(group) for group in groups]
    if with_stacks:
        texts += _stacks(groups)
    return "\n\n".join(texts)


def _of_group(group):
    rows = [_COLUMNS, *(_row(one) for one in group.seen)]
    at = f" of the job at {group.job}" if group.job else ""
    head = f'group "{group.name}"{at}, {len(group.seen)} ranks'
    return "\n".join([head, table(rows), verdict.verdict(group.name, group.places)])


def _row(one):
    place, entry = one.place, one.place.entry
    cells = [str(place.rank), str(one.pid or ""), _STATES[place.state]]
    if entry is None:
        return (*cells, "", "", "", place.line)
    since = f"{max(0.0, time.monotonic() - entry.since):.1f} s"
    number = "" if entry.p2p else str(entry.number)
    what = entry.what if len(entry.what) <= _WIDEST else entry.what[: _WIDEST - 3] + "..."
    if place.state == USER:
        what = f"after {what}"
    return (*cells, number, since, what, place.line or entry.site)


def _stacks(groups):
    texts, done = [], set()
    for one in (one for group in groups for one in group.seen if one.pid):
        if (one.host, one.pid) in done:
            continue
        done.add((one.host, one.pid))
        here = one.host == this_host()
        text = stacks.of(one.pid) if here else one.stacks
        head = f"rank {one.place.rank}, process {one.pid}"
        texts.append(f"{head}:\n{(text or 'no stacks: it does not let anybody look').rstrip()}")
    return texts


def main(arguments=None):
    """The command line; the exit status is 2 if there is nobody to ask."""
    parser = argparse.ArgumentParser(
        prog="teachdist doctor", description="What is every rank of a job doing?"
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="HOST:PORT", help="the job's TCPStore")
    where.add_argument("--job", metavar="DIR", help="the TEACHDIST_JOB of its ranks")
    parser.add_argument("--stacks", action="store_true", help="Python stacks of all ranks, too")
    given = parser.parse_args(arguments)
    if given.job is not None and not Path(given.job).is_dir():
        parser.error(f"--job {given.job}: there is no such directory")
    try:
        groups = examine(given.store, given.job)
    except (ValueError, RuntimeError) as error:
        print(f"teachdist doctor: {error}", file=sys.stderr)  # noqa: T201
        return 2
    print(report(groups, given.stacks))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
