"""What graphs of torch.compile leave to Python.

Imported only while a graph is traced: to say so imports the compiler, which takes long.
"""

import torch

from ._random import draw_mask

draw_mask_outside_graphs = torch.compiler.disable(draw_mask)
