import base64
from xml.etree import ElementTree

import torch.distributed as dist
from ranks import shared_pool
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the fake backend

from teachdist.mesh import init_device_mesh


def test_show_draws_this_rank_and_its_groups():
    def show():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        return mesh.show()._repr_mimebundle_()

    bundle = shared_pool(4).run(show)[2]
    assert bundle["text/plain"].splitlines() == [
        "DeviceMesh (dp=2, tp=2) on cpu, seen from rank 2",
        "",
        "    0a    1",
        "   [2]    3b",
        "",
        "  rank 2 at (1, 0)",
        "a dp ↓  ranks 0, 2; here local rank 1",
        "b tp →  ranks 2, 3; here local rank 0",
    ]
    image = bundle["text/html"]
    assert 'src="data:image/svg+xml;base64,' in image
    svg = base64.b64decode(image.split("base64,")[1].split('"')[0]).decode()
    assert svg.startswith("<svg xmlns=")
    for text in (">0<", ">1<", ">2<", ">3<", "dp ↓  ranks 0, 2"):
        assert text in svg
    ElementTree.fromstring(svg)


def test_show_arranges_blocks_of_further_dimensions():
    dist.init_process_group("fake", store=FakeStore(), rank=6, world_size=16)
    try:
        picture = str(init_device_mesh("cpu", (2, 2, 2, 2)).show())
        long = init_device_mesh("cpu", (16,)).show()
    finally:
        dist.destroy_process_group()
    rows = picture.splitlines()[2:7]
    assert rows == [
        "    0     1        4c    5",
        "    2b    3       [6]    7d",
        "",
        "    8     9       12    13",
        "   10    11       14a   15",
    ]
    assert "16 ranks 0, 1, 2, ... 15" in str(long)
