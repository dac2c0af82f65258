"""Ranks that ask DTensor the same question share the answer.

For each new kind of operation DTensor works out how its result is sharded: some milliseconds, once
per process, and so, here, once per rank; most of what a rank of tensor parallel or FSDP2 costs.
But the answer follows from the operation, the shapes, the placements and the form of the mesh; who
asks does not matter. So the first rank's answer is kept, and the others get it with their own mesh
in the place of its.

Not shared: what depends on the place of a rank in the mesh (operations whose arguments are shapes,
as uneven shards have other sizes on other ranks), and whatever has arguments that are not known.
"""

import contextlib
import copy

from torch.distributed.tensor import DTensor
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OutputSharding

_PLAIN = (bool, int, float, complex, str, type(None))


class Unknown(Exception):
    """Something whose part in the answer is not known."""


def patch_sharding(patches, job):
    """Share what DTensor's propagator finds among the ranks of a job."""
    propagator = DTensor._op_dispatcher.sharding_propagator
    found = type(propagator).propagate_op_sharding_non_cached
    answers = {}
    own = {*propagator.op_to_shape_and_stride_idx}
    own |= {*getattr(propagator, "op_to_scalar_shape_adjuster", ())}

    def original(propagator, schema):
        actor = job.scheduler.me()
        with actor.rank.clock.bookkeeping() if actor is not None else contextlib.nullcontext():
            return found(propagator, schema)

    def propagate(schema):
        if job.scheduler.me() is None or schema.op in own:
            return original(propagator, schema)
        meshes = {}
        try:
            key = schema.op, _key(schema.args_schema, meshes), _key(schema.kwargs_schema, meshes)
            known = answers.get(key)
        except (Unknown, TypeError):
            return original(propagator, schema)
        mine = list(meshes.values())
        if known is None:
            answer = original(propagator, schema)
            answers[key] = answer, mine
            return answer
        answer, theirs = known
        places = {id(mesh): place for place, mesh in enumerate(theirs)}
        try:
            return _translated(answer, places, mine)
        except Unknown:
            return original(propagator, schema)

    patches.attribute(propagator, "propagate_op_sharding_non_cached", propagate)
    kept = type(propagator.propagate_op_sharding)  # torch's cache, one per thread
    patches.attribute(propagator, "propagate_op_sharding", kept(propagate))


def _key(value, meshes):
    """What of an argument the answer depends on; meshes: {id: mesh} in order of appearance."""
    if isinstance(value, DTensorSpec):
        mesh = value.mesh
        meshes.setdefault(id(mesh), mesh)
        place = list(meshes).index(id(mesh))
        form = mesh.device_type, str(mesh._layout), mesh.mesh_dim_names
        flag = getattr(value, "use_strided_shard_as_shard_order", None)
        order = getattr(value, "shard_order", None)
        return place, form, value.placements, value.tensor_meta, flag, order
    if isinstance(value, (list, tuple)):
        return (type(value), *(_key(one, meshes) for one in value))
    if isinstance(value, dict):
        return tuple((name, _key(one, meshes)) for name, one in value.items())
    if isinstance(value, _PLAIN) or type(value).__module__ == "torch":  # dtypes, devices, layouts
        return type(value), value
    raise Unknown


def _translated(value, places, mine):
    """An answer of another rank, with this rank's meshes."""
    if isinstance(value, DTensorSpec):
        if id(value.mesh) not in places:
            raise Unknown
        spec = copy.copy(value)
        spec.mesh = mine[places[id(value.mesh)]]
        return spec
    if isinstance(value, OutputSharding):
        return OutputSharding(
            _translated(value.output_spec, places, mine),
            _translated(value.redistribute_schema, places, mine),
            value.needs_redistribute,
            value.use_val_from_redistribute_schema,
        )
    if isinstance(value, OpSchema):
        arguments = _translated(value.args_schema, places, mine)
        named = _translated(value.kwargs_schema, places, mine)
        return OpSchema(value.op, arguments, named, value.schema_info)
    if isinstance(value, (list, tuple)):
        return type(value)(_translated(one, places, mine) for one in value)
    if isinstance(value, dict):
        return {name: _translated(one, places, mine) for name, one in value.items()}
    return value
