"""What was wrong with an algorithm, in a sentence that says where and why.

Each function makes the `Fault` of one kind of mistake; `run` is the `Execution` (`symbolic.py`)
that noticed it. To say why, it may look at what the other rank does in other rounds.
"""

import contextlib

from teachdist.collectives.algorithm import AlgorithmError
from teachdist.collectives.schedule import Send, members

TOGETHER = (
    "a Send and its Recv or Reduce must be in one round: what one rank does at once, one yield"
)


class Fault(Exception):
    """A rule was broken: what kind, where, and the sentence that says so."""

    def __init__(self, kind, sentence, round_number=None, rank=None, chunk=None):
        super().__init__(sentence)
        self.kind = kind
        self.sentence = sentence
        self.round = round_number
        self.rank = rank
        self.chunk = chunk


def fault(run, kind, rank, chunk, text):
    """A rank did something wrong in the present round."""
    return Fault(kind, f"round {run.rounds}: rank {rank} {text}", run.rounds, rank, chunk)


def missing(run, rank, chunk, text):
    """At the end a rank has not what the definition asks for."""
    sentence = f"at the end, after {counted(run.rounds, 'round')}: rank {rank} {text}"
    return Fault("missing", sentence, None, rank, chunk)


def lost(run, rank, source, chunk, gone, coming):
    """What a rank had is overwritten, and the contributions of `gone` with it."""
    text = (
        f"receives chunk {chunk} from rank {source} over what it has and loses the "
        f"contribution of {ranks(gone)}: what comes holds only {ranks(coming)}. Should "
        "it have been complete by then? Or, to keep both, use Reduce"
    )
    return fault(run, "overwritten", rank, chunk, text)


def double(run, rank, chunk, operands):
    """Somebody is added twice: name the first sender whose data overlaps what is there already."""
    there, _ = dict(operands)[rank]
    for source, (contributors, _) in operands:
        twice = there & contributors
        if source != rank:
            if twice:
                break
            there |= contributors
    text = f"adds chunk {chunk} from rank {source}, and so counts {ranks(twice)} twice"
    return fault(run, "double", rank, chunk, text)


def deadlock(run, rank, source, chunk):
    """A rank waits for what `source` does not send it in this round."""
    rounds = _rounds_of(run, source)
    when = [n for n, mine in enumerate(rounds) if Send(rank, chunk) in mine]
    now = rounds[run.rounds] if run.rounds < len(rounds) else None
    others = [a.chunk for a in now or () if type(a) is Send and a.to == rank]
    if when:
        reason = f"rank {source} sends that in round {when[0]}; {TOGETHER}"
    elif others:
        reason = f"rank {source} sends it chunk {', '.join(map(str, others))} instead"
    elif now is None:
        reason = f"rank {source} is done after {counted(len(rounds), 'round')}"
    else:
        reason = f"rank {source} never sends it that"
    text = f"waits for chunk {chunk} from rank {source} for ever: {reason}"
    return fault(run, "deadlock", rank, chunk, text)


def unmatched(run, rank, to, chunk):
    """A rank sends what `to` does not receive in this round."""
    when = [
        n
        for n, mine in enumerate(_rounds_of(run, to))
        if any(type(a) is not Send and tuple(a) == (rank, chunk) for a in mine)
    ]
    reason = f"receives that in round {when[0]}; {TOGETHER}" if when else "never receives it"
    return fault(run, "unmatched", rank, chunk, f"sends chunk {chunk} to rank {to}, which {reason}")


def _rounds_of(run, rank) -> list:
    """All rounds of one rank as far as they are sound, to say what it does instead."""
    rounds: list = []
    guard = not run.algorithm.builtin
    with contextlib.suppress(AlgorithmError):
        rounds.extend(run.algorithm.steps(rank, run.size, run.root, run.hosts, guard))
    return rounds


def counted(number: int, noun: str) -> str:
    """A number and what it counts: "1 round", "2 rounds"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def ranks(contributors: int) -> str:
    """A set of ranks in words: "rank 3", "ranks 0, 1 and 5"; long ones are cut short."""
    names = [str(rank) for rank in members(contributors)]
    if len(names) == 1:
        return f"rank {names[0]}"
    if len(names) > 6:
        return f"{len(names)} ranks ({', '.join(names[:4])}, ...)"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"
