"""PyTorch's definitions of the operators of pilgrims.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def dropout_ln_bwd(g, h, e, k, w, m, r):
    d, p, q = torch.ops.aten.native_layer_norm_backward(g, h, [h.shape[1]], m[:, None], r[:, None], w, w, [True, True, True])
    d = d + e
    x = torch.where(k > -0.75, d / 0.9, 0)
    return d, x, p, q, x.sum(0)


def upsample2_bwd(g):
    n, c, h, w = g.shape
    return torch.ops.aten.upsample_bilinear2d_backward(g, [h, w], [n, c, h // 2, w // 2], False, 2.0, 2.0)


def max_pool_indices(x):
    y, i = F.max_pool2d(x, 3, 2, return_indices=True)
    return y, i.to(x.dtype)


def pact_bwd(x, g, a):
    a = a.abs()[:, None]
    return torch.where((x > 0) & (x < a), g, 0), torch.where(x >= a, g, 0).sum((0, 2))


def soap_update(g, l, r, m, v, w, rate):
    p = l.t() @ g @ r
    m = 0.95 * m + 0.05 * p
    v = 0.95 * v.abs() + 0.05 * p.square()
    return m, v, 0.999 * w - rate * (l @ (m / (v.sqrt() + 0.001)) @ r.t())


def ghost_clip(x, g):
    q = (torch.bmm(x, x.mT) * torch.bmm(g, g.mT)).sum((1, 2))
    n = q.abs().sqrt()
    c = (5000 / (n + 0.000001)).clamp(max=1)
    return n, (c[:, None, None] * g).flatten(0, 1).t() @ x.flatten(0, 1)


def beam_scores(x, s, f):
    stay = torch.where(torch.arange(x.shape[2], device=x.device) == 0, 0.0, -100.0).to(x.dtype)
    y = s[..., None] + torch.where(f[..., None] == 1, stay, torch.log_softmax(x, 2))
    t, p = y.flatten(1).max(1)
    return y, t, p.to(x.dtype)


def repetition_penalties(x, t):
    c = torch.zeros_like(x).scatter_add_(1, t.long(), torch.ones(t.shape, dtype=x.dtype, device=x.device))
    return (torch.where(c > 0, torch.where(x > 0, x / 1.2, x * 1.2) - 0.2, x) - 0.3 * c) / 0.8


def router_bwd(x, i, d, f):
    i = i.long()
    w = torch.softmax(x.gather(1, i), 1)
    p = torch.softmax(x, 1)
    y = 0.01 * p * (f - (p * f).sum(1, keepdim=True))
    return y.scatter_add(1, i, w * (d - (w * d).sum(1, keepdim=True)))


def linear_recurrence(x, a):
    # Loops over the places of a chunk, then over chunks: what lies between stays in registers of a fused kernel.
    a = -0.1 * a.abs()
    f = torch.exp(a)
    h, state = [], None
    for i in range(16):
        state = x[:, :, 0] if i == 0 else f[:, :, i] * state + x[:, :, i]
        h.append(state)
    whole = torch.exp(a.sum(2))
    s, carry = [], torch.zeros_like(x[:, 0, 0])
    for u in range(x.shape[1]):
        s.append(carry)
        carry = whole[:, u] * carry + state[:, u]
    return torch.stack(h, 2) + torch.exp(a.cumsum(2)) * torch.stack(s, 1)[:, :, None]


def deform_conv3(x, i, u, v, a, f, w):
    n, p = i.shape[:2]
    z = torch.arange(n, device=x.device)[:, None, None]
    a, u, v = torch.sigmoid(a)[..., None], u[..., None], v[..., None]
    top = (1 - v) * x[z, i] + v * x[z, i + 1]
    low = (1 - v) * x[z, i + w] + v * x[z, i + w + 1]
    t = ((1 - u) * top + u * low) * a
    return (t.view(n * p, -1) @ f.flatten(0, 1)).view(n, p, -1)


def hard_triplets(x, i):
    n = x.shape[0]
    q = x.square().sum(1)
    d = torch.addmm(q[:, None] + q, x, x.t(), alpha=-2).clamp(min=0)
    same = i[:, None] == i
    places = torch.arange(n, device=x.device)
    other = places[:, None] != places
    far = torch.where(same & other, d, 0).amax(1)
    near = torch.where(same, 1e30, d).amin(1)
    y = torch.relu(far.sqrt() - near.sqrt() + 0.3)
    return y, y.mean()[None]


def detr_matching_cost(x, p, i, t):
    _b, q, _c = x.shape
    label = torch.softmax(x, 2).gather(2, i.long()[:, None].expand(-1, q, -1))
    n = (p[:, :, None] - t[:, None]).abs().sum(3)
    w, v = p[..., 2:].abs() + 0.01, t[..., 2:].abs() + 0.01
    p0, p1 = (p[..., :2] - 0.5 * w)[:, :, None], (p[..., :2] + 0.5 * w)[:, :, None]
    t0, t1 = (t[..., :2] - 0.5 * v)[:, None], (t[..., :2] + 0.5 * v)[:, None]
    both = (torch.minimum(p1, t1) - torch.maximum(p0, t0)).clamp(min=0)
    both = both[..., 0] * both[..., 1]
    hull = torch.maximum(p1, t1) - torch.minimum(p0, t0)
    hull = hull[..., 0] * hull[..., 1]
    union = (w[..., 0] * w[..., 1])[:, :, None] + (v[..., 0] * v[..., 1])[:, None] - both
    return 5 * n - label - 2 * (both / union - (hull - union) / hull)


def dino_loss(s, t, c):
    n, b = t.shape[:2]
    p = torch.softmax((t - c) / 0.07, 2)
    q = torch.log_softmax(s / 0.1, 2)
    d = torch.einsum('tbk,sbk->ts', p, q)
    y = (d.diagonal().sum() - d.sum()) / (n * (s.shape[0] - 1) * b)
    return y[None], 0.9 * c + 0.1 * t.mean((0, 1))


def matrix_nms(b, s, i):
    n = s.shape[0]
    low, size = b[:, :2], b[:, 2:].abs() + 0.1
    high = low + size
    both = (torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)).clamp(min=0)
    both = both[..., 0] * both[..., 1]
    a = size[:, 0] * size[:, 1]
    places = torch.arange(n, device=s.device)
    before = places[:, None] < places
    o = torch.where(before & (i[:, None] == i), both / (a[:, None] + a - both), 0).square()
    m = o.amax(0)
    return s * torch.where(before, torch.exp(2 * (m[:, None] - o)), 1).amin(0)


def dcn_mixture(x0, x, v, c, u, g, b):
    p = torch.tanh(0.05 * (x @ v))
    q = torch.tanh(0.1 * torch.bmm(p, c))
    gate = torch.softmax(0.05 * (x @ g), 1)
    # Gates go to the operands, so that the experts are one product and their sum.
    q = (q * gate.t()[..., None]).transpose(0, 1).flatten(1)
    return torch.addcmul(x, x0, torch.addmm(b, q, u.flatten(0, 1)))


def gatv2_ell(x, r, a, i, n):
    there = (torch.arange(i.shape[1], device=x.device) < n[:, None])[..., None]
    xs = x[i]
    s = (a * F.leaky_relu(xs + r[:, None], 0.2)).sum(3)
    s = torch.where(there, s, -3e38)
    e = torch.where(there, torch.exp(s - s.amax(1, keepdim=True)), 0)
    return (e[..., None] * xs).sum(1) / e.sum(1).clamp(min=1e-16)[..., None]


def schnet_filter_conv(p, i, c, w, b, x):
    d = (p[:, None] - p[i]).square().sum(2)
    e = torch.exp(-4 * ((d + 0.0001).sqrt()[..., None] - c).square())
    f = F.softplus(e @ w + b, threshold=40) - 0.6931471805599453
    return (x[i] * f * torch.relu(1 - d / 25)[..., None]).sum(1)


def boris_push(i, x, v, e, b):
    s = round(e.shape[1] ** (1 / 3))
    o = [a * s * s + c * s + d for a in range(2) for c in range(2) for d in range(2)]
    w = torch.stack((1 - x, x), 1)
    w = [w[0, a] * w[1, c] * w[2, d] for a in range(2) for c in range(2) for d in range(2)]
    f = 0.05 * sum(k * e[:, i + q] for k, q in zip(w, o))
    t = 0.05 * sum(k * b[:, i + q] for k, q in zip(w, o))
    m = v + f
    r = m + torch.linalg.cross(m, t, dim=0)
    u = m + torch.linalg.cross(r, 2 * t / (1 + t.square().sum(0)), dim=0) + f
    return u, x + 0.1 * u


def tricubic_gather(f, i, u, s):
    w = 0.5 * torch.stack((u * (u * (2 - u) - 1), u * u * (3 * u - 5) + 2, u * (1 + u * (4 - 3 * u)), u * u * (u - 1)), 1)
    y = 0
    for a in range(4):
        for b in range(4):
            row = sum(w[2, c] * f[i + a * s * s + b * s + c] for c in range(4))
            y = y + w[0, a] * w[1, b] * row
    return y


def tridiagonal8(a, b, c, d):
    p = b.abs() + a.abs() + c.abs() + 1
    cs, ds = [c[0] / p[0]], [d[0] / p[0]]
    for k in range(1, 8):
        r = 1 / (p[k] - a[k] * cs[-1])
        ds.append((d[k] - a[k] * ds[-1]) * r)
        cs.append(c[k] * r)
    x = ds[7:]
    for k in reversed(range(7)): x.insert(0, ds[k] - cs[k] * x[0])
    return torch.stack(x)


def cholesky_solve4(g, b):
    # Unrolled, which a fused kernel does in registers; libraries' batched factorisations of so small matrices are slower.
    s = (g[:, :, :, None] * g[:, :, None]).sum(1)
    c = (g * b[..., None]).sum(1)
    l, a, z = [[None] * 4 for _ in range(4)], [], []
    for j in range(4):
        a.append(torch.rsqrt(s[:, j, j] + 1 - sum(l[j][k] * l[j][k] for k in range(j))))
        for i in range(j + 1, 4): l[i][j] = (s[:, i, j] - sum(l[i][k] * l[j][k] for k in range(j))) * a[j]
    for i in range(4): z.append((c[:, i] - sum(l[i][k] * z[k] for k in range(i))) * a[i])
    x = [None] * 4
    for i in reversed(range(4)): x[i] = (z[i] - sum(l[k][i] * x[k] for k in range(i + 1, 4))) * a[i]
    return torch.stack(x, 1), -2 * torch.log(a[0] * a[1] * a[2] * a[3])


def cgs2_step(q, v):
    m = v.shape[0]
    r = q.t() @ v
    w = torch.addmv(v, q, r, alpha=-1 / m)
    s = q.t() @ w
    u = torch.addmv(w, q, s, alpha=-1 / m)
    n = u.square().sum()
    return u * torch.rsqrt(n), torch.cat(((r + s) / m, (n / m).sqrt()[None]))


def polynomial_chaos(x, i, c):
    h = torch.stack((torch.ones_like(x), x, x * x - 1, x * (x * x - 3)), 2)
    p = h[:, 0, i[:, 0]]
    for r in range(1, x.shape[1]): p = p * h[:, r, i[:, r]]
    return p @ c


def spherical_harmonics(p):
    x, y, z = (p * torch.rsqrt(p.square().sum(1, keepdim=True) + 0.000001)).unbind(1)
    a, b, c = 3 ** 0.5, 5 ** 0.5, 7 ** 0.5
    x2, y2, z2 = x * x, y * y, z * z
    s0, s4 = a * x * z, 0.5 * a * (z2 - x2)
    t = 4 * y2 - x2 - z2
    return torch.stack((
        torch.ones_like(x), a * x, a * y, a * z,
        b * s0, b * a * x * y, b * (y2 - 0.5 * (x2 + z2)), b * a * y * z, b * s4,
        c * (5 / 6) ** 0.5 * (s0 * z + s4 * x), c * b * s0 * y, c * (3 / 8) ** 0.5 * t * x, c * 0.5 * y * (2 * y2 - 3 * (x2 + z2)),
        c * (3 / 8) ** 0.5 * z * t, c * b * s4 * y, c * (5 / 6) ** 0.5 * (s4 * z - s0 * x)), 1)


def cross_ambiguity(x, s, c, n):
    d, k = c.shape
    a, b = s[0] * c - s[1] * n, s[0] * n + s[1] * c
    # One product for real and imaginary parts; the shifts are rows of a Hankel matrix.
    w = torch.cat((torch.cat((a, b), 1), torch.cat((-b, a), 1)))
    y = (w @ x.unfold(1, k, 1).mT.flatten(0, 1)).square()
    return (y[:d] + y[d:]) / k


def lsm_normal_equations(x, y):
    # Sums apart, which one fused kernel adds up in one pass.
    there = (x < 1).to(x.dtype)
    f = [there, there * (1 - x), there * (1 - x * (2 - 0.5 * x)), there * (1 - x * (3 - x * (1.5 - x / 6)))]
    n = there.sum()
    a = {(i, j): (f[i] * f[j]).sum() for i in range(4) for j in range(i, 4)}
    a[0, 0] = n
    a = torch.stack([a[min(i, j), max(i, j)] for i in range(4) for j in range(4)])
    return a.view(4, 4), torch.stack([(k * y).sum() for k in f]), n[None]


def silhouette(x, i, c):
    n = x.shape[0]
    q = x.square().sum(1)
    d = torch.addmm(q[:, None] + q, x, x.t(), alpha=-2).clamp(min=0)
    places = torch.arange(n, device=x.device)
    d = torch.where(places[:, None] == places, 0, d).sqrt()
    one = (i[:, None] == torch.arange(c, device=x.device)).to(x.dtype)
    size = one.sum(0)
    s = d @ one
    own = size[i]
    a = s.gather(1, i.long()[:, None])[:, 0] / (own - 1).clamp(min=1)
    b = torch.where((one == 0) & (size > 0), s / size.clamp(min=1), 1e30).amin(1)
    y = torch.where(own > 1, (b - a) / torch.maximum(a, b), 0)
    return y, y.mean()[None]


def logistic_newton(x, i, w):
    t = 0.125 * (x @ w)
    y = (F.softplus(t, threshold=40) - i * t).sum()
    p = torch.sigmoid(t)
    g = 0.125 * ((p - i) @ x) + 0.01 * w
    h = x.t() @ ((p * (1 - p))[:, None] * x)
    return y[None], g, h / 64 + 0.01 * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)


def cox_loss_grad(x, e):
    m = x.amax(1, keepdim=True)
    s = torch.exp(x - m)
    c = s.cumsum(1)
    y = torch.where(e == 1, torch.log(c) + m - x, 0).sum(1)
    r = torch.where(e == 1, 1 / c, 0)
    return y, s * r.flip(1).cumsum(1).flip(1) - e


def rms_norm_add_bwd(x, g, e, w, r):
    u, v = x.to(wider(x)), g.to(wider(x))
    h = u * r[:, None]
    a = v * w
    d = e + r[:, None] * (a - h * (a * h).mean(1, keepdim=True))
    return d.to(x.dtype), (v * h).sum(0)


def geglu_bias_bwd(x, b, g):
    a, u = (x.to(wider(x)) + b).chunk(2, 1)
    p = 0.5 * (1 + torch.erf(0.7071067811865476 * a))
    d = torch.cat((g * u * (p + 0.3989422804014327 * a * torch.exp(-0.5 * a * a)), g * a * p), 1)
    return d.to(x.dtype), d.sum(0)


def rope_qkv_bwd(q, k, v, c, n):
    c, n = c[:, None], n[:, None]

    def back(g):
        a, b = g.chunk(2, 3)
        return torch.cat((a * c + b * n, b * c - a * n), 3).to(g.dtype)
    return torch.cat((back(q), back(k), v), 2)


def lm_loss_and_grad(x, i):
    _m, v = x.shape
    there = i < v
    t = there.sum().clamp(min=1).to(wider(x))
    k = i.clamp(max=v - 1).long()
    f = x.to(wider(x))
    s = torch.logsumexp(f, 1)
    y = torch.where(there, s + 0.0001 * s.square() - f.gather(1, k[:, None])[:, 0], 0).sum() / t
    one = k[:, None] == torch.arange(v, device=x.device)
    g = ((1 + 0.0002 * s)[:, None] * torch.exp(f - s[:, None]) - one.to(f.dtype)) * (v / t)
    return y[None], torch.where(there[:, None], g, 0).to(x.dtype)


def rotate_and_scale(x, h):
    r = x @ h
    s = r.abs().amax((1, 2)).to(wider(x)).clamp(min=0.00001) / 448
    return s, (r / s[:, None, None]).to(x.dtype)


def tree_verify_attention(q, k, v, n, d, w, a):
    b, g, h, s, x = q.shape
    t = k.shape[2]
    # Heads that share keys are rows of one product; nothing of the cache is copied.
    q = q.flatten(2, 3)
    l = torch.cat((q @ k.mT, q @ d.mT), 3).view(b, g, h, s, t + s).to(wider(q)) * 0.08838834764831845
    places = torch.arange(s, device=q.device)
    old = (torch.arange(t, device=q.device) < n[:, None])[:, None].expand(-1, s, -1)
    mask = torch.cat((old, (a == 1) | (places[:, None] == places)), 2)[:, None, None]
    p = torch.softmax(torch.where(mask, l, -torch.inf), 4).to(q.dtype).flatten(2, 3)
    return (p[..., :t] @ v + p[..., t:] @ w).view(b, g, h, s, x)


def draft_acceptance(x, d, q, u):
    f = x.to(wider(x))
    l = f.gather(2, d.long()[..., None])[..., 0] - torch.logsumexp(f, 2)
    c = (torch.sigmoid(u) * torch.exp(q) <= torch.exp(l) * x.shape[2]).to(l.dtype).cumprod(1)
    return c.sum(1), (c * l).sum(1)


def moe_dispatch_rows(x, i, w):
    t, _d = x.shape
    f = x.to(wider(x))
    r = torch.rsqrt(f.square().mean(1) + 0.000001)
    k = i.clamp(max=t - 1)
    y = torch.where((i < t)[..., None], f[k] * r[k][..., None] * w[:, None], 0)
    s = y.abs().amax(2).clamp(min=0.00001) / 448
    return s, (y / s[..., None]).to(x.dtype)


def ragged_expert_wgrad(x, g, n):
    there = torch.arange(x.shape[1], device=x.device) < n[:, None]
    return torch.bmm(torch.where(there[..., None], x, 0).mT, g)


def mlstm_parallel(q, k, v, i, f):
    s = q.shape[2]
    c = F.logsigmoid(f + 3).cumsum(2)
    g = i - c
    m = g.cummax(2)[0]
    places = torch.arange(s, device=q.device)
    e = torch.where(places[:, None] >= places, torch.exp(g[:, :, None] - m[..., None]), 0)
    e = 0.08838834764831845 * (q @ k.mT) * e
    n = torch.maximum(e.sum(3).abs(), torch.exp(-c - m))
    return ((e.to(q.dtype) @ v) / n[..., None]).to(q.dtype)


def conditional_conv(x, a, f):
    b, _c = x.shape[:2]
    v = (torch.sigmoid(a) @ f.flatten(1)).view(-1, *f.shape[2:])
    return F.conv2d(x.flatten(0, 1)[None], v, groups=b)[0].view(b, f.shape[1], x.shape[2] - 2, x.shape[3] - 2)


def block_sparse_rows(v, i, x):
    return torch.bmm(v.transpose(1, 2).flatten(2), x[i].flatten(1, 2))


def large_kernel_attention(x, f, a, d, b, w, c):
    k = x.shape[1]
    u = F.conv2d(x, f[:, None], a, padding=2, groups=k)
    u = F.conv2d(u, d[:, None], b, padding=9, dilation=3, groups=k)
    return x * F.conv2d(u, w[..., None, None], c)


def rwkv6_intra_chunk(r, k, v, w, u):
    l = r.shape[3]
    w = torch.exp(w - 3)
    p = -w.cumsum(3)
    # Decays go to both operands, so that they are a product's; in chunks as short as these they stay far from overflow.
    e = (r * torch.exp(p + w)).to(r.dtype) @ (k * torch.exp(-p)).to(r.dtype).mT
    own = (r * k * u[:, None, None]).sum(4)
    places = torch.arange(l, device=r.device)
    e = torch.where(places[:, None] > places, e, torch.where(places[:, None] == places, own[..., None], 0))
    return e @ v


def eager(op, s):
    f = {
        'dropout_ln_bwd': dropout_ln_bwd,
        'upsample2_bwd': upsample2_bwd,
        'max_pool_indices': max_pool_indices,
        'pact_bwd': pact_bwd,
        'soap_update': soap_update,
        'ghost_clip': ghost_clip,
        'beam_scores': beam_scores,
        'repetition_penalties': repetition_penalties,
        'router_bwd': router_bwd,
        'linear_recurrence': linear_recurrence,
        'deform_conv3': lambda x, i, u, v, a, f: deform_conv3(x, i, u, v, a, f, s['w']),
        'hard_triplets': hard_triplets,
        'detr_matching_cost': detr_matching_cost,
        'dino_loss': dino_loss,
        'matrix_nms': matrix_nms,
        'dcn_mixture': dcn_mixture,
        'gatv2_ell': gatv2_ell,
        'schnet_filter_conv': schnet_filter_conv,
        'boris_push': boris_push,
        'tricubic_gather': lambda f, i, u: tricubic_gather(f, i, u, s['s']),
        'tridiagonal8': tridiagonal8,
        'cholesky_solve4': cholesky_solve4,
        'cgs2_step': cgs2_step,
        'polynomial_chaos': polynomial_chaos,
        'spherical_harmonics': spherical_harmonics,
        'cross_ambiguity': cross_ambiguity,
        'lsm_normal_equations': lsm_normal_equations,
        'silhouette': lambda x, i: silhouette(x, i, s['c']),
        'logistic_newton': logistic_newton,
        'cox_loss_grad': cox_loss_grad,
        'rms_norm_add_bwd': rms_norm_add_bwd,
        'geglu_bias_bwd': geglu_bias_bwd,
        'rope_qkv_bwd': rope_qkv_bwd,
        'lm_loss_and_grad': lm_loss_and_grad,
        'rotate_and_scale': rotate_and_scale,
        'tree_verify_attention': tree_verify_attention,
        'draft_acceptance': draft_acceptance,
        'moe_dispatch_rows': moe_dispatch_rows,
        'ragged_expert_wgrad': ragged_expert_wgrad,
        'mlstm_parallel': mlstm_parallel,
        'conditional_conv': conditional_conv,
        'block_sparse_rows': block_sparse_rows,
        'large_kernel_attention': large_kernel_attention,
        'rwkv6_intra_chunk': rwkv6_intra_chunk,
        'softmax_attention': softmax_attention,
        'attention_with_lse': attention_with_lse,
        'dequantized_linear': dequantized_linear,
        'rms_linear': rms_linear,
        'cross_entropy_and_grad': cross_entropy_and_grad,
        'huber_and_grad': huber_and_grad,
        'rounded_softmax_attention': softmax_attention,
        'rgb_to_hsv': rgb_to_hsv,
        'gaussian_covariance': gaussian_covariance,
        'kalman4': kalman4,
        'box_iou_giou': box_iou_giou,
    }
    return f.get(op)


def softmax_attention(q, k, v):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.125)[0]


def attention_with_lse(q, k, v):
    if q.dtype == torch.float64:  # the reference's, which flash attention does not know
        scores = (q @ k.transpose(1, 2) * 0.125).masked_fill(
            torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1), -torch.inf)
        return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)
    o, l = torch.ops.aten._scaled_dot_product_flash_attention(q[None], k[None], v[None], 0.0, True, scale=0.125)[:2]
    return o[0], l[0]


def dequantized_linear(a, b, s):
    return (a @ b.t()) * s


def rms_linear(a, b):
    return F.linear(F.rms_norm(a, [a.shape[1]], eps=0.00001), b)


def cross_entropy_and_grad(x, t):
    t = t.long()
    loss = F.cross_entropy(x.float(), t)
    hot = torch.arange(x.shape[1], device=x.device) == t[:, None]
    return loss[None], ((torch.softmax(x, 1) - torch.where(hot, 1.0, 0.0)) / x.shape[0]).to(x.dtype)


def huber_and_grad(x, t):
    d = x - t
    return F.huber_loss(x.float(), t.float())[None], d.clamp(-1, 1) / d.numel()


def rgb_to_hsv(x):
    r, g, b = x.unbind(1)
    most, least = x.amax(1), x.amin(1)
    d = most - least
    e = d.clamp(min=0.000001)
    h = torch.where(most == r, (g - b) / e, torch.where(most == g, 2 + (b - r) / e, 4 + (r - g) / e))
    h = torch.where(d == 0, 0.0, h)
    return torch.stack([h / 6, d / most.clamp(min=0.000001), most], 1)


def gaussian_covariance(s, r, w):
    m = r * s.exp()[:, None, :]
    return w @ (m @ m.transpose(1, 2)) @ w.t()


def kalman4(x, p, f, q, z):
    y = x @ f.t()
    u = f @ p @ f.t() + q
    g = u[:, :, 0] / (u[:, :1, 0].abs() + 1)
    return y + g * (z - y[:, 0])[:, None], u - g[:, :, None] * u[:, :1, :]


def box_iou_giou(a, b):
    inner = (torch.minimum(a[:, 2:], b[:, 2:]) - torch.maximum(a[:, :2], b[:, :2])).clamp(min=0).prod(1)
    outer = (torch.maximum(a[:, 2:], b[:, 2:]) - torch.minimum(a[:, :2], b[:, :2])).prod(1)
    union = (a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner
    iou = inner / union.clamp(min=0.000001)
    return iou, iou - (outer - union) / outer.clamp(min=0.000001)
