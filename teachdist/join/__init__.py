"""Join, to be read: training goes on when some ranks run out of input first.

join.py         the context, what can be joined, and the hooks
join_checks.py  what cannot work under it, and how it is noticed
"""

from teachdist.join.join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
