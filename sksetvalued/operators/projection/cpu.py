"""The projection on the top-K simplex and its loss, by the compiled kernels."""

import torch

from .._dispatch import kernels, needs_reference
from .eager import centre
from .reference import as_point, project


class Projection(torch.autograd.Function):
    """Projection of which backward touches only what it depends on, and can be differentiated.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        Fit for the compiled kernels.
    k : number or Tensor of shape (n_samples,)
    """

    @staticmethod
    def forward(ctx, scores, k):
        scores = scores.contiguous()
        n_rows, n_classes = scores.shape
        q = torch.empty_like(scores)
        capacity = _room(scores, 32) if ctx.needs_input_grad[0] else 0
        places = scores.new_empty(capacity, dtype=torch.int64)
        sizes = k.to("cpu", torch.float64).contiguous() if isinstance(k, torch.Tensor) else None
        n_places = kernels.project_rows(
            scores.data_ptr(),
            0 if sizes is None else sizes.data_ptr(),
            k if sizes is None else 0.0,
            n_rows,
            n_classes,
            q.data_ptr(),
            places.data_ptr(),
            capacity,
        )
        ctx.shape = scores.shape
        if n_places > capacity:
            ctx.save_for_backward(q, None)
        else:
            ctx.save_for_backward(None, places[:n_places].clone())
        return q

    @staticmethod
    def backward(ctx, grad):
        q, places = ctx.saved_tensors
        if needs_reference(grad):
            return centre(grad, _inside(q, places, grad)), None
        if q is not None:
            grad = grad.contiguous()
        result = grad.new_empty(ctx.shape)
        kernels.project_gradient_rows(
            grad.data_ptr(),
            *grad.stride(),
            0 if q is None else q.data_ptr(),
            0 if places is None else places.data_ptr(),
            0 if places is None else len(places),
            *ctx.shape,
            result.data_ptr(),
        )
        return result, None


def _room(scores, share):
    """Return how many places to list: few, unless rows are short."""
    return scores.numel() // share if scores.shape[1] >= 8 * share else 0


def _inside(q, places, grad):
    """Return the indicator of the entries strictly between 0 and 1."""
    if q is not None:
        return q.detach().frac().sign_()
    inside = places.new_zeros(grad.shape, dtype=grad.dtype)
    inside.view(-1)[places] = 1
    return inside


class FenchelYoung(torch.autograd.Function):
    """Fenchel-Young loss of the projection, of which backward touches only what it depends on.

    Parameters
    ----------
    scores : Tensor of shape (n_samples, n_classes)
        Fit for the compiled kernels.
    target : LongTensor of shape (n_samples,), or Tensor of shape (n_samples, n_classes)
        Classes, or indicators.
    shared : bool
        Whether the labels of an indicator share one unit.
    """

    @staticmethod
    def forward(ctx, scores, target, shared):
        ctx.shared = shared
        losses = scores.new_empty(len(scores))
        wanted = ctx.needs_input_grad[0]
        capacity = max(_room(scores, 16), min(scores.numel(), 64 * len(scores))) if wanted else 0
        places = scores.new_empty(capacity, dtype=torch.int64)
        values = scores.new_empty(capacity)
        n_places = _run_fenchel_young(scores, target, shared, losses, places, values)
        if n_places < 0:
            raise ValueError(f"target must lie in [0, {scores.shape[1] - 1}].")
        listed = n_places <= capacity
        found = [x[:n_places].clone() for x in (places, values)] if listed else []
        ctx.save_for_backward(scores, target, *found)
        return losses

    @staticmethod
    def backward(ctx, grad):
        scores, target, *found = ctx.saved_tensors
        if needs_reference(grad):
            point, k = as_point(target, scores, ctx.shared)
            return grad[:, None] * (project(scores, k) - point), None, None
        result = grad.new_empty(scores.shape)
        if not found:
            _run_fenchel_young(scores, target, ctx.shared, grad=grad, gradient=result)
            return result, None, None
        places, values = found
        kernels.spread_rows(
            grad.data_ptr(),
            grad.stride(0),
            places.data_ptr(),
            values.data_ptr(),
            len(places),
            *scores.shape,
            result.data_ptr(),
        )
        return result, None, None


def _run_fenchel_young(
    scores, target, shared, losses=None, places=None, values=None, grad=None, gradient=None
):
    """Compute losses and list their gradient, or write the gradient itself."""
    if target.shape != scores.shape[: target.ndim]:
        raise ValueError(
            f"target must have the shape of input, {tuple(scores.shape)}, or hold one class per "
            f"row, got {tuple(target.shape)}."
        )
    scores, is_class = scores.contiguous(), target.ndim == 1
    target = target.to("cpu", torch.int64 if is_class else torch.float32).contiguous()
    address, listing = target.data_ptr(), places is not None
    return kernels.fenchel_young_rows(
        scores.data_ptr(),
        0 if is_class else address,
        address if is_class else 0,
        shared,
        *scores.shape,
        losses.data_ptr() if listing else 0,
        places.data_ptr() if listing else 0,
        values.data_ptr() if listing else 0,
        len(places) if listing else 0,
        0 if listing else grad.data_ptr(),
        0 if listing else grad.stride(0),
        0 if listing else gradient.data_ptr(),
    )
