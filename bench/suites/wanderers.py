"""PyTorch's definitions of the operators of wanderers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wide(x):
    """As float32, if it is not wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def ffm_interactions(i, e):
    t = e[i]
    return (t * t.transpose(1, 2)).sum(3).triu(1).sum((1, 2))


def two_qubit_gate(s, g):
    # The complex gate as a real one of twice its size.
    m = torch.stack((torch.stack((g[0], -g[1])), torch.stack((g[1], g[0]))))
    return torch.einsum('hgpquv,gxuyvz->hxpyqz', m, s).contiguous()


def mps_environment(e, a, b):
    x, s, _ = a.shape
    t = e.t() @ a.view(x, s * x)
    return t.view(x * s, x).t() @ b.view(x * s, x)


def wavelet_level(x, f):
    k = torch.einsum('pr,qs->pqrs', f, f).view(4, 1, 4, 4)
    return F.conv2d(x[:, None], k, stride=2).unflatten(1, (2, 2))


def torsion_energy(p, i, k):
    a, b, c = (p[i[:, 1:]] - p[i[:, :-1]]).unbind(1)
    u, v = torch.linalg.cross(a, b), torch.linalg.cross(b, c)
    x = (u * v).sum(1) * torch.rsqrt(u.square().sum(1) * v.square().sum(1) + 0.01)
    return k * (1 + (4 * x * x - 3) * x)


def splat_colors(d, c):
    x, y, z = (d * torch.rsqrt(d.square().sum(1, keepdim=True) + 1e-6)).unbind(1)
    xx, yy, zz = x * x, y * y, z * z
    basis = torch.stack((
        torch.full_like(x, 0.28209479), -0.48860251 * y, 0.48860251 * z, -0.48860251 * x,
        1.09254843 * x * y, -1.09254843 * y * z, 0.31539157 * (2 * zz - xx - yy), -1.09254843 * x * z, 0.54627422 * (xx - yy),
        -0.59004359 * y * (3 * xx - yy), 2.89061144 * x * y * z, -0.45704580 * y * (4 * zz - xx - yy),
        0.37317633 * z * (2 * zz - 3 * xx - 3 * yy), -0.45704580 * x * (4 * zz - xx - yy), 1.44530572 * z * (xx - yy),
        -0.59004359 * x * (xx - 3 * yy)), 1)
    return torch.relu((basis[:, :, None] * c).sum(1) + 0.5)


def shallow_water(h, u, v):
    d = 1.5 + h
    f, g, k = u * u / d + 4.905 * d * d, u * v / d, v * v / d + 4.905 * d * d

    def mean(a):
        return 0.25 * (a[1:-1, :-2] + a[1:-1, 2:] + a[:-2, 1:-1] + a[2:, 1:-1])

    def divergence(a, b):
        return 0.05 * (a[1:-1, 2:] - a[1:-1, :-2] + b[2:, 1:-1] - b[:-2, 1:-1])
    return mean(h) - divergence(u, v), mean(u) - divergence(f, g), mean(v) - divergence(g, k)


def cahn_hilliard(c):
    def laplacian(a):
        return a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] - 4 * a[1:-1, 1:-1]
    inner = c[1:-1, 1:-1]
    return c[2:-2, 2:-2] + 0.01 * laplacian(inner * inner * inner - inner - 0.5 * laplacian(c))


def staggered_dslash(u, p):
    u, p = torch.view_as_complex(u), torch.view_as_complex(p)
    y = 0.05 * p
    for k in range(4):
        forward = (u[k] * torch.roll(p, -1, k)[..., None, :]).sum(-1)
        backward = torch.roll((u[k].conj() * p[..., :, None]).sum(-2), 1, k)
        y = y + 0.5 * (forward - backward)
    return torch.view_as_real(y)


def matern_predict(x, c, w):
    r = 5 ** 0.5 * torch.cdist(x, c)
    return ((1 + r + r * r / 3) * torch.exp(-r)) @ w


def hmm_forward3(a, t, e):
    for k in range(3):
        a = torch.logsumexp(a[:, :, None] + t, 1) + e[:, k]
    return a


def gae_advantages(r, v):
    d = r + 0.99 * v[:, 1:] - v[:, :-1]
    i = torch.arange(r.shape[1], device=r.device, dtype=r.dtype)
    a = d @ torch.pow(0.9405, (i[:, None] - i).abs()).tril()
    var, mean = torch.var_mean(a, correction=0)
    return (a - mean) * torch.rsqrt(var + 1e-8), a + v[:, :-1]


