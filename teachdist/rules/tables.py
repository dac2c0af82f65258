"""The rules of other backends: what a program may count on there, and where that is written.

A rule is something that a backend promises *less* than this package does. A program that keeps all
rules of a set can't hang there for want of a promise. It may still be slow, run out of memory, or
meet a fault; and what depends on times (time-outs, watchdogs) has no rule here.

Sources are named, not quoted: "torch docs" is the documentation of torch.distributed; PG-NCCL and
PG-gloo are torch's ProcessGroupNCCL.cpp and ProcessGroupGloo.cpp; MPI is the standard 4.1.
"""

from dataclasses import dataclass, replace

EVERYTHING = float("inf")


@dataclass(frozen=True)
class Rule:
    """One rule, by its name. value: what holds there; source: where it is written."""

    name: str
    value: object
    says: str
    source: str


# What this package promises: the value of each rule where a set has none.
FREE = {
    "buffers": EVERYTHING,
    "stream": False,
    "lazy": False,
    "one_device": False,
    "tags": True,
    "anybody": True,
    "uneven": True,
    "refused": (),
    "objects_need_device": False,
}


@dataclass(frozen=True)
class Rules:
    """A rule set. Ask for a rule by its name: rules["buffers"]."""

    name: str
    rules: tuple

    def __getitem__(self, name):
        return next((rule.value for rule in self.rules if rule.name == name), FREE[name])

    def without(self, name):
        """This set with this package's promise in the place of one rule."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.name != name))

    def rule(self, name):
        """The `Rule` of that name."""
        return next(rule for rule in self.rules if rule.name == name)


_NO_BUFFERS = "a send is over when its receive has been posted, never before"
_RENDEZVOUS = Rule(
    "buffers",
    0,
    _NO_BUFFERS,
    "NCCL user guide, Point-to-point communication: both sides must be called; its own buffers are "
    "no promise (nccl#479)",
)
_ONE_STREAM = (
    "operations of one communicator run one after the other, in the order in which they were begun"
)
_NCCL = (
    _RENDEZVOUS,
    Rule(
        "stream",
        "pair",
        f"{_ONE_STREAM}; an unbatched send or receive has one communicator for each pair of ranks, "
        "a batch and the collectives share that of the group",
        "PG-NCCL, pointToPoint: getKeySendRecv and ncclStreams_; pt#160342",
    ),
    Rule(
        "lazy",
        True,
        "a communicator is made at its first use, and all its ranks must come to that: both ranks "
        "of a pair, or all ranks of the group, also for a batch",
        "torch docs, batch_isend_irecv; PG-NCCL, initNCCLComm; pt#129140",
    ),
    Rule(
        "one_device",
        True,
        "groups that share ranks must be used in the same order on all of them: what is queued on "
        "a device may have to wait for what was queued before",
        "torch docs, new_group: using several NCCL groups concurrently is not safe",
    ),
    Rule(
        "tags",
        False,
        "there are no tags: what a pair of ranks sends and receives matches by order",
        "torch docs, send: tag is not supported with NCCL",
    ),
    Rule(
        "anybody",
        False,
        "a receive must name its source",
        "PG-NCCL, recvAnysource: it raises; torch docs, recv",
    ),
    Rule(
        "uneven",
        False,
        "all_gather and reduce_scatter need the same sizes on all ranks, whatever list they get",
        "NCCL user guide, ncclAllGather: sendcount elements from all; pt#156627",
    ),
    Rule(
        "refused",
        ("BAND", "BOR", "BXOR"),
        "there are no bitwise reductions",
        "torch docs, ReduceOp: BAND, BOR and BXOR are not available with NCCL",
    ),
    Rule(
        "objects_need_device",
        True,
        "object collectives go through the current device, so torch.cuda.set_device must come "
        "before them",
        "torch docs, all_gather_object; pt#75619",
    ),
)

_EAGER = {
    "stream": Rule(
        "stream",
        "group",
        f"{_ONE_STREAM}; with device_id= there is one for a group, for single sends and receives, "
        "too",
        "PG-NCCL, pointToPoint with eagerInit; pt#154132",
    )
}

_GLOO = (
    Rule(
        "buffers",
        0,
        _NO_BUFFERS,
        "gloo, transport/tcp/pair.cc: a send waits for the notice of its receive",
    ),
    Rule(
        "uneven",
        False,
        "all_gather and reduce_scatter need the same sizes on all ranks, whatever list they get",
        "PG-gloo, allgather: assertTypeAndSizesMatch; pt#156627",
    ),
    Rule(
        "refused",
        ("AVG", "PREMUL_SUM"),
        "there is no average, and no sum with a factor",
        "PG-gloo, toFunction: cannot use ReduceOp.AVG with Gloo",
    ),
)

_MPI = (
    Rule(
        "buffers",
        0,
        "a send in standard mode may wait for its receive; a program that counts on buffers is "
        "unsafe",
        "MPI 3.4, Communication modes, and 3.5, Semantics: unsafe programs",
    ),
    Rule(
        "uneven",
        False,
        "all_gather and reduce_scatter need the same sizes on all ranks, whatever list they get",
        "MPI 6.7, MPI_ALLGATHER; ProcessGroupMPI, checkSameSizeAndType",
    ),
    Rule(
        "refused",
        ("AVG", "PREMUL_SUM"),
        "there is no average, and no sum with a factor",
        "MPI 6.9.2, predefined reduction operations",
    ),
)

RULES = {
    "nccl": Rules("nccl", _NCCL),
    "nccl-eager": Rules(
        "nccl-eager", tuple(_EAGER.get(r.name, r) for r in _NCCL if r.name != "lazy")
    ),
    "gloo": Rules("gloo", _GLOO),
    "mpi": Rules("mpi", _MPI),
}


def rules_named(rules):
    """The rule set of that name; a `Rules` stays what it is.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(rules, Rules):
        return rules
    if rules not in RULES:
        raise ValueError(f"rules={rules!r}: expected one of {', '.join(RULES)}")
    return RULES[rules]


def table():
    """All rules as the lines of a Markdown table."""
    lines = ["| set | rule | source |", "| --- | --- | --- |"]
    for name, rules in RULES.items():
        lines += [f"| {name} | {rule.says} | {rule.source} |" for rule in rules.rules]
    return lines
