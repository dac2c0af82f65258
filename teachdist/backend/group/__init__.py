"""A group, as one of its ranks has it: meeting, failing, meeting anew, leaving.

communicator.py   one rank in one group, and the calls that it makes
identity.py       which group is this: what ranks agree on before they meet
joining.py        init_process_group returns when all have come
abort.py          what happens to a group when something goes wrong on a rank
recovery.py       the ranks of a group meet anew after a failure
late_mismatch.py  calls in which this rank only gave: were they the same elsewhere?
"""
