"""PyTorch's definitions of the operators of passengers.op, as operators.py's of its own."""
import functools
import math
import operator

import torch
import torch.nn.functional as F


def wide(x):
    """As float32, if it is not wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def total(x, dim):
    """A sum over dim, which stays, in float32, if x is not wider already."""
    return x.sum(dim, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32))


def added(terms):
    return functools.reduce(operator.add, terms)


def count(n, x):
    """0 to n - 1 where x is."""
    return torch.arange(n, device=x.device)


def ewald_reciprocal(q, x, y, z, w):
    k = w.shape[0]
    a = (q[:, None] * torch.view_as_complex(x))[:, :, None] * torch.view_as_complex(y)[:, None]
    # The sum over all charges as a product of real matrices.
    t = (torch.view_as_real(a).flatten(1).t() @ z.flatten(1)).view(k, k, 2, k, 2)
    s = torch.stack((t[:, :, 0, :, 0] - t[:, :, 1, :, 1], t[:, :, 0, :, 1] + t[:, :, 1, :, 0]), -1)
    return s, (w.abs() * s.square().sum(-1)).sum()[None]


def hermite_jerk(p, v, m):
    d = [c - c[:, None] for c in p.unbind(1)]
    u = [c - c[:, None] for c in v.unbind(1)]
    inverse = torch.rsqrt(added(c * c for c in d) + 0.01)
    w = m * inverse * inverse * inverse
    rate = 3 * added(a * b for a, b in zip(d, u, strict=True)) * inverse * inverse
    a = torch.stack([(w * c).sum(1) for c in d], 1)
    return a, torch.stack([(w * (b - rate * c)).sum(1) for b, c in zip(u, d, strict=True)], 1)


def lattice_heat7(f, u):
    n = u.shape[1]
    start = ((1, 1, 1), (1, 1, 0), (1, 1, 2), (1, 0, 1), (1, 2, 1), (0, 1, 1), (2, 1, 1))
    g = [f[c, z:z + n, y:y + n, x:x + n] for c, (z, y, x) in enumerate(start)]
    t = added(g)
    e = [0.25 * t] + [0.125 * t * (1 + s * u[k]) for k in range(3) for s in (4, -4)]
    return t, torch.stack([a - 0.8 * (a - b) for a, b in zip(g, e, strict=True)])


def elastic_velocity(s, v, b):
    def slope(a, dim):
        for k in range(3):
            if k != dim:
                a = a.narrow(k, 1, a.shape[k] - 3)
        a = [a.narrow(dim, k, a.shape[dim] - 3) for k in range(4)]
        return 1.125 * (a[2] - a[1]) - 0.0416667 * (a[3] - a[0])
    xx, yy, zz, xy, xz, yz = s.unbind(0)
    rows = (xx, xy, xz), (xy, yy, yz), (xz, yz, zz)
    force = torch.stack([slope(x, 2) + slope(y, 1) + slope(z, 0) for x, y, z in rows])
    return v + 0.1 * b * force


def prolong_smooth(c, u, f):
    n = u.shape[0]
    v = F.interpolate(c[None, None], size=(n + 1, n + 1, n + 1), mode='trilinear', align_corners=True)
    w = u + v[0, 0, :n, :n, :n]
    m = slice(1, -1)
    around = w[:-2, m, m] + w[2:, m, m] + w[m, :-2, m] + w[m, 2:, m] + w[m, m, :-2] + w[m, m, 2:]
    return 0.2 * w[m, m, m] + 0.1333333 * (f + around)


def residual_restrict(u, f):
    r = f - 4 * u[1:-1, 1:-1] + u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    # Means of two by two means are the full weights.
    return F.avg_pool2d(F.avg_pool2d(r[None], 2, 1), 2)[0]



def congruence(a, p, q):
    # Sums of so few are faster as they are, fused, than as products of small matrices.
    t = (a[:, :, :, None] * p[:, None]).sum(2)
    return (t[:, :, None] * a[:, None]).sum(3) + q


def tucker_core(x, u, v, w):
    a, b, c, d = x.shape
    p, q, r = u.shape[1], v.shape[1], w.shape[1]
    s = u.t() @ x.view(a, b * c * d)
    t = v.t() @ s.view(p, b, c * d)
    y = (w.t() @ t.view(p * q, c, d)).view(p, q, r, d)
    return y, y.square().sum((0, 1, 2))


def ri_mp2_pairs(b, e, f):
    o, v, _ = b.shape
    b = b.flatten(0, 1)
    t = (b @ b.t()).view(o, v, o, v).transpose(1, 2)
    e, f = e.abs(), f.abs()
    gap = (e[:, None] + e)[:, :, None, None] + (f[:, None] + f) + 0.5
    return (t * (t.mT - 2 * t) / gap).sum((2, 3))


def polyphase_resample(x, h, length, d):
    u, t = h.shape
    # As torchaudio: the phases of u outputs are a filter each on a window that moves by d.
    phase = count(u, x)
    size, windows = (u - 1) * d // u + t, -(-length // u)
    tap = count(size, x) - (phase * d // u)[:, None]
    bank = h[(phase * d % u)[:, None], tap.clamp(0, t - 1)] * ((tap >= 0) & (tap < t))
    x = F.pad(x, (0, (windows - 1) * d + size - x.shape[1])).unfold(1, size, d)
    return (x @ bank.t()).flatten(1)[:, :length].contiguous()


def stft_loss(x, y, c, s, hop):
    frames = torch.stack((x, y)).unfold(2, c.shape[1], hop)
    re, im = (frames @ torch.cat((c, s)).t()).chunk(2, -1)
    m, n = torch.sqrt(re * re + im * im + 1e-7)
    return torch.sqrt((m - n).square().sum((1, 2)) / n.square().sum((1, 2))) + (m.log() - n.log()).abs().mean((1, 2))


def microphone_lags(x, lag):
    n = x.shape[2]
    size = 1 << (n - 1).bit_length()
    a, b = torch.fft.rfft(F.pad(x[:, :, lag:-lag], (lag, lag)), size), torch.fft.rfft(x, size)
    # The middle of i starts at lag: a lag of k is one of k - lag, and the negative ones wrap around.
    c = torch.fft.irfft(a.conj()[:, :, None] * b[:, None], size)
    c = torch.cat((c[..., size - lag:], c[..., :lag + 1]), -1)
    e = x.square().sum(2)
    return c * torch.rsqrt(e[:, :, None] * e[:, None] + 1e-6)[..., None]


def pairwise_complete_correlation(x, o):
    x = torch.where(o == 1, x, 0)
    o = o.to(x.dtype)
    n, a, q = (torch.cat((o, x, x * x), 1).t() @ o).chunk(3)
    v = n * q - a * a
    return (n * (x.t() @ x) - a * a.t()) * torch.rsqrt((v * v.t()).clamp(min=1e-6))


def mutual_information(x, y, k):
    x, y = torch.floor(3 * x + 0.5 * k), torch.floor(3 * y + 0.5 * k)
    inside = (x >= 0) & (x < k) & (y >= 0) & (y < k)
    i = torch.where(inside, k * x + y, k * k).long()
    h = x.new_zeros(x.shape[0], k * k + 1).scatter_add_(1, i, torch.ones_like(x))[:, :-1].unflatten(1, (k, k))
    p, q = h.sum(2, keepdim=True), h.sum(1, keepdim=True)
    t = p.sum(1, keepdim=True)
    return torch.where(h > 0, h / t * torch.log(h * t / (p * q)), 0).sum((1, 2))


def adaptive_kde(x, p, h):
    n, d = p.shape
    w = h.abs() + 0.3
    s = (x[:, None] - p).square().sum(2)
    return torch.logsumexp(s * (-0.5 / (w * w)) - d * torch.log(w), 1) - math.log(n)


def joint_bilateral7(d, g, s):
    h, w = d.shape[0] - 6, d.shape[1] - 6
    middle, s = g[:, 3:3 + h, 3:3 + w], s.abs()
    norm = out = 0
    for r in range(7):
        for c in range(7):
            e = s[r, c] * torch.exp(-2 * (g[:, r:r + h, c:c + w] - middle).square().sum(0))
            norm, out = norm + e, out + e * d[r:r + h, c:c + w]
    return out / (norm + 1e-6)


def scharr_edges(x):
    a = x[:, 2:] - x[:, :-2]
    a = 3 * (a[:-2] + a[2:]) + 10 * a[1:-1]
    b = x[2:] - x[:-2]
    b = 3 * (b[:, :-2] + b[:, 2:]) + 10 * b[:, 1:-1]
    m = torch.sqrt(a * a + b * b)
    a, b, own = a[1:-1, 1:-1], b[1:-1, 1:-1], m[1:-1, 1:-1]
    beside = torch.maximum(m[1:-1, :-2], m[1:-1, 2:])
    above = torch.maximum(m[:-2, 1:-1], m[2:, 1:-1])
    falling = torch.maximum(m[:-2, :-2], m[2:, 2:])
    rising = torch.maximum(m[:-2, 2:], m[2:, :-2])
    p = torch.where(b.abs() < 0.41421356 * a.abs(), beside,
                    torch.where(a.abs() < 0.41421356 * b.abs(), above, torch.where(a * b > 0, falling, rising)))
    return torch.where((own >= p) & (own > 8), own, 0)


def resize_bilinear(x, u, v):
    def places(n, f):
        i = count(f.shape[0], f) * (n - 1) // (f.shape[0] - 1)
        return i, (i + 1).clamp(max=n - 1), 1 - f, torch.where(i + 1 < n, f, 0)
    i, j, a, b = places(x.shape[1], u)
    x = x[:, i] * a[:, None, None] + x[:, j] * b[:, None, None]
    i, j, a, b = places(x.shape[2], v)
    return x[:, :, i] * a[:, None] + x[:, :, j] * b[:, None]


def adaptive_threshold(x):
    mean = F.avg_pool2d(F.avg_pool2d(x[None, 1:, 1:], (1, 31), 1), (31, 1), 1)[0]
    return (x[16:-15, 16:-15] < 0.85 * mean).to(x.dtype)


def fast_guided(i, p):
    def box(x):
        return F.avg_pool2d(F.avg_pool2d(x, (1, 9), 1), (9, 1), 1)
    o, r = F.avg_pool2d(torch.stack((i, p)), 2)
    m, n, q, t = box(torch.stack((o, r, o * o, o * r)))
    a = (t - m * n) / (q - m * m + 0.05)
    c, d = F.interpolate(box(torch.stack((a, n - a * m)))[None], scale_factor=2)[0]
    return c * i[16:-16, 16:-16] + d


def batch_norm_running_nhwc(x, g, b, r, v, momentum):
    n = x.numel() // x.shape[3]
    var, mean = torch.var_mean(x, (0, 1, 2), correction=0)
    y = torch.relu((x - mean) * (torch.rsqrt(var + 1e-5) * g) + b)
    return y, torch.lerp(r, mean, momentum), torch.lerp(v, var * (n / (n - 1)), momentum)


def focal_tversky(x, i):
    own = i[:, None] == count(x.shape[1], x)[:, None]
    p = torch.softmax(x, 1)
    hit = torch.where(own, p, 0).sum(2)
    false = p.sum(2) - hit
    missed = own.sum(2) - hit
    return (1 - (hit + 1) / (hit + 0.3 * false + 0.7 * missed + 1)).clamp(min=1e-6).pow(0.75).mean(1)


def ctc_alpha2(a, p, i):
    blank = p.shape[2] - 1
    i = i.long()
    labels = F.pad(torch.stack((torch.full_like(i, blank), i), 2).flatten(1), (0, 1), value=blank)
    e = p.gather(2, labels[:, None].expand(-1, 2, -1))
    skips = labels[:, 2:] != labels[:, :-2]
    for k in range(2):
        one = F.pad(a[:, :-1], (1, 0), value=-1e30)
        two = F.pad(torch.where(skips, a[:, :-2], -1e30), (2, 0), value=-1e30)
        a = torch.logaddexp(torch.logaddexp(a, one), two) + e[:, k]
    return a


def batch_hard_triplet(a, i):
    n = a.square().sum(1)
    same = i[:, None] == i
    # Squares but for what all of a row have.
    d = torch.addmm(n, a, a.t(), alpha=-2)
    p = torch.where(same, d, -torch.inf).amax(1) + n
    q = torch.where(same, torch.inf, d).amin(1) + n
    p, q = (torch.sqrt(x.clamp(min=1e-6)) for x in (p, q))
    q = q.clamp(max=1e30)
    return q, F.softplus((p - q).clamp(max=60))


def cautious_lion(p, g, m, rate):
    c = 0.9 * m + 0.1 * g
    u = torch.where(c * g > 0, torch.sign(c), 0)
    return p * (1 - 0.1 * rate) - u * (rate * p.numel() / (u.abs().sum() + 1)), torch.lerp(m, g, 0.01)


def came_step(p, g, m, r, c, a, b):
    s = g * g
    r = 0.9999 * r.abs() + 0.0001 * s.mean(1)
    c = 0.9999 * c.abs() + 0.0001 * s.mean(0)
    u = g * torch.rsqrt(r / r.mean())[:, None] * torch.rsqrt(c)
    m = 0.9 * m + u * (0.1 / torch.sqrt(u.square().mean()).clamp(min=1))
    v = (u - m).square()
    a = 0.9999 * a.abs() + 0.0001 * v.mean(1)
    b = 0.9999 * b.abs() + 0.0001 * v.mean(0)
    return r, c, m, a, b, p - 0.0002 * m * torch.rsqrt(a / a.mean())[:, None] * torch.rsqrt(b)


def lamb_layers(p, g, m, v, rate, correct):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v.abs() + 0.001 * g * g
    u = m * correct[0] / (torch.sqrt(v) * correct[1].abs() + 1e-6) + 0.01 * p
    a, b = p.square().sum(1, keepdim=True), u.square().sum(1, keepdim=True)
    r = torch.where((a > 0) & (b > 0), torch.sqrt(a / b).clamp(max=10), 1)
    return m, v, p - rate * r * u


def pna_aggregate(x, i):
    t = x[i]
    var, mean = torch.var_mean(t, 1, correction=0)
    low, high = torch.aminmax(t, dim=1)
    return torch.cat((mean, high, low, torch.sqrt(var + 1e-5)), 1)


def depthwise5_bwd_w(x, g):
    windows = x.unfold(1, 5, 1).unfold(2, 5, 1).permute(4, 5, 0, 1, 2, 3)
    return (windows * g).sum((2, 3, 4))


def grouped_rows(q):
    """The queries of each group as rows of one problem, by head and then by place."""
    return q.permute(0, 2, 3, 1, 4).flatten(2, 3)


def ungrouped_rows(y, q):
    b, s, g, h, _ = q.shape
    return y.view(b, g, h, s, -1).permute(0, 3, 1, 2, 4).contiguous()


def sigmoid_gqa_causal(q, k, v, b):
    s, h = q.shape[1], q.shape[3]
    t = (grouped_rows(q) @ k.permute(0, 2, 3, 1)).unflatten(2, (h, s))
    e = torch.sigmoid(t * 0.08838835 + b[:, :, None, None]).tril()
    return ungrouped_rows(e.flatten(2, 3) @ v.transpose(1, 2), q)


def gated_retention(q, k, v, g, a):
    i = count(q.shape[1], q)
    decay = torch.exp((i - i[:, None]).clamp(max=0) * (0.05 * wide(a).abs())[:, None, None]).tril().to(q.dtype)
    d = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1)) * decay
    r = (d @ v.transpose(1, 2)) / total(d, -1).abs().clamp(min=1)
    r = F.rms_norm(r, r.shape[-1:], eps=1e-5).transpose(1, 2)
    return (r * F.silu(wide(g))).to(g.dtype).contiguous()


def differential_decode(q, k, v, u, w, n):
    u = (wide(u[::2]) * u[1::2]).sum(1)
    scale = torch.exp(0.01 * u[0]) - torch.exp(0.01 * u[1]) + 0.8
    seen = count(v.shape[2], n) <= n[:, None]
    t = 0.125 * wide(k @ q[..., None])[..., 0]
    e = torch.softmax(t.masked_fill(~seen[:, None, None], -torch.inf), -1).to(v.dtype)
    a, b = wide(e @ v).unbind(2)
    return (0.2 * F.rms_norm(a - scale * b, w.shape, wide(w), 1e-5)).to(v.dtype)


def lightning_block(q, k, v, s, a):
    n = q.shape[2]
    i = count(n, q)
    rate = 0.02 * a.abs()[:, None, None]
    decay = torch.exp((i - i[:, None]).clamp(max=0) * rate).tril().to(q.dtype)
    o = ((q @ k.mT) * decay) @ v
    y = o + torch.exp(-(i + 1)[:, None] * rate) * (q @ s.to(q.dtype))
    w = (k * torch.exp((i + 1 - n)[:, None] * rate)).to(k.dtype)
    return y.to(q.dtype), s * torch.exp(-n * rate) + w.mT @ v


def tree_verify_attention(q, k, v, a):
    b, n, g, h, d = q.shape
    seen = a.bool() | torch.eye(n, dtype=torch.bool, device=q.device)
    seen = F.pad(seen, (k.shape[1] - n, 0), value=True).repeat_interleave(h, 1)[:, None]
    # A group's heads are more rows, by place and then by head.
    rows = q.transpose(1, 2).flatten(2, 3)
    o = F.scaled_dot_product_attention(rows, k.transpose(1, 2), v.transpose(1, 2), attn_mask=seen, scale=0.08838835)
    return o.reshape(b, g, n, h, d).transpose(1, 2).contiguous()


def skewed_position_attention(q, k, v, r, u, w):
    s = q.shape[1]
    p = torch.einsum('bihd,khd->bhik', q + w, r)
    # Rows that are one shorter begin one later each.
    bias = 0.125 * p.flatten(2)[..., s - 1:-1].unflatten(2, (s, 2 * s - 2))[..., :s]
    q, k, v = (x.transpose(1, 2) for x in (q + u, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=0.125).transpose(1, 2).contiguous()


def ragged_cross_attention(q, k, v, n, m):
    seen = count(k.shape[1], k) <= n[:, None]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None], scale=0.125).transpose(1, 2)
    return torch.where((count(o.shape[1], o) < m[:, None])[..., None, None], o, 0).contiguous()


def chunked_prefill_softcap(q, k, v, a):
    n, h, t = q.shape[1], q.shape[3], k.shape[1]
    s = (grouped_rows(q) @ k.permute(0, 2, 3, 1)).unflatten(2, (h, n))
    hidden = count(t, q) > (a[:, None] + count(n, q))[..., None]
    s = (30 * torch.tanh(s * 0.0029462783)).masked_fill(hidden[:, None, None], -torch.inf)
    return ungrouped_rows(torch.softmax(s, -1).flatten(2, 3) @ v.transpose(1, 2), q)


def stream_attention(q, k, v, w, f):
    # Chunks of w + 1 queries, which divide the sequence, see the first tokens, the chunk before and their own.
    b, h, s, d = q.shape
    c = w + 1
    i = count(s, q).view(-1, c, 1)
    j = i[:, :1] - c + count(2 * c, q)
    seen = torch.cat((count(f, q) <= i - w, (j >= 0) & (j <= i) & (i - j < w)), 2)

    def chunks(x):
        x = x.flatten(0, 1)
        near = F.pad(x, (0, 0, c, 0)).unfold(1, 2 * c, c).transpose(2, 3)
        return torch.cat((x[:, None, :f].expand(-1, near.shape[1], -1, -1), near), 2)
    o = F.scaled_dot_product_attention(q.view(b * h, -1, c, d), chunks(k), chunks(v), attn_mask=seen[None], scale=0.125)
    return o.reshape(b, h, s, d)


def mla_paged_verify(q, c, b, n, u):
    m, h = q.shape[1:3]
    kv = c[b].flatten(1, 2)
    t = (q.flatten(1, 2) @ kv.mT).unflatten(1, (m, h))
    hidden = count(kv.shape[1], q) > (n[:, None] + count(m, q))[..., None]
    e = torch.softmax((t * 0.072168784).masked_fill(hidden[:, :, None], -torch.inf), -1)
    r = (e.flatten(1, 2) @ kv[..., :u.shape[1]]).unflatten(1, (m, h))
    return torch.einsum('bihc,hcd->bihd', r, u).contiguous()


def gla_chunk(q, k, v, d, s):
    decay = 0.1 * d.abs()
    a = (q * torch.exp(-decay)).to(q.dtype).flatten(0, 2)
    b = (k * torch.exp(decay)).to(k.dtype).flatten(0, 2)
    o = torch.baddbmm(a @ s.flatten(0, 2), (a @ b.mT).tril(), v.flatten(0, 2))
    return o.view(v.shape)



def resnext_residual(x, f, a, b, r):
    t = F.conv2d(x.flatten(3).permute(0, 3, 1, 2), f.flatten(0, 1).permute(0, 3, 1, 2), padding=1, groups=f.shape[0])
    return torch.relu(t.permute(0, 2, 3, 1).reshape(r.shape) * a + b + r)


def video_conv_pair(x, f, g, b):
    n, t, h, w = x.shape[0], x.shape[1], x.shape[2] - 2, x.shape[3] - 2
    a = F.silu(F.conv2d(x.flatten(0, 1).permute(0, 3, 1, 2), f.permute(0, 3, 1, 2), b))
    a = a.permute(0, 2, 3, 1).reshape(n, t, h * w, -1)
    a = torch.cat((a[:, :1], a[:, :1], a), 1).permute(0, 3, 1, 2)
    y = F.conv2d(a, g[:, :, None].permute(0, 3, 1, 2))
    return y.permute(0, 2, 3, 1).reshape(n, t, h, w, -1)


def deformable_conv(x, i, w, m, f):
    z = count(x.shape[0], x)[:, None, None, None]
    s = (w[..., None] * x[z, i]).sum(3)
    d = s * torch.sigmoid(m)[..., None]
    return F.linear(d.flatten(2), f.flatten(1))


def grouped_conv_transpose(x, f, b):
    t = F.conv_transpose2d(x.flatten(1, 2), f.flatten(0, 1), b.flatten(), stride=2, padding=1, groups=f.shape[0])
    return F.leaky_relu(t, 0.1).unflatten(1, b.shape)


def standardized_conv(x, f, a, b):
    f = f.flatten(0, 1)
    d = wide(f)
    d = d - d.mean((1, 2, 3), keepdim=True)
    w = (d * torch.rsqrt(d.square().sum((1, 2, 3), keepdim=True) + 1e-4)).to(f.dtype)
    t = F.group_norm(F.conv2d(x, w, dilation=2), a.shape[0], a.flatten(), b.flatten(), 1e-5)
    return torch.relu(t).unflatten(1, a.shape)


def rms_norm_heads(x, r, w):
    t = x + r
    return t, F.rms_norm(t, w.shape, 1 + w, 1e-6)


def smoothed_z_loss(x, i):
    v = x.shape[1]
    own = wide(x.gather(1, i.clamp(max=v - 1).long()[:, None])[:, 0])
    x = wide(x)
    z = torch.logsumexp(x, 1)
    known = i < v
    y = torch.where(known, z - 0.9 * own - 0.1 * x.mean(1) + 0.0001 * z * z, 0)
    return y, known.sum(dtype=y.dtype)[None]


def sparse_distillation(x, j, t):
    s = 0.5 * wide(x)
    t = torch.log_softmax(wide(t), 1)
    s = s.gather(1, j.long()) - torch.logsumexp(s, 1, keepdim=True)
    return (t.exp() * (t - s)).sum(1)


def moco_queue_loss(a, p, k):
    b = wide(a)
    scale = 5 * torch.rsqrt(b.square().sum(1) + 1e-6)
    d = (b * p).sum(1) * scale
    return torch.logaddexp(torch.logsumexp(wide(a @ k.t()) * scale[:, None], 1), d) - d


def muon_step(p, g, m, rate):
    b = torch.lerp(m, g, 0.05)
    u = torch.lerp(g, b, 0.95)
    x = (u * torch.rsqrt(total(u.square(), (0, 1)) + 1e-7)).to(u.dtype)
    a = x @ x.t()
    c = torch.addmm(a, a, a, beta=-4.775, alpha=2.0315)
    return b, p - rate * (torch.addmm(x, c, x, beta=3.4445) + 0.1 * p)


def gptq8_linear(x, c, s, z, i):
    w = (c - z[:, i]) * s[:, i] * 0.01
    return F.linear(x, w)


def block_scaled_experts(x, u, w, v, r):
    e, n, k = w.shape
    a = (x.unflatten(2, (u.shape[2], -1)) * u[..., None]).to(x.dtype).flatten(2)
    d = w.view(e, v.shape[1], -1, v.shape[2], k // v.shape[2]) * v[:, :, None, :, None]
    return torch.bmm(a, d.to(w.dtype).view(e, n, k)[r].mT)



def router_product(x, w):
    """Sums in float32, which PyTorch returns of 16-bit numbers only where there are tensor cores."""
    if x.is_cuda and x.itemsize == 2:
        return torch.mm(x, w.t(), out_dtype=torch.float32)
    return F.linear(wide(x), wide(w))


def switch_router(x, w, b, c):
    t = 0.1 * router_product(x, w) + b
    top, a = t.max(1)
    p = torch.exp(top - torch.logsumexp(t, 1))
    place = (a == count(b.shape[0], b)[:, None]).cumsum(1, dtype=torch.int32).gather(0, a[None])[0] - 1
    return a.to(t.dtype), place.to(t.dtype), torch.where(place < c, p, 0)


def table_bags(i, n, w, e):
    b, t, s = i.shape
    i = i + e.shape[1] * torch.arange(t, dtype=i.dtype, device=i.device)[:, None]
    w = torch.where(count(s, n) < n[..., None], w, 0)
    y = F.embedding_bag(i.view(b * t, s), e.flatten(0, 1), mode='sum', per_sample_weights=w.view(b * t, s))
    return y.view(b, t, -1) / n.clamp(min=1)[..., None]


def rms_norm_bwd(x, g, w):
    dtype = x.dtype
    x, g = wide(x), wide(g)
    r = torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    x, h = x * r, g * w
    return (r * (h - x * (x * h).mean(1, keepdim=True))).to(dtype), (g * x).sum(0)


def gqa_attention_dv(q, k, g, z):
    s, h = q.shape[1], q.shape[3]
    t = (grouped_rows(q) @ k.permute(0, 2, 3, 1)).unflatten(2, (h, s))
    p = torch.exp((t * 0.088388348 - z[..., None] - 6).clamp(max=0)).to(q.dtype).tril()
    return (p.flatten(2, 3).mT @ grouped_rows(g)).transpose(1, 2).contiguous()


def masked_softmax_bwd(p, g, m):
    g = torch.where(wide(m) > -0.4, 1.5 * g, 0).tril()
    return (0.125 * p * (g - total(g * p, -1))).tril().to(p.dtype)


def eager(op, s):
    f = {
        'ewald_reciprocal': ewald_reciprocal,
        'hermite_jerk': hermite_jerk,
        'lattice_heat7': lattice_heat7,
        'elastic_velocity': elastic_velocity,
        'prolong_smooth': prolong_smooth,
        'residual_restrict': residual_restrict,
        'congruence': congruence,
        'tucker_core': tucker_core,
        'ri_mp2_pairs': ri_mp2_pairs,
        'polyphase_resample': lambda x, h: polyphase_resample(x, h, s['l'], s['d']),
        'stft_loss': lambda x, y, c, t: stft_loss(x, y, c, t, s['hop']),
        'microphone_lags': lambda x: microphone_lags(x, s['l']),
        'pairwise_complete_correlation': pairwise_complete_correlation,
        'mutual_information': lambda x, y: mutual_information(x, y, s['k']),
        'adaptive_kde': adaptive_kde,
        'joint_bilateral7': joint_bilateral7,
        'scharr_edges': scharr_edges,
        'resize_bilinear': resize_bilinear,
        'adaptive_threshold': adaptive_threshold,
        'fast_guided': fast_guided,
        'batch_norm_running_nhwc': batch_norm_running_nhwc,
        'focal_tversky': focal_tversky,
        'ctc_alpha2': ctc_alpha2,
        'batch_hard_triplet': batch_hard_triplet,
        'cautious_lion': cautious_lion,
        'came_step': came_step,
        'lamb_layers': lamb_layers,
        'pna_aggregate': pna_aggregate,
        'depthwise5_bwd_w': depthwise5_bwd_w,
        'sigmoid_gqa_causal': sigmoid_gqa_causal,
        'gated_retention': gated_retention,
        'differential_decode': differential_decode,
        'lightning_block': lightning_block,
        'tree_verify_attention': tree_verify_attention,
        'skewed_position_attention': skewed_position_attention,
        'ragged_cross_attention': ragged_cross_attention,
        'chunked_prefill_softcap': chunked_prefill_softcap,
        'stream_attention': lambda q, k, v: stream_attention(q, k, v, s['w'], s['f']),
        'mla_paged_verify': mla_paged_verify,
        'gla_chunk': gla_chunk,
        'resnext_residual': resnext_residual,
        'video_conv_pair': video_conv_pair,
        'deformable_conv': deformable_conv,
        'grouped_conv_transpose': grouped_conv_transpose,
        'standardized_conv': standardized_conv,
        'rms_norm_heads': rms_norm_heads,
        'smoothed_z_loss': smoothed_z_loss,
        'sparse_distillation': sparse_distillation,
        'moco_queue_loss': moco_queue_loss,
        'muon_step': muon_step,
        'gptq8_linear': gptq8_linear,
        'block_scaled_experts': block_scaled_experts,
        'switch_router': lambda x, w, b: switch_router(x, w, b, s['c']),
        'table_bags': table_bags,
        'rms_norm_bwd': rms_norm_bwd,
        'gqa_attention_dv': gqa_attention_dv,
        'masked_softmax_bwd': masked_softmax_bwd,
    }
    return f.get(op)
