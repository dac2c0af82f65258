"""What is every rank doing, and who is to blame.

    sites.py    which line of the user's code makes a call
    places.py   a roll call: where is every rank, by its page of the board or through its door
    door.py     the thread of each rank that answers such questions, across hosts too
    judge.py    from places to a sentence
    watch.py    a look around while waiting
    stacks.py   Python stacks of a rank, blocked or not
    doctor.py   the same questions from outside: `teachdist doctor`

Nothing of it happens while calls go well, beside a rank's own notes on the board.
"""

from teachdist.diagnose.door import Door
from teachdist.diagnose.places import View, roll
from teachdist.diagnose.sites import call_site, raised_at
from teachdist.diagnose.watch import Watch, histories

__all__ = ["Door", "View", "Watch", "call_site", "histories", "raised_at", "roll"]
