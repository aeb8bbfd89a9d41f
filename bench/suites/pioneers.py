"""PyTorch's definitions of the operators of pioneers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def nsa_branch_gates(x, w, b, o):
    g = torch.sigmoid(F.linear(x, w.flatten(0, 1), b.flatten())).unflatten(1, b.shape).transpose(0, 1)
    return (g[..., None] * o).sum(0)


def hyper_connection_mix(x, f, w, b):
    t = wider(x)
    y = x.to(t)
    r = torch.rsqrt(y.square().mean((1, 2)) + 1e-6)[:, None]
    l = 0.015625 * F.linear(x.flatten(1), w.flatten(1)).to(t) * r + b
    h = l[:, 4:].exp().unflatten(1, (4, 4))
    for _ in range(2):
        h = h / h.sum(2, keepdim=True)
        h = h / h.sum(1, keepdim=True)
    return torch.baddbmm((2 * torch.sigmoid(l[:, :4]))[:, :, None] * f[:, None], h, y).to(x.dtype)


def moe_int4_down(x, p, e, q, s):
    v = ((q - 8).to(s.dtype).unflatten(2, (s.shape[2], 64)) * s[..., None]).flatten(2)
    return torch.bmm(x, v[e].mT) * p[:, :, None]


def ring_attention_step(q, k, v, a, l):
    scale = 0.08838834764831845
    if q.is_cuda and q.dtype != torch.float64:
        o, n = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, scale=scale)[:2]
    else:  # the reference's, which flash attention does not know
        s = (q @ k.mT).to(wider(q)) * scale
        o, n = (torch.softmax(s, -1) @ v.to(s.dtype)).to(q.dtype), torch.logsumexp(s, -1)
    g = torch.logaddexp(l, n)
    return a * torch.exp(l - g)[..., None] + o * torch.exp(n - g)[..., None], g


def power_attention(q, k, v):
    e = (0.125 * q @ k.mT).square().tril()
    z = e.sum(3, keepdim=True, dtype=wider(e))
    return (e @ v / (z + 1e-6)).to(q.dtype)


def selective_attention(q, k, v):
    s = q.shape[2]
    a = torch.relu((q[:, 0] @ k[:, 0].mT).to(wider(q)) * 0.125).tril(-1)
    a[:, :, 0] = 0
    m = (a - a.cumsum(1)).masked_fill(torch.ones(s, s, dtype=torch.bool, device=q.device).triu(1), -torch.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m.to(q.dtype)[:, None], scale=0.125)


def cross_covariance_attention(x, a):
    q, k, v = x.permute(2, 0, 3, 4, 1)
    r = torch.softmax(F.normalize(q, dim=3) @ F.normalize(k, dim=3).mT * a[:, None, None], 3)
    return (r @ v).permute(0, 3, 1, 2).contiguous()


def agent_attention(q, k, v, a):
    scale = 0.14433756729740643
    u = F.scaled_dot_product_attention(a, k, v, scale=scale)
    return F.scaled_dot_product_attention(q, a, u, scale=scale)


def atom_block_attention(q, k, v, b):
    k, v = (y.unfold(2, 128, 32).mT.flatten(1, 2) for y in (k, v))
    y = F.scaled_dot_product_attention(q.flatten(1, 2), k, v, attn_mask=b.flatten(0, 1)[None], scale=0.17677669529663687)
    return y.reshape(q.shape)


def slstm_step(x, s, r, c, n, m):
    t = wider(x)
    u = torch.einsum('zpy,gpxy->zgpx', s, r) + x
    z, i, f, o = u.to(t).unbind(1)
    f = F.logsigmoid(f) + m
    g = torch.maximum(f, i)
    f, i = torch.exp(f - g), torch.exp(i - g)
    c = f * c + i * torch.tanh(z)
    n = f * n.abs() + i
    return (torch.sigmoid(o) * c / n).to(x.dtype).contiguous(), c.contiguous(), n.contiguous(), g.contiguous()


def delta_chunk_apply(q, k, w, u, s):
    b = s.to(q.dtype)
    v = torch.baddbmm(u, w, b, alpha=-1)
    y = torch.baddbmm(q @ b, (q @ k.mT).tril(), v)
    return y, s + k.mT @ v


def w8a8_conv3_nhwc(x, z, w, s, b):
    y = F.conv2d((x - z).to(b.dtype).permute(0, 3, 1, 2), (w - 128).to(b.dtype).permute(0, 3, 1, 2), padding=1)
    return torch.relu(y.permute(0, 2, 3, 1) * s + b).to(b.dtype).contiguous()


def llm_int8_outliers(a, w, s, d, x, i, v):
    t = F.linear((a - 128).to(x.dtype), (w - 128).to(x.dtype))
    return (t * s[:, None] * d + F.linear(x[:, i], v)).to(x.dtype)


def swiglu_probs_bwd(g, a, u, p):
    t = wider(g)
    y, z, v = g.to(t), a.to(t), u.to(t)
    s = torch.sigmoid(z)
    h = z * s * v
    e = p[:, None] * y
    return ((e * v * s * (1 + z * (1 - s))).to(g.dtype), (e * z * s).to(g.dtype), (p[:, None] * h).to(g.dtype), (y * h).sum(1))


def depthwise_up_add_nhwc(x, w, r):
    y = F.conv_transpose2d(x.permute(0, 3, 1, 2), w.permute(2, 0, 1)[:, None], stride=2, padding=1, groups=x.shape[3])
    return (y.permute(0, 2, 3, 1) + r).contiguous()


def conv3d_dgrad_ndhwc(g, w):
    n, t, h, v, _ = g.shape
    w = w.permute(0, 4, 1, 2, 3)
    d = torch.nn.grad.conv3d_input((n, w.shape[1], t, h, v), w, g.permute(0, 4, 1, 2, 3), padding=1)
    return d.permute(0, 2, 3, 4, 1).contiguous()


def pixelcnn_gated(x, w, b, l):
    m = torch.ones(3, 5, dtype=w.dtype, device=w.device)
    m[2, 3:] = 0
    a, g = (F.conv2d(F.pad(x, (2, 2, 2, 0)), w * m) + b[l][:, :, None, None]).chunk(2, 1)
    return torch.tanh(a) * torch.sigmoid(g)


def submanifold_wgrad(x, i, g):
    y = F.pad(x, (0, 0, 0, 1))[i].flatten(1)
    return (y.t() @ g).unflatten(0, (27, x.shape[1]))


def dynamic_conv_softmax(x, l):
    k = l.shape[3]
    w = torch.softmax(l, 3, dtype=wider(l))
    y = F.pad(x, (0, 0, 0, 0, k - 1, 0)).unfold(1, k, 1)
    return (y * w[:, :, :, None]).sum(4).to(x.dtype)


def evonorm_s0(x, v, g, b):
    y = x.to(wider(x))
    r = torch.rsqrt(y.var((2, 3), unbiased=False, keepdim=True) + 1e-5)
    return (y * torch.sigmoid(v[:, :, None] * y) * r * g[:, :, None] + b[:, :, None]).to(x.dtype)


def style_loss_grad(x, a):
    c, p = x.shape[1:]
    d = torch.bmm(x, x.mT).to(a.dtype) / (c * p) - 0.5 * (a + a.mT)
    return p * d.square().sum((1, 2)), torch.bmm(d.to(x.dtype), x) * (4 / c)


def adam_mini_rows(w, g, m, v, rate):
    t = m.dtype
    v = 0.95 * v.abs() + 0.05 * g.to(t).square().mean(1)
    m = 0.9 * m + 0.1 * g
    return (w - rate * (m / (v.sqrt() + 1e-8)[:, None] + 0.1 * w)).to(w.dtype), m, v


def gated_gcn_ell(a, b, c, u, v, j):
    e = a[:, None] + b[j] + c
    s = torch.sigmoid(e.to(wider(e)))
    y = (s * v[j]).sum(1) / (s.sum(1) + 1e-6)
    return torch.relu(u + y).to(u.dtype), torch.relu(e)


def fibinet_bilinear(e, w, i, j):
    return F.linear(e, w)[:, i] * e[:, j]


def tensor_train_linear(x, a, b, c, d):
    t = torch.einsum('zevw,eou->zouvw', x, a)
    u = torch.einsum('zouvw,uvps->zopsw', t, b)
    return torch.einsum('zopsw,swq->zopq', u, c) + d


def triplane_features(f, i, j, u, v):
    a = torch.arange(3, device=f.device)
    t = wider(f)
    u, v = u.to(t)[:, :, None], v.to(t)[:, :, None]
    top = torch.lerp(f[a, i, j].to(t), f[a, i, j + 1].to(t), u)
    low = torch.lerp(f[a, i + 1, j].to(t), f[a, i + 1, j + 1].to(t), u)
    return torch.lerp(top, low, v).sum(1).to(f.dtype)


def cumulative_layer_norm(x, g, b):
    c, t = x.shape[1:]
    n = c * torch.arange(1, t + 1, device=x.device, dtype=x.dtype)
    m = x.sum(1).cumsum(1) / n
    r = torch.rsqrt(x.square().sum(1).cumsum(1) / n - m * m + 1e-5)
    return (x - m[:, None]) * r[:, None] * g[:, None] + b[:, None]


def stft_loss(x, y, c, s, hop):
    n, f = c.shape
    z = torch.stack((x, y)).unfold(2, n, hop) @ torch.cat((c, s), 1)
    u, v = (z[..., :f].square() + z[..., f:].square()).clamp(min=1e-7).sqrt()
    r = ((v - u).square().sum((1, 2)) / v.square().sum((1, 2))).sqrt()
    return r, (u.log() - v.log()).abs().mean((1, 2))


def hyperprior_bits(y, u, m, s):
    d = (y + u - m).abs()
    r = 0.7071067811865476 / s.abs().clamp(min=0.11)
    l = (0.5 * (torch.erf((d + 0.5) * r) - torch.erf((d - 0.5) * r))).clamp(min=1e-5)
    return l, -l.log2().sum((1, 2))


def landau_lifshitz_step(m, b):
    h = sum(m.roll(k, a) for a in (1, 2, 3) for k in (1, -1)) - 6 * m + b[:, None, None, None]
    h = torch.cat((h[:2], h[2:] + 0.25 * m[2:]))
    t = torch.linalg.cross(m, h, dim=0)
    n = m - 0.03125 * (t + 0.125 * torch.linalg.cross(m, t, dim=0))
    return n * torch.rsqrt(n.square().sum(0))


def bundle_point_blocks(x, p, c, u):
    q = p[c]
    a = (q[..., :3] * x[:, None, None]).sum(3) + q[..., 3]
    d = 1 / (a[..., 2:] + 8).clamp(min=1)
    y = a[..., :2] * d
    r = y - u
    e = r.square().sum(2)
    w = 1 / (1 + e)
    j = d[..., None] * (q[:, :, :2, :3] - y[..., None] * q[:, :, 2:, :3])
    v = (w[:, :, None, None] * j).flatten(1, 2)
    return v.mT @ j.flatten(1, 2), (v * r.flatten(1)[..., None]).sum(1), e.log1p().sum(1)


def poisson_genes_irls(x, y, b, o):
    m = torch.exp((0.125 * x @ b.t() + o[:, None]).clamp(max=8))
    h = m.t() @ (x[:, :, None] * x[:, None]).flatten(1)
    return (y - m).t() @ x, h.unflatten(1, (x.shape[1], x.shape[1]))


def slater_row_update(a, f, k, u):
    k = k.long()
    v = torch.bmm(f[:, None], a)[:, 0]
    r = v.gather(1, k[:, None])
    col = a.gather(2, k[:, None, None].expand(-1, a.shape[1], 1))
    y = a - col * ((v - F.one_hot(k, a.shape[2])) / r)[:, None]
    return torch.where((r.square() > u.abs()[:, None])[:, :, None], y, a), r[:, 0]


def hamming_nearest(a, b, s):
    t = (1 - 2 * a).bfloat16() @ (1 - 2 * b).bfloat16().t()
    m, p = t.max(1)
    return 0.5 * s * (a.shape[1] - m.to(s.dtype)), p.to(s.dtype)


def eager(op, s):
    f = {
        'nsa_branch_gates': nsa_branch_gates,
        'hyper_connection_mix': hyper_connection_mix,
        'moe_int4_down': moe_int4_down,
        'ring_attention_step': ring_attention_step,
        'power_attention': power_attention,
        'selective_attention': selective_attention,
        'cross_covariance_attention': cross_covariance_attention,
        'agent_attention': agent_attention,
        'atom_block_attention': atom_block_attention,
        'slstm_step': slstm_step,
        'delta_chunk_apply': delta_chunk_apply,
        'w8a8_conv3_nhwc': w8a8_conv3_nhwc,
        'llm_int8_outliers': llm_int8_outliers,
        'swiglu_probs_bwd': swiglu_probs_bwd,
        'depthwise_up_add_nhwc': depthwise_up_add_nhwc,
        'conv3d_dgrad_ndhwc': conv3d_dgrad_ndhwc,
        'pixelcnn_gated': pixelcnn_gated,
        'submanifold_wgrad': submanifold_wgrad,
        'dynamic_conv_softmax': dynamic_conv_softmax,
        'evonorm_s0': evonorm_s0,
        'style_loss_grad': style_loss_grad,
        'adam_mini_rows': adam_mini_rows,
        'gated_gcn_ell': gated_gcn_ell,
        'fibinet_bilinear': fibinet_bilinear,
        'tensor_train_linear': tensor_train_linear,
        'triplane_features': triplane_features,
        'cumulative_layer_norm': cumulative_layer_norm,
        'stft_loss': lambda x, y, c, w: stft_loss(x, y, c, w, s['hop']),
        'hyperprior_bits': hyperprior_bits,
        'landau_lifshitz_step': landau_lifshitz_step,
        'bundle_point_blocks': bundle_point_blocks,
        'poisson_genes_irls': poisson_genes_irls,
        'slater_row_update': slater_row_update,
        'hamming_nearest': hamming_nearest,
    }
    return f.get(op)
