"""PyTorch's definitions of the operators of herders.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def parallel_block_out(x, a, u, wo, wd):
    return torch.addmm(torch.addmm(x, a, wo.t()), F.gelu(u, approximate='tanh'), wd.t())


def glm_partial_rope(x, p, c, s):
    h = x.shape[3] // 2
    c, s = c[p][:, :, None], s[p][:, :, None]
    a, b = x[..., :h].unflatten(3, (-1, 2)).unbind(4)
    y = torch.stack((a * c - b * s, b * c + a * s), 4).flatten(3)
    return torch.cat((y, x[..., h:]), 3).transpose(1, 2).contiguous()


def rglru_gates(x, wr, wi, br, bi, l):
    t = wider(x)
    y = x.transpose(0, 1)
    r = torch.sigmoid(torch.baddbmm(br[:, None], y, wr).to(t))
    i = torch.sigmoid(torch.baddbmm(bi[:, None], y, wi).to(t))
    a = torch.exp(-8 * r * F.softplus(l)[:, None])
    g = torch.sqrt(1 - a.square()) * i * y
    return a.transpose(0, 1).contiguous(), g.transpose(0, 1).to(x.dtype).contiguous()


def molora_linear(x, w, a, b, g):
    e, r, k = a.shape
    u = F.linear(x, a.view(e * r, k)).view(-1, e, r) * torch.softmax(g, 1)[:, :, None]
    return torch.addmm(F.linear(x, w), u.flatten(1), b.transpose(1, 2).reshape(e * r, -1), alpha=2)


def hqq2_linear(x, p, z, s, b):
    c = torch.stack((p & 3, p >> 2 & 3, p >> 4 & 3, p >> 6), 2).view(*z.shape, 64).to(x.dtype)
    return F.linear(x, ((c - z[:, :, None]) * s[:, :, None]).flatten(1), b)


def weight_norm_bwd(v, g, dw):
    t = wider(v)
    a, d = v.to(t), dw.to(t)
    r = a.square().sum(1, keepdim=True).rsqrt()
    p = (a * d).sum(1, keepdim=True) * r
    return p[:, 0].to(g.dtype), (g[:, None] * r * (d - p * r * a)).to(v.dtype)


def conv3_relu_dgrad_bias_nhwc(g, y, w):
    d = torch.where(y > 0, g, 0)
    dx = F.conv_transpose2d(d.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1)
    return dx.permute(0, 2, 3, 1).contiguous(), d.sum((0, 1, 2), dtype=wider(d))


def msa_tied_row_attention(q, k, v):
    r, n, h, d = q.shape
    q, k, v = (x.permute(2, 1, 0, 3).reshape(h, n, r * d) for x in (q, k, v))
    a = torch.softmax((q @ k.mT) * 0.0078125, 2)
    return (a @ v).view(h, n, r, d).permute(2, 1, 0, 3).contiguous()


def maxvit_grid_attention(x, r):
    n, _, g, _, _, _, h, d = x.shape
    q, k, v = x.permute(5, 0, 2, 4, 6, 1, 3, 7).reshape(3, n * g * g, h, 49, d).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=r[None], scale=0.17677669529663687)
    return y.view(n, g, g, h, 7, 7, d).permute(0, 4, 1, 5, 2, 3, 6).contiguous()


def conv3_prelu_nchw(x, w, b, a):
    return F.prelu(F.conv2d(x, w, b, padding=1), a)


def grouped_dilated_hswish_nhwc(x, w, b):
    n, h, v, g, c = x.shape
    y = F.conv2d(x.flatten(3).permute(0, 3, 1, 2), w.flatten(0, 1).permute(0, 3, 1, 2), b.flatten(), padding=2, dilation=2, groups=g)
    return F.hardswish(y).permute(0, 2, 3, 1).contiguous().view(n, h, v, g, c)


def ghost_module_nhwc(x, w, b, d, e):
    u = torch.relu(F.linear(x, w, b))
    v = torch.relu(F.conv2d(u.permute(0, 3, 1, 2), d[:, None], e, padding=1, groups=len(e))).permute(0, 2, 3, 1)
    return torch.cat((u, v), 3)


def demucs_glu_up1d(x, s, wg, bg, w, b):
    return torch.relu(F.conv_transpose1d(F.glu(F.conv1d(x + s, wg[:, :, None], bg), 1), w, b, stride=4))


def attentive_stats_pool(x, l):
    a = torch.softmax(l, 2, dtype=wider(l))
    m = (a * x).sum(2, keepdim=True)
    s = (a * (x - m).square()).sum(2).clamp(min=1e-4).sqrt()
    return torch.cat((m[:, :, 0], s), 1).to(x.dtype)


def vae_reparam_kl(x, e):
    m, v = x.to(wider(x)).chunk(2, 1)
    v = v.clamp(-30, 20)
    y = 0.18215 * (m + torch.exp(0.5 * v) * e)
    return y.to(x.dtype), 0.5 * (m.square() + v.exp() - 1 - v).sum((1, 2, 3))


def qr_embedding_bag(i, a, b):
    f, v, d = a.shape
    q = b.shape[1]
    j = torch.arange(f, device=i.device)[:, None]
    return (F.embedding(i // q + j * v, a.flatten(0, 1)) * F.embedding(i % q + j * q, b.flatten(0, 1))).sum(2)


def gin_layer(x, j, p, w1, b1, w2, b2):
    s = F.pad(x, (0, 0, 0, 1))[j].sum(1)
    return torch.relu(F.linear(torch.relu(F.linear((1 + p) * x + s, w1, b1)), w2, b2))


def ademamix_step(w, g, m, s, v, rate):
    y = g.to(w.dtype)
    m, s, v = 0.9 * m + 0.1 * y, 0.9999 * s + 0.0001 * y, 0.999 * v.abs() + 0.001 * y.square()
    w = w - rate[0] * ((rate[1] * m + 5 * s) / ((rate[2].abs() * v).sqrt() + 1e-8) + 0.1 * w)
    return w, m, s, v, w.to(g.dtype)


def asymmetric_loss_grad(x, l):
    p = torch.sigmoid(x.to(wider(x)))
    q = (p - 0.05).clamp(min=0)
    q3 = q * q * q
    a, b = torch.log(p), torch.log(1 - q)
    is_on = l > 0
    y = torch.where(is_on, (p - 1) * a, -q3 * q * b).sum(1)
    d = (1 - p) * torch.where(is_on, p * a - 1 + p, p * q3 * (q / (1 - q) - 4 * b))
    return y, d.to(x.dtype)


def transpose_cast_dual(w, s):
    u = w * s
    y = u.to(s.dtype)
    return y, y.t().contiguous(), u.abs().amax(1)


def lut3d_grade(x, t):
    # Places are exact: bytes by 128, less one. The last axis of places goes along the table's third.
    g = (x.flip(3).to(wider(t)) / 128 - 1)[:, None]
    y = F.grid_sample(t.to(g.dtype).permute(3, 0, 1, 2).expand(len(x), -1, -1, -1, -1), g, align_corners=True)
    return y[:, :, 0].to(t.dtype)


def reflect_conv9_tanh(x, w, b):
    return torch.tanh(F.conv2d(F.pad(x, (4, 4, 4, 4), mode='reflect'), w, b))


def column_summary_missing(x, m):
    is_there = m > 0
    n = is_there.sum(0).to(x.dtype)
    a = torch.where(is_there, x, 0).sum(0) / n.clamp(min=1)
    s = torch.where(is_there, x - a, 0).square().sum(0)
    low = torch.where(is_there, x, torch.inf).amin(0)
    high = torch.where(is_there, x, -torch.inf).amax(0)
    return n, a, (s / (n - 1).clamp(min=1)).sqrt(), low, high


def painn_update(s, v, wu, wv, w1, b1, w2, b2):
    u, r = F.linear(v, torch.cat((wu, wv))).chunk(2, 2)
    q = (r.square().sum(1) + 1e-8).sqrt()
    a, b, c = F.linear(F.silu(F.linear(torch.cat((s, q), 1), w1, b1)), w2, b2).chunk(3, 1)
    return s + b * (u * r).sum(1) + c, v + a[:, None] * u


def si_sdr_pit_loss(e, x):
    e, x = e - e.mean(2, keepdim=True), x - x.mean(2, keepdim=True)
    d = e @ x.mT
    p = d.square() / (x.square().sum(2)[:, None] + 1e-8)
    r = 10 * torch.log10((p + 1e-8) / ((e.square().sum(2)[:, :, None] - p).clamp(min=0) + 1e-8))
    s = torch.stack((r[:, 0, 0] + r[:, 1, 1], r[:, 0, 1] + r[:, 1, 0]), 1)
    return -0.5 * s.amax(1), (s[:, 1] > s[:, 0]).to(e.dtype)


def tsne_gradient(p, y):
    d = (y[:, None] - y).square().sum(2)
    q = (1 / (1 + d)).fill_diagonal_(0)
    w = (p - q / q.sum()) * q
    return 4 * (w.sum(1, keepdim=True) * y - w @ y)


def nmf_update(x, w, h):
    w, h = w.abs(), h.abs()
    return h * (w.t() @ x.abs()) / (w.t() @ w @ h + 1e-6)


def gga_density_grid(f, d, p):
    t = f @ p
    g = 2 * (t * d).sum(2)
    return (t * f).sum(1), g, g.square().sum(0)


def mimo_mmse2(h, y, n):
    h, y = torch.view_as_complex(h), torch.view_as_complex(y)
    v = (n.abs() + 0.1)[:, None]
    # The inverse of a 2 by 2 matrix by hand: batched solvers are far slower.
    u = (h.conj() * y[..., None]).sum(2)
    a = (h.real.square() + h.imag.square()).sum(2) + v[:, :, None]
    c = (h[..., 0].conj() * h[..., 1]).sum(2)
    d = a[..., 0] * a[..., 1] - c.real.square() - c.imag.square()
    x = torch.stack((a[..., 1] * u[..., 0] - c * u[..., 1], a[..., 0] * u[..., 1] - c.conj() * u[..., 0]), 2) / d[..., None]
    return torch.view_as_real(x), d[..., None] / (v[..., None] * a.flip(2)) - 1


def bond_yield_newton(c, u):
    c = c.abs()
    t = 0.5 * torch.arange(1, c.shape[1] + 1, dtype=c.dtype, device=c.device)
    moments = torch.stack((torch.ones_like(t), t, t * t), 1)
    l = torch.log(c.sum(1)) + torch.log(0.5 + 0.5 * torch.sigmoid(u))
    y = torch.full_like(l, 0.03)
    for _ in range(3):
        f, d, b = ((c * torch.exp(-y[:, None] * t)) @ moments).unbind(1)
        y = y + (torch.log(f) - l) * f / d
    return y, d / f, b / f


def shallow_ice_step(h, b, m):
    t = h.abs()
    s = t + b
    a = 0.25 * (t[:-1, :-1] + t[1:, :-1] + t[:-1, 1:] + t[1:, 1:])
    dx, dy = s[:, 1:] - s[:, :-1], s[1:] - s[:-1]
    p, q = 0.5 * (dx[:-1] + dx[1:]), 0.5 * (dy[:, :-1] + dy[:, 1:])
    a2 = a * a
    d = a2 * a2 * a * (p * p + q * q)
    fx = (d[:-1] + d[1:]) * dx[1:-1]
    fy = (d[:, :-1] + d[:, 1:]) * dy[:, 1:-1]
    g = m[1:-1, 1:-1] + 0.5 * (fx[:, 1:] - fx[:, :-1] + fy[1:] - fy[:-1])
    t[1:-1, 1:-1] = (t[1:-1, 1:-1] + 0.01 * g).clamp(min=0)
    return t


def canny_thin(x, g):
    k = torch.tensor([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], dtype=g.dtype, device=x.device)
    p, q = F.conv2d(x[:, None].to(g.dtype), torch.stack((k, k.t()))[:, None]).unbind(1)
    # Squares of whole numbers, which are exact.
    m = p * p + q * q
    p, q, c = p[:, 1:-1, 1:-1], q[:, 1:-1, 1:-1], m[:, 1:-1, 1:-1]
    along = torch.maximum(m[:, 1:-1, :-2], m[:, 1:-1, 2:])
    down = torch.maximum(m[:, :-2, 1:-1], m[:, 2:, 1:-1])
    falling = torch.maximum(m[:, :-2, :-2], m[:, 2:, 2:])
    rising = torch.maximum(m[:, :-2, 2:], m[:, 2:, :-2])
    flat, steep = 12 * q.abs() <= 5 * p.abs(), 12 * p.abs() <= 5 * q.abs()
    b = torch.where(flat, along, torch.where(steep, down, torch.where(p * q > 0, falling, rising)))
    return torch.where(c >= b, g * c.sqrt(), 0)


def eager(op, s):
    f = {
        'parallel_block_out': parallel_block_out,
        'glm_partial_rope': glm_partial_rope,
        'rglru_gates': rglru_gates,
        'molora_linear': molora_linear,
        'hqq2_linear': hqq2_linear,
        'weight_norm_bwd': weight_norm_bwd,
        'conv3_relu_dgrad_bias_nhwc': conv3_relu_dgrad_bias_nhwc,
        'msa_tied_row_attention': msa_tied_row_attention,
        'maxvit_grid_attention': maxvit_grid_attention,
        'conv3_prelu_nchw': conv3_prelu_nchw,
        'grouped_dilated_hswish_nhwc': grouped_dilated_hswish_nhwc,
        'ghost_module_nhwc': ghost_module_nhwc,
        'demucs_glu_up1d': demucs_glu_up1d,
        'attentive_stats_pool': attentive_stats_pool,
        'vae_reparam_kl': vae_reparam_kl,
        'qr_embedding_bag': qr_embedding_bag,
        'gin_layer': gin_layer,
        'ademamix_step': ademamix_step,
        'asymmetric_loss_grad': asymmetric_loss_grad,
        'transpose_cast_dual': transpose_cast_dual,
        'lut3d_grade': lut3d_grade,
        'reflect_conv9_tanh': reflect_conv9_tanh,
        'column_summary_missing': column_summary_missing,
        'painn_update': painn_update,
        'si_sdr_pit_loss': si_sdr_pit_loss,
        'tsne_gradient': tsne_gradient,
        'nmf_update': nmf_update,
        'gga_density_grid': gga_density_grid,
        'mimo_mmse2': mimo_mmse2,
        'bond_yield_newton': bond_yield_newton,
        'shallow_ice_step': shallow_ice_step,
        'canny_thin': canny_thin,
    }
    return f.get(op)
