"""The same job on this backend and on gloo, in the same ranks: what it gives must be equal.

    def job(backend):
        x = torch.ones(1)
        dist.all_reduce(x, group=world(backend))
        return x

    on_both(job, uses={"all_reduce"})

A job that went past this backend would be equal too. So each test says which collectives its
feature must have brought here, and a trace is asked whether they came.
"""

import functools

import torch
import torch.distributed as dist
from ranks import shared_pool
from torch.distributed.device_mesh import init_device_mesh


def on_both(job, *args, uses, n=4, **tolerance):
    """Run job(backend, *args) on n ranks, on both backends; what it gave on ours, by rank.

    tolerance: for assert_close, as sums of a few bits depend on their order.
    """
    return shared_pool(n, "teachdist").run(_compare, job, args, frozenset(uses), tolerance)


def _compare(job, args, uses, tolerance):
    import teachdist

    with teachdist.trace() as beside:
        gloo = job("gloo", *args)
    with teachdist.trace() as record:
        ours = job("teachdist", *args)
    assert not beside.calls, f"gloo's job came here: {[call.op for call in beside.calls]}"
    missing = uses - {call.op for call in record.calls}
    assert not missing, f"did not come: {missing}; did: {sorted({c.op for c in record.calls})}"
    torch.testing.assert_close(ours, gloo, **tolerance)
    return ours


@functools.cache
def world(backend):
    """The group of all ranks on a backend."""
    if backend == dist.get_backend():
        return dist.group.WORLD
    return dist.new_group(backend=backend)


@functools.cache
def mesh(backend, shape, names):
    """A mesh of torch's, all of whose groups are on a backend; dimension "x" is "x_<backend>".

    DTensor's caches take meshes for one that differ in their backends alone.
    """
    names = tuple(f"{name}_{backend}" for name in names)
    override = dict.fromkeys(names, backend)
    return init_device_mesh("cpu", shape, mesh_dim_names=names, backend_override=override)


def mlp(*widths):
    """The same small network on every rank."""
    torch.manual_seed(0)
    layers = []
    for wide, narrow in zip(widths, widths[1:], strict=False):
        layers += [torch.nn.Linear(wide, narrow), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers[:-1])


def batch(step, width, rank=None, rows=3):
    """This rank's (or another's) inputs of a step."""
    rank = dist.get_rank() if rank is None else rank
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(100 * step + rank))


def whole(tensor):
    """A DTensor's values, gathered by its own means; another tensor as it is."""
    tensor = tensor.detach()
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()


def parameters(model):
    """The values of a model's parameters, whole."""
    return [whole(parameter) for parameter in model.parameters()]


def gradients(model):
    """Their gradients, whole."""
    return [whole(p.grad) for p in model.parameters() if p.grad is not None]
