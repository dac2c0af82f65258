"""Point to point, as torch calls it.

point_to_point.py  send and recv, checked and bound
requests.py        sends and receives under way, and their Work
rendezvous.py      sends that wait for their receives: TEACHDIST_RULES=nccl
monitored.py       the monitored barrier, which says who did not come
"""
