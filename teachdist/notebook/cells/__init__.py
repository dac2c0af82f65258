"""What happens to a cell: its output, seen live and stored; its checks; its completion.

outputs.py    what the ranks said, in an order that does not depend on luck
live.py       the same while they work
predict.py    say first, then look
complete.py   names are those of the ranks
as_script.py  the cells so far as a program for torchrun
status.py     who is where, also while ranks are blocked
"""