def distance_covariance(x, y):
    def centred(x):
        a = torch.cdist(x, x, compute_mode='donot_use_mm_for_euclid_dist')
        m = a.mean(1)
        return a - m[:, None] - m + m.mean()
    return (centred(x) * centred(y)).mean()[None]


def rolling_beta(x, m, w):
    def mean(x):
        return F.avg_pool1d(x[:, None], w, 1)[:, 0]
    mm = mean(m[None])
    return (mean(x * m) - mean(x) * mm) / (mean((m * m)[None]) - mm * mm + 0.0001)


def black_scholes_greeks(s, k, v, t):
    h = 0.25 + t.abs()
    w = (0.3 + 0.1 * v) * torch.sqrt(h)
    a = (0.2 * (s - k) + 0.02 * h) / w + 0.5 * w
    spot, d = torch.exp(0.2 * s), torch.special.ndtr(a)
    vega = spot * torch.exp(-0.5 * a * a) * 0.39894228 * torch.sqrt(h)
    return d, vega, spot * d - torch.exp(0.2 * k - 0.02 * h) * torch.special.ndtr(a - w)


def basket_payoff(z, l, w):
    w = w.abs()
    return torch.relu(torch.exp(0.3 * (z @ l.t()) - 0.15) @ (w / w.sum()) - 1).mean()[None]


def equivariant_product(x, s, c, w):
    return w[..., None] * torch.bmm(x, torch.einsum('abc,mb->mac', c, s))


def pose_chain(m):
    p = m[:, ::2] @ m[:, 1::2]
    return p[:, 0] @ p[:, 1] @ p[:, 2]


def point_attention(q, k, v, a, b, z, g):
    q, k, v, a, b = (x.flatten(2).transpose(0, 1)[None] for x in (q, k, v, a, b))
    bias = z.permute(2, 0, 1) - 0.1 * g.abs()[:, None, None] * torch.cdist(a, b).square()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.25)[0].transpose(0, 1).contiguous()


def load_balance_loss(x):
    e = x.shape[1]
    first = F.one_hot(x.argmax(1), e).to(x.dtype)
    return (e * torch.softmax(x, 1).mean(0) @ first.mean(0))[None]


def non_local_means(x):
    h, w = x.shape[0] - 8, x.shape[1] - 8
    middle = x[3:3 + h + 2, 3:3 + w + 2]
    norm = out = 0
    for u in range(7):
        for v in range(7):
            d = (middle - x[u:u + h + 2, v:v + w + 2]).square()
            e = torch.exp(-4.5 * F.avg_pool2d(d[None], 3, 1)[0])
            norm, out = norm + e, out + e * x[u + 1:u + 1 + h, v + 1:v + 1 + w]
    return out / norm


def adam8_step(p, g, m, v, c, d, s, t):
    a = 0.9 * c[m] * s[:, None] + 0.1 * g
    b = 0.999 * (d[v] * t[:, None]).abs() + 0.001 * g * g
    u, w = a.abs().amax(1), b.amax(1)
    return u, w, a / (u[:, None] + 1e-6), b / (w[:, None] + 1e-6), p - 0.001 * a / (torch.sqrt(b) + 0.001)


def motif_scan(s, f):
    one = F.one_hot(s.long(), 4).to(f.dtype)
    return F.conv1d(one.transpose(1, 2), f.transpose(1, 2)).amax(2)


def linkage_r2(g):
    g = g.float()
    n, s = g.shape[0], g.mean(0)
    v = (g * g).mean(0) - s * s + 0.0001
    return (g.t() @ g / n - s[:, None] * s).square() / (v[:, None] * v)


def inverse_stft(r, i, c, s, h):
    hop = h.shape[0] // 4
    x = (r @ c - i @ s) * h

    def add(x):
        size = (1, (x.shape[1] + 3) * hop)
        return F.fold(x.transpose(1, 2), size, (1, 4 * hop), stride=(1, hop))[:, 0, 0]
    return add(x) / (add((h * h).expand(1, x.shape[1], -1)) + 0.01)


def kan_layer(x, c, w, v):
    h = torch.exp(-4 * (x[:, :, None] - c).square())
    return F.linear(h.flatten(1), w.flatten(1)) + F.linear(F.silu(x), v)


def triangle_attention(q, k, v, b, g):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=b.permute(2, 0, 1)[None], scale=0.176776695)
    return torch.sigmoid(g) * o.transpose(1, 2)


