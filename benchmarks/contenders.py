"""What the speed benchmark compares: for each name, how to make the function that is timed.

A maker takes ``(scores, target, k)`` and returns a function of nothing that computes the loss
and the gradient with respect to the scores.
"""

import contextlib
import importlib
import io
import sys

import torch
from torch.nn import functional as F

from sksetvalued import losses, operators

#: Standard deviation of the noise for scores of standard deviation 1.
EPSILON = {"small": 0.1, "large": 1.0}
TAU = 1.0


def differentiate(loss):
    """Return the maker for a loss called as ``loss(scores, target)``, one per k."""

    def make(scores, target, k):
        criterion = loss(k)

        def step():
            scores.grad = None
            criterion(scores, target).backward()

        return step

    return make


def through(function):
    """Return the maker for a function of scores: forward, then backward of a fixed gradient."""

    def make(scores, target, k):
        gradient = torch.randn(scores.shape, device=scores.device)

        def step():
            scores.grad = None
            function(scores, k).backward(gradient)

        return step

    return make


def _sparse_top_loss(scores, target, k):
    labels = torch.zeros_like(scores).scatter_(1, torch.topk(torch.rand_like(scores), k)[1], 1)
    labels.scatter_(1, target[:, None], 1)
    return differentiate(lambda k: losses.SparseTopLoss())(scores, labels, k)


def plain_hinge(k):
    """Return the calibrated top-k hinge as one writes it with torch.topk."""

    def loss(scores, target):
        rival = torch.topk(scores, k + 1).values[:, -1]
        return F.relu(1 + rival - scores.gather(1, target[:, None])[:, 0]).mean()

    return loss


def plain_noised(n_draws, epsilon):
    """Return the noised hinge as one writes it: all the noise at once, then torch.topk."""

    def for_rank(k):
        def loss(scores, target):
            noise = torch.randn((n_draws, *scores.shape), device=scores.device)
            rival = torch.topk(scores + epsilon * noise, k + 1).values[..., -1].mean(0)
            return F.relu(1 + rival - scores.gather(1, target[:, None])[:, 0]).mean()

        return loss

    return for_rank


def plain_smoothed(k):
    """Return the smoothed hinge by k cumulative sums in double precision."""

    def loss(scores, target):
        x = ((scores - scores.detach().amax(1, keepdim=True)) / (k * TAU)).double().exp()
        own = x.gather(1, target[:, None])[:, 0]
        x = x.scatter(1, target[:, None], 0.0)
        partial, sums = torch.ones_like(x), []
        for _ in range(k):
            running = (x * partial).cumsum(1)
            sums.append(running[:, -1])
            partial = F.pad(running[:, :-1], (1, 0))
        below = sums[-2] if k > 1 else 1.0
        ratio = torch.log(sums[-1] / below / own) + 1 / TAU
        return (TAU * F.softplus(ratio)).mean().to(scores.dtype)

    return loss


def ours():
    """Return the makers of this package's losses and operators."""
    makers = {
        "calibrated hinge": differentiate(losses.CalibratedTopKHingeLoss),
        "smoothed hinge": differentiate(lambda k: losses.SmoothedTopKHingeLoss(k, tau=TAU)),
        "sparse-top projection": through(operators.sparse_top),
        "sparse-top loss": _sparse_top_loss,
        "sparsemax": through(lambda scores, k: operators.sparsemax(scores)),
    }
    for size, epsilon in EPSILON.items():
        for n_draws in (3, 10):
            makers[f"noised hinge, {n_draws} draws, {size} noise"] = noised(n_draws, epsilon)
    return makers


def noised(n_draws, epsilon):
    """Return the maker of the noised hinge."""
    return differentiate(lambda k: losses.NoisedTopKHingeLoss(k, epsilon, n_noise_samples=n_draws))


def plain():
    """Return the makers of plain-torch versions."""
    makers = {
        "plain hinge": differentiate(plain_hinge),
        "plain smoothed hinge": differentiate(plain_smoothed),
    }
    for n_draws in (3, 10):
        loss = plain_noised(n_draws, EPSILON["small"])
        makers[f"plain noised hinge, {n_draws} draws"] = differentiate(loss)
    return makers


def pytopk(n_draws):
    """Return the maker of pytopk's balanced loss; ImportError where it is absent."""
    module = importlib.import_module("pytopk")
    return differentiate(
        lambda k: module.BalNoisedTopK(k=k, epsilon=EPSILON["small"], n_sample=n_draws)
    )


def entmax():
    """Return the makers of entmax; its budget_bisect has the sparse-top values."""
    module = importlib.import_module("entmax")

    def budget(scores, k):
        return module.budget_bisect(scores, budget=k)

    makers = {
        "entmax sparsemax": through(lambda scores, k: module.sparsemax(scores, dim=1)),
        "entmax sparsemax, partial": through(
            lambda scores, k: module.sparsemax(scores, dim=1, k=min(100, scores.shape[1]))
        ),
    }
    if hasattr(module, "budget_bisect"):
        makers["entmax budget_bisect"] = through(budget)
    return makers


def smooth_topk_loss(path):
    """Return what builds a loss of smooth-topk, from a checkout at `path`."""
    if str(path) not in sys.path:
        sys.path.append(str(path))
    module = importlib.import_module("topk.svm")

    def build(n_classes, k):
        params = {"n_classes": n_classes, "alpha": 1.0, "tau": TAU}
        with contextlib.redirect_stdout(io.StringIO()):
            if k == 1:
                return module.SmoothTop1SVM(**params)
            return module.SmoothTopkSVM(**params, k=k)

    return build


def smooth_topk(path):
    """Return the maker of smooth-topk from a checkout at `path`."""
    build = smooth_topk_loss(path)

    def make(scores, target, k):
        loss = build(scores.shape[1], k)
        if scores.is_cuda:  # which its own method knows, and `to` does not
            loss.cuda()
        return differentiate(lambda k: loss)(scores, target, k)

    return make


def jaxopt():
    """Return the maker of jaxopt's projection, compiled; ImportError where it is absent."""
    jax = importlib.import_module("jax")
    projection = importlib.import_module("jaxopt.projection").projection_box_section

    def make(scores, target, k):
        x = jax.numpy.asarray(scores.detach().numpy())
        gradient = jax.numpy.asarray(torch.randn(scores.shape).numpy())
        ones = jax.numpy.ones(scores.shape[1])

        def project(row):
            return projection(row, (0.0, 1.0, ones, float(k)))

        def both(x, gradient):
            value, pull = jax.vjp(jax.vmap(project), x)
            return value, pull(gradient)[0]

        both = jax.jit(both)
        return lambda: jax.block_until_ready(both(x, gradient))

    return make


def peers(smooth_topk_path=None):
    """Return the makers of what other packages offer, and the names of those not found."""
    makers, absent = {}, []
    sources = {
        "pytopk": lambda: {f"pytopk, {n} draws": pytopk(n) for n in (3, 10)},
        "entmax": entmax,
        "jaxopt": lambda: {"jaxopt projection": jaxopt()},
    }
    if smooth_topk_path is None:
        absent.append("smooth-topk")
    else:
        makers["smooth-topk"] = smooth_topk(smooth_topk_path)
    for name, source in sources.items():
        try:
            makers |= source()
        except ImportError:
            absent.append(name)
    return makers, absent
