"""The main job: four ranks compute together, then train a model, and compare with gloo.

What it shows, in this order: five collectives on small tensors with what each rank got; the
rounds of the ring that carried the all-reduce, as they were recorded; DistributedDataParallel
training a classifier on the handwritten digits that ship with scikit-learn, once on backend
"teachdist" and once on gloo, from the same start. It succeeds only if every value is what the
definition says and both trainings agree to `AGREEMENT`.
"""

import time

RANKS = 4
MOST = 16  # a training step takes 56 of the 1796 digits on each rank
EPOCHS = 4
AGREEMENT = 1e-5


# -- what the ranks do -----------------------------------------------------------------------


def collectives():
    """The five collectives on one rank: [(name, what it gave)]; checks every value."""
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    everyone = torch.arange(float(size))
    results = {}

    x = torch.arange(4.0) + rank
    dist.all_reduce(x)
    results["all_reduce"] = agree(x, size * torch.arange(4.0) + everyone.sum())

    blocks = [torch.empty(2) for _ in range(size)]
    dist.all_gather(blocks, torch.tensor([rank, 10.0 * rank]))
    results["all_gather"] = agree(torch.cat(blocks), torch.stack([everyone, 10 * everyone], 1))

    x = torch.tensor([1.0, 2.0, 3.0]) if rank == 1 else torch.zeros(3)
    dist.broadcast(x, src=1)
    results["broadcast"] = agree(x, torch.tensor([1.0, 2.0, 3.0]))

    mine = torch.empty(1)
    dist.reduce_scatter(mine, [torch.tensor([10.0 * to + rank]) for to in range(size)])
    results["reduce_scatter"] = agree(mine, size * 10.0 * everyone[rank] + everyone.sum())

    letters = [torch.empty(1) for _ in range(size)]
    dist.all_to_all(letters, [torch.tensor([10.0 * rank + to]) for to in range(size)])
    results["all_to_all"] = agree(torch.cat(letters), 10 * everyone + rank)
    return list(results.items())


def agree(value, definition):
    """The value as text; an AssertionError if it is not what the definition says."""
    import torch

    expected = definition.reshape(value.shape)
    assert torch.equal(value, expected), f"got {value}, the definition says {expected}"
    return str(value)


def ring_rounds():
    """The rounds of one all_reduce by the ring on this rank, recorded from the real call."""
    import torch
    import torch.distributed as dist

    import teachdist

    with teachdist.use(all_reduce="ring"), teachdist.trace() as t:
        dist.all_reduce(torch.ones(8))
    return [str(r) for r in t.calls[0].rounds]


def train(backend, epochs=EPOCHS):
    """Train a small classifier with DistributedDataParallel; the mean loss of each epoch.

    Every rank sees its own quarter of the digits; all ranks start from the same weights.
    """
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits

    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    digits = load_digits()
    images = torch.tensor(digits.data[rank::size], dtype=torch.float32) / 16
    labels = torch.tensor(digits.target[rank::size])

    group = dist.new_group(backend=backend)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    batch = 56
    steps = 1796 // size // batch  # the same number on every rank
    for _ in range(epochs):
        total = torch.zeros(())
        for step in range(steps):
            part = slice(step * batch, (step + 1) * batch)
            loss = torch.nn.functional.cross_entropy(model(images[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, group=group)
        losses.append(total.item() / steps / size)
    with torch.no_grad():
        right = (model.module(images).argmax(1) == labels).sum()
        count = torch.tensor(len(labels))
        dist.all_reduce(right, group=group)
        dist.all_reduce(count, group=group)
    del model
    dist.destroy_process_group(group)
    return losses, right.item() / count.item()


# -- what the reader sees ----------------------------------------------------------------------


def main(say=print, ranks=RANKS):
    """Run the job on 2 to 16 ranks and tell what happened; the exit status, 0 if all held."""
    from teachdist.notebook import Cluster

    if not 2 <= ranks <= MOST:
        raise ValueError(f"--ranks {ranks}: the demo needs 2 to {MOST} ranks")
    began = time.monotonic()
    with Cluster(ranks) as cluster:
        say(f"{ranks} ranks on backend teachdist, ready after {time.monotonic() - began:.1f} s\n")
        _show_collectives(cluster.run(collectives), say)
        _show_ring(cluster.run(ring_rounds), say)
        ours = cluster.run(train, "teachdist")
        theirs = cluster.run(train, "gloo")
    return 0 if _compare(ours[0], theirs[0], say) else 1


def _show_collectives(results, say):
    for of_one_op in zip(*results, strict=True):
        say(of_one_op[0][0])
        values = [value for _, value in of_one_op]
        if len(set(values)) == 1:
            say(f"    ranks 0-{len(values) - 1}: {values[0]}")
            continue
        for rank, value in enumerate(values):
            say(f"    rank {rank}: {value}")


def _show_ring(rounds, say):
    say("\nThe all_reduce above by the ring, as recorded (rank 0's side)")
    for line in rounds[0]:
        say(f"    {line}")


def _compare(ours, theirs, say):
    (losses, accuracy), (reference, _) = ours, theirs
    say("\nDistributedDataParallel on the handwritten digits: loss per epoch")
    say("    epoch   teachdist       gloo   difference")
    for epoch, (a, b) in enumerate(zip(losses, reference, strict=True), 1):
        say(f"    {epoch:5}   {a:9.5f}  {b:9.5f}   {abs(a - b):.1e}")
    worst = max(abs(a - b) for a, b in zip(losses, reference, strict=True))
    good = worst <= AGREEMENT
    say(f"    {accuracy:.1%} of the training digits recognised after {len(losses)} epochs")
    verdict = "agree" if good else "DO NOT AGREE"
    say(f"\nteachdist and gloo {verdict}: largest difference {worst:.1e}, allowed {AGREEMENT:g}")
    return good
