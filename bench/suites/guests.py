"""PyTorch's definitions of the operators of guests.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wide(x):
    """As float32, if it is not wider already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def differential_attention(q, k, v, g):
    b, h, _, s, d = q.shape
    o = F.scaled_dot_product_attention(q.flatten(1, 2), k.flatten(1, 2), v.repeat_interleave(2, 1), is_causal=True, scale=0.125)
    o = o.view(b, h, 2, s, 2 * d)
    return o[:, :, 0] - torch.sigmoid(g)[:, None, None] * o[:, :, 1]


def sink_attention(q, k, v, sinks, w):
    b, s, g, h, d = q.shape
    i = torch.arange(s, device=q.device)
    behind = i[:, None] - i[None]
    t = torch.einsum('bigqd,bjgd->bgqij', q, k) * 0.125
    t = t.masked_fill((behind < 0) | (behind >= w), -torch.inf)
    t = torch.cat((t, sinks[None, :, :, None, None].expand(b, g, h, s, 1)), -1)
    p = torch.softmax(t, -1)[..., :-1]
    return torch.einsum('bgqij,bjgd->bigqd', p, v).contiguous()


def compressed_attention(q, k, v, l):
    b, h, s, d = k.shape
    k, v = (x.view(b, h, s // l, l, d).mean(3) for x in (k, v))
    mask = torch.arange(s // l, device=q.device)[None] * l <= torch.arange(s, device=q.device)[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.088388348)


def multi_token_decode(q, k, v):
    b, n, g, h, d = q.shape
    t = k.shape[1]
    # The heads that share keys as rows beside the tokens.
    rows = q.permute(0, 2, 1, 3, 4).reshape(b, g, n * h, d)
    last = torch.arange(n, device=q.device).repeat_interleave(h) + t - n
    mask = torch.arange(t, device=q.device)[None] <= last[:, None]
    o = F.scaled_dot_product_attention(rows, k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask, scale=0.088388348)
    return o.view(b, g, n, h, d).permute(0, 2, 1, 3, 4).contiguous()


def block_local_attention(q, k, v, w):
    b, s, d = q.shape
    q = q.view(b, s // w, w, d)
    k, v = (x.unfold(1, 2 * w, w).transpose(2, 3) for x in (k, v))
    i, j = torch.arange(w, device=q.device)[:, None], torch.arange(2 * w, device=q.device)[None]
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=(j > i) & (j <= i + w), scale=0.125)
    return o.reshape(b, s, d)


def ssd_chunk_states(b, a, x):
    return torch.einsum('bcln,bclhp->bchpn', b, x * torch.exp(-a.abs()).to(x.dtype).permute(0, 2, 3, 1)[..., None]).contiguous()


def gated_delta_step(s, q, k, v, a, b):
    s = s * torch.sigmoid(a)[..., None, None]
    u = torch.sigmoid(b)[..., None] * (v - (k[:, :, None] @ s)[:, :, 0])
    s = s + k[..., None] * u[:, :, None]
    return s, (q[:, :, None] @ s)[:, :, 0] * 0.088388348


def clamped_swiglu(x, w, b):
    h = torch.addmm(b, x, w.t(), alpha=0.02)
    g, u = h[:, ::2].clamp(max=7), h[:, 1::2].clamp(-7, 7)
    return g * torch.sigmoid(g * 1.702) * (u + 1)


def nf4_gemv(i, c, s, x):
    n, k = i.shape
    return (c[i].view(n, s.shape[1], -1) * s[..., None]).view(n, k) @ x


def block_scaled_matmul(a, u, w, v, g):
    m, k = a.shape
    n = w.shape[0]
    a = (a.view(m, k // g, g) * u[..., None]).to(a.dtype).view(m, k)
    w = (w.view(n // g, g, k // g, g) * v[:, None, :, None]).to(w.dtype).view(n, k)
    return a @ w.t()


def cut_cross_entropy(h, w, i):
    return F.cross_entropy(wide(h @ w.t()), i.long(), reduction='none')


def position(i, x):
    """A position as PyTorch gives it, as a number of the type that wide(x) has."""
    return i.to(torch.promote_types(x.dtype, torch.float32))


def nearest_code(x, c):
    return position(torch.addmm(c.square().sum(1), x, c.t(), alpha=-2).argmin(1), x)


def clip_loss(a, b):
    s = wide(a @ b.t()) * 0.05
    i = torch.arange(a.shape[0], device=a.device)
    return ((F.cross_entropy(s, i) + F.cross_entropy(s.t(), i)) / 2)[None]


def siglip_loss(a, b, t, c):
    s = wide(a @ b.t()) * 0.05 * t + c
    z = 2 * torch.eye(a.shape[0], device=a.device, dtype=s.dtype) - 1
    return -F.logsigmoid(s * z).sum()[None] / a.shape[0]


def adaln_block(x, h, a, b, c):
    r = x + a[:, None] * h
    return r, F.layer_norm(r, r.shape[-1:], eps=1e-6) * (1 + c[:, None]) + b[:, None]


def transducer_joint(e, p, w, b):
    return F.linear(torch.tanh(e[:, :, None] + p[:, None]), w, b)


def guided_rescale_step(x, c, u, h):
    e = u + 6.5 * (c - u)
    return x + h * e * (0.7 * c.std(1, keepdim=True) / e.std(1, keepdim=True) + 0.3)


def alpha_composite(a, c, b):
    o = torch.sigmoid(a)
    t = torch.cumprod(1 - o, 1)
    w = o * F.pad(t[:, :-1], (1, 0), value=1)
    return torch.einsum('mn,mnc->mc', w, c) + t[:, -1:] * b


def hash_grid_features(i, w, e):
    return (e[torch.arange(e.shape[0], device=e.device)[:, None], i] * w[..., None]).sum(2)


def splat_covariance(q, s):
    w, x, y, z = F.normalize(q, dim=1).unbind(1)
    r = torch.stack((1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
                     2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
                     2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)), 1).view(-1, 3, 3)
    return (r * torch.exp(s)[:, None]) @ r.transpose(1, 2)


def edge_conv(x, i, w, v, b):
    d = (x[i] - x[:, None]) @ w
    return torch.relu(d.amax(1) + torch.addmm(b, x, v))


def gat_layer(i, a, b, x):
    p = torch.softmax(F.leaky_relu(a[:, None] + b[i], 0.2), 1)
    return torch.einsum('nfh,nfhd->nhd', p, x[i])


def overlap_add(x, h, hop):
    b, f, n = x.shape
    length = (f + 3) * hop
    return F.fold((x * h).transpose(1, 2), (1, length), (1, n), stride=(1, hop)).view(b, length)


def grpo_loss(p, q, r, a, n):
    ratio, d, a = torch.exp(p - q), r - p, a[:, None]
    k = torch.minimum(ratio * a, ratio.clamp(0.8, 1.2) * a) - 0.04 * (torch.expm1(d) - d)
    mask = torch.arange(p.shape[1], device=p.device)[None] <= n[:, None]
    return -(k * mask).sum(1) / (n + 1)


def quantile_huber(q, t):
    n = q.shape[1]
    u = t[:, None] - q[:, :, None]
    tau = (torch.arange(n, device=q.device, dtype=q.dtype) + 0.5) / n
    h = F.huber_loss(u, torch.zeros_like(u), reduction='none')
    return ((tau[:, None] - (u < 0).to(u.dtype)).abs() * h).sum((1, 2)) / n


def speculative_residual(p, q):
    d = torch.relu(torch.softmax(p, 1) - torch.softmax(q, 1))
    return d / d.sum(1, keepdim=True)


def lamb(p, g, m, v):
    m = 0.9 * m + 0.1 * g
    v = 0.999 * v.abs() + 0.001 * g * g
    u = m / (v.sqrt() + 1e-6) + 0.01 * p
    return m, v, p - 0.001 * (p.norm() / u.norm()) * u


def asian_option(z):
    steps = torch.arange(1, z.shape[1] + 1, device=z.device, dtype=z.dtype)
    paths = torch.exp(torch.cumsum(z, 1) * 0.0126 - steps * 0.00004)
    return torch.relu(paths.mean(1) - 1).mean()[None]


def guided_filter(i, p):
    def mean(x):
        return F.avg_pool2d(x[None, None], 9, 1)[0, 0]
    u, v = mean(i), mean(p)
    a = (mean(i * p) - u * v) / (mean(i * i) - u * u + 0.01)
    return mean(a) * i[8:-8, 8:-8] + mean(v - a * u)


def demosaic(x):
    h, w = x.shape
    y, z = torch.arange(h, device=x.device)[:, None] % 2, torch.arange(w, device=x.device)[None] % 2
    masks = torch.stack(((y == 1) & (z == 1), y != z, (y == 0) & (z == 0))).to(x.dtype)
    rb, g = [[1, 2, 1], [2, 4, 2], [1, 2, 1]], [[0, 1, 0], [1, 4, 1], [0, 1, 0]]
    taps = torch.tensor([rb, g, rb], device=x.device, dtype=x.dtype)[:, None] / 4
    return F.conv2d((x * masks)[None], taps, groups=3)[0]


def wave_step8(u, p, v, c):
    n = p.shape[0]
    def at(z, y, x):
        return u[4 + z:4 + z + n, 4 + y:4 + y + n, 4 + x:4 + x + n]
    a = 3 * c[0] * at(0, 0, 0)
    for r in range(1, 5):
        a = a + c[r] * (at(r, 0, 0) + at(-r, 0, 0) + at(0, r, 0) + at(0, -r, 0) + at(0, 0, r) + at(0, 0, -r))
    return 2 * at(0, 0, 0) - p + 0.1 * v * v * a


def lattice_boltzmann(f, w):
    h, b = f.shape[2] - 2, f.shape[3] - 2
    g = torch.stack([f[u, v, 2 - u:2 - u + h, 2 - v:2 - v + b] for u in range(3) for v in range(3)]).abs()
    q = torch.arange(9, device=f.device)
    cu, cv = (c.to(f.dtype)[:, None, None] for c in (q // 3 - 1, q % 3 - 1))
    d = g.sum(0)
    a, e = (cu * g).sum(0) / d, (cv * g).sum(0) / d
    s = 3 * (cu * a + cv * e)
    rest = w.abs().view(9, 1, 1) * d * (1 + s + 0.5 * s * s - 1.5 * (a * a + e * e))
    return (g - 0.6 * (g - rest)).view(3, 3, h, b)


def spectral_element(u, d, g):
    return g * (torch.einsum('ia,zajk->zijk', d, u) + torch.einsum('ja,ziak->zijk', d, u) + u @ d.t())


def canberra(a, b):
    a, b = a[:, None], b[None]
    return ((a - b).abs() / (a.abs() + b.abs() + 1e-6)).sum(2)


def eager(op, s):
    f = {
        'differential_attention': differential_attention,
        'sink_attention': lambda q, k, v, z: sink_attention(q, k, v, z, s['w']),
        'compressed_attention': lambda q, k, v: compressed_attention(q, k, v, s['l']),
        'multi_token_decode': multi_token_decode,
        'block_local_attention': lambda q, k, v: block_local_attention(q, k, v, s['w']),
        'ssd_chunk_states': ssd_chunk_states,
        'gated_delta_step': gated_delta_step,
        'clamped_swiglu': clamped_swiglu,
        'swiglu_gemv': lambda x, g, u: F.silu(g @ x) * (u @ x),
        'nf4_gemv': nf4_gemv,
        'block_scaled_matmul': lambda a, u, w, v: block_scaled_matmul(a, u, w, v, s['g']),
        'linear_rms_norm_residual': lambda x, w, g, r: r + F.rms_norm(x @ w.t(), g.shape, g, 1e-6),
        'cut_cross_entropy': cut_cross_entropy,
        'greedy_token': lambda h, w: position(torch.argmax(h @ w.t(), 1), h),
        'nearest_code': nearest_code,
        'clip_loss': clip_loss,
        'siglip_loss': siglip_loss,
        'product_norm': lambda a, b: wide(torch.linalg.norm(a @ b))[None],
        'kfac_precondition': lambda a, g, b: a @ g @ b,
        'adaln_block': adaln_block,
        'pointnet_max': lambda x, w, b: torch.relu(F.linear(x, w, b)).amax(1),
        'transducer_joint': transducer_joint,
        'cross_network': lambda c, x, w, b: c * F.linear(x, w, b) + x,
        'guided_rescale_step': guided_rescale_step,
        'alpha_composite': alpha_composite,
        'hash_grid_features': hash_grid_features,
        'splat_covariance': splat_covariance,
        'edge_conv': edge_conv,
        'gat_layer': gat_layer,
        'log_mel': lambda r, i, m: torch.log(m.abs() @ (r * r + i * i) + 1e-6),
        'overlap_add': lambda x, h: overlap_add(x, h, s['hop']),
        'grpo_loss': grpo_loss,
        'quantile_huber': quantile_huber,
        'speculative_residual': speculative_residual,
        'shampoo_statistics': lambda g, l, r: (torch.addmm(l, g, g.t(), beta=0.95, alpha=0.05),
                                               torch.addmm(r, g.t(), g, beta=0.95, alpha=0.05)),
        'lamb': lamb,
        'activation_ranges': lambda x: (x.amin((0, 2)), x.amax((0, 2))),
        'row_ranks': lambda x: torch.searchsorted(torch.sort(x, 1).values, x).to(x.dtype),
        'asian_option': asian_option,
        'guided_filter': guided_filter,
        'demosaic': demosaic,
        'conv_relu_pool': lambda x, w, b: F.max_pool2d(torch.relu(F.conv2d(x, w, b)), 2),
        'wave_step8': wave_step8,
        'lattice_boltzmann': lattice_boltzmann,
        'spectral_element': spectral_element,
        'kalman_predict': lambda f, p, q: f @ p @ f.transpose(1, 2) + q,
        'batch_inner_matmul': lambda a, b: torch.einsum('mkb,knb->mnb', a, b).contiguous(),
        'ccsd_ring': lambda t, w: torch.einsum('ikac,kbcj->ijab', t, w).contiguous(),
        'canberra': canberra,
    }
    return f.get(op)
