"""PyTorch's definitions of the operators of visitors.op, as operators.py's of its own."""
import math

import torch
import torch.nn.functional as F


def wide(x):
    """As float32, if it is not wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rotary_projection(x, w, c, n):
    b, s, _ = x.shape
    d = 2 * c.shape[1]
    t, u = (x @ w.t()).view(b, s, -1, d).chunk(2, -1)
    c, n = c[:, None], n[:, None]
    return torch.cat((t * c - u * n, u * c + t * n), -1)


def multi_lora(x, w, a, b, i):
    t = torch.bmm(x, a[i].transpose(1, 2))
    return torch.baddbmm(x @ w.t(), t, b[i].transpose(1, 2), alpha=2)


def softcap_cross_entropy(h, w, i):
    c = 30 * torch.tanh(wide(h @ w.t()) / 30)
    s = torch.logsumexp(c, 1)
    return s - c.gather(1, i.long()[:, None])[:, 0] + 0.0001 * s * s


def zero_point_linear(x, w, s, z, b):
    n, k = w.shape
    w = (w.view(n, s.shape[1], -1) - z[..., None]) * s[..., None]
    return F.linear(x, w.view(n, k), b)


def swin_attention(q, k, v, i, r, a):
    # Windows and their heads as heads, of which all images have the same masks.
    mask = (r[i].permute(2, 0, 1)[None] + a[:, None]).flatten(0, 1)[None]
    o = F.scaled_dot_product_attention(q.flatten(1, 2), k.flatten(1, 2), v.flatten(1, 2), attn_mask=mask, scale=0.176776695)
    return o.view(q.shape)


def gemma_attention(q, k, v, w):
    b, g, h, s, d = q.shape
    i = torch.arange(s, device=q.device)
    behind = i[:, None] - i[None]
    # The heads that share keys as rows beside the tokens.
    c = 50 * torch.tanh(q.flatten(2, 3) @ k.transpose(2, 3) * 0.00125)
    c = c.view(b, g, h, s, s).masked_fill((behind < 0) | (behind >= w), -torch.inf)
    return (torch.softmax(c, -1).view(b, g, h * s, s) @ v).view(b, g, h, s, d)


def prefix_attention(q, k, v, n):
    i = torch.arange(q.shape[2], device=q.device)
    mask = (i[None, :] <= i[:, None]) | (i <= n[:, None, None])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=0.125)


def unet_cross_attention(q, k, v, b):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=b[:, None, None].expand(-1, -1, q.shape[2], -1), scale=0.158113883)
    return o.transpose(1, 2).contiguous()


def decayed_linear_attention(q, k, v, s, a):
    a = 0.1 * a
    decay = torch.exp(a[..., None] - a[..., None, :]).tril()
    o = (q @ k.transpose(3, 4) * decay).to(q.dtype) @ v + q @ s * torch.exp(a)[..., None]
    return o.to(q.dtype)


def ssd_chunk_scan(c, b, a, x):
    d = torch.cumsum(-0.05 * a.abs(), -1)
    decay = torch.exp(d[..., None] - d[..., None, :]).tril()
    e = ((c @ b.transpose(2, 3))[:, None] * decay).to(x.dtype)
    return torch.einsum('bhcij,bcjhp->bcihp', e, x).contiguous()


def rwkv7_step(s, r, w, k, v, a, b):
    dtype = r.dtype
    r, w, k, v, a, b = (wide(x) for x in (r, w, k, v, a, b))
    p = (s * a[:, :, None]).sum(3, keepdim=True)
    n = s * torch.exp(-0.606531 * torch.sigmoid(w))[:, :, None] + p * b[:, :, None] + v[..., None] * k[:, :, None]
    return n, (n * r[:, :, None]).sum(3).to(dtype)


def outer_product_mean(a, b, w):
    p = torch.einsum('sic,sjd->ijcd', a, b) / a.shape[0]
    return p.flatten(2) @ w.flatten(0, 1)


def triangle_multiplication(a, g, b, h, o):
    t = torch.einsum('ikc,jkc->ijc', a * torch.sigmoid(g), b * torch.sigmoid(h))
    return t * torch.sigmoid(o)


def biaffine_scores(h, d, u, b):
    t = h[:, None] @ u
    return t @ d.transpose(1, 2)[:, None] + b[:, None, None]


def monarch_product(x, r, l):
    t = torch.einsum('mpr,pqr->mpq', x, r)
    return torch.einsum('mpq,qsp->msq', t, l).contiguous()


def smoothed_cross_entropy(x, i):
    return F.cross_entropy(wide(x), i.long(), reduction='none', label_smoothing=0.1)


def min_p_filter(x):
    p = torch.softmax(wide(x), 1)
    p = p.masked_fill(p < 0.05 * p.amax(1, keepdim=True), 0)
    return (p / p.sum(1, keepdim=True)).to(x.dtype)


def sandwich_norm(x, r, g, h):
    u = r + F.rms_norm(x, g.shape, g, 1e-6)
    return u, F.rms_norm(u, h.shape, h, 1e-6)


def mbconv_tail(x, d, e, w, r):
    t = F.conv2d(x.permute(0, 3, 1, 2), d.permute(2, 0, 1)[:, None], e, groups=x.shape[3])
    return F.relu6(t).permute(0, 2, 3, 1) @ w.t() + r


def wavenet_layer(x, f, g, w, q):
    h = torch.tanh(F.conv1d(x, f, dilation=q)) * torch.sigmoid(F.conv1d(x, g, dilation=q))
    return F.conv1d(h, w[:, :, None]) + x[:, :, q:]


def variable_diffusion(u, k):
    n = u.shape[0] - 2

    def at(a, z, y, x):
        return a[1 + z:1 + z + n, 1 + y:1 + y + n, 1 + x:1 + x + n]
    uc, kc = at(u, 0, 0, 0), at(k, 0, 0, 0)
    sides = ((-1, 0, 0), (1, 0, 0), (0, -1, 0), (0, 1, 0), (0, 0, -1), (0, 0, 1))
    return uc + 0.05 * sum((kc + at(k, *s)) * (at(u, *s) - uc) for s in sides)


def fdtd_magnetic(ex, ey, ez, hx, hy, hz):
    def here(e):
        return e[:-1, :-1, :-1]

    def dz(e):
        return e[1:, :-1, :-1] - here(e)

    def dy(e):
        return e[:-1, 1:, :-1] - here(e)

    def dx(e):
        return e[:-1, :-1, 1:] - here(e)
    return hx - 0.5 * (dy(ez) - dz(ey)), hy - 0.5 * (dz(ex) - dx(ez)), hz - 0.5 * (dx(ey) - dy(ex))


def stiffness_matrices(g, c):
    t = torch.einsum('eqab,qjb->eqaj', c, g)
    q, n, _ = g.shape
    return g.transpose(1, 2).reshape(3 * q, n).t() @ t.reshape(-1, 3 * q, n)


def interpolate_element(u, b):
    e, n = u.shape[:2]
    q = b.shape[0]
    t = b @ (u @ b.t())
    return (b @ t.view(e, n, q * q)).view(e, q, q, q)


def neighbour_forces(p, i):
    d = p[:, None] - p[i]
    r = d.square().sum(2) + 0.5
    s = 1 / (r * r * r)
    return (d * (24 * (2 * s * s - s) / r)[..., None]).sum(1)


def mixture_moments(x, u, v, w):
    v = torch.exp(0.2 * v)
    a = x.square() @ v.t() - 2 * (x @ (u * v).t()) + (u * u * v).sum(1)
    r = torch.softmax(w - 0.5 * a, 1)
    return r.sum(0), r.t() @ x


def kalman_update(p, h, x, z):
    a = p @ h
    s = (a @ h).abs() + 1
    k = a / s[:, None]
    return x + k * (z - x @ h)[:, None], p - k[:, :, None] * a[:, None]


def spd_inverse3(a):
    s = a @ a.transpose(1, 2) + torch.eye(3, device=a.device, dtype=a.dtype)
    x, y, z = s.unbind(1)
    c = torch.stack((torch.linalg.cross(y, z), torch.linalg.cross(z, x), torch.linalg.cross(x, y)), 2)
    return c / (x * c[:, :, 0]).sum(1)[:, None, None]


def multigrid_restrict(u, f):
    r = f + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * u[1:-1, 1:-1]
    t = r[:, :-2:2] + 2 * r[:, 1:-1:2] + r[:, 2::2]
    return (t[:-2:2] + 2 * t[1:-1:2] + t[2::2]) / 16


def lattice_collide19(f, c, w):
    g = f.abs().flatten(1)
    d = g.sum(0)
    v = c.t() @ g / d
    s = 3 * (c @ v)
    rest = w.abs()[:, None] * d * (1 + s + 0.5 * s * s - 1.5 * (v * v).sum(0))
    return (g - 0.6 * (g - rest)).view(f.shape)


def local_contrast(x):
    b, h, w = x.shape
    taps = [math.exp(-0.125 * (r - 4) ** 2) for r in range(9)]
    taps = [t / sum(taps) for t in taps]

    def blur(x):
        x = sum(t * x[:, :, s:s + w - 8] for s, t in enumerate(taps))
        return sum(t * x[:, s:s + h - 8] for s, t in enumerate(taps))
    m = blur(x)
    return (x[:, 4:-4, 4:-4] - m) * torch.rsqrt(torch.relu(blur(x * x) - m * m) + 0.01)


def census_cost(l, r, d):
    def darker(x):
        h, w = x.shape[0] - 4, x.shape[1] - 4
        return torch.stack([x[u:u + h, v:v + w] < x[2:2 + h, 2:2 + w] for u in range(5) for v in range(5)])
    a, b = darker(l), darker(r)
    return (a[:, :, None] != b.unfold(2, a.shape[2], 1)).sum(0, dtype=l.dtype).transpose(0, 1).contiguous()


def median3x3(x):
    def ordered(a, b, c):
        low, high = torch.minimum(a, b), torch.maximum(a, b)
        return torch.minimum(low, c), torch.maximum(low, torch.minimum(high, c)), torch.maximum(high, c)

    def three(x):
        return x[:, :-2], x[:, 1:-1], x[:, 2:]
    low, middle, high = ordered(x[:-2], x[1:-1], x[2:])
    return ordered(ordered(*three(low))[2], ordered(*three(middle))[1], ordered(*three(high))[0])[1]


def weighted_median(x, w):
    v, o = torch.sort(x, 1)
    c = w.gather(1, o).cumsum(1)
    k = (2 * c < c[:, -1:]).sum(1, keepdim=True)
    return v.gather(1, k)[:, 0]


def cluster_means(x, i, c):
    one = (i[:, None] == torch.arange(c, device=i.device)).to(x.dtype)
    return one.t() @ x / one.sum(0).clamp(min=1)[:, None]


def max_drawdown(x):
    p = torch.cumsum(x, 1)
    return (torch.cummax(p, 1).values - p).amax(1)


def ewma_volatility(x):
    i = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)
    return torch.sqrt(0.06 * ((x * x) @ torch.pow(0.94, (i[None] - i[:, None]).abs()).triu()))


def gat_dense(a, s, t, x):
    e = F.leaky_relu(s.t()[:, :, None] + t.t()[:, None], 0.2).masked_fill(a <= 0, -torch.inf)
    return (torch.softmax(e, 2) @ x.transpose(0, 1)).transpose(0, 1).contiguous()


def dlrm_interaction(x, i, e):
    z = torch.cat((x[:, None], e[torch.arange(e.shape[0], device=e.device), i]), 1)
    return z @ z.transpose(1, 2)


def adafactor_step(p, g, r, c):
    q = g * g
    a, b = 0.999 * r.abs() + 0.001 * q.mean(1), 0.999 * c.abs() + 0.001 * q.mean(0)
    u = g * torch.rsqrt(a[:, None] * b / a.mean())
    return a, b, p - 0.01 * u / u.square().mean().sqrt().clamp(min=1)


def lion_clip(p, g, e):
    g = g * (1 / (g.norm() + 1e-6)).clamp(max=1)
    return p * 0.99999 - 0.0001 * torch.sign(0.9 * e + 0.1 * g), 0.99 * e + 0.01 * g


def welch_t(a, b):
    (u, m), (v, n) = torch.var_mean(a, 1), torch.var_mean(b, 1)
    return (m - n) * torch.rsqrt(u / a.shape[1] + v / b.shape[1])


def weno5(u):
    n = u.shape[1] - 4
    a, b, c, d, e = (u[:, i:i + n] for i in range(5))
    s = 13 / 12 * (a - 2 * b + c).square() + 0.25 * (a - 4 * b + 3 * c).square()
    t = 13 / 12 * (b - 2 * c + d).square() + 0.25 * (b - d).square()
    v = 13 / 12 * (c - 2 * d + e).square() + 0.25 * (3 * c - 4 * d + e).square()
    p, q, r = 0.1 / (s + 0.001).square(), 0.6 / (t + 0.001).square(), 0.3 / (v + 0.001).square()
    return (p * (2 * a - 7 * b + 11 * c) + q * (5 * c - b + 2 * d) + r * (2 * c + 5 * d - e)) / (6 * (p + q + r))


def sinkhorn_step(c, g):
    f = -0.5 * torch.logsumexp((g - c) * 2, 1)
    return f, -0.5 * torch.logsumexp((f[:, None] - c) * 2, 0)


def crps_ensemble(x, o):
    n = x.shape[0]
    return (x - o).abs().mean(0) - (x[:, None] - x[None]).abs().sum((0, 1)) / (2 * n * n)


def eager(op, s):
    f = {
        'geglu_tanh_bias': lambda x, g, u, b, c: F.gelu(F.linear(x, g, b), approximate='tanh') * F.linear(x, u, c),
        'qkv_head_norm': lambda x, w, g: F.rms_norm((x @ w.t()).view(x.shape[0], -1, g.shape[0]), g.shape, g, 1e-6),
        'rotary_projection': rotary_projection,
        'multi_lora': multi_lora,
        'softcap_cross_entropy': softcap_cross_entropy,
        'expert_swiglu_up': lambda x, g, u: F.silu(torch.bmm(x, g)) * torch.bmm(x, u),
        'zero_point_linear': zero_point_linear,
        'mla_kv_up': lambda x, a, g, u: F.rms_norm(x @ a.t(), g.shape, g, 1e-6) @ u.t(),
        'swin_attention': swin_attention,
        'gemma_attention': lambda q, k, v: gemma_attention(q, k, v, s['w']),
        'prefix_attention': prefix_attention,
        'unet_cross_attention': unet_cross_attention,
        'decayed_linear_attention': decayed_linear_attention,
        'ssd_chunk_scan': ssd_chunk_scan,
        'rwkv7_step': rwkv7_step,
        'outer_product_mean': outer_product_mean,
        'triangle_multiplication': triangle_multiplication,
        'biaffine_scores': biaffine_scores,
        'monarch_product': monarch_product,
        'smoothed_cross_entropy': smoothed_cross_entropy,
        'min_p_filter': min_p_filter,
        'sandwich_norm': sandwich_norm,
        'conv3s2_bn_silu': lambda x, f, a, b: F.silu(F.conv2d(x, f, stride=2) * a[:, None, None] + b[:, None, None]),
        'mbconv_tail': mbconv_tail,
        'wavenet_layer': lambda x, f, g, w: wavenet_layer(x, f, g, w, s['q']),
        'vocoder_upsample': lambda x, w, b: F.conv_transpose1d(F.leaky_relu(x, 0.1), w, b, stride=8, padding=4),
        'conv_group_norm_silu': lambda x, f, g, b: F.silu(F.group_norm(F.conv2d(x, f), s['g'], g, b, 1e-5)),
        'variable_diffusion': variable_diffusion,
        'fdtd_magnetic': fdtd_magnetic,
        'stiffness_matrices': stiffness_matrices,
        'interpolate_element': interpolate_element,
        'neighbour_forces': neighbour_forces,
        'mixture_moments': mixture_moments,
        'kalman_update': kalman_update,
        'spd_inverse3': spd_inverse3,
        'multigrid_restrict': multigrid_restrict,
        'lattice_collide19': lattice_collide19,
        'local_contrast': local_contrast,
        'census_cost': lambda l, r: census_cost(l, r, s['d']),
        'median3x3': median3x3,
        'soft_histogram': lambda x, c: torch.exp(-8 * (x[:, :, None] - c).square()).mean(1),
        'weighted_median': weighted_median,
        'cluster_means': lambda x, i: cluster_means(x, i, s['c']),
        'pca_project': lambda x, v: (x - x.mean(0)) @ v,
        'log_cumsum_exp': lambda x: torch.logcumsumexp(x, 1),
        'max_drawdown': max_drawdown,
        'ewma_volatility': ewma_volatility,
        'mfcc': lambda p, m, c: torch.log((p * p) @ m.abs().t() + 1e-6) @ c.t(),
        'gat_dense': gat_dense,
        'dlrm_interaction': dlrm_interaction,
        'gradient_penalty': lambda g: (g.norm(dim=1) - 1).square().mean()[None],
        'adafactor_step': adafactor_step,
        'lion_clip': lion_clip,
        'welch_t': welch_t,
        'weno5': weno5,
        'sinkhorn_step': sinkhorn_step,
        'crps_ensemble': crps_ensemble,
    }
    return f.get(op)
