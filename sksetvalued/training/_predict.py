"""Scores of new samples, batch by batch."""

import copy

import torch

from ..networks._network import PLAIN, made_of
from ..networks._rows import RowLinear
from ._data import TrainingSet, count_batches, dead_workers_named, make_batches, moved
from ._setup import params_for_predictions


def iter_outputs(net, inputs, batch_size, double=False, processes=None, net_params=None):
    """Yield the outputs of the trained network, in eval mode, batch by batch.

    Parameters
    ----------
    net : SetNet
    inputs : Inputs
    batch_size : int
    double : bool, default=False
        Whether to compute with a copy of the network in double precision.
    processes : Processes, optional
        Divide every batch among them.
    net_params : dict, optional
        That of the estimator, of which a DataLoader takes what is for predictions.

    Yields
    ------
    outputs : Tensor of shape (n_batch, n_classes) or (n_batch, n_views, n_classes)
        Scores, on the device of the network.
    """
    module, criterion = net.module_, net.criterion_
    module = _double_copy(module) if double else module
    module.eval()
    # What code of others keeps for the next batch may be trained with, which tensors of
    # inference cannot.
    without_gradients = torch.inference_mode if made_of(module, PLAIN) else torch.no_grad
    part = None if processes is None else processes.part
    dataset = TrainingSet(inputs, torch.zeros(len(inputs), dtype=torch.int8), part=part)
    params = params_for_predictions(inputs, net.device, net_params)
    # Processes for one batch would be started for nothing.
    n_batches = count_batches(len(inputs), batch_size)
    if not inputs.in_memory:
        params["num_workers"] = min(params["num_workers"], n_batches) if n_batches > 1 else 0
    generator = torch.Generator().manual_seed(0)
    batches = make_batches(dataset, batch_size, generator, **params)
    with dead_workers_named():
        for x, (target, _, _) in batches:
            with without_gradients():
                scores = _scores(net, module, criterion, moved(x, net.device), inputs)
                if processes is not None:
                    scores = processes.whole(scores, len(target))
            yield scores


def _double_copy(module):
    """Return a copy of a network in double precision that shares hooks and options with it.

    Unlike a deep copy it costs little beside the prediction of one sample: maps of rows, whose
    weights may be many, convert what a batch needs.
    """
    new = copy.copy(module)
    for kind in ("_parameters", "_buffers"):
        tensors = vars(module)[kind].items()
        vars(new)[kind] = {
            name: tensor.detach().double() if _goes_double(module, name, tensor) else tensor
            for name, tensor in tensors
        }
    children = vars(module)["_modules"].items()
    vars(new)["_modules"] = {k: None if m is None else _double_copy(m) for k, m in children}
    return new


def _goes_double(module, name, tensor):
    of_rows = name == "weight" and isinstance(module, RowLinear)
    return tensor is not None and tensor.is_floating_point() and not of_rows


def _scores(net, module, criterion, x, inputs):
    n_views = x.shape[1] if x.ndim == len(inputs.sample_shape) + 2 else None
    if n_views is not None:
        x = x.flatten(0, 1)
    with net.autocast():
        scores = criterion.scores(net.run(module, x))
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return scores if n_views is None else scores.unflatten(0, (-1, n_views))
