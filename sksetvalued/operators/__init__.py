"""Differentiable tensor operators behind the losses."""

from ._dispatch import *  # noqa: F403
from ._margins import *  # noqa: F403
from .laplace import *  # noqa: F403
from .noised import *  # noqa: F403
from .projection import *  # noqa: F403
from .smoothed import *  # noqa: F403
