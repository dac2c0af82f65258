"""FileStore: a store in a file that all processes can reach, in torch's own format.

file_store.py  the store as users have it
file_keys.py   how keys, queues and turns stand in the journal
journal.py     records appended to a file
joined.py      which processes have joined, and whether they still live
"""
