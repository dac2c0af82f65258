"""How the ranks of a group find each other.

address.py      which host this is, and where others reach it
peers.py        the business card of each rank, from the store
listener.py     one listening socket per process
connections.py  connections to peers, made when first needed
"""
