"""Losses that train the scores of set-valued classifiers."""

from ._average_k import *  # noqa: F403
from ._base import *  # noqa: F403
from ._cross_entropy import *  # noqa: F403
from ._imbalanced import *  # noqa: F403
from ._mixed import *  # noqa: F403
from ._mixtures import *  # noqa: F403
from ._noised import *  # noqa: F403
from ._smoothed import *  # noqa: F403
from ._sparse import *  # noqa: F403
from ._top_k import *  # noqa: F403
