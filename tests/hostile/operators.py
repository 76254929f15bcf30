"""Cases of the differentiable operators and of the losses."""

import math

import numpy as np
import torch

from sksetvalued import operators
from sksetvalued.losses import LOSSES

from .law import judge, same
from .values import ENTRIES, NO_NUMBERS, NOT_FINITE, floats, number, together

DTYPES = (torch.float32,) * 6 + (torch.float64, torch.float16, torch.bfloat16)
#: Values from which on sums and squares may be infinite in a type.
LARGE = {torch.float16: 1e2, torch.bfloat16: 1e15, torch.float32: 1e15, torch.float64: 1e140}
TOLERANCE = {torch.float16: 3e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-9}


def tensor_of(rng, shape):
    """Return scores of a shape, and whether all are finite."""
    dtype = rng.choice(DTYPES)
    values = floats(rng, shape, not_finite=rng.random() < 0.1)
    with np.errstate(over="ignore"):
        scores = torch.from_numpy(values).to(dtype)
    kind = rng.randrange(8)
    if kind == 0 and len(shape) == 2:
        scores = scores.T.contiguous().T
    elif kind == 1 and shape:
        scores = scores.repeat_interleave(2, -1)[..., ::2]
    elif kind == 2 and len(shape) == 2 and shape[0]:
        scores = scores[:1].expand(shape)
    return scores


def no_scores(rng):
    """Return what is no tensor of scores."""
    return rng.choice(
        (
            None,
            2.0,
            "scores",
            [[1.0, 2.0]],
            np.zeros((2, 3)),
            torch.tensor(1.0),
            torch.zeros(2, 3, dtype=torch.int64),
            torch.zeros(2, 3, dtype=torch.bool),
            torch.zeros(2, 3, dtype=torch.complex64),
            torch.zeros(2, 0),
            (torch.zeros(2, 3),) * 3,
        )
    )


def is_sane(scores):
    """Return whether results have to be finite: scores are, and their squares are."""
    return bool(torch.isfinite(scores).all()) and (
        not scores.numel() or scores.abs().max().item() <= LARGE[scores.dtype]
    )


def check_finite(result, scores, what):
    """Raise where a value is NaN, or infinite without need, although the scores are finite."""
    if not torch.isfinite(scores).all():
        return
    assert not torch.isnan(result).any(), f"NaN in the {what}"
    if is_sane(scores):
        assert torch.isfinite(result).all(), f"infinity in the {what}"


def check_gradient(result, scores):
    """Raise where the gradient is of another shape, or not finite."""
    if not (scores.requires_grad and result.requires_grad):
        return
    total = result.float().sum() if result.dtype.is_floating_point else result.sum()
    (gradient,) = torch.autograd.grad(total, scores)
    same(gradient.shape, scores.shape, "shape of the gradient")
    if is_sane(scores):
        check_finite(gradient, scores, "gradient")


def check_memberships(result, scores, k):
    """Raise unless the rows hold numbers in [0, 1] that sum to k."""
    same(result.shape, scores.shape, "shape")
    if torch.isfinite(scores).all() and result.numel():
        tolerance = TOLERANCE[result.dtype]
        assert result.min() >= -tolerance, "a membership below 0"
        assert result.max() <= 1 + tolerance, "a membership above 1"
        off = (result.double().sum(-1) - k).abs().max().item()
        assert off <= tolerance * max(k, 1) * math.sqrt(result.shape[-1]) * 4, f"sum off by {off}"


def _shape(rng):
    n_classes = rng.choice((1, 2, 3, 5, 8, 16, 33, 130))
    return rng.choice(((n_classes,), (rng.randrange(5), n_classes), (2, 2, n_classes)))


def operator_case(rng):
    """Call an operator with scores and arguments of any kind."""
    (name,) = rng.choices(list(OPERATORS), WEIGHTS)
    if rng.random() < 0.08:
        scores, expect, shape = no_scores(rng), "error", (2, 3)
        if isinstance(scores, torch.Tensor) and scores.shape == (2, 0):
            expect = "either"
    else:
        shape = _shape(rng)
        scores, expect = tensor_of(rng, shape), "right"
        if rng.random() < 0.5:
            scores.requires_grad_(scores.is_leaf)
    return OPERATORS[name](rng, scores, shape, expect)


def _project(rng, scores, shape, expect):
    k, of_k = number(rng, rng.choice((0, shape[-1], shape[-1] * rng.random(), 1)))
    if rng.random() < 0.2:
        k, of_k = torch.full(shape[:-1], float(rng.randrange(shape[-1] + 1))), "right"
    elif rng.random() < 0.05:
        k, of_k = torch.full((*shape, 2), 1.0), "error"
    elif isinstance(k, torch.Tensor):  # it may be one of each row
        of_k = "either"

    def check(result):
        if not isinstance(k, torch.Tensor):
            check_memberships(result, scores, float(k))
        same(result.shape, scores.shape, "shape")
        check_gradient(result, scores)

    call = lambda: operators.sparse_top(scores, k)  # noqa: E731
    return judge(call, ("k", "scores"), check, together(expect, of_k))


