"""What is every rank doing, and who is to blame.

    call_site.py    which line of the user's code makes a call
    snapshot.py   a roll call: where is every rank, by its page of the board or by its listener
    inquiry.py     the thread of each rank that answers such questions, across hosts too
    verdict.py    from places to a sentence
    watchdog.py    a look around while waiting
    stacks.py   Python stacks of a rank, blocked or not
    doctor.py   the same questions from outside: `teachdist doctor`

Nothing of it happens while calls go well, beside a rank's own notes on the board.
"""

from teachdist.diagnose.call_site import call_site, raised_at
from teachdist.diagnose.inquiry import Inquiries
from teachdist.diagnose.snapshot import View, roll
from teachdist.diagnose.watchdog import Watchdog, histories

__all__ = ["Inquiries", "View", "Watchdog", "call_site", "histories", "raised_at", "roll"]
