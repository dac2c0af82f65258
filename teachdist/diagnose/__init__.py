"""What is every rank doing, and who is to blame.

`sentence.py` puts positions of the board into words; `watch.py` looks around for a rank that
waits, ends its wait when another has failed, and says after a while for whom it waits.
"""

from teachdist.diagnose.sentence import call_site, mismatch, whereabouts
from teachdist.diagnose.watch import Watch

__all__ = ["Watch", "call_site", "mismatch", "whereabouts"]
