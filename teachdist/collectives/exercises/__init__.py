"""Exercises that check themselves.

tasks.py      what to write, with what to begin, how good it has to be
exercises.py  the check: a proof, a counter-example or a price
results.py    results in files, and what a whole class has done
"""
