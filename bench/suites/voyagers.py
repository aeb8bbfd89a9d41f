"""PyTorch's definitions of the operators of voyagers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def droppath_layerscale_linear(x, w, b, a, r, k):
    scale = (k.to(a.dtype) / 0.9)[:, None, None] * a
    return torch.addcmul(r, F.linear(x, w, b), scale)


def chunked_prefill_attention(q, k, v, mask):
    g, h, c, d = q.shape
    y = F.scaled_dot_product_attention(q.view(1, g * h, c, d), k[None], v[None], attn_mask=mask, scale=0.08838834764831845, enable_gqa=True)
    return y.view(g, h, c, d)


def mla_prefill_attention(q, p, k, r, v):
    q = torch.cat((q, p), 2).transpose(0, 1)
    k = torch.cat((k, r[:, None].expand(-1, k.shape[1], -1)), 2).transpose(0, 1)
    y = F.scaled_dot_product_attention(q[None], k[None], v.transpose(0, 1)[None], is_causal=True, scale=0.07216878364870322)
    return y[0].transpose(0, 1).contiguous()


def shared_expert_gate(a, w, x, g, r):
    gate, up = a.chunk(2, 1)
    return torch.addcmul(r, F.linear(F.silu(gate) * up, w), torch.sigmoid(x @ g)[:, None])


def conv3s2_wgrad_nhwc(x, g):
    w = x.new_empty(g.shape[3], x.shape[3], 3, 3).to(memory_format=torch.channels_last)
    one, two = [1, 1], [2, 2]
    d = torch.ops.aten.convolution_backward(g.permute(0, 3, 1, 2), x.permute(0, 3, 1, 2), w, None, two, one, one, False, [0, 0], 1,
                                            [False, True, False])[1]
    return d.permute(0, 2, 3, 1).contiguous()


def delta_qk_prepare(x, w, d):
    y = F.silu(F.conv1d(F.pad(x.mT, (3, 0)), w[:, None], groups=x.shape[2])).mT.unflatten(2, (-1, d))
    f = y.to(wider(x))
    return (f * torch.rsqrt(f.square().sum(3, keepdim=True) + 0.000001)).to(x.dtype).contiguous()


def packed_document_attention(q, k, v, d):
    mask = (d[:, None] == d).tril()
    return F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=0.125)[0]


def stick_breaking_attention(q, k, v):
    t = 0.125 * (q @ k.mT).to(wider(q))
    c = (-F.softplus(t)).tril(-1).flip(2).cumsum(2).flip(2)
    return torch.exp(t + c).tril(-1).to(q.dtype) @ v


def weight_standardized_conv3(x, w, g, b):
    n = w[0].numel()
    u = F.batch_norm(w.reshape(1, w.shape[0], -1), None, None, g * n ** -0.5, None, True, 0.0, 0.000001).view_as(w)
    return F.conv2d(x, u, b, padding=1)


def mixer_token_mlp(x, g, b, u, p, w, q):
    n = F.layer_norm(x, [x.shape[2]], g, b, 0.000001)
    return x + (w @ F.gelu(u @ n + p[:, None]) + q[:, None])


def wgrad_accumulate(g, x, w, b):
    return w + g.t() @ x, b + g.sum(0, dtype=b.dtype)


def flow_matching_loss(x, e, v, t):
    s = torch.sigmoid(t)
    w = 0.6366197723675814 / (1 - 2 * s * (1 - s))
    d = v.to(wider(v)) - (e.to(wider(e)) - x)
    return w * d.square().mean(1), (2 * w[:, None] * d).to(x.dtype)


def aqlm_linear(x, i, c, s):
    w = c[0][i[..., 0]] + c[1][i[..., 1]]
    return F.linear(x, w.flatten(1)) * s


def sparse24_linear(x, w, i, b):
    n, k = w.shape
    j = torch.arange(4, device=w.device, dtype=i.dtype)
    i, w = i.view(n, k // 2, 2, 1), w.view(n, k // 2, 2, 1)
    d = torch.where(i[:, :, 0] == j, w[:, :, 0], 0) + torch.where(i[:, :, 1] == j, w[:, :, 1], 0)
    return torch.relu(F.linear(x, d.view(n, 2 * k), b))


def grouped_conv3_dgrad(g, w, groups):
    n, k, h, v = g.shape
    one = [1, 1]
    return torch.ops.aten.convolution_backward(g, g.new_empty(n, k, h, v), w, None, one, one, one, False, [0, 0], groups, [True, False, False])[0]


def slowfast_stem(x, w, a, b):
    y = F.conv3d(x, w, stride=(1, 2, 2), padding=(2, 3, 3))
    return torch.relu(torch.addcmul(b[:, None, None, None], y, a[:, None, None, None]))


def max_blur_pool(x):
    c = x.shape[1]
    f = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype, device=x.device)
    f = (f[:, None] * f).expand(c, 1, 3, 3)
    y = F.max_pool2d(x, 2, 1)
    return F.conv2d(F.pad(y, (1, 1, 1, 1), mode='replicate'), f, stride=2, groups=c)


def wav2vec_conv(x, w, f, g, b):
    y = F.conv1d(x, w, f, stride=2).mT
    return F.gelu(F.layer_norm(y, [y.shape[2]], g, b, 0.00001)).mT.contiguous()


def unet3d_up_concat(x, s, w, b):
    return torch.cat((s, F.conv_transpose3d(x, w, b, stride=2)), 1)


def mmoe_layer(x, w, b, g):
    h = torch.relu(torch.baddbmm(b[:, None], x.expand(w.shape[0], -1, -1), w))
    p = torch.softmax(0.1 * (x @ g), 2)
    return torch.einsum('qiz,zix->qix', p, h).contiguous()


def bpr_step(u, v, i, j, k):
    n = i.shape[0]
    a, b = u[i], v[j] - v[k]
    s = 0.125 * (a * b).sum(1)
    c = (-0.125 * torch.sigmoid(-s))[:, None]
    a = c * a
    du = torch.zeros_like(u).index_add_(0, i, c * b)
    dv = torch.zeros_like(v).index_add_(0, j, a).index_add_(0, k, a, alpha=-1)
    return (F.softplus(-s).sum() / n)[None], du, dv


def schedule_free_adamw(g, y, z, v, rate, c):
    v = 0.999 * v.abs() + 0.001 * g.square()
    d = g / (v.sqrt() + 0.00000001) + 0.01 * y
    return v, torch.lerp(y, z, c) + rate * (0.9 * (1 - c) - 1) * d, z - rate * d


def lambdarank_grads(s, l, r, i):
    g = torch.exp2(l.to(s.dtype))
    d = 1 / torch.log2(r.to(s.dtype) + 2)
    w = ((g[:, :, None] - g[:, None]) * (d[:, :, None] - d[:, None])).abs() / (i.abs() + 1)[:, None, None]
    p = torch.sigmoid(s[:, :, None] - s[:, None])
    y = w * torch.where(l[:, :, None] > l[:, None], p - 1, p)
    return y.sum(2), (w * p * (1 - p)).sum(2)


def hifigan_resblock(x, w, b, u, f, d):
    h = F.leaky_relu(F.conv1d(F.leaky_relu(x, 0.1), w, b, padding=3 * d, dilation=d), 0.1)
    return x + F.conv1d(h, u, f, padding=3)


def contrastive_decoding(e, a):
    s = torch.where(e >= e.amax(1, keepdim=True) - 2.302585092994046, 1.5 * e - 0.5 * a, -1.0e30)
    return torch.softmax(s, 1), s.argmax(1).to(e.dtype)


def phi4_leapfrog(f, p):
    k = sum(f.roll(s, a) for a in range(4) for s in (-1, 1)) - 8.1 * f - 0.5 * f * f * f
    p = p + 0.05 * k
    f = f + 0.05 * p
    e = 0.5 * p * p + f * (4.05 * f + 0.125 * f * f * f - sum(f.roll(-1, a) for a in range(4)))
    return p, f, e.sum()[None]


def arakawa_jacobian(z, s):
    # What a shift by y rows and x columns reads.
    def at(f, y, x): return f.roll((-y, -x), (0, 1))
    e, w, n, o = at(z, 0, 1), at(z, 0, -1), at(z, 1, 0), at(z, -1, 0)
    se, sw, sn, so = at(s, 0, 1), at(s, 0, -1), at(s, 1, 0), at(s, -1, 0)
    sne, snw, soe, sow = at(s, 1, 1), at(s, 1, -1), at(s, -1, 1), at(s, -1, -1)
    a = (e - w) * (sn - so) - (n - o) * (se - sw)
    b = e * (sne - soe) - w * (snw - sow) - n * (sne - snw) + o * (soe - sow)
    c = at(z, 1, 1) * (sn - se) - at(z, -1, -1) * (sw - so) - at(z, 1, -1) * (sn - sw) + at(z, -1, 1) * (se - so)
    return z + 0.01 * (a + b + c) / 12 + 0.05 * (e + w + n + o - 4 * z)


def red_black_sor(u, f):
    n = u.shape[0]
    i = torch.arange(1, n - 1, device=u.device)
    odd = (i[:, None, None] + i[:, None] + i) % 2
    f = f[1:-1, 1:-1, 1:-1]

    def around(u):
        return (u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1]
                + u[1:-1, 1:-1, :-2] + u[1:-1, 1:-1, 2:])
    for q in (0, 1):
        v = u[1:-1, 1:-1, 1:-1]
        inner = torch.where(odd == q, -0.5 * v + 0.25 * (around(u) - f), v)
        u = u.clone()
        u[1:-1, 1:-1, 1:-1] = inner
    return u, (around(u) - 6 * u[1:-1, 1:-1, 1:-1] - f).square().sum()[None]


def hermite_nbody(x, v, m):
    # Sums over pairs of x[j] - x[i] as products with x, less x times sums.
    def sums(p, x): return p @ x - p.sum(1, keepdim=True) * x
    d = [x[:, a] - x[:, a, None] for a in range(3)]
    w = [v[:, a] - v[:, a, None] for a in range(3)]
    r = torch.rsqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + 0.01)
    p = (m.abs() * r).fill_diagonal_(0)
    u = -p.sum(1)
    r = r * r
    q = p * r
    c = q * r * (d[0] * w[0] + d[1] * w[1] + d[2] * w[2])
    return sums(q, x), sums(q, v) - 3 * sums(c, x), u


def cva_exposure(v, n, x, d, c):
    a = v.new_zeros(x.shape[0], *v.shape[1:]).index_add_(0, n, v)
    x = x.abs()[:, None, None]
    e, f = torch.relu(a - x).mean(2), torch.relu(-a - x).mean(2)
    return e, f, 0.6 * (e @ d.abs() - f @ c.abs())


def implied_vol_newton(k, u):
    x = 0.2 * k
    e = torch.exp(x)
    c = torch.lerp((1 - e).clamp(min=0), torch.ones_like(e), torch.sigmoid(u))
    s = (2 * x.abs()).sqrt().clamp(min=0.2)

    def normal(a): return 0.5 + 0.5 * torch.erf(0.7071067811865476 * a)

    def vega(a): return 0.3989422804014327 * torch.exp(-0.5 * a * a)
    for _ in range(4):
        a = 0.5 * s - x / s
        s = (s - (normal(a) - e * normal(a - s) - c) / (vega(a) + 0.000001)).clamp(min=0.01)
    return s, vega(0.5 * s - x / s)


def cross_coherence(r, i):
    s = torch.complex(r, i)
    s = s @ s.mH
    a, b = s.real, s.imag
    own = a.diagonal(dim1=1, dim2=2)
    p = own[:, :, None] * own[:, None] + 0.000001
    return (a * a + b * b) / p, b * torch.rsqrt(p)


def taa_resolve(x, h, i):
    y = F.pad(x[None], (1, 1, 1, 1), mode='replicate')
    m, v = F.avg_pool2d(y, 3, 1)[0], F.avg_pool2d(y.square(), 3, 1)[0]
    d = 1.25 * torch.relu(v - m * m).sqrt()
    p = torch.minimum(torch.maximum(h[:, i], m - d), m + d)

    def light(x): return (0.2126 * x[0] + 0.7152 * x[1] + 0.0722 * x[2]).abs()
    a, b = 0.1 / (1 + light(x)), 0.9 / (1 + light(p))
    return (a * x + b * p) / (a + b)


def df_mp2_energy(b, e, f):
    o, v, _p = b.shape
    t = b.flatten(0, 1)
    t = (t @ t.t()).view(o, v, o, v)
    w = (e.abs()[:, None] + f.abs()).add(0.5)
    d = t / (w[:, :, None, None] + w)
    return -(t * d).sum()[None], -((t - t.transpose(1, 3)) * d).sum()[None]


def session_ids(g):
    g = g.abs()
    new = g > 1.5
    c = g.cumsum(1)
    return new.cumsum(1, dtype=g.dtype), c - torch.where(new, c, 0).cummax(1).values


def viterbi_step(v, a, e):
    y, p = (v[:, :, None] + a).max(1)
    return y + e, p.to(v.dtype)


def eager(op, s):
    # The mask's shape alone, which names a kernel; torch.compile takes one that is there already.
    mask = causal_lower_right(s['c'], s['t']) if op == 'chunked_prefill_attention' else None
    f = {
        'droppath_layerscale_linear': droppath_layerscale_linear,
        'chunked_prefill_attention': lambda q, k, v: chunked_prefill_attention(q, k, v, mask),
        'mla_prefill_attention': mla_prefill_attention,
        'shared_expert_gate': shared_expert_gate,
        'conv3s2_wgrad_nhwc': conv3s2_wgrad_nhwc,
        'delta_qk_prepare': lambda x, w: delta_qk_prepare(x, w, s['d']),
        'packed_document_attention': packed_document_attention,
        'stick_breaking_attention': stick_breaking_attention,
        'weight_standardized_conv3': weight_standardized_conv3,
        'mixer_token_mlp': mixer_token_mlp,
        'wgrad_accumulate': wgrad_accumulate,
        'flow_matching_loss': flow_matching_loss,
        'aqlm_linear': aqlm_linear,
        'sparse24_linear': sparse24_linear,
        'grouped_conv3_dgrad': lambda g, w: grouped_conv3_dgrad(g, w, s['g']),
        'slowfast_stem': slowfast_stem,
        'max_blur_pool': max_blur_pool,
        'wav2vec_conv': wav2vec_conv,
        'unet3d_up_concat': unet3d_up_concat,
        'mmoe_layer': mmoe_layer,
        'bpr_step': bpr_step,
        'schedule_free_adamw': schedule_free_adamw,
        'lambdarank_grads': lambdarank_grads,
        'hifigan_resblock': lambda x, w, b, u, f: hifigan_resblock(x, w, b, u, f, s['d']),
        'contrastive_decoding': contrastive_decoding,
        'phi4_leapfrog': phi4_leapfrog,
        'arakawa_jacobian': arakawa_jacobian,
        'red_black_sor': red_black_sor,
        'hermite_nbody': hermite_nbody,
        'cva_exposure': cva_exposure,
        'implied_vol_newton': implied_vol_newton,
        'cross_coherence': cross_coherence,
        'taa_resolve': taa_resolve,
        'df_mp2_energy': df_mp2_energy,
        'session_ids': session_ids,
        'viterbi_step': viterbi_step,
    }
    return f.get(op)
