"""rehearse(): a function on virtual ranks."""

import copy
from datetime import timedelta

import torch.distributed as dist

from teachdist.rehearse.answer import Rehearsal
from teachdist.rehearse.errors import BrokenRules, RehearsalError
from teachdist.rehearse.job import Job
from teachdist.rehearse.orders import Orders
from teachdist.rehearse.ways import Followed, Schedule
from teachdist.rules import rules_named
from teachdist.words import ranks_words


def rehearse(
    function,
    *args,
    ranks=4,
    topology=None,
    init=True,
    seed=0,
    clock="measured",
    device=None,
    device_as=None,
    values=True,
    buffers=True,
    rules=None,
    schedule=None,
    backend="teachdist",
    **kwargs,
):
    """Run function(*args, **kwargs) on `ranks` virtual ranks of this process; a `Rehearsal`.

    Each rank is a thread, with torch.distributed, random numbers and a clock of its own. Tensors
    have real values, and what the function finds outside itself is shared; each rank gets a copy of
    the arguments.

    topology: the machine whose times are predicted: "32 hosts x 8", "nvlink", a Topology, a file of
    `teachdist calibrate`; see `teachdist.rehearse.machine`. init: have the default group ready when
    the function begins; False for functions that call init_process_group. seed: 0 always takes the
    first of several possible orders, other numbers other orders. clock: how long computing takes:
    "measured" on this machine; "recorded" in a first run, so that the second, which is answered,
    can be repeated bit for bit (give its `.recording` here); or "modelled" for `device`: "h100",
    "a100" or a `teachdist.rehearse.model.Device`. device_as: "cpu" has
    programs for CUDA run on the CPU. values: False for tensors without values (large models).
    buffers: False has each send wait for its receive. rules: "nccl", "nccl-eager", "gloo" or "mpi"
    says whether the run would hang or differ there, see `teachdist.rules`. schedule: repeats a run
    that `teachdist.explore` has found; it says which messages came first, and whether there were
    buffers.

    Raises:
        BrokenRules: it keeps to this package's rules but not to `rules`.
        RehearsalError: a rank raised, or no rank could go on. Its text has all ranks' words.
    """
    if clock == "recorded":
        how = {"ranks": ranks, "topology": topology, "init": init, "seed": seed}
        how |= {"device_as": device_as, "values": values, "backend": backend, "buffers": buffers}
        clock = rehearse(function, *args, **how, **kwargs).recording
    if isinstance(schedule, (str, Schedule)):
        given = Schedule.read(schedule)
        schedule, buffers, seed = Followed(given.taken), given.buffers, given.seed
    job = make_job(ranks, topology, seed, clock, device_as, values, device, buffers)
    if schedule is not None:
        job.orders = Orders(job, schedule)

    def main(rank):
        mine = copy.deepcopy((args, kwargs))
        begin(rank, backend if init else None)
        return function(*mine[0], **mine[1])

    if rules is not None:
        rules_named(rules)
    with job.playing():
        job.play(main)
        answer = finished(job)
    return answer if rules is None else kept(answer, rules)


def kept(answer, rules):
    """The answer, if the run keeps the rules; raises BrokenRules with the `Verdict` if not."""
    verdict = answer.check(rules)
    if not verdict:
        raise BrokenRules(str(verdict), verdict, answer)
    return answer


def make_job(
    ranks,
    topology,
    seed=0,
    clock="measured",
    device_as=None,
    values=True,
    device=None,
    buffers=True,
):
    """The Job for what `rehearse` was given."""
    if ranks < 1:
        raise ValueError(f"rehearse: ranks must be at least 1, got {ranks}")
    how = {"device_as": device_as, "values": values, "device": device, "buffers": buffers}
    return Job(ranks, topology, seed, clock, **how)


def environment(rank, size, per_host):
    """The variables that torchrun would set."""
    per_host = min(per_host or size, size)
    number = rank.number
    return {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(number % per_host),
        "LOCAL_WORLD_SIZE": str(per_host),
        "GROUP_RANK": str(number // per_host),
        "GROUP_WORLD_SIZE": str(-(-size // per_host)),
        "ROLE_RANK": str(number),
        "ROLE_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "rehearsal",
    }


def begin(rank, backend=None):
    """What is done for a rank before its code begins: its environment, and its default group."""
    job = rank.room
    size = len(job.ranks)
    rank.state.set_variables(environment(rank, size, job.machine.topology.ranks_per_host))
    if backend is not None:
        rank.clock.enter()
        dist.init_process_group(backend, timeout=timedelta(minutes=30))
        rank.clock.leave()


def finished(job):
    """The answer, or the error that tells what went wrong."""
    answer = Rehearsal(job)
    if any(rank.error is not None for rank in job.ranks):
        raise failure(job, answer)
    return answer


def failure(job, answer):
    """One error for the failures of all ranks: the cause first."""
    errors = {rank.number: rank.error for rank in job.ranks if rank.error is not None}
    if job.failures.words:
        first = next(iter(job.failures.words))
        alike = {}
        for number, words in job.failures.words.items():
            alike.setdefault(words.removeprefix(f"rank {number} "), []).append(number)
        lines = [f"{ranks_words(ranks)} {words}" for words, ranks in alike.items()]
    else:
        first = next(iter(errors))
        lines = [str(errors[first])]
    released = [n for n in errors if n not in job.failures.words and n != first]
    if released and job.failures.words:
        lines.append(f"{ranks_words(released)} {'was' if len(released) == 1 else 'were'} released.")
    error = RehearsalError("\n".join(lines), errors, answer)
    error.__cause__ = errors[first]
    return error
