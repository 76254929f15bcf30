"""What graphs of torch.compile leave to Python.

Imported only while a graph is traced: to say so imports the compiler, which takes long.
"""

import torch

from ._noised import select_eagerly

select_outside_graphs = torch.compiler.disable(select_eagerly)
