"""Three calls of one operation on the same tensors, imported by the ranks of test_persistent.py."""

import torch
import torch.distributed as dist

MODES = {
    "plain": lambda: [torch.enable_grad() for _ in range(3)],
    "inference first": lambda: [torch.inference_mode(), torch.enable_grad(), torch.enable_grad()],
    "inference later": lambda: [torch.enable_grad(), torch.inference_mode(), torch.enable_grad()],
    "no grad": lambda: [torch.no_grad(), torch.enable_grad(), torch.no_grad()],
}
OPS = [
    "all_reduce",
    "average",
    "broadcast",
    "reduce",
    "all_gather",
    "all_gather_single",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "all_to_all",
    "all_to_all_single",
    "strided",
]
WAYS = ["sync", "async", "future", "result"]


def again(op, way, mode, made_inside, numel):  # noqa: C901  a table of calls
    """Three calls of `op` on the same tensors; what differs from the definition."""
    rank, size = dist.get_rank(), dist.get_world_size()
    with torch.inference_mode(made_inside):
        one, out = torch.empty(numel), torch.empty(numel)
        parts = [torch.empty(numel) for _ in range(size)]
        outs = [torch.empty(numel) for _ in range(size)]
        whole, wide = torch.empty(numel * size), torch.empty(numel * size)
        strided = torch.empty(2 * numel)[::2]

    def fill():
        with torch.inference_mode():
            for tensor in (one, strided):
                tensor.fill_(rank + 1.0)
            for r in range(size):
                parts[r].fill_(10.0 * rank + r)
                whole[r * numel : (r + 1) * numel] = 10.0 * rank + r
            for tensor in (out, wide, *outs):
                tensor.fill_(-1.0)

    everybody = range(size)
    total = size * (size + 1) / 2
    column = [10.0 * r + rank for r in everybody]
    calls = {
        "all_reduce": (lambda **k: dist.all_reduce(one, **k), [one], [total]),
        "average": (
            lambda **k: dist.all_reduce(one, op=dist.ReduceOp.AVG, **k),
            [one],
            [total / size],
        ),
        "broadcast": (lambda **k: dist.broadcast(one, size - 1, **k), [one], [float(size)]),
        "reduce": (lambda **k: dist.reduce(one, 0, **k), [one][: rank == 0], [total]),
        "all_gather": (
            lambda **k: dist.all_gather(outs, one, **k),
            outs,
            [r + 1.0 for r in everybody],
        ),
        "all_gather_single": (
            lambda **k: dist.all_gather_single(wide, one, **k),
            wide.chunk(size),
            [r + 1.0 for r in everybody],
        ),
        "gather": (
            lambda **k: dist.gather(one, outs if rank == 0 else None, **k),
            outs if rank == 0 else [],
            [r + 1.0 for r in everybody],
        ),
        "scatter": (
            lambda **k: dist.scatter(out, parts if rank == 0 else None, **k),
            [out],
            [float(rank)],
        ),
        "reduce_scatter": (lambda **k: dist.reduce_scatter(out, parts, **k), [out], [sum(column)]),
        "reduce_scatter_single": (
            lambda **k: dist.reduce_scatter_single(out, whole, **k),
            [out],
            [sum(column)],
        ),
        "all_to_all": (lambda **k: dist.all_to_all(outs, parts, **k), outs, column),
        "all_to_all_single": (
            lambda **k: dist.all_to_all_single(wide, whole, **k),
            wide.chunk(size),
            column,
        ),
        "strided": (lambda **k: dist.all_reduce(strided, **k), [strided], [total]),
    }
    call, results, wanted = calls[op]
    wrong = []
    for number, context in enumerate(MODES[mode]()):
        fill()
        with context:
            if way == "sync":
                call()
            else:
                work = call(async_op=True)
                if way == "future":
                    work.get_future().wait()
                work.wait()
                if way == "result":
                    work.result()
        for tensor, value in zip(results, wanted, strict=False):
            if not bool((tensor == value).all()):
                wrong.append((op, way, mode, made_inside, number, tensor[:2].tolist(), value))
    return wrong


def otherwise(mode, made_inside):
    """Forms that are bound in other ways: sparse, coalesced, to strided places, point to point."""
    rank, size = dist.get_rank(), dist.get_world_size()
    ranks = [r + 1.0 for r in range(size)]
    wrong = []
    for number, context in enumerate(MODES[mode]()):
        with torch.inference_mode(made_inside):
            own = torch.full((4,), rank + 1.0)
            sparse = own.to_sparse()
            wholes = [torch.zeros(4 * size) for _ in range(2)]
            strided = [torch.zeros(8)[::2] for _ in range(size)]
            came = torch.zeros(8)[::2]
        with context:
            dist.all_reduce(sparse, async_op=True).wait()
            with dist.distributed_c10d._coalescing_manager(async_ops=True) as manager:
                for whole in wholes:
                    dist.all_gather_into_tensor(whole, own)
            manager.wait()
            dist.all_gather(strided, own, async_op=True).wait()
            sent = dist.isend(own, (rank + 1) % size)
            dist.irecv(came, (rank - 1) % size).wait()
            sent.wait()
        got = {
            "sparse": sparse.to_dense().tolist() == [sum(ranks)] * 4,
            "coalesced": all(w.view(size, 4)[:, 0].tolist() == ranks for w in wholes),
            "strided": [part[0].item() for part in strided] == ranks,
            "received": came.tolist() == [(rank - 1) % size + 1.0] * 4,
        }
        wrong += [(what, mode, made_inside, number) for what, right in got.items() if not right]
    return wrong
