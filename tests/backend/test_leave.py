"""Leaving a group lets go of its store at once."""

import gc

import torch
import torch.distributed as dist


def test_the_file_of_a_file_store_is_gone_after_destroy(tmp_path):
    path = tmp_path / "meeting"
    gc.disable()  # no help from the collector of cycles: a process may end before it comes round
    try:
        dist.init_process_group("teachdist", init_method=f"file://{path}", rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        assert path.exists()
        dist.destroy_process_group()
        assert not path.exists()
    finally:
        gc.enable()
