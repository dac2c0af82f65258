"""A call: what torch asked for, bound to chunks, checked, and kept for the next time.

call.py        one collective in the form that the executor understands
binding.py     which chunk is which part of which tensor, one function per collective
checks.py      arguments that cannot work are refused before anything is sent
reduce_ops.py  what happens where two contributions meet
flat.py        flat tensors: the form in which data is known below
sparse.py      sparse tensors, by calls on dense ones
persistent.py  calls that come again on the same tensors
noted.py       what was called and waited for, for traces
"""
