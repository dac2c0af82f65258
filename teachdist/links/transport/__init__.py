"""What carries bytes between two ranks, and what stands in front of them.

raw.py          a tensor as bytes
header.py       the header of every message
memory.py       memory that processes share, without a name
signals.py      "I have written", "I have read", in shared memory
channel.py      a connection over a socket that never blocks
ring_buffer.py  the same through shared memory
"""
