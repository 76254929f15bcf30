"""The projection on the top-K simplex and its loss, by the compiled kernels."""

import torch

from .._backends import check_classes
from .._dispatch import kernels
from . import eager

#: Room for so many places is kept whole, as a copy of those in use would take longer.
FEW_PLACES = 1 << 13


class Projection(eager.Projection):
    """The projection of float32, `k` a number or of each row, of which backward touches little."""

    @staticmethod
    def compute(scores, k):
        scores = scores.contiguous()
        q = torch.empty_like(scores)
        sizes = k.to("cpu", torch.float64).contiguous() if isinstance(k, torch.Tensor) else None
        places = _room(scores, scores.numel() // 32 if scores.shape[1] >= 256 else 0)
        given = scores, sizes, k if sizes is None else 0.0, *scores.shape
        n_places = kernels.project_rows(*given, q, places, len(places))
        if n_places > len(places):
            return q, (q, None), scores.shape
        return q, (None, places[:n_places].clone()), scores.shape

    @staticmethod
    def gradient(grad, q, places, shape):
        if q is not None:
            grad = grad.contiguous()
        result = grad.new_empty(shape)
        n_places = 0 if places is None else len(places)
        given = grad, *grad.stride(), q, places, n_places, *shape
        kernels.project_gradient_rows(*given, result)
        return result

    @staticmethod
    def definition(grad, q, places, shape):
        if q is None:  # any number between 0 and 1 tells as much
            q = places.new_zeros(shape, dtype=grad.dtype)
            q.view(-1)[places] = 0.5
        return eager.Projection.definition(grad, q, None)


def _room(scores, n_places):
    """Return where so many places in the scores can be listed, if a gradient will need them."""
    return scores.new_empty(n_places if scores.requires_grad else 0, dtype=torch.int64)


class FenchelYoung(eager.FenchelYoung):
    """The loss of float32, of which backward touches little."""

    @staticmethod
    def compute(scores, target, shared):
        if target.shape != scores.shape[: target.ndim]:
            raise ValueError(
                f"target must have the shape of input, {tuple(scores.shape)}, or hold one class "
                f"per row, got {tuple(target.shape)}."
            )
        n_rows, n_classes = scores.shape
        share = scores.numel() // 16 if n_classes >= 128 else 0
        places = _room(scores, max(share, min(scores.numel(), 64 * n_rows)))
        values = scores.new_empty(len(places))
        losses = scores.new_empty(n_rows)
        listing = losses, places, values, len(places)
        n_places = _run(scores, target, shared, listing, (None, 0, None))
        check_classes(n_places < 0, target, n_classes)
        if n_places > len(places):
            return losses, (scores, target, None, None), (shared,)
        found = places[:n_places], values[:n_places]
        if len(places) > FEW_PLACES:
            found = [part.clone() for part in found]
        return losses, (scores, target, *found), (shared,)

    @staticmethod
    def gradient(grad, scores, target, places, values, parameters):
        result = grad.new_empty(scores.shape)
        given = grad, grad.stride(0)
        if places is None:
            _run(scores, target, *parameters, (None, None, None, 0), (*given, result))
        else:
            found = places, values, len(places)
            kernels.spread_rows(*given, *found, *scores.shape, result)
        return result


def _run(scores, target, shared, listing, spreading):
    """Compute losses and list their gradient, or write the gradient itself; one may be None."""
    scores, is_class = scores.contiguous(), target.ndim == 1
    target = target.to("cpu", torch.int64 if is_class else torch.float32).contiguous()
    targets = (None, target) if is_class else (target, None)
    given = scores, *targets, shared, *scores.shape
    return kernels.fenchel_young_rows(*given, *listing, *spreading)


project, fenchel_young = Projection.apply, FenchelYoung.apply
