"""PyTorch's definitions of the operators of wayfarers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def deberta_attention(q, k, v, p, r):
    s, n = q.shape[2], p.shape[1]
    i = torch.arange(s, device=q.device)
    at = (i[:, None] - i + n // 2).clamp(0, n - 1).expand(*q.shape[:2], s, s)
    bias = (q @ p.mT).gather(3, at) + (k @ r.mT).gather(3, at).mT
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias * 0.07216878364870322, scale=0.07216878364870322)


def multi_token_attention(q, k, v, w):
    t = (0.125 * (q @ k.mT)).tril()
    c = F.conv2d(F.pad(t, (5, 5, 5, 0)), w[:, None], groups=w.shape[0])
    late = torch.ones(c.shape[-2:], dtype=torch.bool, device=c.device).triu(1)
    return torch.softmax(c.masked_fill(late, -torch.inf), 3) @ v


def tensor_product_attention(a, b, c, d, f, g):
    q = (a.mT @ b / a.shape[2]).transpose(1, 2)
    k = (c.mT @ d / c.shape[2]).transpose(1, 2)
    v = (f.mT @ g / f.shape[2]).transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.11180339887498949).transpose(1, 2).contiguous()


def retention_bwd(q, k, v, g, a):
    i = torch.arange(q.shape[1], device=q.device)
    w = torch.exp(-0.03125 * a.abs()[:, None, None] * (i[:, None] - i).clamp(min=0)).tril()
    p, r = ((q @ k.mT) * w).to(q.dtype), ((g @ v.mT) * w).to(q.dtype)
    return r @ k, r.mT @ q, p.mT @ g


def quest_page_scores(q, l, u):
    y = q.clamp(min=0) @ torch.maximum(l, u).mT + q.clamp(max=0) @ torch.minimum(l, u).mT
    return y, y.amax(2)


def snapkv_votes(q, k):
    g, h, w, d = q.shape
    t = k.shape[1]
    s = 0.08838834764831845 * (q.view(g, h * w, d) @ k.mT).view(g, h, w, t)
    i, j = torch.arange(w, device=q.device), torch.arange(t, device=q.device)
    s = s.masked_fill(j > i[:, None] + t - w, -torch.inf)
    a = torch.softmax(s, 3, dtype=wider(q)).sum((1, 2))
    return F.max_pool1d(a, 7, 1, 3)


def split_kv_combine(o, l, dtype):
    e = torch.logsumexp(l, 0)
    return (o * torch.exp(l - e)[..., None]).sum(0).to(dtype), e


def ttt_linear_chunk(w, q, k, v, e):
    g = k @ w - v
    e = 0.015625 * torch.sigmoid(e)
    b = (q @ k.mT * e[:, None]).tril()
    return torch.baddbmm(q @ w, b, g, alpha=-1), torch.baddbmm(w, k.mT, g * e[:, :, None], alpha=-1)


def soft_moe(x, f, w, b, v, c):
    n, s, d = x.shape
    e = w.shape[0]
    logits = F.linear(x, f)
    u = torch.softmax(logits, 1).mT @ x
    u = u.view(n, e, -1, d).transpose(0, 1).reshape(e, -1, d)
    r = torch.baddbmm(c[:, None], F.gelu(torch.baddbmm(b[:, None], u, w)), v)
    r = r.view(e, n, -1, d).transpose(0, 1).reshape(n, -1, d)
    return torch.softmax(logits, 2) @ r


def polynorm(x, w, b):
    def norm(a): return a * torch.rsqrt(a.square().mean(1, keepdim=True) + 0.000001)
    f = x.to(wider(x))
    return (w[0] * norm(f) + w[1] * norm(f * f) + w[2] * norm(f * f * f) + b).to(x.dtype)


def clip_loss_bwd(a, b):
    s = 0.0625 * (a @ b.t()).to(wider(a))
    g = torch.softmax(s, 1) + torch.softmax(s, 0)
    g.diagonal().sub_(2)
    g = g.to(a.dtype)
    return 0.03125 * (g @ b), 0.03125 * (g.t() @ a)


def conv3d_wgrad(x, g):
    w = x.new_empty(g.shape[1], x.shape[1], 3, 3, 3)
    one = [1, 1, 1]
    return torch.ops.aten.convolution_backward(g, x, w, None, one, one, one, False, [0, 0, 0], 1, [False, True, False])[1]


def causal_conv3d_vae(x, w, b):
    y = F.silu(x)
    y = torch.cat((y[:, :, :1].expand(-1, -1, 2, -1, -1), y), 2)
    return x + F.conv3d(y, w, b, padding=(0, 1, 1))


def gptq_act_order_linear(x, q, i, s, z, b):
    w = (s[i] * (q.t() - z[i]).to(x.dtype))
    return torch.addmm(b, x, w)


def repvgg_block(x, w, u, a, b):
    y = F.conv2d(x, w, b, padding=1) + F.conv2d(x, u[:, :, None, None])
    return torch.relu(torch.addcmul(y, x, a[:, None, None]))


def max_pool3s2_bwd(g, i):
    n, c, h, w = g.shape
    y, x = torch.arange(h, device=g.device)[:, None], torch.arange(w, device=g.device)
    i = (2 * y + i // 3) * (2 * w + 1) + 2 * x + i % 3
    return torch.ops.aten.max_pool2d_with_indices_backward(g, g.new_empty(n, c, 2 * h + 1, 2 * w + 1), [3, 3], [2, 2], [0, 0], [1, 1], False, i.long())


def soft_argmax2d(x):
    b, k, h, w = x.shape
    f = x.to(wider(x))
    e = torch.softmax(2 * f.flatten(2), 2).view(b, k, h, w)
    y, z = torch.arange(h, device=x.device, dtype=f.dtype), torch.arange(w, device=x.device, dtype=f.dtype)
    return f.amax((2, 3)), torch.stack(((e.sum(2) * z).sum(2), (e.sum(3) * y).sum(2)), 2)


def adain_transfer(x, s):
    x, f = x.to(wider(x)), s.to(wider(s))
    v, m = torch.var_mean(x, 2, correction=0, keepdim=True)
    u, n = torch.var_mean(f, 2, correction=0, keepdim=True)
    return (0.2 * x + 0.8 * ((x - m) * torch.rsqrt(v + 0.00001) * torch.sqrt(u + 0.00001) + n)).to(s.dtype)


def aspp_concat(x, u, v, b):
    y = [F.conv2d(x, u[:, :, None, None])] + [F.conv2d(x, v[l], padding=p, dilation=p) for l, p in enumerate((6, 12, 18))]
    return torch.relu(torch.cat(y, 1) + b[:, None, None])


def adan_step(g, g0, m, v, n, w, rate):
    d = g - g0
    m, v = torch.lerp(m, g, 0.02), torch.lerp(v, d, 0.08)
    n = torch.lerp(n.abs(), (g + 0.92 * d).square(), 0.01)
    w = (w - 0.001 * rate * (m + 0.92 * v) / (n.sqrt() + 0.00000001)) / (1 + 0.00002 * rate.abs())
    return m, v, n, w


def came_step(g, r, c, m, p, q, w, rate):
    g2 = g.square()
    r = 0.9 * r.abs() + 0.1 * (g2.mean(1) + 0.000001)
    c = 0.9 * c.abs() + 0.1 * (g2.mean(0) + 0.000001)
    u = g * (r.mean() / r).sqrt()[:, None] * c.rsqrt()
    u = u / u.square().mean().sqrt().clamp(min=1)
    m = torch.lerp(m, u, 0.1)
    i = (u - m).square()
    p = 0.99 * p.abs() + 0.01 * (i.mean(1) + 0.000001)
    q = 0.99 * q.abs() + 0.01 * (i.mean(0) + 0.000001)
    return r, c, m, p, q, w - 0.001 * rate * m * (p.mean() / p).sqrt()[:, None] * q.rsqrt()


def entmax15_newton(x):
    x = 0.5 * x
    t = x.amax(1, keepdim=True) - 1
    for _ in range(5):
        y = torch.relu(x - t)
        t = t + 0.5 * (y.square().sum(1, keepdim=True) - 1) / y.sum(1, keepdim=True)
    return t[:, 0], torch.relu(x - t).square()


def listmle_and_grad(s):
    m = s.amax(1, keepdim=True)
    e = torch.exp(s - m)
    z = e.flip(1).cumsum(1).flip(1)
    return (z.log() + m - s).sum(1), e * z.reciprocal().cumsum(1) - 1


def vtrace_targets(r, v, l):
    c = torch.exp(l).clamp(max=1)
    d = c * (r + 0.99 * v[1:] - v[:-1])
    a, y = torch.zeros_like(v[0]), []
    for i in range(r.shape[0] - 1, -1, -1):
        a = d[i] + 0.99 * c[i] * a
        y.append(a)
    y = torch.stack(y[::-1]) + v[:-1]
    return y, c * (r + 0.99 * torch.cat((y[1:], v[-1:])) - v[:-1])


def stereo_soft_argmin(l, r, d):
    w = l.shape[3]
    r = F.pad(r, (d - 1, 0))
    c = torch.stack([(l - r[..., d - 1 - k:d - 1 - k + w]).abs().sum(1) for k in range(d)], 1)
    k = torch.arange(d, device=l.device, dtype=l.dtype)
    return (torch.softmax(-0.125 * c, 1) * k[:, None, None]).sum(1)


def auction_bids(b, p):
    m, j = (b - p).topk(2, 1)
    g = m[:, 0] - m[:, 1] + 0.001
    j = j[:, 0]
    return j.to(b.dtype), g, p + torch.zeros_like(p).scatter_reduce_(0, j, g, 'amax')


def distance_transform2d(f):
    y, x = (torch.arange(n, device=f.device, dtype=f.dtype) for n in f.shape)
    a = (100 * f.abs()[:, None] + (x[:, None] - x).square()).amin(2)
    return (a.t()[:, None] + (y[:, None] - y).square()).amin(2).t().contiguous()


def integral_image(x):
    return x.cumsum(2).cumsum(1), x.square().cumsum(2).cumsum(1)


def level_set_reinit(f, f0):
    s = torch.where(f0 > 0, 1.0, -1.0).to(f.dtype)
    g = 0
    for a in range(3):
        n = f.shape[a]
        d = f.diff(dim=a)
        z = torch.zeros_like(f.narrow(a, 0, 1))
        back, ahead = torch.cat((z, d), a), torch.cat((d, z), a)
        g = g + torch.maximum(torch.relu(s * back), torch.relu(-s * ahead)).square()
    y = f - 0.3 * f0 * torch.rsqrt(f0 * f0 + 1) * (g.sqrt() - 1)
    return y, (y - f).abs().amax()[None]


def cosmo_hdiff(i, c):
    l = 4 * i[:, 1:-1, 1:-1] - (i[:, 1:-1, :-2] + i[:, 1:-1, 2:] + i[:, :-2, 1:-1] + i[:, 2:, 1:-1])
    a, b = l[:, 1:-1].diff(dim=2), l[:, :, 1:-1].diff(dim=1)
    a = torch.where(a * i[:, 2:-2, 1:-1].diff(dim=2) > 0, 0, a)
    b = torch.where(b * i[:, 1:-1, 2:-2].diff(dim=1) > 0, 0, b)
    return i[:, 2:-2, 2:-2] - c * (a.diff(dim=2) + b.diff(dim=1))


def four_index_transform(i, c):
    for _ in range(4):
        i = torch.tensordot(i, c, ([0], [0]))
    return i


def ccsd_triples_energy(v, t, o, e):
    # As products of matrices: of each of the three the last index summed.
    p = (v.flatten(2, 3) @ t.mT).view(v.shape)
    w = p[:, 0] + p[:, 1].permute(0, 3, 1, 2) + p[:, 2].permute(0, 2, 3, 1)
    f = 4 * w + w.permute(0, 3, 1, 2) + w.permute(0, 2, 3, 1) - 4 * w.permute(0, 3, 2, 1)
    e = e.abs()
    d = o.abs()[:, None, None, None] + e[:, None, None] + e[:, None] + e + 1
    return -(w * f / d).sum((1, 2, 3))


def dft_lda_matrix(f, d, w):
    r = ((f @ d) * f).sum(1).abs() / f.shape[1] + 0.0001
    c = r.pow(0.3333333333333333)
    v = f.t() @ (f * (-0.9847450218426965 * w * c)[:, None])
    n = w.abs() * r
    return v, -0.7385587663820224 * (n * c).sum()[None], n.sum()[None]


def etas_intensity(t, x, y, m):
    def d(a): return a[:, None] - a
    r = torch.exp(m - d(x).square() - d(y).square()) * (d(t).abs() + 0.05).pow(-1.2)
    l = 0.1 + 0.05 * r.tril(-1).sum(1)
    return l, l.log().sum()[None]


def spearman_ranks(x):
    n = x.shape[0]
    x = x.t().contiguous()
    s = x.sort(1).values
    r = 0.5 * (torch.searchsorted(s, x) + torch.searchsorted(s, x, right=True)).to(x.dtype)
    a = r / n - 0.5
    t = a @ a.t()
    v = t.diagonal().rsqrt()
    return r.t().contiguous(), t * v[:, None] * v


def polar3_newton(f):
    x0 = x = 0.1 * f + torch.eye(3, device=f.device, dtype=f.dtype)
    first = None
    for _ in range(3):
        a, b, c = x.unbind(1)
        k = torch.stack((torch.linalg.cross(b, c), torch.linalg.cross(c, a), torch.linalg.cross(a, b)), 1)
        d = (a * k[:, 0]).sum(1)
        first = d if first is None else first
        x = 0.5 * (x + k / d[:, None, None])
    return first, x, x.mT @ x0


def pfb_channelizer(x, h, c, s):
    m = c.shape[0]
    p = h.shape[0] // m
    a = x.unflatten(1, (-1, m))
    h = h.view(p, m)
    t = a.shape[1] - p + 1
    a = sum(a[:, r:r + t] * h[r] for r in range(p))
    re, im = a @ c, a @ s
    return re, im, (re.square() + im.square()).mean(1)


def ct_backprojection(s, i, u):
    n = s.shape[0]
    j = i.long().expand(n, -1, -1)
    return torch.lerp(s.gather(2, j), s.gather(2, j + 1), u).sum(1)


def fno_mode_mix(xr, xi, wr, wi):
    y = torch.einsum('bik,iok->bok', torch.complex(xr, xi), torch.complex(wr, wi))
    return y.real.contiguous(), y.imag.contiguous()


def egnn_layer(h, x, j, a, b, c, f, w, g, v):
    r = x[:, None] - x[j]
    d = r.square().sum(2, keepdim=True)
    e = (h @ a)[:, None] + (h @ b)[j] + d * c + f
    m = F.silu(F.silu(e) @ w + g)
    u = torch.tanh(m @ v / v.shape[0])
    return x + (r * u[..., None]).mean(1), m.sum(1)


def eager(op, s):
    # The type of split_kv_combine's first output, that none of its inputs has; float64 inputs keep theirs.
    f = {
        'deberta_attention': deberta_attention,
        'multi_token_attention': multi_token_attention,
        'tensor_product_attention': tensor_product_attention,
        'retention_bwd': retention_bwd,
        'quest_page_scores': quest_page_scores,
        'snapkv_votes': snapkv_votes,
        'split_kv_combine': lambda o, l: split_kv_combine(o, l, torch.bfloat16 if o.dtype == torch.float32 else o.dtype),
        'ttt_linear_chunk': ttt_linear_chunk,
        'soft_moe': soft_moe,
        'polynorm': polynorm,
        'clip_loss_bwd': clip_loss_bwd,
        'conv3d_wgrad': conv3d_wgrad,
        'causal_conv3d_vae': causal_conv3d_vae,
        'gptq_act_order_linear': gptq_act_order_linear,
        'repvgg_block': repvgg_block,
        'max_pool3s2_bwd': max_pool3s2_bwd,
        'soft_argmax2d': soft_argmax2d,
        'adain_transfer': adain_transfer,
        'aspp_concat': aspp_concat,
        'adan_step': adan_step,
        'came_step': came_step,
        'entmax15_newton': entmax15_newton,
        'listmle_and_grad': listmle_and_grad,
        'vtrace_targets': vtrace_targets,
        'stereo_soft_argmin': lambda l, r: stereo_soft_argmin(l, r, s['d']),
        'auction_bids': auction_bids,
        'distance_transform2d': distance_transform2d,
        'integral_image': integral_image,
        'level_set_reinit': level_set_reinit,
        'cosmo_hdiff': cosmo_hdiff,
        'four_index_transform': four_index_transform,
        'ccsd_triples_energy': ccsd_triples_energy,
        'dft_lda_matrix': dft_lda_matrix,
        'etas_intensity': etas_intensity,
        'spearman_ranks': spearman_ranks,
        'polar3_newton': polar3_newton,
        'pfb_channelizer': pfb_channelizer,
        'ct_backprojection': ct_backprojection,
        'fno_mode_mix': fno_mode_mix,
        'egnn_layer': egnn_layer,
    }
    return f.get(op)
