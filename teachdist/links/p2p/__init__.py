"""Messages from one rank to another, outside collectives.

messages.py  send and receive, and who drives them
matching.py  receives and messages find each other by sender and tag
progress.py  moves the bytes
"""
