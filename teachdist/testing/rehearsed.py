"""A test's body on virtual ranks of this process; see `teachdist.rehearse`."""

from teachdist.rehearse import RehearsalError, rehearse
from teachdist.rehearse.errors import Released
from teachdist.testing.failures import Failure, Failures


def run(body, number, options):
    """Run body.call() on `number` ranks; the `Failures`, or None.

    options: the marker's. Its time-out is not needed: a hang is known when it is there.
    """
    options.pop("timeout", None)
    try:
        rehearse(body.call, ranks=number, **options)
    except RehearsalError as error:
        failed = [Failure(rank, its) for rank, its in error.errors.items()]
        first = error.__cause__
        failed.sort(key=lambda one: one.error is not first)
        released = [one for one in failed if isinstance(one.error, Released)]
        return Failures([one for one in failed if one not in released], released)
    return None
