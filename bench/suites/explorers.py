"""PyTorch's definitions of the operators of explorers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def ring_window_decode(q, k, v, n, a):
    w = k.shape[2]
    s = (q @ k.mT).to(wider(q)) * 0.125
    s = s.masked_fill((torch.arange(w, device=n.device) >= n[:, None])[:, None, None], float('-inf'))
    a = a.to(s.dtype)[None, :, :, None].expand(s.shape[0], -1, -1, -1)
    p = torch.softmax(torch.cat((s, a), 3), 3)[..., :w]
    return p.to(q.dtype) @ v


def switch_positions(l, i, c):
    n = (i[:, None] == torch.arange(l.shape[1], device=l.device)).to(l.dtype).cumsum(0)
    j = i.long()[:, None]
    p, g = n.gather(1, j)[:, 0], torch.softmax(l, 1).gather(1, j)[:, 0]
    return p - 1, torch.where(p <= c, g, 0), n[-1].clamp(max=c)


def distill_kl_grad(s, t):
    p, q = (torch.log_softmax(0.5 * x.to(wider(x)), 1) for x in (t, s))
    l = 4 * F.kl_div(q, p, reduction='none', log_target=True).sum(1)
    return l, (2 * (q.exp() - p.exp())).to(s.dtype)


def dit_conditioning(t, e, c, k, w, b, u, f):
    return F.silu(F.linear(F.silu(F.linear(F.embedding(t, e), w, b)), u, f) + F.embedding(c, k))


def mmdit_joint_attention(x, c, g, h):
    d = x.shape[3]
    q, k = (torch.cat((F.rms_norm(c[:, a], [d], h[a], 0.000001), F.rms_norm(x[:, a], [d], g[a], 0.000001))) for a in (0, 1))
    v = torch.cat((c[:, 2], x[:, 2]))
    y = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None], scale=0.125)
    return y[0].transpose(0, 1).contiguous()


def c51_projection_loss(l, t, r, d):
    n = l.shape[1]
    z = 0.4 * torch.arange(n, device=l.device, dtype=l.dtype) - 10
    v = (r[:, None] + torch.where(d[:, None] == 1, 0, 0.99 * z)).clamp(-10, 10)
    w = torch.relu(1 - 2.5 * (v[:, None] - z[:, None]).abs())
    p = (w * torch.softmax(t, 1)[:, None]).sum(2)
    q = torch.log_softmax(l, 1)
    return -(p * q).sum(1), q.exp() - p


def mxfp4_linear(x, c, s, t, b):
    w = t[c].unflatten(1, (-1, 32)) * torch.exp2((s - 4).to(t.dtype))[:, :, None]
    return F.linear(x, w.flatten(1), b)


def softcap_attention_dkv(q, k, v, g, l, d):
    c = torch.tanh(0.0017677669529663688 * (q @ k.mT).to(l.dtype))
    p = torch.exp(50 * c - l[:, :, None]).tril()
    s = 0.08838834764831845 * p * (1 - c * c) * ((g @ v.mT).to(l.dtype) - d[:, :, None])
    return s.to(q.dtype).mT @ q, p.to(q.dtype).mT @ g


def lightning_chunk_prefix(k, v, a, c):
    h, s, d = k.shape
    a = -0.01 * a.abs()
    l = s // c
    i = torch.arange(l - 1, -1, -1, device=k.device, dtype=a.dtype)
    u = (k.view(h, c, l, d) * torch.exp(a[:, None] * i)[:, None, :, None]).to(k.dtype)
    x = u.mT @ v.view(h, c, l, d)
    q = torch.arange(c, device=k.device)
    e = (q[:, None] - q - 1).clamp(min=0).to(a.dtype) * l
    w = torch.exp(a[:, None, None] * e).tril(-1)
    return (w @ x.flatten(2).to(w.dtype)).to(k.dtype).view(h, c, d, d)


def convnext_downsample(x, g, b, w, f):
    y = F.layer_norm(x, [x.shape[3]], g, b, 0.000001)
    return F.conv2d(y.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), f, stride=2).permute(0, 2, 3, 1).contiguous()


def tcn_wgrad(x, g, d):
    o = g.shape[1]
    w = x.new_empty(o, x.shape[1], 3)
    return torch.ops.aten.convolution_backward(g, F.pad(x, (2 * d, 0)), w, [o], [1], [0], [d], False, [0], 1, [False, True, True])[1:]


def channelwise_conv3d_swish(x, w, a, b):
    y = F.conv3d(x, w[:, None], padding=1, groups=x.shape[1])
    return F.silu(torch.addcmul(b[:, None, None, None], y, a[:, None, None, None]))


def trilinear_upsample3d(x):
    return F.interpolate(x, scale_factor=2, mode='trilinear', align_corners=False)


def instance_norm_bwd(x, g, w, m, r):
    h = (x - m[:, :, None, None]) * r[:, :, None, None]
    a, b = g.mean((2, 3), keepdim=True), (g * h).mean((2, 3), keepdim=True)
    n = x.shape[2] * x.shape[3]
    return (w * r)[:, :, None, None] * (g - a - h * b), n * b.sum((0, 2, 3)), n * a.sum((0, 2, 3))


def gated_rms_norm_bwd(x, z, w, g):
    t = wider(x)
    x, z, g = x.to(t), z.to(t), g.to(t)
    s = torch.sigmoid(z)
    a = z * s
    u = x * a
    r = torch.rsqrt(u.square().mean(2, keepdim=True) + 0.00001)
    n, y = u * r, g * w
    d = r * (y - n * (y * n).mean(2, keepdim=True))
    return (d * a).to(w.dtype), (d * x * s * (1 + z * (1 - s))).to(w.dtype), (g * n).sum(0)


def lstmp_peephole_cell(x, h, c, w, u, b, p, r):
    a = F.linear(x, w.flatten(0, 1), b.flatten()) + F.linear(h, u.flatten(0, 1))
    i, f, g, o = a.chunk(4, 1)
    c1 = torch.sigmoid(f + p[1] * c) * c + torch.sigmoid(i + p[0] * c) * torch.tanh(g)
    return c1, F.linear(torch.sigmoid(o + p[2] * c1) * torch.tanh(c1), r)


def rgcn_basis_layer(x, j, t, n, a, v, s):
    k = torch.arange(j.shape[1], device=j.device)
    w = torch.where((k < n[:, None])[:, :, None], a[t], 0)
    m = w.mT @ x[j]
    return torch.relu(x @ s + (m.flatten(1) @ v.flatten(0, 1)) / n.clamp(min=1)[:, None])


def moco_queue_loss(q, p, u):
    t = wider(q)
    n = (q.to(t) * torch.rsqrt(q.to(t).square().sum(1, keepdim=True) + 0.000001)).to(q.dtype)
    a = (n.to(t) * p).sum(1, keepdim=True)
    s = 0.4419417382415922 * torch.cat((a, (n @ u.mT).to(t)), 1)
    s = torch.log_softmax(s, 1)
    e = s.exp()
    d = 0.4419417382415922 * ((e[:, 1:].to(q.dtype) @ u).to(t) + (e[:, :1] - 1) * p)
    return -s[:, 0], d.to(q.dtype)


def rowwise_adagrad(w, g, s, rate):
    s = s.abs() + g.square().mean(1)
    return s, w - rate * g / (s.sqrt() + 0.00000001)[:, None]


def t5_bucket_attention(q, k, v, b, u):
    s = q.shape[1]
    i = torch.arange(s, device=q.device)
    bias = b[u[i - i[:, None] + s - 1]].permute(2, 0, 1).contiguous()
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias[None], scale=1.0)
    return y.transpose(1, 2).contiguous()


def loha_linear(x, w, a, b, c, d):
    return F.linear(x, torch.addcmul(w, a @ b, c @ d, value=0.0625))


def gross_pitaevskii_step(r, i, v):
    def around(f): return sum(f.roll(s, a) for a in range(3) for s in (-1, 1))
    w = v.abs() + 0.5 * (r * r + i * i) + 3
    r = r + 0.05 * (w * i - 0.5 * around(i))
    i = i - 0.05 * (w * r - 0.5 * around(r))
    return r, i, (r * r + i * i).sum()[None]


def neo_hookean_tets(x, i, b, v):
    p = x[i]
    d = (p[:, 1:] - p[:, :1]).mT
    # Products of 3 by 3 as sums of outer products, which are made in one kernel with what follows.
    h = sum(d[:, :, c, None] * b[:, c, None] for c in range(3))
    f = torch.eye(3, device=x.device, dtype=x.dtype) + 0.1 * h
    c = torch.stack([torch.linalg.cross(f[:, (a + 1) % 3], f[:, (a + 2) % 3]) for a in range(3)], 1)
    j = (f[:, 0] * c[:, 0]).sum(1)
    v = v.abs()
    k = -v[:, None, None] * (f + (4 * (j - 1.25))[:, None, None] * c)
    y = (k[:, :, None] * b[:, None]).sum(3)
    e = v * (0.5 * (f.square().sum((1, 2)) - 3) + 2 * (j - 1.25).square())
    return y, e.sum()[None]


def gaussian_overlap_kinetic(r, a, c):
    n, q = a.shape
    d = sum((r[:, x, None] - r[:, x]).square() for x in range(3))
    a = torch.exp(0.5 * a)
    s = t = 0
    for i in range(q):
        for j in range(q):
            p = a[:, i, None] + a[:, j]
            u = a[:, i, None] * a[:, j] / p
            p = 3.141592653589793 / p
            w = c[:, i, None] * c[:, j] * torch.exp(-u * d) * p * p.sqrt()
            s = s + w
            t = t + w * u * (3 - 2 * u * d)
    return s, t


def barrier_bridge_payoff(z, s):
    s = 0.05 * s
    l = s[:, None] + (0.012598815766974241 * z - 0.00007936507936507937).cumsum(1)
    a = torch.relu(l + 0.2)
    b = torch.cat((torch.relu(s + 0.2)[:, None], a[:, :-1]), 1)
    w = (1 - torch.exp(-12600 * a * b)).prod(1)
    y = w * torch.relu(torch.exp(l[:, -1]) - 1)
    return y, y.mean()[None], y.square().mean()[None]


def particle_weights(x, y, w, h):
    d = (y[:, :, None] - h @ x).square().sum(1)
    q = torch.softmax(w - 0.25 * d, 1)
    return q, q.cumsum(1), 1 / q.square().sum(1), (x @ q[:, :, None])[:, :, 0]


def legall53_lifting(x):
    # One dimension: what is smooth, and details; both ends are mirrored.
    def lift(x, dim):
        n = x.shape[dim] // 2
        even, odd = x.unflatten(dim, (n, 2)).unbind(dim + 1)
        after = torch.cat((even.narrow(dim, 1, n - 1), even.narrow(dim, n - 1, 1)), dim)
        d = odd - 0.5 * (even + after)
        before = torch.cat((d.narrow(dim, 0, 1), d.narrow(dim, 0, n - 1)), dim)
        return even + 0.25 * (before + d), d
    a, d = lift(x.to(wider(x)), 1)
    (ll, lh), (hl, hh) = lift(a, 2), lift(d, 2)
    return tuple(y.to(x.dtype) for y in (lh, hh, ll, hl))


def sph_momentum(x, v, j):
    d = [x[:, a, None] - x[:, a][j] for a in range(3)]
    w = [v[:, a, None] - v[:, a][j] for a in range(3)]
    q = d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
    c = d[0] * w[0] + d[1] * w[1] + d[2] * w[2]
    s = q.sqrt()
    h = torch.relu(1 - 0.25 * s)
    r = 1 + (h ** 4 * (1 + s)).sum(1)
    p = (r - 0.5) / (r * r)
    k = 1.25 * h ** 3 * (p[:, None] + p[j] - 0.1 * c.clamp(max=0) / (q + 0.16))
    return r, torch.stack([(k * e).sum(1) for e in d], 1)


def svgd_direction(x, s):
    n = x.square().sum(1)
    k = torch.exp(-0.015625 * torch.relu(n[:, None] + n - 2 * (x @ x.t())))
    return (k @ (s - 0.03125 * x) + 0.03125 * k.sum(1, keepdim=True) * x) / x.shape[0]


def ransac_homography(h, p, q):
    g = torch.eye(3, device=h.device, dtype=h.dtype) + 0.1 * h
    u, v, w = (g[:, a, 0, None] * p[:, 0] + g[:, a, 1, None] * p[:, 1] + g[:, a, 2, None] for a in range(3))
    u, v = u - w * q[:, 0], v - w * q[:, 1]
    s = ((u * u + v * v) / (w * w + 0.000001)).clamp(max=1).sum(1)
    return s, s.argmin()[None].to(h.dtype)


def lbp_cell_histograms(x):
    n, h, w = x.shape
    p = F.pad(x[:, None], (1, 1, 1, 1), mode='replicate')[:, 0]
    places = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))
    c = sum((p[:, a:a + h, b:b + w] >= x).to(torch.int64) << i for i, (a, b) in enumerate(places))
    c = c.view(n, h // 16, 16, w // 16, 16).transpose(2, 3).flatten(3)
    return x.new_zeros(*c.shape[:3], 256).scatter_add_(3, c, torch.ones_like(c, dtype=x.dtype))


def gwas_score_stats(g, y):
    t = wider(g)
    n = g.shape[1]
    q, a = torch.var_mean(g.to(t), 1, correction=0, keepdim=True)
    q, f = n * q, y.to(t)
    s = (g @ y).to(t) - a * f.sum(0)
    return s / q, s * s / (q * f.square().mean(0))


def cryoem_ctf_match(x, y, c, r, i):
    # Both parts in one product; the third stands beside it as a sum.
    s = torch.cat((x * c, y * c, -0.5 * (c * c)), 1) @ torch.cat((r, i, r * r + i * i), 1).t()
    return s, s.amax(1)


def vlasov_advect(f, a):
    s = torch.sigmoid(a)
    t = s[:, None]
    y = (f.roll(2, 1) * (t * t - 1) * t / 6 + f.roll(1, 1) * t * (1 + t) * (2 - t) / 2
         + f * (1 - t * t) * (2 - t) / 2 + f.roll(-1, 1) * t * (t - 1) * (2 - t) / 6)
    return y, y.sum(0), s @ y


def gcc_phat_lags(r, i, p, q, c, s):
    t = wider(r)
    r1, i1, r2, i2 = r[p].to(t), i[p].to(t), r[q].to(t), i[q].to(t)
    a, b = r1 * r2 + i1 * i2, i1 * r2 - r1 * i2
    n = torch.rsqrt(a * a + b * b + 0.000001)
    return (torch.cat(((a * n).to(r.dtype), (b * n).to(r.dtype)), 2) @ torch.cat((c, -s), 1).t()) / c.shape[1]


def ggx_many_lights(n, v, k, a, d, c):
    t, own = wider(n), n.dtype
    n, v, k, a, d, c = (x.to(t) for x in (n, v, k, a, d, c))

    def dot(x, y): return x[0] * y[0] + x[1] * y[1] + x[2] * y[2]
    r, s = dot(n, n), dot(v, v)
    nv = dot(n, v) * torch.rsqrt(r * s + 0.000001)
    q = 0.2 + 0.6 * torch.sigmoid(a)
    e, f = 0.5 * q, 1 - 0.5 * q
    base, nv0 = k.abs() * 0.3183098861837907, torch.relu(nv) * f + e
    y = 0
    for i in range(d.shape[0]):
        l = dot(d[i], d[i])
        nl = dot(n, d[i]) * torch.rsqrt(r * l + 0.000001)
        vl = dot(v, d[i]) * torch.rsqrt(s * l + 0.000001)
        h = torch.rsqrt((2 + 2 * vl).clamp(min=0.001))
        nh, vh = torch.relu((nv + nl) * h), torch.relu(1 - (1 + vl) * h)
        g = nh * nh * (q * q - 1) + 1
        nl = torch.relu(nl)
        w = 0.25 * q * q / (3.141592653589793 * g * g * (nl * f + e) * nv0)
        y = y + c[i][:, None] * (nl * (base + w * (0.04 + 0.96 * vh ** 5)))
    return y.to(own)


def eager(op, s):
    f = {
        'ring_window_decode': ring_window_decode,
        'switch_positions': lambda l, i: switch_positions(l, i, s['c']),
        'distill_kl_grad': distill_kl_grad,
        'dit_conditioning': dit_conditioning,
        'mmdit_joint_attention': mmdit_joint_attention,
        'c51_projection_loss': c51_projection_loss,
        'mxfp4_linear': mxfp4_linear,
        'softcap_attention_dkv': softcap_attention_dkv,
        'lightning_chunk_prefix': lambda k, v, a: lightning_chunk_prefix(k, v, a, s['c']),
        'convnext_downsample': convnext_downsample,
        'tcn_wgrad': lambda x, g: tcn_wgrad(x, g, s['d']),
        'channelwise_conv3d_swish': channelwise_conv3d_swish,
        'trilinear_upsample3d': trilinear_upsample3d,
        'instance_norm_bwd': instance_norm_bwd,
        'gated_rms_norm_bwd': gated_rms_norm_bwd,
        'lstmp_peephole_cell': lstmp_peephole_cell,
        'rgcn_basis_layer': rgcn_basis_layer,
        'moco_queue_loss': moco_queue_loss,
        'rowwise_adagrad': rowwise_adagrad,
        't5_bucket_attention': t5_bucket_attention,
        'loha_linear': loha_linear,
        'gross_pitaevskii_step': gross_pitaevskii_step,
        'neo_hookean_tets': neo_hookean_tets,
        'gaussian_overlap_kinetic': gaussian_overlap_kinetic,
        'barrier_bridge_payoff': barrier_bridge_payoff,
        'particle_weights': particle_weights,
        'legall53_lifting': legall53_lifting,
        'sph_momentum': sph_momentum,
        'svgd_direction': svgd_direction,
        'ransac_homography': ransac_homography,
        'lbp_cell_histograms': lbp_cell_histograms,
        'gwas_score_stats': gwas_score_stats,
        'cryoem_ctf_match': cryoem_ctf_match,
        'vlasov_advect': vlasov_advect,
        'gcc_phat_lags': gcc_phat_lags,
        'ggx_many_lights': ggx_many_lights,
    }
    return f.get(op)
