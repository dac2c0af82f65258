"""Is an algorithm right? Proofs, and what was wrong in words.

prove.py       the question and its two answers
symbolic.py    all ranks executed without data
faults.py      what was wrong, in a sentence
own.py         algorithms of one's own: proven first, then usable by name
time_limit.py  stops a generator that neither yields nor ends
"""
