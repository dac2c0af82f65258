"""The status board: where a rank shows what it is doing, readable while it is blocked.

layout.py  what stands where
writer.py  how a rank writes it
reader.py  how others read it
"""
