"""Another backend does the work, gloo or NCCL, and this one keeps watching.

delegate.py         the backend that hands calls over
natives.py          the native backends of a rank, made when first needed
native_work.py      what is known of such a call, and its handle
watched_calls.py    what a watched call asks when it lasts
native_watchdog.py  the thread that asks it
"""
