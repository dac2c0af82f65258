"""Carrying out a call that somebody watches: a trace, or the log.

Most calls are watched by nobody and go straight to the executor; what it costs to look is paid only
here.
"""

import logging
import time
from functools import partial

from teachdist import tracing
from teachdist.backend.execution.executor import execute
from teachdist.diagnose.log import log


def is_on():
    """Whether calls are watched now."""
    return tracing.active() or log.isEnabledFor(logging.DEBUG)


def run(communicator, sequence, call, words, topology):
    """Carry out a call and record it. topology(hosts): what messages cost, for the trace."""
    route, hosts, began = call.route, communicator.routes.hosts, time.monotonic()
    observer = None
    if tracing.active():
        observer = tracing.recorder(
            op=call.op,
            words=words,
            algorithm=route.algorithm.name,
            group=communicator.name,
            sequence=sequence,
            rank=communicator.rank,
            size=communicator.size,
            nbytes=call.nbytes,
            root=call.root,
            hosts=hosts,
        )
    execute(call, route.plan, communicator.links, route.exchange, observer)
    if observer is not None:
        observer.done(partial(topology, hosts))
    if log.isEnabledFor(logging.DEBUG):
        took = (time.monotonic() - began) * 1e6
        how = (
            communicator.who(communicator.rank),
            communicator.title,
            sequence,
            words,
            route.algorithm.name,
            took,
        )
        log.debug('%s: group "%s", call %d: %s by %s, %.0f us', *how)
