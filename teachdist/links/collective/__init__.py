"""Links as a collective sees them: all peers at once, a turn at a time.

links.py     which kind serves which peer
exchange.py  turns, steps and segments
shm.py       ranks of one host, through shared memory
tcp.py       over sockets
threads.py   ranks that are threads of one process
"""