def _sparsemax(rng, scores, shape, expect):
    def check(result):
        check_memberships(result, scores, 1)
        check_gradient(result, scores)

    return judge(lambda: operators.sparsemax(scores), ("scores", "k"), check, expect)


def _rank(rng, shape, low=1):
    return number(rng, rng.randrange(low, max(min(shape[-1], 12), low) + 1))


def _laplace(rng, scores, shape, expect):
    k, of_k = number(rng, shape[-1] * (0.05 + 0.9 * rng.random()))
    tau, of_tau = number(rng, rng.choice((1.0, 0.1, 30.0)))

    def check(result):
        check_memberships(result, scores, float(k))
        check_gradient(result, scores)

    return judge(
        lambda: operators.laplace_top_k(scores, k, tau),
        ("k", "tau", "scores"),
        check,
        together(expect, of_k, of_tau),
    )


def _marginals(rng, scores, shape, expect):
    k, of_k = _rank(rng, shape)

    def check(result):
        check_memberships(result, scores, int(k))
        check_gradient(result, scores)

    call = lambda: operators.top_k_marginals(scores, k)  # noqa: E731
    return judge(call, ("k", "scores"), check, together(expect, of_k))


def _polynomials(rng, scores, shape, expect):
    k, of_k = _rank(rng, shape)

    def check(result):
        same(result.shape, (*scores.shape[:-1], int(k) + 1), "shape")
        if (scores.detach().abs() < 1e29).all():  # beyond, weights count as zero
            check_finite(result, scores, "result")
        check_gradient(result, scores)

    call = lambda: operators.log_elementary_symmetric_polynomials(scores, k)  # noqa: E731
    return judge(call, ("k", "scores"), check, together(expect, of_k))


def _noised(rng, scores, shape, expect):
    k, of_k = _rank(rng, shape)
    epsilon, of_epsilon = number(rng, rng.choice((0.0, 1.0, 0.1)))
    n_draws, of_draws = number(rng, rng.randrange(1, 4), 0.05)
    if type(n_draws) is int and n_draws > 100:  # as many as asked for, which no memory holds
        n_draws, of_draws = 0, "error"
    operator = rng.choice((operators.noised_top_k, operators.noised_top_k_sum))

    def check(result):
        same(result.shape, scores.shape[:-1], "shape")
        if float(epsilon) <= 1:
            check_finite(result, scores, "result")
        check_gradient(result, scores)
        exact = epsilon == 0 and operator is operators.noised_top_k and result.numel()
        if exact and torch.isfinite(scores).all():
            kth = scores.detach().topk(int(k)).values[..., -1]
            assert torch.equal(result.detach(), kth), "not the k-th largest"

    return judge(
        lambda: operator(scores, k, epsilon, n_draws),
        ("k", "epsilon", "n_noise_samples", "scores"),
        check,
        together(expect, of_k, of_epsilon, of_draws),
    )


def _margins(rng, scores, shape, expect):
    counts = np.array([rng.choice((1, 5, 1e-3, 10**6)) for _ in range(shape[-1])])
    of_counts = "right"
    if rng.random() < 0.3:
        counts = rng.choice((counts * 0, -counts, counts * np.nan, [], [[1.0]], None, "ab", 3))
        of_counts = "error"
    largest, of_largest = number(rng, rng.choice((0.0, 0.5, 2)))

    def check(result):
        assert (result >= 0).all(), "a negative margin"
        assert torch.isfinite(result).all(), "no number"
        same(result.shape, (len(counts),), "shape")

    return judge(
        lambda: operators.class_margins(counts, largest),
        ("class_counts", "max_margin"),
        check,
        together(of_counts, of_largest),
    )


OPERATORS = {
    "sparse_top": _project,
    "sparsemax": _sparsemax,
    "laplace_top_k": _laplace,
    "top_k_marginals": _marginals,
    "log_elementary_symmetric_polynomials": _polynomials,
    "noised": _noised,
    "class_margins": _margins,
}

#: How often each is called: some take milliseconds.
WEIGHTS = (80, 50, 20, 1, 10, 80, 20)


# -- losses ---------------------------------------------------------------------------------


