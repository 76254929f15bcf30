"""A network from its description and its weights, which must agree before memory is taken."""

from collections import OrderedDict

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from sksetvalued.networks._build import (
    BUILT_IN,
    is_torchvision,
    other_backbone,
)
from sksetvalued.networks._heads import HEADS
from sksetvalued.networks._network import ColumnScale, Network, Normalize
from sksetvalued.networks._torchvision import N_COLOURS, torchvision_backbone, torchvision_names

#: Models of torchvision that can be told not to draw weights.
DRAW_WEIGHTS = ("googlenet", "inception_v3")


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
        name = getattr(func, "__name__", "")
        if name in ON_NEW_TENSORS or (name.endswith("_") and not name.endswith("__")):
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def named_backbone(name):
    """Return whether `name` is that of a built-in backbone or of a model of torchvision."""
    return name in BUILT_IN or name in torchvision_names()


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
    params = dict(backbone_params or {})
    _check_depth(backbone, params, len(state))
    if backbone in DRAW_WEIGHTS:
        params["init_weights"] = False  # scipy would draw them
    with _WithoutMemory():
        if is_torchvision(backbone):
            body = torchvision_backbone(backbone, params, None, input_shape)
            first = _first_layer(state, input_shape, N_COLOURS)
        else:
            body = other_backbone(backbone, params, input_shape, generator)
            first = _first_layer(state, input_shape)
        network = Network(first, body, HEADS[head](body.n_features, n_classes, generator))
    _check_state(network, state)
    state = OrderedDict(state)
    # Where modules keep the version of their weights; mnasnet reads it.
    state._metadata = network.state_dict()._metadata
    network.load_state_dict(state, assign=True)
    return network


def _check_depth(backbone, params, n_tensors):
    """Raise for more layers than there are tensors, as each takes time to describe."""
    depth = max(
        len(backbone) if isinstance(backbone, tuple | list) else 0,
        *(len(params.get(name) or ()) for name in ("hidden", "widths")),
        params.get("depth") or 0,
    )
    if depth > n_tensors:
        raise ValueError(f"its network has {depth} layers, but {n_tensors} tensors")


def _first_layer(state, input_shape, n_channels=None):
    """Return the layer that scales the inputs."""
    if len(input_shape) == 3:
        mean = state.get("normalize.mean")
        n_means = input_shape[0] if mean is None else mean.numel()
        n_means = n_means if n_means in (1, n_channels or input_shape[0]) else 1
        return Normalize(torch.zeros(n_means), torch.ones(n_means), n_channels)
    if len(input_shape) == 1 and "normalize.scale" in state:
        return ColumnScale(torch.zeros(input_shape), torch.ones(input_shape))
    return nn.Identity()


def _check_state(network, state):
    expected = dict([*network.named_parameters(), *network.named_buffers()])
    missing, unknown = expected.keys() - state.keys(), state.keys() - expected.keys()
    if missing or unknown:
        raise ValueError(
            f"its network lacks the tensors {sorted(missing)[:3]} and does not know "
            f"{sorted(unknown)[:3]}"
        )
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
