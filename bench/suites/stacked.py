"""PyTorch's definitions of the operators of stacked.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def highway_gate(x, u, v, a, b):
    g = torch.sigmoid(torch.addmm(a, x, u))
    return g * torch.tanh(torch.addmm(b, x, v)) + (1 - g) * x


def eager(op, s):
    f = {
        'swiglu_up': lambda x, u, v: F.silu(F.linear(x, u)) * F.linear(x, v),
        'highway_gate': highway_gate,
        'quadratic_layer': lambda x, u, v, w: F.linear(x, u) * F.linear(x, v) + F.linear(x, w),
    }
    return f.get(op)
