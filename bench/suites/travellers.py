"""PyTorch's definitions of the operators of travellers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def wide(x):
    return x.to(wider(x))


def ternary_linear(x, c, t, s):
    return F.linear(x, t[c].flatten(1)) * s.abs()


def window_attention_dq(q, k, v, g, o, lse, w):
    b, s, u, h, d = q.shape
    dot = (wide(g) * o).sum(-1)
    q, g = (x.permute(0, 2, 3, 1, 4) for x in (q, g))
    k, v = (x.permute(0, 2, 1, 3) for x in (k, v))
    dot, lse = dot.permute(0, 2, 3, 1)[..., None], lse[..., None]
    step, i, rows = max(w // 2, 1), torch.arange(s, device=q.device), []
    for end in range(step, s + step, step):
        # Blocks of rows with the keys that any of them sees; the heads that share keys as rows beside the tokens.
        start, end = end - step, min(end, s)
        first = max(start - w + 1, 0)
        a, c = (x[..., start:end, :].flatten(2, 3) @ y[:, :, first:end].transpose(2, 3) for x, y in ((q, k), (g, v)))
        a, c = (x.view(b, u, h, end - start, end - first) for x in (a, c))
        p = torch.exp((a * 0.088388348 - lse[..., start:end, :] - 6).clamp(max=0)) * (c - dot[..., start:end, :])
        behind = i[start:end, None] - i[first:end]
        p = p.masked_fill((behind < 0) | (behind >= w), 0).to(k.dtype)
        z = p.flatten(2, 3) @ k[:, :, first:end]
        rows.append(z.view(b, u, h, end - start, d))
    return (torch.cat(rows, 3) * 0.088388348).permute(0, 3, 1, 2, 4).contiguous()


def multimodal_rope(x, p, c, s):
    def sections(t):
        return torch.cat((t[:, :16][p[0]], t[:, 16:40][p[1]], t[:, 40:][p[2]]), -1)[:, :, None]
    c, s = sections(c), sections(s)
    a, b = wide(x).chunk(2, -1)
    return torch.cat((a * c - b * s, b * c + a * s), -1).to(x.dtype)


def group_norm_bwd_nhwc(x, g, a, m, r):
    h, w, q = x.shape[1], x.shape[2], x.shape[4]
    m, r = m[:, None, None, :, None], r[:, None, None, :, None]
    t = (x - m) * r
    b, v = wide(g).sum((1, 2)), (g * t).sum((1, 2))
    s, d = ((y * a).sum(2)[:, None, None, :, None] / (h * w * q) for y in (b, v))
    return (r * (g * wide(a) - s - t * d)).to(x.dtype), v.sum(0), b.sum(0)


def relu2_mlp_bwd(g, u, w2, w1):
    d = (g @ w2.t()) * (2 * torch.relu(u))
    return d, d @ w1


def group_limited_router(x, b):
    s = torch.sigmoid(wide(x))
    c = s + b.abs()
    groups = c.topk(2, 2).values.sum(2).topk(4, 1).indices
    out = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device).scatter(1, groups, False)
    i = c.masked_fill(out[..., None], 0).flatten(1).topk(8, 1).indices
    w = s.flatten(1).gather(1, i)
    w = (2.5 * w / w.sum(1, keepdim=True)).to(x.dtype)
    return torch.zeros_like(x.flatten(1)).scatter(1, i, w).view(x.shape)


def moe_combine_bwd(g, e, i, j, c, a):
    return (e[i] * g[:, None]).sum(2, dtype=wider(g)), (a[j, c][:, None] * g[j]).to(g.dtype)


def mamba2_decode(s, x, b, c, t, a, d, z, w):
    dtype = s.dtype
    x, b, c, t, z, w = (wide(y) for y in (x, b, c, t, z, w))
    v = F.softplus(t.clamp(max=20))
    n = s * torch.exp(-v * a.abs())[..., None, None] + (v[..., None] * x)[..., None] * b[:, None, None]
    r = ((n * c[:, None, None]).sum(3) + d[:, None] * x) * F.silu(z)
    return n.to(dtype), (r * torch.rsqrt(r.square().mean((1, 2), keepdim=True) + 0.00001) * w).to(dtype)


def delta_wy_chunk(k, v, b):
    b = torch.sigmoid(wide(b))
    n = (-0.1 * b[..., None] * (k @ k.transpose(3, 4))).tril(-1).flatten(0, 2)
    t = n + torch.eye(16, device=n.device, dtype=n.dtype)
    for _ in range(3):
        n = n @ n
        t = torch.baddbmm(t, t, n)
    t = (t.view(*b.shape, 16) * b[..., None, :]).to(k.dtype)
    return t @ k, t @ v


def hyena_medium(u, f, h):
    b, _, d, _ = u.shape
    k = h.shape[1]
    p = F.conv1d(u.flatten(1, 2), f.flatten(0, 1)[:, None], groups=3 * d).unflatten(1, (3, d))
    v = F.pad(p[:, 1] * p[:, 2], (k - 1, 1))
    # The long filter as a product of blocks of k with a band matrix for each channel.
    blocks = v.unfold(2, 2 * k, k).transpose(0, 1)
    band = F.pad(h, (k, k)).unfold(1, 2 * k, 1)[:, 1:].flip(1)
    s = torch.bmm(blocks.flatten(1, 2), band.transpose(1, 2))
    return (s.view(d, b, -1).transpose(0, 1) * p[:, 0]).contiguous()


def decomposed_relpos_attention(q, k, v, r, c):
    n = q.shape[2]
    i = torch.arange(n, device=q.device)
    i = i[:, None] - i + n - 1
    rows, columns = torch.einsum('bhyxd,yud->bhyxu', q, r[i]), torch.einsum('bhyxd,xvd->bhyxv', q, c[i])
    bias = (rows[..., None] + columns[..., None, :]).flatten(4).flatten(2, 3)
    o = F.scaled_dot_product_attention(*(x.flatten(2, 3) for x in (q, k, v)), attn_mask=bias, scale=0.125)
    return o.view(q.shape)


def neighborhood_attention2d(q, k, v, b):
    # Tiles of 8 by 8 queries attend to all pixels that any of them sees, under a mask.
    n, h, y, x, d = q.shape
    w = b.shape[1]
    q = q.view(n, h, y // 8, 8, x // 8, 8, d).permute(0, 2, 4, 1, 3, 5, 6)
    k, v = (a.unfold(2, w + 7, 8).unfold(3, w + 7, 8).permute(0, 2, 3, 1, 5, 6, 4) for a in (k, v))
    q, k, v = (a.flatten(4, 5).flatten(0, 2) for a in (q, k, v))
    i = torch.arange(w + 7, device=q.device) - torch.arange(8, device=q.device)[:, None]
    outside, i = (i < 0) | (i >= w), i.clamp(0, w - 1)
    bias = b[:, i[:, None, :, None], i[None, :, None, :]]
    bias = bias.masked_fill(outside[:, None, :, None] | outside[None, :, None, :], -torch.inf).flatten(3).flatten(1, 2)
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=0.17677669)
    return o.view(n, y // 8, x // 8, h, 8, 8, d).permute(0, 3, 1, 4, 2, 5, 6).reshape(n, h, y, x, d)


def short_conv_bwd(x, g, f, a):
    s = g.shape[1]
    u = sum(x[:, r:r + s] * f[:, r] for r in range(4)) + a
    d = torch.ops.aten.silu_backward(g, u)
    e = F.pad(d, (0, 0, 0, 3))
    y = sum(e[:, 3 - r:3 - r + s] * f[:, r] for r in range(4))
    v = torch.stack([(d * x[:, r:r + s]).sum((0, 1), dtype=wider(x)) for r in range(4)], 1)
    return y, v, d.sum((0, 1), dtype=wider(x))


def involution7(x, k):
    return (x.unfold(1, 7, 1).unfold(2, 7, 1) * k[:, :, :, :, None]).sum((-2, -1))


def coordinate_attention(x, f, u, v):
    s, t = (torch.sigmoid(w @ torch.relu(f @ x.mean(a))) for w, a in ((u, 3), (v, 2)))
    return x * s[..., None] * t[:, :, None]


def focal_loss_and_grad(x, i):
    own = i[:, None] == torch.arange(x.shape[1], device=x.device)
    p = torch.sigmoid(wide(x))
    p = torch.where(own, p, 1 - p)
    w = torch.where(own, 0.25, 0.75) * (1 - p).square()
    e = torch.log(p.clamp(min=1e-7))
    return -(w * e).sum()[None], (torch.where(own, w, -w) * (2 * p * e - (1 - p))).to(x.dtype)


def dpo_sequence_logps(x, i, n):
    p = wide(x.gather(2, i.long()[..., None])[..., 0]) - torch.logsumexp(wide(x), 2)
    return torch.where(torch.arange(x.shape[1], device=x.device) < n[:, None], p, 0).sum(1)


def adamw_clipped_master(p, g, m, v, rate):
    norm = torch.linalg.vector_norm(g, dtype=wider(g))
    c = g * torch.rsqrt(norm.square() + 0.000001).clamp(max=1)[None]
    a, b = 0.9 * m + 0.1 * c, 0.95 * v.abs() + 0.05 * c.square()
    p = p * (1 - 0.1 * rate) - rate * a / (torch.sqrt(b) + 0.00000001)
    return a.to(g.dtype), b.to(g.dtype), p, p.to(g.dtype)


def galore_step(w, g, p, m, v, rate):
    r = wide(p.t() @ g)
    a, b = 0.9 * m + 0.1 * r, 0.999 * v.abs() + 0.001 * r.square()
    t = p @ (a / (torch.sqrt(b) + 0.000001)).to(w.dtype)
    return a.to(w.dtype), b.to(w.dtype), (w - rate * (0.25 * t + 0.01 * w)).to(w.dtype)



def block32_dual_quantize(x):
    m, n = x.shape
    rows, columns = x.view(m, -1, 32), x.view(-1, 32, n)
    s, t = (wide(a.abs().amax(b)).clamp(min=0.00001) / 448 for a, b in ((rows, 2), (columns, 1)))
    q, p = (rows / s[..., None]).to(x.dtype).view(m, n), (columns / t[:, None]).to(x.dtype).view(m, n)
    return s, t.t().contiguous(), q, p.t().contiguous()


def sampled_softmax_logq(x, e, i, j, f):
    a = (x * e[i]).sum(1, dtype=wider(x)) - f[i]
    s = (x @ e[j].t() - f[j]).masked_fill(i[:, None] == j, -torch.inf)
    return torch.logaddexp(torch.logsumexp(s, 1), a) - a


def embedding_sgd_ell(e, g, i, n, rate):
    mask = torch.arange(i.shape[1], device=e.device) < n[:, None]
    d = torch.where(mask[..., None], g[i], 0).sum(1, dtype=wider(g))
    return (e - rate * d).to(e.dtype)


def ctc_greedy(x):
    a, m = x.argmax(2), wide(x.amax(2, keepdim=True))
    changed = a != F.pad(a[:, :-1], (1, 0), value=-1)
    return torch.where(changed & (a > 0), a, -1).to(m.dtype), 1 / torch.exp(x - m).sum(2)


def cosine_window_attention(x, b, k, a):
    n, w, t, _, h, d = x.shape
    q, e, v = x.flatten(0, 1).permute(2, 0, 3, 1, 4)
    q = (F.normalize(q, dim=3) * (10 * a.abs())[:, None, None]).to(x.dtype)
    mask = (b + k[:, None]).expand(n, w, h, t, t).flatten(0, 1)
    o = F.scaled_dot_product_attention(q, F.normalize(e, dim=3), v, attn_mask=mask, scale=1)
    return o.transpose(1, 2).contiguous().view(n, w, t, h, d)


def efficient_attention(q, k, v):
    c = torch.einsum('bnhd,bnhe->bhde', torch.softmax(k, 1), v)
    return torch.einsum('bnhd,bhde->bnhe', torch.softmax(q, 3), c).contiguous()


def decode_norm_swiglu(x, r, n, w):
    t = x + r
    a, b = (w.flatten(0, 1) @ F.rms_norm(t, n.shape, n, 0.000001)).chunk(2)
    return t, F.silu(a) * b


def temporal_median5(x):
    n = x.shape[0] - 4
    a, b, c, d, e = (x[i:i + n] for i in range(5))
    low = torch.maximum(torch.minimum(a, b), torch.minimum(d, e))
    high = torch.minimum(torch.maximum(a, b), torch.maximum(d, e))
    return torch.maximum(torch.minimum(low, high), torch.minimum(torch.maximum(low, high), c))


def reinhard_tonemap(x):
    a = wide(x).abs()
    v = 0.2126 * a[..., 0] + 0.7152 * a[..., 1] + 0.0722 * a[..., 2]
    m, k = v.amax(), 0.18 * torch.exp(-torch.log(v + 0.0001).mean())
    t = k * v * (1 + v / (k * m * m)) / (1 + k * v)
    return torch.pow(a * (t / (v + 0.0001))[..., None], 0.4545).to(x.dtype)


def ppo_losses(new, old, a, v, u, r):
    var, mean = torch.var_mean(a, correction=0)
    w = (a - mean) * torch.rsqrt(var + 0.00000001)
    ratio = new - old
    d = torch.exp(ratio.clamp(max=10))
    c = u + (v - u).clamp(-0.2, 0.2)
    policy = torch.maximum(-w * d, -w * d.clamp(0.8, 1.2)).mean()
    value = torch.maximum((v - r).square(), (c - r).square()).mean()
    return torch.stack((policy, 0.25 * value, (d - 1 - ratio).mean()))


def embedded_atom(p, i, n):
    d = p[i] - p[:, None]
    r = d.square().sum(2) + 0.01
    near = torch.arange(i.shape[1], device=p.device) < n[:, None]
    e = torch.where(near, torch.exp(-1.5 * torch.sqrt(r)), 0)
    h = e.sum(1) + 0.01
    a = -0.5 * torch.rsqrt(h)
    w = (a[:, None] + a[i] + 4 * e) * 1.5 * e * torch.rsqrt(r)
    return -torch.sqrt(h), (w[..., None] * d).sum(1)


def euler_rusanov(u):
    d = u[0].abs() + 1
    a, b = u[1] / d, u[2] / d
    p = 0.4 * (u[3].abs() + 5 - 0.5 * d * (a * a + b * b))
    c = torch.sqrt(1.4 * p.abs() / d)
    f = torch.stack((a * u[0], a * u[1] + p, a * u[2], a * (u[3] + p)))
    g = torch.stack((b * u[0], b * u[1], b * u[2] + p, b * (u[3] + p)))

    def flux(f, v, u, x, y):
        """Between the left or upper cells x and the right or lower ones y."""
        s = torch.maximum(v[x], v[y])
        return 0.5 * (f[x] + f[y] - s * (u[y] - u[x]))
    inner, low, high = slice(1, -1), slice(None, -1), slice(1, None)
    x = flux(f, a.abs() + c, u, (..., inner, low), (..., inner, high))
    y = flux(g, b.abs() + c, u, (..., low, inner), (..., high, inner))
    return u[:, 1:-1, 1:-1] - 0.1 * (x[:, :, 1:] - x[:, :, :-1] + y[:, 1:] - y[:, :-1])


def plate_biharmonic(u, f):
    h, w = f.shape

    def at(y, x):
        return u[y:y + h, x:x + w]
    near, corners = at(1, 2) + at(3, 2) + at(2, 1) + at(2, 3), at(1, 1) + at(1, 3) + at(3, 1) + at(3, 3)
    r = f - 20 * at(2, 2) + 8 * near - 2 * corners - (at(0, 2) + at(4, 2) + at(2, 0) + at(2, 4))
    return at(2, 2) + 0.025 * r, r.abs().amax(1)


def ell_jacobi(a, i, b, x, d):
    r = b - (a * x[i]).sum(1)
    return x + 0.7 * r / (d.abs() + 4), r.square().sum()[None]


def pagerank_step(x, d, i, n):
    m = torch.where(d <= 0, x, 0).mean()
    near = torch.arange(i.shape[1], device=x.device) < n[:, None]
    s = torch.where(near, (x * torch.relu(d))[i], 0).sum(1)
    y = 0.85 * (s + m) + 0.15 / x.shape[0]
    return y, (y - x).abs().sum()[None]


def cube_elasticity(u, i, x, k, j, a, n):
    near = u[i].flatten(1)
    v = near @ k.view(24, 24).t()
    f = (v * (x * x * x)[:, None]).view(-1, 8, 3)
    own = torch.arange(8, device=u.device) < n[:, None]
    return torch.where(own[..., None], f[j, a], 0).sum(1), (near * v).sum(1)


def sine_poisson(s, f, e):
    e = e.abs()
    return s @ (s @ f @ s / (e[:, None] + e + 0.1)) @ s


def legendre_transform(p, f):
    m, n = p.shape[:2]
    y = f.new_zeros(m, n, f.shape[2])
    for k in range(0, min(m, n), 32):  # Without most of the degrees that are less.
        y[k:k + 32, k:] = torch.bmm(p[k:k + 32, k:], f[k:k + 32])
    less = torch.arange(n, device=f.device) < torch.arange(m, device=f.device)[:, None]
    return y.masked_fill(less[..., None], 0)


def block_reflector(v, t, c):
    return torch.addmm(c, v, t.triu().t() @ (v.t() @ c), alpha=-1)


def density_fitted_fock(b, h, d, c):
    n, flat = h.shape[0], b.flatten(1)
    j = (flat @ d.flatten()) @ flat
    x = (b @ c).transpose(0, 1).reshape(n, -1)
    return h + 2 * j.view(n, n) - x @ x.t()


def coarse_grain(a, b, c, d):
    x = a.shape[0]
    left = torch.einsum('abm,bcn->mnac', a, b).reshape(x * x, x * x)
    right = torch.einsum('cdp,daq->acpq', c, d).reshape(x * x, x * x)
    t = left @ right
    return (t / t.abs().amax()).view(x, x, x, x)


def kuramoto_heun(u):
    def slope(u):
        a, b = torch.roll(u, -1, 1), torch.roll(u, 1, 1)
        c, d = torch.roll(u, -2, 1), torch.roll(u, 2, 1)
        return -u * (a - b) - (a - 2 * u + b) - (c - 4 * a + 6 * u - 4 * b + d)
    f = slope(u)
    return u + 0.005 * (f + slope(u + 0.01 * f))


def ising_sweep(s, r, t):
    i = torch.arange(s.shape[0], device=s.device)
    odd, r, t = (i[:, None] + i) % 2, r.abs(), t.abs()
    s = (2 * s - 1).to(r.dtype)
    for colour in range(2):
        e = 2 * s * (torch.roll(s, -1, 0) + torch.roll(s, 1, 0) + torch.roll(s, -1, 1) + torch.roll(s, 1, 1))
        s = torch.where((odd == colour) & (r < torch.exp(-e * t)), -s, s)
    return s, s.sum()[None]


def bootstrap_moments(x, i):
    x = x[i]
    m = x.mean(1)
    return m, torch.sqrt(torch.relu((x * x).mean(1) - m * m))


def kendall_tau(x):
    n, p = x.shape
    t = x.t()
    # Sums of no more than 2048 signs are exact in half precision.
    s = torch.sign(t[:, :, None] - t[:, None]).to(torch.float16).view(p, -1, min(n, 2048)).transpose(0, 1)
    return torch.bmm(s, s.transpose(1, 2)).sum(0, dtype=x.dtype) / (n * (n - 1))


def gmm_responsibilities(x, m, f, w):
    k, d = m.shape
    f = f.tril()
    y = torch.addmm((f @ m[..., None]).flatten(), x, f.view(k * d, d).t(), beta=-1)
    p = w - 0.5 * y.view(-1, k, d).square().sum(2)
    return torch.softmax(p, 1), torch.logsumexp(p, 1)


def felsenstein_root(x, y, p, q, f):
    # The rates' matrices as blocks of one, for which the order of the axes need not change.
    u, v = (a.flatten(1) @ torch.block_diag(*b.transpose(1, 2)) for a, b in ((x, p), (y, q)))
    z = (u * v).view(x.shape)
    return z, torch.log((f * z).abs().sum((1, 2)) / x.shape[1] + 0.000001)



def lorenz96_rk4(x):
    def slope(x):
        return (torch.roll(x, -1, 1) - torch.roll(x, 2, 1)) * torch.roll(x, 1, 1) - x + 8
    a = slope(x)
    b = slope(x + 0.025 * a)
    c = slope(x + 0.025 * b)
    d = slope(x + 0.05 * c)
    return x + 0.0083333 * (a + 2 * b + 2 * c + d)


def dg_advection(u, a, b, c, r, m, n, o, f, lift):
    e, p = u.shape
    q = f.shape[1]
    jump = u[:, m].view(e, q, -1) - u[n[..., None], o.view(e, q, -1)]
    j = (f.clamp(max=0)[..., None] * jump).flatten(1)
    grad = (u @ torch.cat((a, b, c)).t()).view(e, 3, p)
    return torch.addmm((r[..., None] * grad).sum(1), j, lift.t(), beta=-1)


def delay_and_sum(x, d, w, t):
    y = (w[..., None] * x.unfold(1, t, 1)[torch.arange(x.shape[0], device=x.device), d]).sum(1)
    return y, y.square().sum(1)


def masked_spatial_covariance(x, w):
    f, m = x.shape[:2]
    w = w.abs()
    # Real parts and imaginary ones as rows of one product.
    a = x.transpose(2, 3).reshape(f, 2 * m, -1)
    g = torch.bmm(a * w[:, None], a.transpose(1, 2)).view(f, m, 2, m, 2)
    s = torch.stack((g[:, :, 0, :, 0] + g[:, :, 1, :, 1], g[:, :, 0, :, 1] - g[:, :, 1, :, 0]), 3)
    return s / (w.sum(1) + 0.000001)[:, None, None, None]


def box(x, k):
    """Sums of windows of k by k."""
    x = F.avg_pool2d(x, (k, 1), 1, divisor_override=1)
    return F.avg_pool2d(x, (1, k), 1, divisor_override=1)


def cfar_map(x):
    p = (x * x)[None]
    ring, p = box(p, 17) - box(p[:, 6:-6, 6:-6], 5), p[:, 8:-8, 8:-8]
    return torch.where(p * 264 > 4.5 * ring, p, 0)[0]


def histogram_equalize(x):
    n, p = x.shape
    # With bounds that are given, histc asks the device for nothing.
    bins = x + 256 * torch.arange(n, device=x.device, dtype=torch.int32)[:, None]
    h = torch.histc(bins.to(torch.float32), 256 * n, 0, 256 * n).view(n, 256)
    c = torch.cumsum(h, 1) * (255 / p)
    return c.flatten()[bins]


def lucas_kanade(a, b):
    s, t = a + b, (b - a)[1:-1, 1:-1]
    x = 0.25 * (s[1:-1, 2:] - s[1:-1, :-2])
    y = 0.25 * (s[2:, 1:-1] - s[:-2, 1:-1])
    p, q, r, u, v = box(torch.stack((x * x, x * y, y * y, x * t, y * t)), 7)
    d = p * r - q * q + 0.001
    return torch.stack(((q * v - r * u) / d, (q * u - p * v) / d))


def white_top_hat(x):
    def greatest(x):
        return F.max_pool2d(F.max_pool2d(x, (9, 1), 1), (1, 9), 1)
    return x[8:-8, 8:-8] - greatest(-greatest(-x[None]))[0]


def remap_bilinear(x, i, u, v, w):
    top = (1 - v) * x[:, :, i] + v * x[:, :, i + 1]
    low = (1 - v) * x[:, :, i + w] + v * x[:, :, i + w + 1]
    return (1 - u) * top + u * low


def point_to_plane(s, t, n, i):
    n = n[i]
    r = ((s - t[i]) * n).sum(1, keepdim=True)
    j = torch.cat((n, torch.linalg.cross(s, n), r), 1)
    h = (j[:, :6] * (0.5 / r.abs().clamp(min=0.000001)).clamp(max=1)).t() @ j
    return h[:, :6].contiguous(), h[:, 6].contiguous()


def ray_triangles(o, d, a, e, f):
    def dots(a, b):
        return a[:, 0, None] * b[:, 0] + a[:, 1, None] * b[:, 1] + a[:, 2, None] * b[:, 2]
    # Products of three vectors, of which two are always of the ray or of the triangle.
    od, ef = torch.linalg.cross(o, d), torch.linalg.cross(e, f)
    n = -dots(d, ef)
    u = dots(od, f) - dots(d, torch.linalg.cross(f, a))
    v = -dots(od, e) - dots(d, torch.linalg.cross(a, e))
    w = dots(o, ef) - (a * ef).sum(1)
    meets = (u * n >= 0) & (v * n >= 0) & ((u + v) * n <= n * n) & (w * n > 0)
    h = torch.where(meets, w / n, 1e30)
    return h.amin(1), h.argmin(1).to(o.dtype)



def matrix_profile(x, m, s, w):
    i = torch.arange(m.shape[0], device=x.device)
    a = x.unfold(0, w, 1)
    c = (a @ a.t() - w * m[:, None] * m) * s[:, None] * s
    return c.masked_fill((i[:, None] - i).abs() <= w // 4, -1e30).amax(1)


def group_by(k, v, g):
    k, z = k.long(), v.new_zeros(g)
    c, s = z.scatter_add(0, k, torch.ones_like(v)), z.scatter_add(0, k, v)
    low = torch.full_like(z, 1e30).scatter_reduce(0, k, v, 'amin')
    high = torch.full_like(z, -1e30).scatter_reduce(0, k, v, 'amax')
    return c, s, low, high, s / c.clamp(min=1)


def minhash_similarity(a, b):
    return (a[:, None] == b).sum(2, dtype=torch.int32) / a.shape[1]


def ohlc_bars(p, v, t):
    p, v = p.unflatten(1, (-1, t)), v.unflatten(1, (-1, t)).abs()
    w = (p * v).sum(2) / (v.sum(2) + 0.000001)
    return p[..., 0].contiguous(), p.amax(2), p.amin(2), p[..., -1].contiguous(), w


def vertex_normals(x, t, j, n):
    a, b, c = (x[i] for i in t.unbind(1))
    f = torch.linalg.cross(b - a, c - a)
    own = torch.arange(j.shape[1], device=x.device) < n[:, None]
    s = torch.where(own[..., None], f[j], 0).sum(1)
    return s * torch.rsqrt(s.square().sum(1, keepdim=True) + 0.000001)


def delta_decode(d, b, s):
    return b[:, None] + s[:, None] * torch.cumsum(d - 128, 1, dtype=s.dtype)


def eager(op, s):
    f = {
        'ternary_linear': ternary_linear,
        'window_attention_dq': lambda q, k, v, g, o, x: window_attention_dq(q, k, v, g, o, x, s['w']),
        'multimodal_rope': multimodal_rope,
        'group_norm_bwd_nhwc': group_norm_bwd_nhwc,
        'relu2_mlp_bwd': relu2_mlp_bwd,
        'group_limited_router': group_limited_router,
        'moe_combine_bwd': moe_combine_bwd,
        'mamba2_decode': mamba2_decode,
        'delta_wy_chunk': delta_wy_chunk,
        'hyena_medium': hyena_medium,
        'decomposed_relpos_attention': decomposed_relpos_attention,
        'neighborhood_attention2d': neighborhood_attention2d,
        'short_conv_bwd': short_conv_bwd,
        'involution7': involution7,
        'coordinate_attention': coordinate_attention,
        'focal_loss_and_grad': focal_loss_and_grad,
        'dpo_sequence_logps': dpo_sequence_logps,
        'adamw_clipped_master': adamw_clipped_master,
        'galore_step': galore_step,
        'block32_dual_quantize': block32_dual_quantize,
        'sampled_softmax_logq': sampled_softmax_logq,
        'embedding_sgd_ell': embedding_sgd_ell,
        'ctc_greedy': ctc_greedy,
        'cosine_window_attention': cosine_window_attention,
        'efficient_attention': efficient_attention,
        'decode_norm_swiglu': decode_norm_swiglu,
        'temporal_median5': temporal_median5,
        'reinhard_tonemap': reinhard_tonemap,
        'ppo_losses': ppo_losses,
        'embedded_atom': embedded_atom,
        'euler_rusanov': euler_rusanov,
        'plate_biharmonic': plate_biharmonic,
        'ell_jacobi': ell_jacobi,
        'pagerank_step': pagerank_step,
        'cube_elasticity': cube_elasticity,
        'sine_poisson': sine_poisson,
        'legendre_transform': legendre_transform,
        'block_reflector': block_reflector,
        'density_fitted_fock': density_fitted_fock,
        'coarse_grain': coarse_grain,
        'kuramoto_heun': kuramoto_heun,
        'ising_sweep': ising_sweep,
        'bootstrap_moments': bootstrap_moments,
        'kendall_tau': kendall_tau,
        'gmm_responsibilities': gmm_responsibilities,
        'felsenstein_root': felsenstein_root,
        'lorenz96_rk4': lorenz96_rk4,
        'dg_advection': dg_advection,
        'delay_and_sum': lambda x, d, w: delay_and_sum(x, d, w, s['t']),
        'masked_spatial_covariance': masked_spatial_covariance,
        'cfar_map': cfar_map,
        'histogram_equalize': histogram_equalize,
        'lucas_kanade': lucas_kanade,
        'white_top_hat': white_top_hat,
        'remap_bilinear': lambda x, i, u, v: remap_bilinear(x, i, u, v, s['w']),
        'point_to_plane': point_to_plane,
        'ray_triangles': ray_triangles,
        'matrix_profile': lambda x, m, d: matrix_profile(x, m, d, s['w']),
        'group_by': lambda k, v: group_by(k, v, s['g']),
        'minhash_similarity': minhash_similarity,
        'ohlc_bars': lambda p, v: ohlc_bars(p, v, s['t']),
        'vertex_normals': vertex_normals,
        'delta_decode': delta_decode,
    }
    return f.get(op)
