"""Distributed checkpoints: saved by some ranks, loaded by another number of them."""

import sys

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.fsdp import fully_shard

from model import model


def main(path, save):
    dist.init_process_group("gloo")
    net = model()
    if not save:
        for parameter in net.parameters():
            parameter.data.zero_()
    fully_shard(net, mesh=dist.init_device_mesh("cpu", (dist.get_world_size(),)))
    state = {"model": net.state_dict()}
    if save:
        dcp.save(state, checkpoint_id=path)
    else:
        dcp.load(state, checkpoint_id=path)
    whole = {name: value.full_tensor().detach() for name, value in net.named_parameters()}
    dist.destroy_process_group()
    return whole


if __name__ == "__main__":
    main(sys.argv[1], save=sys.argv[2] == "save")
