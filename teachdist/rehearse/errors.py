"""What can end a rehearsal, and what ends its threads."""

import torch.distributed as dist


class Stopped(BaseException):
    """Ends a rank's thread without a word: the rehearsal is over. Nobody should catch it."""


class Verdict(dist.DistBackendError):
    """What is wrong among the ranks of a group, in sentences that name them; raised in each."""


class Hang(Verdict):
    """No rank could go on; the message says who waited for whom, and where.

    Raised in every rank that waited, as a time-out would be on real ranks, but at once.
    """


class Mismatch(Verdict):
    """The ranks of a group made calls that do not fit together."""


class Released(dist.DistBackendError):
    """Another rank failed, so what this one waits for will never come."""


class CannotRehearse(RuntimeError):
    """The program does something that virtual ranks cannot do; the message names it."""


class RehearsalError(RuntimeError):
    """One or more ranks failed. `errors`: {rank: its exception}, `results`: those of the others.

    `answer`: what is known of the run until then, as a `Rehearsal`. The exception of the rank that
    failed first is the `__cause__`.
    """

    def __init__(self, message, errors, answer=None):
        super().__init__(message)
        self.errors = errors
        self.answer = answer


class BrokenRules(RehearsalError):
    """All ranks came to their end, but the same calls would hang or differ by other rules.

    verdict: the `teachdist.rules.Verdict`, with what is wrong and where.
    """

    def __init__(self, message, verdict, answer):
        super().__init__(message, {}, answer)
        self.verdict = verdict