def _loss(rng, n_samples, n_classes):
    """Return a function that builds a loss, its arguments' names, and what to expect."""
    name = rng.choice(sorted(LOSSES))
    cls, params, expected = LOSSES[name], {}, []
    known = cls.__init__.__code__.co_varnames

    def put(key, valid, p_odd=0.06):
        if key in known and rng.random() < 0.7:
            params[key], outcome = number(rng, valid, p_odd)
            expected.append(outcome)

    if "k" in known:
        params["k"], outcome = number(rng, rng.randrange(1, max(n_classes, 2)), 0.06)
        expected.append(outcome)
    for key, valid in VALID.items():
        put(key, valid)
    if "reduction" in known:
        params["reduction"] = rng.choice(("mean", "sum", "none", "none"))
        if rng.random() < 0.02:
            params["reduction"] = rng.choice(NO_NUMBERS)
            expected.append("error")
    if name in ("ldam", "logit_adjusted"):
        params["class_counts"] = [rng.randrange(1, 9) for _ in range(n_classes)]
        if rng.random() < 0.05:
            params["class_counts"] = rng.choice(([0] * n_classes, None, [1.0] * (n_classes + 1)))
            expected.append("error")
    if "max_margin" in params or "class_counts" in params:
        params["class_counts"] = params.get("class_counts", [3] * n_classes)
        if name != "logit_adjusted":
            params["max_margin"] = params.get("max_margin", 0.5)
    if "label_smoothing" in params and "prior" in known:
        params["prior"] = [1 / n_classes] * n_classes
    if "ranks" in known and rng.random() < 0.3:
        params["ranks"] = rng.choice((((1, 1.0), ("k", 0.5)), {2: 1.0}, {1: 1, 900: 0.5}))
        if rng.random() < 0.2:
            params["ranks"] = rng.choice((*NO_NUMBERS[1:], {0: 1.0}, {1: -1.0}, {1: 0}, {"j": 1}))
            expected.append("error")
    if name == "role":
        params |= {"n_samples": max(n_samples, 1), "n_classes": n_classes}
    if n_classes == 1:
        expected.append("either")
    return name, cls, params, together(*expected)


VALID = {
    "margin": 1.0,
    "tau": 0.5,
    "epsilon": 0.5,
    "n_noise_samples": 2,
    "alpha": 0.5,
    "gamma": 2.0,
    "scale": 3.0,
    "cross_entropy": 0.5,
    "label_smoothing": 0.1,
    "max_margin": 0.3,
}


def _target(rng, cls, n_samples, n_classes):
    """Return a target, and what to expect of it."""
    if "label" not in cls.targets:
        target = torch.tensor(
            [[float(rng.randrange(2)) for _ in range(n_classes)] for _ in range(n_samples)]
        ).reshape(n_samples, n_classes)
    else:
        dtype = rng.choice((torch.int64,) * 4 + (torch.int32, torch.uint8))
        target = torch.tensor([rng.randrange(n_classes) for _ in range(n_samples)], dtype=dtype)
    if rng.random() > 0.1:
        return target, "right"
    wrong = (
        target + n_classes + 1,
        target.double() + 0.5,
        target - 300 if target.dtype == torch.int64 else target.double() - 0.25,
        torch.cat([target, target])[: n_samples + 1] if n_samples else torch.zeros(3, 3, 3),
        target + 1j,
        torch.zeros(n_samples, n_classes, 2),
        None,
        target.tolist(),
        target.numpy(),
        "labels",
    )
    return rng.choice(wrong), "either" if not n_samples else "error"


def loss_case(rng):
    """Build a loss with arguments of any kind, and take its value and its gradient."""
    n_samples, n_classes = rng.randrange(5), rng.choice((1, 2, 3, 5, 8, 40, 130))
    name, cls, params, expect = _loss(rng, n_samples, n_classes)
    target, of_target = _target(rng, cls, n_samples, n_classes)
    scores, of_scores = tensor_of(rng, (n_samples, n_classes)), "right"
    if rng.random() < 0.05:
        scores, of_scores = no_scores(rng), "error"
    elif rng.random() < 0.7 and scores.is_leaf:
        scores.requires_grad_()
    weight, of_weight = None, "right"
    if rng.random() < 0.3:
        weight = torch.rand(n_samples) + 0.1
        if rng.random() < 0.3:
            wrong = (-weight, weight * np.nan, torch.ones(n_samples + 1), "w", 3, [1.0], None)
            weight = rng.choice(wrong)
            of_weight = "either" if weight is None or not n_samples else "error"
    pair = params.get("ranking_head") or name in ("two_head", "two_head_mixture")
    outputs = (scores, scores * 0.5) if pair and isinstance(scores, torch.Tensor) else scores

    def call():
        loss = cls(**params)
        if loss.uses_index:
            return loss(outputs, target, weight, index=torch.arange(n_samples))
        return loss(outputs, target, weight)

    def check(result):
        reduction = params.get("reduction", "mean")
        same(result.shape, (n_samples,) if reduction == "none" else (), "shape")
        if n_samples and is_sane(scores) and of_params_sane(params):
            check_finite(result, scores, "loss")
            check_gradient(result, scores)

    names = ("input", "target", "sample_weight", "reduction", "index", "ranks", *params)
    if not n_samples:  # the mean of nothing
        expect = together(expect, "either")
    return judge(call, names, check, together(expect, of_target, of_scores, of_weight))


def of_params_sane(params):
    """Return whether no argument is so large or small that values may overflow."""
    values = [v for k, v in params.items() if k in VALID and v is not None]
    return all(v == 0 or 1e-6 < abs(float(v)) < 1e6 for v in values)


CASES = {"operators": operator_case, "losses": loss_case}
__all__ = ["CASES", "ENTRIES", "NOT_FINITE"]
