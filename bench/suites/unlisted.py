"""PyTorch's definitions of the operators of unlisted.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def lstm_gate(x, w, h, u, b, c):
    p = torch.einsum('mk,gkn->gmn', x, w) + torch.einsum('mk,gkn->gmn', h, u) + b[:, None]
    c2 = torch.sigmoid(p[1]) * c + torch.sigmoid(p[0]) * torch.tanh(p[2])
    return c2, torch.sigmoid(p[3]) * torch.tanh(c2)


def adam(p, g, m, v):
    m2 = 0.9 * m + 0.1 * g
    v2 = 0.999 * v.abs() + 0.001 * g * g
    return m2, v2, p - 0.001 * m2 / (v2.sqrt() + 1e-8)


def linear_cross_entropy(h, w, t):
    logits = h @ w.t()
    return torch.logsumexp(logits, 1) - (t * logits).sum(1)


def layer_norm_gelu_linear(x, g, b, w, c):
    return F.gelu(F.layer_norm(x, x.shape[-1:], g, b, 1e-5) @ w + c)


def group_norm_silu(x, g, b):
    n, k, c, h, w = x.shape
    y = F.group_norm(x.view(n, k * c, h, w), k, g.reshape(-1), b.reshape(-1), 1e-5)
    return F.silu(y).view_as(x)


def squeeze_excite(x, w1, w2):
    e = torch.relu(x.mean((2, 3)) @ w1.t()) @ w2.t()
    return x * torch.sigmoid(e)[:, :, None, None]


def rope(x, c, s):
    a, b = x.chunk(2, -1)
    c, s = c[:, None], s[:, None]
    return torch.cat((a * c - b * s, b * c + a * s), -1)


def layer_norm_bwd(x, d, g, mu, r):
    z, e = (x - mu[:, None]) * r[:, None], d * g
    return r[:, None] * (e - e.mean(1, keepdim=True) - z * (e * z).mean(1, keepdim=True))


def glu_conv1d(x, w, v):
    return F.conv1d(x, w) * torch.sigmoid(F.conv1d(x, v))


def quant_dequant(x):
    a = x.abs().amax(1, keepdim=True)
    return (x * 127 / a.clamp_min(1e-6)).clamp(-127, 127) * a / 127


def stencil3d(x):
    i = slice(1, -1)
    return 0.4 * x[i, i, i] + 0.1 * (x[:-2, i, i] + x[2:, i, i] + x[i, :-2, i] + x[i, 2:, i]
                                    + x[i, i, :-2] + x[i, i, 2:])


def bilateral5(x):
    h, w = x.shape[0] - 4, x.shape[1] - 4
    near = [x[r:r + h, s:s + w] for r in range(5) for s in range(5)]
    weights = [torch.exp(-(y - near[12]).square()) for y in near]
    return sum(a * y for a, y in zip(weights, near)) / sum(weights)


def blur_separable(x, k):
    t = F.conv2d(x[None, None], k.view(1, 1, 1, 9))
    return F.conv2d(t, k.view(1, 1, 9, 1))[0, 0]


def depthwise1d_causal(x, w):
    k, d = w.shape
    y = F.conv1d(F.pad(x.transpose(1, 2), (k - 1, 0)), w.t()[:, None], groups=d)
    return y.transpose(1, 2)


def conv2d_nhwc(x, w):
    return F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


def eager(op, s):
    f = {
        'rnn_cell': lambda x, w, h, u, b: torch.tanh(x @ w + h @ u + b),
        'lora': lambda x, w, a, b: x @ w + 2 * (x @ a @ b),
        'complex_matmul': lambda ar, ai, br, bi: (ar @ br - ai @ bi, ar @ bi + ai @ br),
        'residual_downsample': lambda x, w, v: torch.relu(
            F.conv2d(x, w, stride=2) + F.conv2d(x[:, :, :-1, :-1], v[:, :, None, None], stride=2)),
        'lstm_gate': lstm_gate,
        'cosine_matrix': lambda a, b: F.normalize(a, dim=1) @ F.normalize(b, dim=1).t(),
        'swiglu_mlp': lambda x, w1, w2, w3: (F.silu(x @ w1) * (x @ w2)) @ w3,
        'mlp_residual': lambda x, w, v, b, c: x + torch.relu(x @ w + b) @ v + c,
        'mlp_residual_bf16': lambda x, w, v, b, c: x + torch.relu(x @ w + b) @ v + c,
        'linear_cross_entropy': linear_cross_entropy,
        'layer_norm_gelu_linear': layer_norm_gelu_linear,
        'attention_bias': lambda q, k, v, p: F.scaled_dot_product_attention(
            q, k, v, attn_mask=p, scale=0.125),
        'einsum_bhqk': lambda q, k: torch.einsum('bqhd,bkhd->bhqk', q, k) * 0.125,
        'glu_conv1d': glu_conv1d,
        'conv_bwd_w': lambda x, d: torch.nn.grad.conv2d_weight(
            x, (d.shape[1], x.shape[1], 3, 3), d),
        'conv_bwd_x': lambda d, w: F.conv_transpose2d(d, w, padding=2),
        'group_norm_silu': group_norm_silu,
        'squeeze_excite': squeeze_excite,
        'mttkrp': lambda x, b, c: torch.einsum('ijk,jr,kr->ir', x, b, c),
        'linear_attention': lambda q, k, v: q @ (k.transpose(1, 2) @ v),
        'covariance': lambda x: (x - x.mean(0)).t() @ (x - x.mean(0)),
        'pairwise_rbf': lambda a, b: torch.exp(-0.01 * torch.cdist(a, b).square()),
        'batched_gemv': lambda a, x: (a @ x[..., None])[..., 0],
        'gemv': lambda a, x: a @ x,
        'cumsum': lambda x: x.cumsum(1),
        'cumsum_cols': lambda x: x.cumsum(0),
        'softmax_columns': lambda x: torch.softmax(x, 0),
        'softmax_bwd': lambda y, d: y * (d - (y * d).sum(1, keepdim=True)),
        'kl_div': lambda p, q: (p.exp() * (p - q)).sum() / p.shape[0],
        'layer_norm_bwd': layer_norm_bwd,
        'quant_dequant': quant_dequant,
        'adam': adam,
        'rope': rope,
        'permute_4d': lambda x: x.permute(0, 2, 1, 3).contiguous(),
        'stencil3d': stencil3d,
        'blur_separable': blur_separable,
        'bilateral5': bilateral5,
        'depthwise1d_causal': depthwise1d_causal,
        'embedding': lambda i, e: F.embedding(i, e),
        'embedding_bag': lambda i, w, e: F.embedding_bag(i, e, per_sample_weights=w, mode='sum'),
        'gathered_matmul': lambda e, i, w: F.embedding(i, e) @ w,
        'conv2d_nhwc': conv2d_nhwc,
        'conv2d_nchw': lambda x, w: F.conv2d(x, w),
    }
    return f.get(op)
