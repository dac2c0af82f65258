"""What does an algorithm cost? Predicted time, from clocks and from formulas.

topology.py       what a message costs, and where the ranks live
clocks.py         a clock per rank, moved on by every round
shared_memory.py  the same where ranks share memory
symmetry.py       thousands of ranks from the rounds of one
cost.py           the answer, beside the formula of the literature
formula.py        closed formulas and lower bounds
choose.py         the algorithm that is fastest
"""
