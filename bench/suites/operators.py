"""PyTorch's definitions of the operators of operators.op, for versus.py --definitions.

`eager(op, shape)` returns a function of the input tensors, in the operator's own order; a tuple
where the operator has several outputs, in their order. It computes in the type of its inputs, so
that float64 inputs give the reference. None for an operator that is not of this suite.
"""
import torch
import torch.nn.functional as F


def below(x):
    """Where the lower triangle of the last two dimensions is."""
    return torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril()


def lstm_cell(a, w, b, c):
    i, f, g, o = F.linear(a, w, b).chunk(4, 1)
    c2 = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return c2, torch.sigmoid(o) * torch.tanh(c2)


def sgd_nesterov(p, g, v):
    d = g + 0.0001 * p
    v2 = 0.9 * v + d
    return v2, p - 0.01 * (d + 0.9 * v2)


def rms_norm_residual(x, r, g):
    h = x + r
    return h, F.rms_norm(h, (h.shape[-1],), g, 1e-6)


def batch_norm_stats(x):
    var, mean = torch.var_mean(x, (0, 2, 3), correction=0)
    return mean, var


def gqa_attention(q, k, v):
    """The heads of a group are more rows of one problem."""
    h, g, s, d = q.shape
    rows = q.reshape(1, h, g * s, d)
    return F.scaled_dot_product_attention(rows, k[None], v[None], scale=0.125).reshape(q.shape)


def causal_attention(q, k, v):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True,
                                          scale=0.125)[0]


def decode_attention(q, k, v):
    return F.scaled_dot_product_attention(q[:, None, None], k[:, None], v[:, None],
                                          scale=0.125)[:, 0, 0]


def eager(op, s):
    f = {
        'geglu': lambda a, g, u: F.gelu(a @ g) * (a @ u),
        'kv_projection': lambda a, wk, wv: (F.linear(a, wk), F.linear(a, wv)),
        'lstm_cell': lstm_cell,
        'bilinear_form': lambda x, w, z: torch.einsum('qi,pij,qj->qp', x, w, z),
        'tril_matmul': lambda a, b: torch.tril(a) @ b,
        'gram': lambda x: x.t() @ x,
        'tensor_contraction': lambda x, z: torch.einsum('ipjq,lqkp->ijkl', x, z),
        'max_plus': lambda a, b: (a[:, :, None] + b[None]).amax(1),
        'cdist_l1': lambda a, b: torch.cdist(a, b, p=1),
        'cdist_l2': lambda a, b: torch.cdist(a, b),
        'chebyshev': lambda a, b: torch.cdist(a, b, p=float('inf')),
        'conv1d': lambda x, w: F.conv1d(x, w, padding=s['pad']),
        'grouped_conv1d': lambda x, w: F.conv1d(x.reshape(1, -1, x.shape[-1]),
                                                w.reshape(-1, *w.shape[2:]), padding=s['pad'],
                                                groups=s['g']),
        'dilated_conv2d': lambda x, w: F.conv2d(x, w, padding=s['pad'], dilation=s['dilation']),
        'conv_transpose1d': lambda x, w: F.conv_transpose1d(x, w, stride=s['stride'],
                                                            padding=s['pad']),
        'temporal_conv3d': lambda x, w: F.conv3d(x, w[..., None, None], padding=(s['pad'], 0, 0)),
        'depthwise_separable': lambda x, d, w: F.conv2d(
            F.conv2d(x, d[:, None], padding=s['pad'], groups=s['c']), w[:, :, None, None]),
        'avg_pool2d': lambda x: F.avg_pool2d(x, s['k'], s['stride'], s['pad']),
        'padded_max_pool2d': lambda x: F.max_pool2d(x, s['k'], s['stride'], s['pad']),
        'moving_average': lambda x: F.avg_pool1d(x[:, None], s['w'], 1)[:, 0],
        'upsample_nearest': lambda x: F.interpolate(x, scale_factor=s['s'], mode='nearest'),
        'upsample_bilinear': lambda x: F.interpolate(x, scale_factor=2, mode='bilinear',
                                                     align_corners=False),
        'pixel_unshuffle': lambda x: F.pixel_unshuffle(x, s['u']),
        'im2col': lambda x: F.unfold(x, s['k'], padding=s['pad']),
        'outer_product': lambda a, b: a[:, :, None] * b[:, None, :],
        'concat_columns': lambda a, b: torch.cat((a, b), 1),
        'bias_gelu_dropout': lambda x, b, u: torch.where(u < 0.125, 0.0, F.gelu(x + b) / 0.875),
        'sgd_nesterov': sgd_nesterov,
        'soft_cross_entropy': lambda x, t: F.cross_entropy(x, t, reduction='none'),
        'l2_normalize': lambda x: F.normalize(x, dim=-1, eps=1e-12),
        'cosine_similarity': lambda a, b: F.cosine_similarity(a, b, dim=-1, eps=1e-8),
        'rms_norm_residual': rms_norm_residual,
        'row_argmax': lambda x: x.argmax(-1).to(x.dtype),
        'causal_softmax': lambda x: torch.softmax(x.masked_fill(~below(x), float('-inf')), -1),
        'log_sum_exp_columns': lambda x: torch.logsumexp(x, 0),
        'norm_grad_params': lambda dy, x, z, r: ((dy * (x - z[:, None]) * r[:, None]).sum(0),
                                                 dy.sum(0)),
        'mse_loss': lambda a, b: F.mse_loss(a, b),
        'batch_norm_stats': batch_norm_stats,
        'batch_norm_train': lambda x, g, b: F.batch_norm(x, None, None, g, b, training=True,
                                                         eps=1e-5),
        'instance_norm': lambda x, g, b: F.instance_norm(x, weight=g, bias=b, eps=1e-5),
        'causal_attention': causal_attention,
        'gqa_attention': gqa_attention,
        'decode_attention': decode_attention,
    }
    return f.get(op)
