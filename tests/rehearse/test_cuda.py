"""Programs for CUDA, rehearsed on the CPU."""

import os

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from teachdist import rehearse


def program():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", device_id=device)
    torch.manual_seed(0)
    net = DistributedDataParallel(torch.nn.Linear(2, 1, bias=False).to(device), device_ids=[local])
    inputs = torch.ones(4, 2, device="cuda") * dist.get_rank()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        net(inputs.cuda(non_blocking=True)).sum().backward()
    torch.cuda.synchronize()
    dist.barrier(device_ids=[local])
    return net.module.weight.grad.tolist(), torch.cuda.current_device(), torch.cuda.device_count()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_names_the_way():
    with pytest.raises(rehearse.RehearsalError, match='rehearse with device_as="cpu"'):
        rehearse(lambda: torch.ones(1, device="cuda"), ranks=2)


def test_cuda_as_cpu():
    answer = rehearse(program, ranks=4, topology="2 hosts x 2", init=False, device_as="cpu")
    assert answer.results == [([[6.0, 6.0]], rank % 2, 2) for rank in range(4)]
