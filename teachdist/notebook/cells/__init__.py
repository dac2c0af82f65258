"""What happens to a cell: its output, seen live and stored; its checks; its completion.

outputs.py    what the ranks said, in an order that does not depend on luck
figures.py    pictures of several ranks, side by side
live.py       the same while they work, and why they wait
predict.py    say first, then look
complete.py   completion and help: names are those of the ranks
as_script.py  the cells so far as a program for torchrun
who.py        the names that cells have defined, rank by rank
hints.py      for who ran a cell on the wrong side
status.py     who is where, also while ranks are blocked
"""
