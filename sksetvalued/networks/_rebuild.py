"""A network from its description and its weights, which must agree before memory is taken."""

from collections import OrderedDict

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ._build import has_cosines
from ._heads import HEADS
from ._network import Arcsinh, ColumnScale, Network, Normalize, Shrink, WithCosines
from ._sources import source_of

#: Memory that constants of a network may take beyond that of its tensors.
FREE_BYTES = 64_000_000


FACTORIES = (torch.empty, torch.full, torch.ones, torch.zeros)
#: What initialisations do to new tensors, beside what they do in place.
ON_NEW_TENSORS = ("mul", "normalize")


class _WithoutMemory(TorchFunctionMode):
    """Make new tensors without memory, on the meta device, and draw nothing.

    ``torch.device("meta")`` would make constants without memory too, which some models read, and
    computes what is drawn, in Python: of some models that takes half a minute.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in FACTORIES:
            return func(*args, **{**kwargs, "device": "meta"})
        if func is torch.as_tensor and getattr((*args, None)[0], "is_meta", False):
            # Where the default device is named, it would be copied there.
            return args[0].to(kwargs.get("dtype", args[0].dtype))
        name = getattr(func, "__name__", "")
        if name in ON_NEW_TENSORS or (name.endswith("_") and not name.endswith("__")):
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def rebuild_network(backbone, backbone_params, input_shape, n_classes, head, state, generator):
    """Return the network whose state dict is `state`, around these very tensors.

    Nothing is allocated for a description that does not agree with the tensors.

    Parameters
    ----------
    backbone, backbone_params, input_shape, n_classes, head
        As in :func:`build_network`; a backbone that has a name, or widths.
    state : dict of str to Tensor
    generator : torch.Generator
        Source of the seeds of dropout.

    Returns
    -------
    network : Network

    Raises
    ------
    ValueError
        If a tensor is missing, not known, or of another shape or type.
    """
    params, source = dict(backbone_params or {}), source_of(backbone)
    # Each layer takes time to describe.
    n_layers = source.n_layers(backbone, params)
    if n_layers > len(state):
        raise ValueError(f"its network has {n_layers} layers, but {len(state)} tensors")

    with_cosines = "normalize.0.scale" in state and has_cosines(backbone, input_shape)
    body_shape = (2 * input_shape[0],) if with_cosines else input_shape
    columns = _columns(state, input_shape)
    if columns is not None:
        body_shape = columns.shape

    def describe():
        body = source.rebuild(backbone, params, body_shape, generator)
        width = getattr(body, "n_features", None) or _width(state)
        first = _first_layer(state, input_shape, source.n_channels)
        if with_cosines:
            first.append(WithCosines())
        if f"normalize.{3 + with_cosines}.factor" in state:
            first.append(Shrink())
        return Network(first, body, HEADS[head](width, n_classes, generator))

    with torch.device("meta") if source.holds_constants else _WithoutMemory():
        network = describe()
    _check_state(network, state)
    if source.holds_constants:
        _check_constants(network, state)
        network = describe()
        _check_state(network, state)
    state = OrderedDict(state)
    # Where modules keep the version of their weights; mnasnet reads it.
    state._metadata = network.state_dict()._metadata
    network.load_state_dict(state, assign=True)
    return network


def _width(state):
    """Return the number of features that the head of a state dict takes."""
    weight = state.get("head.weight", state.get("head.scores.weight"))
    if weight is None or weight.ndim != 2:
        raise ValueError("its network has no head")
    return weight.shape[1]


def _check_constants(network, state):
    """Raise for more values that are in no state dict than the tensors give reason for."""
    kept = network.state_dict().keys()
    size = sum(b.nbytes for name, b in network.named_buffers() if name not in kept)
    if size > FREE_BYTES + sum(t.nbytes for t in state.values()):
        raise ValueError(f"its network has constants of {size} bytes")


def _first_layer(state, input_shape, n_channels=None):
    """Return the layer that scales the inputs."""
    if len(input_shape) == 3:
        mean = state.get("normalize.mean")
        n_means = input_shape[0] if mean is None else mean.numel()
        n_means = n_means if n_means in (1, n_channels or input_shape[0]) else 1
        return Normalize(torch.zeros(n_means), torch.ones(n_means), n_channels)
    if len(input_shape) == 1 and "normalize.scale" in state:
        columns = _columns(state, input_shape)
        return _column_scale(input_shape if columns is None else columns.shape, columns)
    if len(input_shape) == 1 and "normalize.0.scale" in state:
        return nn.Sequential(_column_scale(input_shape), Arcsinh(), _column_scale(input_shape))
    return nn.Identity()


def _columns(state, input_shape):
    """Return the columns that the first layer reads, or None where it reads all."""
    columns = state.get("normalize.columns")
    if columns is None or isinstance(input_shape, dict) or len(input_shape) != 1:
        return None
    in_order = columns.dtype == torch.int64 and columns.ndim == 1 and len(columns) > 0
    in_order = in_order and bool((columns[1:] > columns[:-1]).all())
    if not in_order or columns[0] < 0 or columns[-1] >= input_shape[0]:
        raise ValueError(f"its network reads other columns than its {input_shape[0]} features")
    return columns


def _column_scale(shape, columns=None):
    return ColumnScale(torch.zeros(shape), torch.ones(shape), columns)


def _check_state(network, state):
    kept = network.state_dict().keys()
    named = [*network.named_parameters(), *network.named_buffers()]
    expected = {name: tensor for name, tensor in named if name in kept}
    missing, unknown = expected.keys() - state.keys(), state.keys() - expected.keys()
    if missing or unknown:
        said = [f"lacks the tensors {sorted(missing)[:3]}"] if missing else []
        said += [f"does not know the tensors {sorted(unknown)[:3]}"] if unknown else []
        raise ValueError(f"its network {' and '.join(said)}")
    for name, tensor in expected.items():
        got = state[name]
        # A module may have been given another precision since it was trained.
        alike = got.dtype == tensor.dtype or (
            got.is_floating_point() and tensor.is_floating_point()
        )
        if got.shape != tensor.shape or not alike:
            raise ValueError(
                f"its tensor {name} is {got.dtype} of shape {tuple(got.shape)}, where the "
                f"network has {tensor.dtype} of shape {tuple(tensor.shape)}"
            )
