"""How fast, compared with gloo? `python -m teachdist.bench` or `teachdist bench`.

A number alone says little on a machine that does other things as well. So everything is compared
in one run: the same processes belong to a gloo group and to a teachdist group, and short blocks of
calls alternate between the two; what disturbs one disturbs the other. Results are checked against
what the operation is defined to give, on every rank.

    for each case       calibrate: how many calls of each backend fill a block?
      for each block    barrier, n calls on gloo | barrier, n calls on teachdist | ...
                        a block's time: the slowest rank's

The ratio is the median over blocks of gloo's time divided by ours: above 1, we are faster.
"Bandwidth" is what each rank must move at least (the factor that nccl-tests calls busbw), per
second; "of copy" sets it against a plain copy of memory, measured in the same run.
"""

from teachdist.bench.command import fill, main

__all__ = ["fill", "main"]
