"""Distributed checkpoints: written by one number of ranks, read by another."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from both import batch, mesh, mlp, on_both, parameters, world
from ranks import shared_pool
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def made(backend, n, seed_step=None):
    """A sharded network with its optimizer, trained for a step if asked."""
    model = fully_shard(mlp(6, 10, 4), mesh=mesh(backend, (n,), ("dp",)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if seed_step is not None:
        model(batch(seed_step, 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def save(backend, path, n):
    """Train, write, and tell what was written."""
    model, optimizer = made(backend, n, 0)
    states = get_state_dict(model, optimizer)
    state = dict(zip(("model", "optimizer"), states, strict=True))
    dcp.save(state, checkpoint_id=f"{path}/{backend}", process_group=world(backend))
    return parameters(model)


def load(backend, path, n):
    """Read into a network that knows nothing, and train one step on the same data."""
    model, optimizer = made(backend, n)
    states = get_state_dict(model, optimizer)
    state = dict(zip(("model", "optimizer"), states, strict=True))
    dcp.load(state, checkpoint_id=f"{path}/{backend}", process_group=world(backend))
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
    )
    found = parameters(model)
    model(batch(1, 6, rank=0)).square().mean().backward()
    optimizer.step()
    return found, parameters(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("readers", [4, 2, 3])
def test_save_and_load(readers, tmp_path):
    written = on_both(save, str(tmp_path), 4, uses={"all_gather"}, n=4)
    results = on_both(load, str(tmp_path), readers, uses={"all_gather"}, n=readers)
    for found, trained in results:
        torch.testing.assert_close(found, written[0], rtol=0, atol=0)
        torch.testing.assert_close(trained, results[0][1], rtol=0, atol=0)
        assert not torch.equal(trained[0], found[0])


def test_what_one_backend_wrote_the_other_reads(tmp_path):
    def cross(backend):
        other = {"gloo": "teachdist", "teachdist": "gloo"}[backend]
        state = {"weight": batch(0, 5, rank=0), "step": 7}
        dcp.save(state, checkpoint_id=f"{tmp_path}/{backend}", process_group=world(backend))
        state = {"weight": torch.zeros(3, 5), "step": 0}
        dcp.load(state, checkpoint_id=f"{tmp_path}/{backend}", process_group=world(other))
        return state

    for backend in ("gloo", "teachdist"):
        for state in shared_pool(2, "teachdist").run(cross, backend):
            assert state["step"] == 7
            assert torch.equal(state["weight"], batch(0, 5, rank=0))
