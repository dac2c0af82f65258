"""Records of calls as ranks would have written them, made from the algorithm, with given times."""

from teachdist.collectives import Recv, Reduce, Send, get
from teachdist.tracing import TracedCall, TracedRound


def record(op="all_reduce", name="ring", size=4, words=None, sequence=0, nbytes=8, root=0):
    """{rank: TracedCall}: each round takes a millisecond."""
    calls = {}
    for rank in range(size):
        words = words or f"{op}(float32[8])"
        call = TracedCall(op, words, name, "world", sequence, rank, size, 64, 1.0, root=root)
        for number, actions in enumerate(get(op, name).rounds(rank, size, root=root)):
            sends, takes = {}, {}
            for action in actions:
                into = sends if isinstance(action, Send) else takes
                chunks, total = into.get(action[0], ((), 0))
                into[action[0]] = ((*chunks, action.chunk), total + nbytes)
            reduced = tuple(a.chunk for a in actions if isinstance(a, Reduce))
            assert all(isinstance(a, (Send, Recv, Reduce)) for a in actions)
            began = 1.0 + number / 1000
            call.rounds.append(TracedRound(number, sends, takes, reduced, began, began + 0.001))
        call.ended = 1.0 + len(call.rounds) / 1000
        calls[rank] = call
    return calls
