"""PyTorch's definitions of the operators of tensor_cores.op, as operators.py's of its own."""
import torch.nn.functional as F


def eager(op, s):
    """name -> function of the input tensors; None for an operator that is not of this suite."""
    return {
        'matmul_tt': lambda a, b: a.t() @ b.t(),
        'linear_gelu': lambda a, b, d: F.gelu(a @ b + d),
        'linear_residual': lambda a, b, d, r: a @ b + d + r,
    }.get(op)
