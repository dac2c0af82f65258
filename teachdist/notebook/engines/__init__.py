"""The ranks behind a notebook: ipyparallel's engines, started, asked and ended.

processes.py     the processes of a cluster, ours or somebody else's
launcher.py      how ipyparallel starts them
forkserver.py    one process imports torch, then forks an engine per rank
engine.py        the engine of a rank
orphan_guard.py  run a module, and end with the process that started us
requests.py      one request per rank, and waiting for all of them
listening.py     what ranks print, also when their cell is over
rank.py          what runs inside a rank
asynchronous.py  cells that await
forks.py         cells that fork: what a child must not inherit
shell.py         the IPython of a rank
whereabouts.py   where in a cell it is
tracebacks.py    the reader's own lines
debugger.py      pdb with its commands given in advance
"""