def selected_blocks_attention(q, k, v, i, l):
    h, s, d = q.shape
    k, v = (x.view(h, s // l, l, d)[torch.arange(h, device=x.device)[:, None, None], i].flatten(2, 3) for x in (k, v))
    return F.scaled_dot_product_attention(q.view(h, s // l, l, d), k, v, scale=0.125).view(h, s, d)


def kv8_decode(q, k, a, v, b):
    k, v = ((x - 128) * (y * 0.0078125)[..., None] for x, y in ((k, a), (v, b)))
    return F.scaled_dot_product_attention(q, k.transpose(1, 2), v.transpose(1, 2), scale=0.088388348)


def packed4_linear(x, p, c, s):
    n, k = p.shape[0], x.shape[1]
    w = torch.stack((c[p & 15], c[p >> 4]), -1).view(n, s.shape[1], -1) * s[..., None]
    return x @ w.view(n, k).t()


def forgetting_attention(q, k, v, f):
    s = q.shape[2]
    d = torch.cumsum(F.logsigmoid(f), -1)
    later = torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1)
    bias = (d[..., None] - d[..., None, :]).masked_fill(later, -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype), scale=0.125)


def mamba_step(s, x, d, e, a, b, c, g, z):
    dtype = x.dtype
    x, d, e, b, c, z = (wide(x) for x in (x, d, e, b, c, z))
    h = F.softplus(d + e)
    n = s * torch.exp(-h[..., None] * torch.exp(a)) + (h * x)[..., None] * b[:, None]
    y = (n @ c[..., None])[..., 0] + g * x
    return n, (y * F.silu(z)).to(dtype)


def gated_short_conv(p, w):
    b, c, x = p.chunk(3, -1)
    t = F.conv1d((b * x).transpose(1, 2), w[:, None], padding=2, groups=w.shape[0])[..., :p.shape[1]]
    return c * t.transpose(1, 2)


def top2_gate(x, w):
    logits = F.linear(wide(x), w)
    v, i = logits.topk(2)
    return torch.zeros_like(logits).scatter(1, i, torch.softmax(v, 1))


def moe_combine(h, i, w, s):
    return s + torch.bmm(w[:, None], h[i])[:, 0]


def conformer_conv(x, f, a, b):
    t = F.conv1d(F.glu(x, -1).transpose(1, 2), f[:, None], groups=f.shape[0])
    return F.silu(t * a[:, None] + b[:, None]).transpose(1, 2).contiguous()


def submanifold_conv(x, i, w, a, b):
    x = F.pad(x, (0, 0, 0, 1))
    return torch.relu(x[i].flatten(1) @ w.flatten(0, 1) * a + b)


def convex_upsample(f, m):
    b, _, _, _, h, w = m.shape
    f = F.unfold(8 * f, 3).view(b, 2, 9, 1, 1, h, w)
    return (torch.softmax(m, 1)[:, None] * f).sum(2).permute(0, 1, 4, 2, 5, 3).reshape(b, 2, 8 * h, 8 * w)


def netvlad(x, w, c):
    a = torch.softmax(x @ w.t(), 2)
    v = wide(a.transpose(1, 2) @ x) - wide(a).sum(1)[..., None] * c
    return (v * torch.rsqrt(v.square().sum(2, keepdim=True) + 1e-6)).to(x.dtype)


def jsd_loss(x, t):
    x, t = torch.log_softmax(wide(x), 1), torch.log_softmax(wide(t), 1)
    p, q = torch.exp(x), torch.exp(t)
    return 0.5 * (p * x + q * t - (p + q) * torch.log(0.5 * (p + q) + 1e-30)).sum(1)


def supervised_contrastive(a, i):
    s = 0.1 * wide(a @ a.t())
    own = torch.eye(s.shape[0], dtype=torch.bool, device=s.device)
    same = (i[:, None] == i) & ~own
    positive = torch.where(same, s, 0).sum(1) / same.sum(1).clamp(min=1)
    return torch.logsumexp(s.masked_fill(own, -torch.inf), 1) - positive


def arcface_loss(x, w, i):
    c = wide(F.normalize(x) @ F.normalize(w).t())
    i = i.long()
    g = c.gather(1, i[:, None])
    h = 0.87758256 * g - 0.47942554 * torch.sqrt(torch.relu(1 - g * g))
    return F.cross_entropy(64 * c.scatter(1, i[:, None], h), i, reduction='none')


def target_attention(q, i, e, n):
    h = e[i][:, None]
    mask = torch.arange(i.shape[1], device=q.device) <= n[:, None]
    return F.scaled_dot_product_attention(q[:, None, None], h, h, attn_mask=mask[:, None, None], scale=0.125)[:, 0, 0]


def cin_layer(x, h, w, b):
    p = (x[:, :, None] * h[:, None]).flatten(1, 2)
    return torch.relu(F.conv1d(p, w.flatten(1)[..., None], b))


def hstu_attention(q, k, v, u, r):
    s, d = q.shape[1], q.shape[3]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    i = torch.arange(s, device=q.device)
    e = F.silu(q @ k.transpose(2, 3) + r[(i[:, None] - i).clamp(min=0)]) / s
    o = F.layer_norm(e.tril() @ v, (d,), eps=1e-6)
    return (o.transpose(1, 2) * u).contiguous()


def dora_linear(x, w, a, b, g):
    d = torch.addmm(w, b, a, alpha=2)
    return F.linear(x, d) * (g * torch.rsqrt(wide(d).square().sum(1) + 1e-6)).to(x.dtype)


def resampler_attention(q, k, v, l, u):
    k, v = torch.cat((k, l), 1), torch.cat((v, u), 1)
    o = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=0.125)
    return o.transpose(1, 2).contiguous()


def swiglu_packed_grad(x, g):
    a, b = x.chunk(2, 1)
    s = torch.sigmoid(a)
    return torch.cat((g * b * s * (1 + a * (1 - s)), g * a * s), 1)


def patch_merging(x, g, b, w):
    x = torch.cat((x[:, ::2, ::2], x[:, 1::2, ::2], x[:, ::2, 1::2], x[:, 1::2, 1::2]), -1)
    return F.linear(F.layer_norm(x, g.shape, g, b, 1e-5), w)


def modulated_conv(x, s, f):
    b, c, h, w = x.shape
    v = f * s[:, None, :, None, None]
    v = v * torch.rsqrt(wide(v).square().sum((2, 3, 4), keepdim=True) + 1e-6).to(x.dtype)
    return F.conv2d(x.view(1, b * c, h, w), v.flatten(0, 1), groups=b).view(b, -1, h - 2, w - 2)


def deformable_attention(v, i, w, a):
    b, h = v.shape[0], v.shape[2]
    z = torch.arange(b, device=v.device)[:, None, None, None, None]
    u = torch.arange(h, device=v.device)[:, None, None]
    w = (w * torch.softmax(a, 3)[..., None]).flatten(3)
    return (w[..., None, :] @ v[z, i, u].flatten(3, 4))[..., 0, :]


def eager(op, s):
    f = {
        'ffm_interactions': ffm_interactions,
        'two_qubit_gate': two_qubit_gate,
        'mps_environment': mps_environment,
        'wavelet_level': wavelet_level,
        'torsion_energy': torsion_energy,
        'splat_colors': splat_colors,
        'shallow_water': shallow_water,
        'cahn_hilliard': cahn_hilliard,
        'staggered_dslash': staggered_dslash,
        'matern_predict': matern_predict,
        'hmm_forward3': hmm_forward3,
        'gae_advantages': gae_advantages,
        'distance_covariance': distance_covariance,
        'rolling_beta': lambda x, m: rolling_beta(x, m, s['w']),
        'black_scholes_greeks': black_scholes_greeks,
        'basket_payoff': basket_payoff,
        'equivariant_product': equivariant_product,
        'pose_chain': pose_chain,
        'point_attention': point_attention,
        'load_balance_loss': load_balance_loss,
        'non_local_means': non_local_means,
        'adam8_step': adam8_step,
        'motif_scan': motif_scan,
        'linkage_r2': linkage_r2,
        'inverse_stft': inverse_stft,
        'kan_layer': kan_layer,
        'triangle_attention': triangle_attention,
        'selected_blocks_attention': lambda q, k, v, i: selected_blocks_attention(q, k, v, i, s['l']),
        'mla_absorb_query': lambda q, w: torch.einsum('mhd,hdc->mhc', q, w).contiguous(),
        'kv8_decode': kv8_decode,
        'packed4_linear': packed4_linear,
        'forgetting_attention': forgetting_attention,
        'mamba_step': mamba_step,
        'gated_short_conv': gated_short_conv,
        'dyt_linear': lambda x, a, g, b, w, c: F.linear(torch.tanh(a * x) * g + b, w, c),
        'top2_gate': top2_gate,
        'moe_combine': moe_combine,
        'conformer_conv': conformer_conv,
        'submanifold_conv': submanifold_conv,
        'convex_upsample': convex_upsample,
        'netvlad': netvlad,
        'jsd_loss': jsd_loss,
        'supervised_contrastive': supervised_contrastive,
        'arcface_loss': arcface_loss,
        'target_attention': target_attention,
        'cin_layer': cin_layer,
        'hstu_attention': hstu_attention,
        'dora_linear': dora_linear,
        'resampler_attention': resampler_attention,
        'swiglu_packed_grad': swiglu_packed_grad,
        'patch_merging': patch_merging,
        'modulated_conv': modulated_conv,
        'deformable_attention': deformable_attention,
    }
    return f.get(op)
