"""Clocks of several hosts, put together by the messages themselves.

Every host counts time.monotonic() from its own start. But nobody can be done with a call before
all have come whom its side needs. So each call says of two hosts how far their clocks can be
apart: what a rank of the one had at its end is no earlier than what a rank of the other had when
it came. Many calls leave a narrow gap, and its middle is taken, as NTP does with its round trips
(Mills, RFC 5905, section 8); the error is at most half the quickest way there and back.

    host A   ---came------------------done---
    host B        ------came---------------done---      came on A <= done on B, and the other way

Hosts that share no call are taken for equal.
"""


def shifts(program, hosts):
    """{rank: seconds to add to its times}, so that all are on the clock of the first host.

    program: a `Program` of the times as they are. hosts: {rank: what tells its host from others}.
    """
    least, most = {}, {}  # (host, other) -> bounds of (clock of other - clock of host)
    for meeting in {id(m): m for m in program.meetings.values()}.values():
        for rank, operation in meeting.operations.items():
            over = program.ended.get(operation)
            if over is None:
                continue
            for other in meeting.needed(rank):
                came = program.arrived.get(meeting.operations[other])
                if came is None or hosts.get(other) == hosts.get(rank):
                    continue
                pair = hosts.get(rank), hosts.get(other)
                # came - offset <= over, in which offset is clock(other) - clock(rank)
                least[pair] = max(least.get(pair, float("-inf")), came - over)
                most[pair[::-1]] = min(most.get(pair[::-1], float("inf")), over - came)
    names = list(dict.fromkeys(hosts.get(rank) for rank in sorted(program.items)))
    known = dict.fromkeys(names[:1], 0.0)
    while True:
        found = next(
            (
                (name, known[base] + (least[base, name] + most[base, name]) / 2)
                for base in known
                for name in names
                if name not in known and (base, name) in least and (base, name) in most
            ),
            None,
        )
        if found is None:
            break
        known[found[0]] = found[1]
    return {rank: -known.get(hosts.get(rank), 0.0) for rank in program.items}
