"""PyTorch's definitions of the operators of unseen.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def window_attention(q, k, v, w):
    s = q.shape[1]
    i = torch.arange(s, device=q.device)
    mask = (i[None] <= i[:, None]) & (i[:, None] - i[None] < w)
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=0.125)[0]


def grouped_conv2d(x, w):
    n, g, ci, h, wd = x.shape
    y = F.conv2d(x.view(n, g * ci, h, wd), w.reshape(-1, *w.shape[2:]), groups=g)
    return y.view(n, g, -1, h - 2, wd - 2)


def layer_norm_channels(x, g, b):
    return F.layer_norm(x.permute(0, 2, 3, 1), (x.shape[1],), g, b, 1e-6).permute(0, 3, 1, 2).contiguous()


def bias_relu_bwd(d, y):
    g = torch.where(y > 0, d, 0)
    return g, g.sum(0)


def dct8(x, c):
    h, w = x.shape
    t = x.view(h // 8, 8, w // 8, 8)
    return torch.einsum('ypxq,vp,uq->yvxu', t, c, c).reshape(h, w)


def nbody(p, m):
    d = p[None] - p[:, None]
    r = torch.rsqrt(d.square().sum(-1) + 0.01)
    return ((m * r * r * r)[..., None] * d).sum(1)


def stft_power(x, c, s, hop):
    frames = x.unfold(0, c.shape[1], hop)
    return (frames @ c.t()).square() + (frames @ s.t()).square()


def sobel(x):
    a = x[:-2, 2:] - x[:-2, :-2] + 2 * (x[1:-1, 2:] - x[1:-1, :-2]) + x[2:, 2:] - x[2:, :-2]
    b = x[2:, :-2] - x[:-2, :-2] + 2 * (x[2:, 1:-1] - x[:-2, 1:-1]) + x[2:, 2:] - x[:-2, 2:]
    return (a.square() + b.square()).sqrt()


def relative_scores(q, k, r):
    s = q.shape[1]
    i = torch.arange(s, device=q.device)
    p = (q @ r.t()).gather(2, (i[None] - i[:, None] + s).expand(q.shape[0], s, s))
    return (q @ k.transpose(1, 2) + p) * 0.125


def qk_norm_scores(q, k):
    d = q.shape[-1]
    return (F.rms_norm(q, (d,), eps=1e-6) @ F.rms_norm(k, (d,), eps=1e-6).transpose(1, 2)) * 0.125


def local_response_norm(x):
    s = F.avg_pool3d(F.pad(x.square()[:, None], (0, 0, 0, 0, 2, 2)), (5, 1, 1), 1)[:, 0] * 5
    return x * torch.pow(1 + 0.00002 * s, -0.75)


def eager(op, s):
    f = {
        'window_attention': lambda q, k, v: window_attention(q, k, v, s['w']),
        'conv3d': F.conv3d,
        'conv_transpose2d': lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
        'grouped_conv2d': grouped_conv2d,
        'max_pool3d': lambda x: F.max_pool3d(x, 2),
        'global_avg_pool': lambda x: x.mean((2, 3)),
        'local_response_norm': local_response_norm,
        'cross_entropy_labels': lambda x, l: torch.logsumexp(x, 1) - x.gather(1, l.long()[:, None])[:, 0],
        'layer_norm_channels': layer_norm_channels,
        'softmax_channels': lambda x: torch.softmax(x, 1),
        'middle_sum': lambda x: x.sum(1),
        'cummax': lambda x: torch.cummax(x, 1)[0],
        'batch_gram': lambda x: torch.einsum('bik,bjk->ij', x, x),
        'three_products': lambda a, b, c: a @ b @ c,
        'einsum_chain': lambda x, y, z: torch.einsum('ij,jk,kl->il', x, y, z),
        'kron': torch.kron,
        'bias_relu_bwd': bias_relu_bwd,
        'small_rows_softmax': lambda x: torch.softmax(x, 1),
        'long_row_norms': lambda x: torch.linalg.vector_norm(x, dim=1),
        'nearest_point': lambda a, b: torch.cdist(a, b).square().amin(1),
        'gaussian7': lambda x, k: F.conv2d(x[None, None], k[None, None])[0, 0],
        'dilation5': lambda x: F.max_pool2d(x[None, None], 5, 1)[0, 0],
        'sobel': sobel,
        'stft_power': lambda x, c, w: stft_power(x, c, w, s['hop']),
        'fir_bank': lambda x, w: F.conv1d(x[:, None], w[:, None]),
        'dct8': dct8,
        'nbody': nbody,
        'group_scaled_matmul': lambda x, w, c: x @ (w.view(-1, s['g'], s['n']) * c[:, None]).view_as(w),
        'group_scaled_matmul_bf16': lambda x, w, c: x @ (w.view(-1, s['g'], s['n']) * c[:, None]).view_as(w),
        'quadratic_form': lambda x, a: ((x @ a) * x).sum(1),
        'relative_scores': relative_scores,
        'tiny_matmuls': torch.bmm,
        'tall_skinny': lambda a, b, c: torch.relu(torch.addmm(c, a, b)),
        'bce_mean': lambda x, t: F.binary_cross_entropy_with_logits(x, t)[None],
        'depthwise7_nhwc': lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w.permute(2, 0, 1)[:, None],
                                                 groups=w.shape[2]).permute(0, 2, 3, 1),
        'pixel_shuffle': lambda x: F.pixel_shuffle(x, 2),
        'std_rows': lambda x: x.std(1),
        'qk_norm_scores': qk_norm_scores,
        'moe_router': lambda x, w: torch.softmax(x @ w.t(), 1),
        'causal_attention_d128': lambda q, k, v: F.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=True, scale=0.088388347)[0],
    }
    return f.get(op)
