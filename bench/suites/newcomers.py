"""PyTorch's definitions of the operators of newcomers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def correlation_volume(f, g):
    h, w = f.shape[1:]
    d = g.shape[1] - h + 1
    rows = [(f * g[:, u:u + h, v:v + w]).sum(0) for u in range(d) for v in range(d)]
    return torch.stack(rows, -1).view(h, w, d, d)


def ssim_map(a, b):
    def mean(x):
        return F.avg_pool2d(x[None, None], 7, 1)[0, 0]
    u, v = mean(a), mean(b)
    return ((2 * u * v + 0.01) * (2 * (mean(a * b) - u * v) + 0.03)
            / ((u * u + v * v + 0.01) * (mean(a * a) - u * u + mean(b * b) - v * v + 0.03)))


def residual_layer_norm(x, r, g, b):
    h = x + r
    return h, F.layer_norm(h, g.shape, g, b, 1e-5)


def attention_pooling(x, w):
    p = torch.softmax(x @ w, 1)
    return (p[:, None] @ x)[:, 0]


def bicubic_upsample(x, k):
    n, c, h, w = x.shape
    taps = torch.einsum('yr,xs->yxrs', k, k).reshape(4, 1, 4, 4)
    y = F.conv2d(x.view(n * c, 1, h, w), taps)
    return F.pixel_shuffle(y, 2).view(n, c, 2 * (h - 3), 2 * (w - 3))


def focal_sums(x, t):
    p = torch.sigmoid(x)
    return -(t * (1 - p).square() * torch.log(p + 1e-5) + (1 - t) * p.square() * torch.log(1.00001 - p)).sum(1)


def batch_norm_bwd(d, x, g, u, i):
    def of(v):
        return v[:, None, None]
    n = x.numel() // x.shape[1]
    b = d.sum((0, 2, 3))
    xh = (x - of(u)) * of(i)
    a = (d * xh).sum((0, 2, 3))
    return b, a, of(g * i) * (d - (of(b) + xh * of(a)) / n)


def alibi_softmax(x, a):
    i = torch.arange(x.shape[1], device=x.device)
    t = x - a[:, None, None] * 0.01 * (i[:, None] - i[None])
    return torch.softmax(t.masked_fill(i[None] > i[:, None], -3e38), 2)


def softcap_attention(q, k, v):
    return torch.softmax(30 * torch.tanh((q @ k.transpose(1, 2)) / 240), 2) @ v


def softmax_entropy(x):
    l = torch.log_softmax(x, 1)
    return -(l.exp() * l).sum(1)


def lion(p, g, e):
    return p * 0.999 - 0.001 * torch.sign(0.9 * e + 0.1 * g), 0.99 * e + 0.01 * g


def roll_windows(x):
    b, h, w, c = x.shape
    return (torch.roll(x, (-4, -4), (1, 2)).view(b, h // 8, 8, w // 8, 8, c)
            .permute(0, 1, 3, 2, 4, 5).contiguous())


def toeplitz_product(t, b):
    n = b.shape[0]
    i = torch.arange(n, device=b.device)
    return t[i[:, None] - i[None] + n] @ b


def row_quantize(x):
    s = x.abs().amax(1)
    return s, x * 127 / (s[:, None] + 1e-6)


def factorization_machine(e):
    return 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(1)


def masked_mean(x, n):
    i = torch.arange(x.shape[1], device=x.device)
    return torch.where((i[None] <= n[:, None])[..., None], x, 0).sum(1) / (n[:, None] + 1)


def mahalanobis(x, u, a):
    return ((x[:, None] - u[None]) @ a).square().sum(2)


def heat(x):
    return x[1:-1, 1:-1] + 0.1 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1])


def rotate(x):
    h = x.shape[-1] // 2
    return torch.cat((-x[..., h:], x[..., :h]), -1)


def eager(op, s):
    f = {
        'row_dots': lambda a, b: (a * b).sum(1),
        'late_interaction': lambda q, d: torch.einsum('aik,bjk->abij', q, d).amax(3).sum(2),
        'correlation_volume': correlation_volume,
        'ssim_map': ssim_map,
        'expert_ffn': lambda x, a, b: torch.bmm(torch.relu(torch.bmm(x, a)), b),
        'log_softmax': lambda x: torch.log_softmax(x, 1),
        'norm_linear': lambda x, g, w: F.rms_norm(x, g.shape, g, 1e-6) @ w.t(),
        'residual_layer_norm': residual_layer_norm,
        'attention_pooling': attention_pooling,
        'bicubic_upsample': bicubic_upsample,
        'huber_mean': lambda x, t: F.smooth_l1_loss(x, t, beta=1)[None],
        'triplet_loss': lambda a, p, n: torch.relu((a - p).norm(dim=1) - (a - n).norm(dim=1) + 1),
        'focal_sums': focal_sums,
        'histogram': lambda i: torch.zeros(s['n'], device=i.device).scatter_add_(
            0, i.long(), torch.ones_like(i, dtype=torch.float32)),
        'bilinear_pooling': lambda x, y: torch.bmm(x, y.transpose(1, 2)),
        'batch_norm_bwd': batch_norm_bwd,
        'alibi_softmax': alibi_softmax,
        'softcap_attention': softcap_attention,
        'cross_attention': lambda q, k, v: F.scaled_dot_product_attention(
            q[None], k[None], v[None], scale=0.111803399)[0],
        'softmax_entropy': softmax_entropy,
        'lion': lion,
        'channel_shuffle': lambda x: x.transpose(1, 2).contiguous(),
        'roll_windows': roll_windows,
        'toeplitz_product': toeplitz_product,
        'low_rank_plus_diagonal': lambda x, u, v, d: torch.addcmul((x @ v) @ u.t(), x, d),
        'box31': lambda x: F.avg_pool2d(x[None, None], 31, 1)[0, 0],
        'column_max_abs': lambda x: x.abs().amax(0),
        'row_quantize': row_quantize,
        'mobile_head': lambda x, w, b: F.hardswish(F.conv2d(x, w[..., None, None], b)),
        'depthwise_bias_relu6': lambda x, w, b: F.relu6(F.conv2d(x, w[:, None], b, groups=w.shape[0])),
        'whisper_conv1d': lambda x, w, b: F.gelu(F.conv1d(x, w, b, 2)),
        'patch_embedding': lambda x, w, b: F.conv2d(x, w, b, s['p']).permute(0, 2, 3, 1).contiguous(),
        'factorization_machine': factorization_machine,
        'feature_interaction': lambda e: torch.bmm(e, e.transpose(1, 2)),
        'masked_mean': masked_mean,
        'mahalanobis': mahalanobis,
        'two_steps_of_heat': lambda x: heat(heat(x)),
        'layer_norm_channels_last_scale': lambda x, g, b, r: r + g * (F.layer_norm(x, g.shape, None, None, 1e-6) + b),
        'rope_scores': lambda q, k, c, n: (q * c + rotate(q) * n) @ (k * c + rotate(k) * n).transpose(1, 2),
    }
    return f.get(op)
