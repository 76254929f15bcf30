"""Functions behind the modules of :mod:`sksetvalued.losses`."""

from ._average_k import (  # noqa: F401
    assume_negative_loss,
    average_k_loss,
    expected_positive_loss,
    role_loss,
)
from ._imbalanced import focal_loss, ldam_loss, logit_adjusted_loss  # noqa: F401
from ._mixed import lapsum_loss, mixed_top_k_loss  # noqa: F401
from ._noised import noised_top_k_hinge_loss  # noqa: F401
from ._smoothed import smoothed_top_k_hinge_loss  # noqa: F401
from ._sparse import (  # noqa: F401
    binary_cross_entropy_loss,
    sparse_top_loss,
    sparsemax_loss,
)
from ._top_k import (  # noqa: F401
    calibrated_top_k_hinge_loss,
    convex_top_k_hinge_loss,
    top_k_hinge_loss,
)
from ._two_head import pseudo_positives  # noqa: F401
