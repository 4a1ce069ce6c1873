"""The two passes over the weights that every training step makes: moments, and the divergence.

`reference.py` is the readable version in torch; the gradients are written out (see its docstrings),
which saves the graph of a dozen element-wise operations per weight.
"""

from slabnet.kernels.mixture import mixture_bump
from slabnet.kernels.reference import slab_kl, slab_moments

__all__ = ["mixture_bump", "slab_kl", "slab_moments"]
