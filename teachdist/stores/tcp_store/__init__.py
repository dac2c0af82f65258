"""TCPStore: a server holds the data, clients ask it over TCP, in torch's own format.

tcp_store.py   the store as users have it
connection.py  the client's end: ask, wait, recover
server.py      one thread, one loop
answers.py     what the server answers
wire.py        what they say to each other, byte by byte
listening.py   where a server listens, and from where it takes connections
tenants.py     several masters of one process share a server
sniff.py       listen to all that and put it into words
"""
