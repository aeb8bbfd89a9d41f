"""PyTorch's definitions of the operators of nomads.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def causal_attention_bwd(q, k, v, o, g, l):
    if q.is_cuda and q.dtype in (torch.float16, torch.bfloat16):
        s, n = q.shape[2], torch.zeros((), dtype=torch.int64, device=q.device)
        return torch.ops.aten._scaled_dot_product_flash_attention_backward(g, q, k, v, o, l, None, None, s, s, 0.0, True, n, n, scale=0.125)
    p = torch.exp(0.125 * (q @ k.mT).to(wider(q)) - l[..., None]).tril()
    e = (p * ((g @ v.mT) - (g * o).sum(3, keepdim=True))).to(q.dtype)
    return 0.125 * (e @ k), 0.125 * (e.mT @ q), p.to(q.dtype).mT @ g


def softcap_gqa_decode(q, k, v, n):
    t = 30 * torch.tanh((q @ k.mT).to(wider(q)) * 0.0029462782549439484)
    there = torch.arange(k.shape[2], device=q.device) <= n[:, None]
    return torch.softmax(torch.where(there[:, None, None], t, -torch.inf), 3).to(q.dtype) @ v


def alibi_causal_attention(q, k, v):
    h, s = q.shape[1:3]
    slopes = torch.exp2(torch.arange(1, h + 1, dtype=wider(q), device=q.device) * (-8 / h))
    i = torch.arange(s, device=q.device)
    bias = torch.where(i <= i[:, None], slopes[:, None, None] * (i - i[:, None]), -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype)[None], scale=0.125)


def evoformer_bias_bwd(q, k, v, g, b, l, d):
    e = torch.exp(0.17677669529663687 * (q @ k.mT).to(wider(q)) + b - l[..., None])
    s = (e * ((g @ v.mT) - d[..., None])).to(q.dtype)
    return 0.17677669529663687 * (s @ k), s.sum(0)


def longformer_attention(q, k, v, w, g):
    # Blocks of w queries with the 3 w keys around them and the first g; the first g queries once more, with all.
    b, h, s, d = q.shape
    c = s // w

    def near(x):
        y = F.pad(x, (0, 0, w, w)).unfold(2, 3 * w, w).mT.reshape(b * h, c, 3 * w, d)
        return torch.cat((x[:, :, :g].reshape(b * h, 1, g, d).expand(-1, c, -1, -1), y), 2)
    i = torch.arange(s, device=q.device).view(c, w, 1)
    j = torch.arange(c, device=q.device)[:, None, None] * w + torch.arange(-w, 2 * w, device=q.device)
    mask = F.pad(((i - j).abs() <= w) & (j >= g) & (j < s), (g, 0), value=True)
    o = F.scaled_dot_product_attention(q.view(b * h, c, w, d), near(k), near(v), attn_mask=mask[None], scale=0.125).view(b, h, s, d)
    first = F.scaled_dot_product_attention(q[:, :, :g], k, v, scale=0.125)
    return torch.cat((first, o[:, :, g:]), 2)


def lightning_indexer(q, k, w):
    t, h, _d = q.shape
    s = (q.flatten(0, 1) @ k.t()).view(t, h, -1)
    return (torch.relu(s) * w[..., None]).sum(1)


def fused_moe_blocks(x, i, r, w, s):
    return (torch.bmm(x[i], w[r].mT) * s[..., None]).to(x.dtype)


def qlora_linear_bwd(x, g, w, s, a, b):
    n, k = w.shape
    d = (w.view(n, k // 64, 64) * s[..., None]).view(n, k)
    h = g @ b
    u = x @ a.t()
    return torch.addmm(g @ d, h, a, alpha=2), 2 * (h.t() @ x), 2 * (g.t() @ u)


def head_norm_bwd(x, g, w, r):
    u, v, r = x.to(wider(x)), g.to(wider(x)), r[..., None]
    y, e = u * r, v * w
    return (r * (e - y * (e * y).mean(2, keepdim=True))).to(x.dtype), (v * y).sum((0, 1))


def bn_add_relu_bwd_nhwc(g, x, y, w, m, r):
    n = x.shape[0]
    d = torch.where(y > 0, g, 0)
    e, u = d.to(wider(x)), (x - m) * r
    b, a = e.sum(0), (e * u).sum(0)
    return d, b, a, (w * r * (e - b / n - u * (a / n))).to(x.dtype)


def distill_topk_kl(x, i, t):
    f, k = x.to(wider(x)), i.long()
    p = torch.log_softmax(t.to(f.dtype), 1)
    s = torch.logsumexp(f, 1, keepdim=True)
    y = (p.exp() * (p - f.gather(1, k) + s)).sum(1)
    return y, torch.exp(f - s).scatter_add(1, k, -p.exp()).to(x.dtype)


def head_norm_gate_linear(o, g, w, l):
    u = F.rms_norm(o, [o.shape[2]], w, 0.00001) * F.silu(g)
    return F.linear(u.flatten(1), l)


def adaln_modulate_bwd(x, g, s, m, r):
    v, u = g.to(wider(x)), (x - m[..., None]) * r[..., None]
    e = v * (1 + s)[:, None]
    d = r[..., None] * (e - e.mean(2, keepdim=True) - u * (e * u).mean(2, keepdim=True))
    return d.to(x.dtype), (v * u).sum(1), v.sum(1)


def patch_embed_bwd(x, g):
    n, c, h, w = x.shape
    patches = x.view(n, c, h // 16, 16, w // 16, 16).permute(0, 2, 4, 1, 3, 5).reshape(-1, c * 256)
    flat = g.flatten(0, 1)
    return (flat.t() @ patches).view(-1, c, 16, 16), flat.sum(0), g.sum(0)


def ssd_chunk_state_bwd(x, b, a, g):
    _b, _c, l, h, p = x.shape
    e = torch.exp(0.5 * (a[:, :, -1:] - a))[..., None]
    s = g.flatten(2, 3)
    t = (b @ s.mT).unflatten(3, (h, p))
    f = (e * x).to(x.dtype)
    return (e * t).to(x.dtype), f.flatten(3) @ s, (e * x * t).sum(4)


def dropout_attention_bwd(q, k, v, g, p, r):
    there = r > -1.25
    n = torch.where(there, p / 0.9, 0)
    u = torch.where(there, (g @ v.mT).to(wider(q)) / 0.9, 0)
    s = (p * (u - (u * p).sum(3, keepdim=True))).to(q.dtype)
    return n.mT @ g, 0.125 * (s @ k), 0.125 * (s.mT @ q)


def lstm_cell_bwd(z, c, n, g, d, w):
    z, c, g, d = (x.to(wider(x)) for x in (z, c, g, d))
    t = torch.tanh(n.to(g.dtype))
    i, f, o, u = torch.sigmoid(z[:, 0]), torch.sigmoid(z[:, 1]), torch.sigmoid(z[:, 3]), torch.tanh(z[:, 2])
    e = d + g * o * (1 - t * t)
    dz = torch.stack((e * u * i * (1 - i), e * c * f * (1 - f), e * i * (1 - u * u), g * t * o * (1 - o)), 1).to(w.dtype)
    return dz, (e * f).to(w.dtype), dz.flatten(1) @ w.flatten(0, 1)


def gumbel_sample(x, u):
    f = x.to(wider(x))
    i = (f / 0.7 - torch.log(F.softplus(-u))).argmax(1)
    return i.to(f.dtype), f.gather(1, i[:, None])[:, 0] - torch.logsumexp(f, 1)


def kivi_decode(q, k, a, b, v, c, d):
    k = torch.addcmul(b[:, :, :, None], k.unflatten(2, (-1, 32)), a[:, :, :, None]).flatten(2, 3)
    v = torch.addcmul(d[..., None], v.unflatten(3, (-1, 32)), c[..., None]).flatten(3)
    # The heads that share keys as queries, which no mask tells apart.
    return F.scaled_dot_product_attention(q, k, v, scale=0.08838834764831845)


def group_norm_silu_bwd(x, g, w, b, m, r):
    r, w = r[..., None, None], w.to(wider(x))[..., None]
    u = (x - m[..., None, None]) * r
    v = u * w + b[..., None]
    s = torch.sigmoid(v)
    d = g * s * (1 + v * (1 - s))
    e = d * w
    dx = r * (e - e.mean((2, 3), keepdim=True) - u * (e * u).mean((2, 3), keepdim=True))
    return (d * u).sum((0, 3)), d.sum((0, 3)), dx.to(x.dtype)


def depthwise3_grads(x, g, f):
    one = [1, 1]
    y = torch.ops.aten.convolution_backward(g, x, f[:, None], None, one, one, one, False, [0, 0], x.shape[1], [True, True, False])
    return y[0], y[1][:, 0]


def dot_interaction_bwd(x, g, i, h):
    y = torch.bmm(F.pad(g, (0, 1))[:, i], x)
    y[:, 0] += h
    return y


def dfl_loss_and_grad(x, l, u, w):
    f = x.to(wider(x))
    u, w, k = torch.sigmoid(u.to(f.dtype)), w[:, None], l.long()[..., None]
    p = torch.log_softmax(f, 2)
    y = w * ((u - 1) * p.gather(2, k)[..., 0] - u * p.gather(2, k + 1)[..., 0])
    j, u = torch.arange(x.shape[2], device=x.device), u[..., None]
    g = w[..., None] * (p.exp() - torch.where(j == k, 1 - u, 0) - torch.where(j == k + 1, u, 0))
    return y, g.to(x.dtype)


def sppf_pool(x):
    y = [x]
    for _ in range(3): y.append(F.max_pool2d(y[-1], 5, 1, 2))
    return torch.cat(y, 1)


def prodigy_step(g, w, w0, m, v, s, rate, d, r):
    d = d.abs() + 0.01
    s = 0.99 * s + d.square() * g
    r = 0.99 * r + d.square() * (g * (w0 - w)).sum()
    d1 = torch.maximum(d, r / s.abs().sum())
    m = 0.9 * m + 0.1 * d * g
    v = 0.99 * v.abs() + 0.01 * (d * g).square()
    return s, r, d1, m, v, w - rate * d1 * (m / (v.sqrt() + 0.01 * d1) + 0.01 * w)


def vicreg_loss(x, y):
    n, d = x.shape
    invariance = (x - y).square().sum()
    variance, covariance = 0, 0
    for z in (x, y):
        z = z - z.mean(0)
        c = z.t() @ z
        own = c.diagonal()
        variance = variance + torch.relu(1 - (own / (n - 1) + 0.0001).sqrt()).sum()
        covariance = covariance + c.square().fill_diagonal_(0).sum()
    return (25 * invariance / (n * d) + 12.5 * variance / d + covariance / (d * (n - 1) ** 2))[None]


def laplacian_level(x, f):
    k = (f[:, None] * f)[None, None]
    _n, h, w = x.shape
    g = F.conv2d(F.pad(x[:, None], (2, 2, 2, 2), mode='replicate'), k, stride=2)
    up = F.conv_transpose2d(F.pad(g, (1, 1, 1, 1), mode='replicate'), 4 * k, stride=2)
    return g[:, 0].contiguous(), x - up[:, 0, 4:4 + h, 4:4 + w]


def hog_blocks(x, d):
    n, h, w = x.shape
    gx, gy = x[:, 1:-1, 2:] - x[:, 1:-1, :-2], x[:, 2:, 1:-1] - x[:, :-2, 1:-1]
    t = torch.relu(gx[..., None] * d[0] + gy[..., None] * d[1]).view(n, h // 8, 8, w // 8, 8, 9).sum((2, 4))
    t = t.unfold(1, 2, 1).unfold(2, 2, 1).permute(0, 1, 2, 4, 5, 3)
    return (t * torch.rsqrt(t.square().sum((3, 4, 5), keepdim=True) + 0.01)).clamp(max=0.2).contiguous()


def roi_align_points(x, i, u, v, w):
    u, v = u[..., None], v[..., None]
    top, low = torch.lerp(x[i], x[i + 1], u), torch.lerp(x[i + w], x[i + w + 1], u)
    return torch.lerp(top, low, v).mean(2)


def yin_pitch(x, w, l):
    n = 1 << (w + l - 1).bit_length()
    both = torch.fft.irfft(torch.fft.rfft(x[:, :w], n).conj() * torch.fft.rfft(x, n), n)[:, :l]
    q = F.pad(x.square().cumsum(1), (1, 0))
    d = q[:, w:w + 1] + q[:, w:w + l] - q[:, :l] - 2 * both
    k = torch.arange(l, dtype=x.dtype, device=x.device)
    # Of no period nothing differs, but for rounding errors.
    d = torch.where(k == 0, 0, d)
    return torch.where(k == 0, 1, d * k / d.cumsum(1).clamp(min=0.000001))


def polyphase_resample(x, f):
    p, t = f.shape
    # A convolution with 160 outputs every 147 samples, whose phases' taps lie as far in as they start.
    i = torch.arange(147 + t, device=x.device) - (147 * torch.arange(p, device=x.device) // p)[:, None]
    taps = torch.where((i >= 0) & (i < t), f.gather(1, i.clamp(0, t - 1)), 0)
    return F.conv1d(x[:, None], taps[:, None], stride=147).mT.flatten(1)


def elastic_velocity_step(a, b, c, u, v, r, k, l):
    h, w = u.shape

    def x(f, o): return f[2:2 + h, 2 + o:2 + o + w]
    def y(f, o): return f[2 + o:2 + o + h, 2:2 + w]
    p = 1.125 * (x(a, 1) - x(a, 0) + y(c, 0) - y(c, -1)) - (x(a, 2) - x(a, -1) + y(c, 1) - y(c, -2)) / 24
    q = 1.125 * (x(c, 0) - x(c, -1) + y(b, 1) - y(b, 0)) - (x(c, 1) - x(c, -2) + y(b, 2) - y(b, -1)) / 24
    s, fade = 0.1 * torch.exp(-0.1 * r), torch.exp(-0.05 * (k.abs()[:, None] + l.abs()))
    return (u + s * p) * fade, (v + s * q) * fade


def pressure_projection(u, v, w, p):
    u = u - 0.5 * (p - p.roll(1, 2))
    v = v - 0.5 * (p - p.roll(1, 1))
    w = w - 0.5 * (p - p.roll(1, 0))
    d = u.roll(-1, 2) - u + v.roll(-1, 1) - v + w.roll(-1, 0) - w
    return u, v, w, d.abs().amax()[None], 0.5 * (u * u + v * v + w * w).sum()[None]


def expm_taylor4(a):
    # Products of so small matrices as sums, which a fused kernel does in registers.
    def times(x, y): return (x[..., None] * y[:, None]).sum(2)
    one = torch.eye(4, dtype=a.dtype, device=a.device)
    b = 0.25 * a
    h = one + b / 6
    for i in (5, 4, 3, 2, 1): h = one + times(b, h) / i
    h = times(h, h)
    return times(h, h)


def ell_spmv_dots(v, i, x, r):
    y = (v * x[i]).sum(0)
    return y, (y * r).sum()[None], y.square().sum()[None]


def p1_diffusion_residual(p, u, q, e, j, c):
    x, y = p[e].unbind(2)
    z = u[e]
    b, d = y.roll(-1, 1) - y.roll(-2, 1), x.roll(-2, 1) - x.roll(-1, 1)
    s = (d[:, 2] * b[:, 1] - d[:, 1] * b[:, 2]).abs() + 0.5
    f = b * (b * z).sum(1, keepdim=True) + d * (d * z).sum(1, keepdim=True)
    f = f * (torch.exp(0.2 * q) / (2 * s))[:, None]
    return F.pad(f, (0, 0, 0, 1))[j, c].sum(1)


def ewald_direct(p, q, i):
    d = p[:, None] - p[i]
    d = torch.where(d > 2, d - 4, torch.where(d < -2, d + 4, d))
    s = d.square().sum(2)
    t = (s + 0.01).sqrt()
    w = q[:, None] * q[i] * torch.relu(1 - s / 4).square()
    c = torch.erfc(t) / t
    f = w * (c + 1.1283791670955126 * torch.exp(-t * t)) / (t * t)
    return (f[..., None] * d).sum(1), 0.5 * (w * c).sum(1)


def acsf_angular(p, i, h):
    d = p[i] - p[:, None]
    s = d.square().sum(2)
    w = torch.relu(1 - s / 9).square()[..., None] * torch.exp(-0.5 * h.abs() * s[..., None])
    e = d * torch.rsqrt(s + 0.01)[..., None]
    a = (0.125 * (1 + torch.bmm(e, e.mT)).square().square()).triu(1)
    return (torch.bmm(a, w) * w).sum(1)


def su3_plaquette(u, v):
    def times(x, y):
        def one(a, b): return (a[:, :, None] * b[None]).sum(1)
        return one(x[0], y[0]) - one(x[1], y[1]), one(x[0], y[1]) + one(x[1], y[0])
    a, b = times(u, v.roll(-1, 3)), times(v, u.roll(-1, 5))
    y = (a[0] * b[0] + a[1] * b[1]).sum((0, 1)) / 3
    return y, y.sum()[None]


def gas_optics(n, i, j, u, v, k):
    u, v = u[..., None], v[..., None]
    y = 0
    for q in range(3):
        t = k[q]
        y = y + n[q].abs()[..., None] * ((1 - u) * ((1 - v) * t[i, j] + v * t[i, j + 1]) + u * ((1 - v) * t[i + 1, j] + v * t[i + 1, j + 1]))
    return y, y.sum(1)


def libor_market_step(f, s, z):
    r = 0.02 * torch.exp(0.1 * f)
    s = 0.2 * s
    c = ((r / (1 + r))[:, None] * s[..., None]).cumsum(0)
    d = (s[..., None] * (0.25 * (c - 0.5 * s[..., None]) + 0.5 * z)).sum(1)
    f = f + 10 * d
    return f, (1 / (1 + 0.02 * torch.exp(0.1 * f))).prod(0)


def nadaraya_watson_loo(x, y):
    q = x.square().sum(1)
    d = torch.addmm(q[:, None] + q, x, x.t(), alpha=-2).clamp(min=0)
    i = torch.arange(len(y), device=x.device)
    w = torch.where(i[:, None] == i, 0, torch.exp(-0.5 * d))
    m = (w @ y) / (w.sum(1) + 0.001)
    return m, (y - m).square().mean()[None]


def irt_gradients(x, t, a, b):
    e = t[:, None] - b
    u = a * e
    there = x < 2
    l = torch.where(there, x * u - F.softplus(u, threshold=40), 0).sum()
    r = torch.where(there, x - torch.sigmoid(u), 0)
    return l[None], r @ a, (r * e).sum(0), -a * r.sum(0)


def pna_aggregate(x, i, n):
    there = (torch.arange(i.shape[1], device=x.device) <= n[:, None])[..., None]
    y, c = x[i], (n + 1).to(x.dtype)[:, None]
    z = torch.where(there, y, 0)
    mean = z.sum(1) / c
    dev = (torch.relu(z.square().sum(1) / c - mean.square()) + 0.00001).sqrt()
    most, least = torch.where(there, y, -torch.inf).amax(1), torch.where(there, y, torch.inf).amin(1)
    a = torch.stack((mean, dev, most, least), 1)
    g = (torch.log(c + 1) / 2.5)[..., None]
    return torch.stack((a, a * g, a / g), 1)


def eager(op, s):
    f = {
        'causal_attention_bwd': causal_attention_bwd,
        'softcap_gqa_decode': softcap_gqa_decode,
        'alibi_causal_attention': alibi_causal_attention,
        'evoformer_bias_bwd': evoformer_bias_bwd,
        'longformer_attention': lambda q, k, v: longformer_attention(q, k, v, s['w'], s['g']),
        'lightning_indexer': lightning_indexer,
        'fused_moe_blocks': fused_moe_blocks,
        'qlora_linear_bwd': qlora_linear_bwd,
        'head_norm_bwd': head_norm_bwd,
        'bn_add_relu_bwd_nhwc': bn_add_relu_bwd_nhwc,
        'distill_topk_kl': distill_topk_kl,
        'head_norm_gate_linear': head_norm_gate_linear,
        'adaln_modulate_bwd': adaln_modulate_bwd,
        'patch_embed_bwd': patch_embed_bwd,
        'ssd_chunk_state_bwd': ssd_chunk_state_bwd,
        'dropout_attention_bwd': dropout_attention_bwd,
        'lstm_cell_bwd': lstm_cell_bwd,
        'gumbel_sample': gumbel_sample,
        'kivi_decode': kivi_decode,
        'group_norm_silu_bwd': group_norm_silu_bwd,
        'depthwise3_grads': depthwise3_grads,
        'dot_interaction_bwd': dot_interaction_bwd,
        'dfl_loss_and_grad': dfl_loss_and_grad,
        'sppf_pool': sppf_pool,
        'prodigy_step': prodigy_step,
        'vicreg_loss': vicreg_loss,
        'laplacian_level': laplacian_level,
        'hog_blocks': hog_blocks,
        'roi_align_points': lambda x, i, u, v: roi_align_points(x, i, u, v, s['w']),
        'yin_pitch': lambda x: yin_pitch(x, s['w'], s['l']),
        'polyphase_resample': polyphase_resample,
        'elastic_velocity_step': elastic_velocity_step,
        'pressure_projection': pressure_projection,
        'expm_taylor4': expm_taylor4,
        'ell_spmv_dots': ell_spmv_dots,
        'p1_diffusion_residual': p1_diffusion_residual,
        'ewald_direct': ewald_direct,
        'acsf_angular': acsf_angular,
        'su3_plaquette': su3_plaquette,
        'gas_optics': gas_optics,
        'libor_market_step': libor_market_step,
        'nadaraya_watson_loo': nadaraya_watson_loo,
        'irt_gradients': irt_gradients,
        'pna_aggregate': pna_aggregate,
    }
    return f.get(op)
