"""PyTorch's definitions of the operators of foragers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def swiglu_down_dgrad(g, w, p):
    t = wider(g)
    d = (g @ w).to(t)
    a, u = p.to(t).unbind(1)
    s = torch.sigmoid(a)
    dp = torch.stack((d * u * s * (1 + a * (1 - s)), d * a * s), 1)
    return dp.to(g.dtype), (a * s * u).to(g.dtype)


def meanflow_jvp_linear(x, d, w, b):
    t = wider(x)
    z, u = F.linear(x, w, b).to(t), F.linear(d, w).to(t)
    s = torch.sigmoid(z)
    return (z * s).to(x.dtype), (u * s * (1 + z * (1 - s))).to(x.dtype)


def mtp_concat_norm_linear(h, i, e, g, d, w):
    k = (h.shape[1],)
    return F.linear(torch.cat((F.rms_norm(h, k, g, 1e-6), F.rms_norm(F.embedding(i, e), k, d, 1e-6)), 1), w)


def squeezellm_linear(x, q, l, i, v):
    w = l.gather(1, q.long())
    return F.linear(x, w) + (x[:, i] * v).sum(2)


def megablocks_sdd_gelu(x, w, r, c):
    h = torch.bmm(x[r], w[c].mT)
    return h, F.gelu(h, approximate='tanh')


def complex_kge_loss(e, r, h, l, a):
    (hr, hi), (rr, ri) = e[h].unbind(1), r[l].unbind(1)
    q = torch.cat((hr * rr - hi * ri, hr * ri + hi * rr), 1)
    s = F.linear(q, e.flatten(1)).to(wider(e)) * 0.03125
    return F.cross_entropy(s, a.long(), reduction='none')


def ple_gate_project(x, a, i, e, b, g):
    u = F.gelu(F.linear(x, a), approximate='tanh') * F.embedding(i, e)
    return x + F.rms_norm(F.linear(u, b), g.shape, g, 1e-6)


def blast_linear(x, v, s, u):
    z = torch.bmm(x.transpose(0, 1), v)
    h = torch.einsum('ajt,jit->ait', s, z)
    return torch.bmm(h, u.mT).transpose(0, 1).contiguous()


def softpick_attention(q, k, v):
    n = q.shape[2]
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    s = (q @ k.mT).to(wider(q)) * 0.125
    m = s.masked_fill(later, -torch.inf).amax(3, keepdim=True)
    e = (torch.exp(s - m) - torch.exp(-m)).masked_fill(later, 0)
    z = e.abs().sum(3, keepdim=True)
    return ((torch.relu(e).to(q.dtype) @ v) / (z + 1e-6)).to(q.dtype)


def block_diffusion_attention(q, k, v, l):
    n = q.shape[2]
    i = torch.arange(n, device=q.device)
    noisy, block = i < n // 2, i % (n // 2) // l
    own = noisy[:, None] & noisy & (block[:, None] == block)
    before = noisy[:, None] & ~noisy & (block < block[:, None])
    clean = ~noisy[:, None] & ~noisy & (block <= block[:, None])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=own | before | clean, scale=0.125)


def egt_edge_attention(q, k, v, e, g):
    t = wider(q)
    s = (0.20412414523193154 * torch.einsum('zixp,zjxp->zijp', q, k)).clamp(-5, 5) + e
    g = torch.sigmoid(g.to(t))
    a = torch.softmax(s, 2, dtype=t) * g
    y = torch.einsum('zijp,zjxp->zixp', a.to(q.dtype), v) * torch.log1p(g.sum(2))[:, :, None]
    return y.to(q.dtype).contiguous(), s.contiguous()


def shared_prefix_decode(q, kp, vp, k, v, n):
    t, s = kp.shape[0], k.shape[1]
    # The prompt's keys meet all sequences' heads in one product a group.
    p = torch.einsum('zqpx,jqx->zqpj', q, kp)
    o = torch.einsum('zqpx,zjqx->zqpj', q, k)
    o = o.masked_fill(torch.arange(s, device=q.device) > n[:, None, None, None], -torch.inf)
    a = torch.softmax(torch.cat((p, o), 3) * 0.08838834764831845, 3)
    y = torch.einsum('zqpj,jqx->zqpx', a[..., :t], vp) + torch.einsum('zqpj,zjqx->zqpx', a[..., t:], v)
    return y.contiguous()


def infini_attention_segment(q, k, v, s, n, g):
    fq, fk = F.elu(q) + 1, F.elu(k) + 1
    n = n.abs()
    r = fq @ s.to(q.dtype) / (fq.to(n.dtype) @ n[..., None])
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.08838834764831845)
    y = torch.lerp(o.to(r.dtype), r, torch.sigmoid(g)[:, None, None]).to(q.dtype)
    return y, s + fk.mT @ v, n + fk.sum(2, dtype=n.dtype)


def msa_global_column_attention(q, k, v, m, g):
    t = wider(q)
    seen = m > 0
    a = torch.where(seen[:, :, None, None], q, 0).sum(0, dtype=t) / seen.sum(0).clamp(min=1)[:, None, None]
    k, v = k.transpose(0, 1)[:, None], v.transpose(0, 1)[:, None]
    bias = torch.where(seen.t(), 0.0, -1.0e9).to(q.dtype)[:, None, None]
    o = F.scaled_dot_product_attention(a.to(q.dtype)[:, None], k, v, attn_mask=bias, scale=0.35355339059327373)
    return torch.sigmoid(g) * o[:, 0]


def octave_conv3_nhwc(x, l, whh, wlh, whl, wll):
    x, l, whh, wlh, whl, wll = (y.permute(0, 3, 1, 2) for y in (x, l, whh, wlh, whl, wll))
    h = F.conv2d(x, whh, padding=1) + F.interpolate(F.conv2d(l, wlh, padding=1), scale_factor=2)
    y = F.conv2d(l, wll, padding=1) + F.conv2d(F.avg_pool2d(x, 2), whl, padding=1)
    return h.permute(0, 2, 3, 1).contiguous(), y.permute(0, 2, 3, 1).contiguous()


def partial_conv5s2_nhwc(x, m, w, b):
    seen = (m > 0).to(x.dtype)
    y = F.conv2d((x * seen[..., None]).permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), stride=2, padding=2).permute(0, 2, 3, 1)
    c = F.conv2d(seen[:, None], torch.ones(1, 1, 5, 5, dtype=x.dtype, device=x.device), stride=2, padding=2)[:, 0, :, :, None]
    y = torch.where(c > 0, torch.relu(y * (25 / c.to(wider(c)).clamp(min=1)) + b), 0).to(x.dtype)
    return y.contiguous(), c[..., 0].clamp(max=1)


def raft_sep_gru(h, x, wz, wr, wq, bz, br, bq):
    z, r = torch.sigmoid(F.conv2d(torch.cat((h, x), 1), torch.cat((wz, wr))[:, :, None], torch.cat((bz, br)), padding=(0, 2))).chunk(2, 1)
    q = torch.tanh(F.conv2d(torch.cat((r * h, x), 1), wq[:, :, None], bq, padding=(0, 2)))
    return torch.lerp(h, q, z)


def filtered_lrelu(x, b, f, d):
    n, c, h, w = x.shape
    f, d = f.to(x.dtype).flip(0), d.to(x.dtype)
    y = (x + b[:, None, None]).view(n * c, 1, h, w)
    y = F.conv_transpose2d(y, f[None, None, :, None], stride=(2, 1))
    y = F.conv_transpose2d(y, f[None, None, None], stride=(1, 2))
    y = (F.leaky_relu(y, 0.2) * 1.4142135623730951).clamp(-256, 256)
    y = F.conv2d(y, d[None, None, :, None], stride=(2, 1))
    return F.conv2d(y, d[None, None, None], stride=(1, 2)).view(n, c, h, w)


def srvgg_shuffle_up(x, w, b, i):
    return F.pixel_shuffle(F.conv2d(x, w, b, padding=1), 4) + F.interpolate(i, scale_factor=4)


def motion_search_sad(x, r, l, s):
    n, h, w = x.shape
    # Bytes and their differences are exact in 16 bits.
    d = r.half().unfold(1, h, 1).unfold(2, w, 1) - x.half()[:, None, None]
    t = d.abs_().unflatten(4, (-1, 16)).unflatten(3, (-1, 16)).sum((4, 6), dtype=torch.float32).flatten(1, 2) + l[:, None, None]
    m, p = t.min(1)
    return s * m, p.to(s.dtype)


def srste24_step(w, g, m, rate):
    a = w.abs()
    keep = torch.zeros_like(w, dtype=torch.bool).scatter_(2, a.topk(2, 2).indices, True)
    p = w.masked_fill(keep, 0)
    m = 0.9 * m + g + 0.0002 * p
    return w - rate * m, m, p.square().sum((1, 2))


def apollo_step(w, g, p, m, v, rate):
    r = (p @ g).to(m.dtype)
    m = 0.9 * m + 0.1 * r
    v = 0.999 * v.abs() + 0.001 * r.square()
    s = (m / (v.sqrt() + 1e-8)).norm(dim=0) / (r.norm(dim=0) + 1e-8)
    return (w - rate * (s * g + 0.1 * w)).to(w.dtype), m, v


def loss_rank_brier(x, l):
    i = l.long()[:, None]
    y = F.log_softmax(x, 1, dtype=wider(x))
    z = y.gather(1, i)
    p = y.exp()
    return -z[:, 0], (x > x.gather(1, i)).sum(1).to(y.dtype), p.square().sum(1) - 2 * z[:, 0].exp() + 1


def logistic_mixture_nll(t, x):
    t = t.to(wider(t))
    l, m, c, a = t[:, 0], t[:, 1::3], t[:, 2::3], t[:, 3::3]
    y = ((x.to(t.dtype) - 127.5) / 127.5)[:, :, None]
    a = torch.tanh(a)
    m = torch.stack((m[:, 0], m[:, 1] + a[:, 0] * y[:, 0], m[:, 2] + a[:, 1] * y[:, 0] + a[:, 2] * y[:, 1]), 1)
    s = torch.exp(-c.clamp(min=-7))
    up = F.logsigmoid(s * (y + 1 / 127.5 - m))
    down = F.logsigmoid(-s * (y - 1 / 127.5 - m))
    both = up + down + torch.log(-torch.expm1(-2 / 127.5 * s))
    x = x[:, :, None]
    p = torch.where(x == 0, up, torch.where(x == 255, down, both)).sum(1)
    return -torch.logsumexp(F.log_softmax(l, 1) + p, 1)


def qk_clip_weights(q, k, wq, wk):
    n = q.shape[2]
    later = torch.ones(n, n, dtype=torch.bool, device=q.device).triu(1)
    l = (q @ k.mT).masked_fill(later, -torch.inf).amax((0, 2, 3)).to(wider(q)) * 0.08838834764831845
    f = (5 / l.clamp(min=1e-6)).clamp(max=1).sqrt()[:, None, None]
    return l, (wq * f).to(wq.dtype), (wk * f).to(wk.dtype)


def tpm_log1p_moments(x, l, h):
    r = x / (l.abs() + 0.5)
    u = torch.log1p(1e6 * r / r.sum(1, keepdim=True).clamp(min=1)) * h
    v, m = torch.var_mean(u, 0)
    return u.to(h.dtype), m, v


def kpconv_rigid(f, x, j, p, w):
    d = (x[j] - x[:, None])[:, :, None] - p
    h = torch.relu(1 - d.norm(dim=3) / 3).to(f.dtype)
    a = torch.bmm(h.mT, f[j])
    return F.leaky_relu(a.flatten(1) @ w.flatten(0, 1), 0.1)


def mace_symmetric_contraction(a, z, u3, u2, w3, w2, w1):
    # As MACE does: weights and features first, then the couplings as a matrix.
    y = (w3[z].mT[:, :, :, None] * a[:, :, None]).flatten(2)
    c = y @ u3.permute(3, 2, 0, 1).reshape(y.shape[2], 81)
    c = c.unflatten(2, (9, 9)) + torch.einsum('abt,stx->sxab', u2, w2)[z]
    c = (c @ a[..., None])[..., 0] + w1[z].mT
    return (c * a).sum(2)


def tanimoto_neighbours(a, b):
    # Sums of at most 2,048 bits are exact in float16.
    h = a.to(b.dtype)
    t = (h @ h.t()).to(wider(b))
    n = a.sum(1)
    near = 8 * t > 3 * (n[:, None] + n - t)
    c = near.sum(1)
    return (near.to(b.dtype) @ b).to(t.dtype) / c.clamp(min=1), c.to(t.dtype)


def gotoh_wavefront(h2, h1, e1, f1, x, w, s, m):
    e = torch.maximum(e1 - 1, h1 - 11)
    f = F.pad(torch.maximum(f1 - 1, h1 - 11)[:, :-1], (1, 0), value=-11.0)
    h = F.pad(h2[:, :-1], (1, 0)) + s[x, w.flip(1)]
    h = torch.maximum(torch.relu(h), torch.maximum(e, f))
    return h, e, f, torch.maximum(m, h.amax(1))


def ri_rpa_polarizability(b, eo, ev, w):
    d = (ev.abs() + eo.abs()[:, None] + 0.5).flatten()
    g = 4 * d / (w.square()[:, None] + d.square())
    b = b.flatten(0, 1)
    return torch.eye(b.shape[1], dtype=b.dtype, device=b.device) + (b * g[:, :, None]).mT @ b


def multigrid_prolong_jacobi(e, u, f):
    v = u + F.interpolate(e[None, None], size=u.shape, mode='trilinear', align_corners=True)[0, 0]
    c = v[1:-1, 1:-1, 1:-1]
    s = (v[:-2, 1:-1, 1:-1] + v[2:, 1:-1, 1:-1] + v[1:-1, :-2, 1:-1] + v[1:-1, 2:, 1:-1] + v[1:-1, 1:-1, :-2] + v[1:-1, 1:-1, 2:])
    y = v.clone()
    y[1:-1, 1:-1, 1:-1] = c + (f[1:-1, 1:-1, 1:-1] - 6 * c + s) / 9
    return y


def eager(op, s):
    f = {
        'swiglu_down_dgrad': swiglu_down_dgrad,
        'meanflow_jvp_linear': meanflow_jvp_linear,
        'mtp_concat_norm_linear': mtp_concat_norm_linear,
        'squeezellm_linear': squeezellm_linear,
        'megablocks_sdd_gelu': megablocks_sdd_gelu,
        'complex_kge_loss': complex_kge_loss,
        'ple_gate_project': ple_gate_project,
        'blast_linear': blast_linear,
        'softpick_attention': softpick_attention,
        'block_diffusion_attention': lambda q, k, v: block_diffusion_attention(q, k, v, s['l']),
        'egt_edge_attention': egt_edge_attention,
        'shared_prefix_decode': shared_prefix_decode,
        'infini_attention_segment': infini_attention_segment,
        'msa_global_column_attention': msa_global_column_attention,
        'octave_conv3_nhwc': octave_conv3_nhwc,
        'partial_conv5s2_nhwc': partial_conv5s2_nhwc,
        'raft_sep_gru': raft_sep_gru,
        'filtered_lrelu': filtered_lrelu,
        'srvgg_shuffle_up': srvgg_shuffle_up,
        'motion_search_sad': motion_search_sad,
        'srste24_step': srste24_step,
        'apollo_step': apollo_step,
        'loss_rank_brier': loss_rank_brier,
        'logistic_mixture_nll': logistic_mixture_nll,
        'qk_clip_weights': qk_clip_weights,
        'tpm_log1p_moments': tpm_log1p_moments,
        'kpconv_rigid': kpconv_rigid,
        'mace_symmetric_contraction': mace_symmetric_contraction,
        'tanimoto_neighbours': tanimoto_neighbours,
        'gotoh_wavefront': gotoh_wavefront,
        'ri_rpa_polarizability': ri_rpa_polarizability,
        'multigrid_prolong_jacobi': multigrid_prolong_jacobi,
    }
    return f.get(op)
