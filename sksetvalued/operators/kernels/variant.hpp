// All kernels, for vectors of LANES numbers and an instruction set of a NAME.

#include "lanes.hpp"
#include "memory.hpp"
#include "rows.hpp"
#include "random.hpp"
#include "dropout.hpp"
#include "noised.hpp"
#include "short_rows.hpp"
#include "selection.hpp"
#include "hinges.hpp"
#include "polynomials.hpp"
#include "heads.hpp"
#include "smoothed.hpp"
#include "two_head.hpp"
#include "sparse.hpp"
#include "sparse_losses.hpp"

const Kernels kernels = {NAME,
                         select_rows,
                         largest_rows,
                         hinge_rows,
                         hinge_gradient_rows,
                         smoothed_width,
                         smoothed_rows,
                         smoothed_gradient_rows,
                         project_rows,
                         project_gradient_rows,
                         fenchel_young_rows,
                         spread_rows,
                         two_head_rows,
                         draw_mask};

#undef LANES
#undef NAME
