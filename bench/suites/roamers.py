"""PyTorch's definitions of the operators of roamers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def qkv_split_heads(x, w, b):
    y = F.linear(x, w.flatten(0, 2), b.flatten()).unflatten(2, b.shape)
    q, k, v = y.permute(2, 0, 3, 1, 4)
    return (0.125 * q).contiguous(), k.contiguous(), v.contiguous()


def bert_output_norm(x, w, b, r, g, d):
    return F.layer_norm(F.linear(x, w, b) + r, g.shape, g, d, 1e-12)


def leaky_linear_bwd(g, y, x, w):
    h = torch.where(y > 0, g, 0.0625 * g)
    return h @ w, h.t() @ x, h.sum(0, dtype=wider(h))


def w8a8_linear(a, w, o, s, d, b):
    y = F.linear((a - o[:, None]).to(b.dtype), (w - 128).to(b.dtype))
    return (y * s[:, None] * d + b).to(b.dtype)


def affine_proj_in(x, a, s, w, b):
    return F.linear(torch.addcmul(s[:, :, None], x, a[:, :, None]).mT, w, b)


def capped_logits_lse(x, w):
    y = 30 * torch.tanh(F.linear(x, w).to(wider(x)) * (0.03125 / 30))
    return y.to(x.dtype), y.logsumexp(1)


def film_linear_silu(x, w, b, c):
    scale, shift = c[:, :, None].unbind(1)
    return F.silu(torch.addcmul(shift, F.linear(x, w, b), 1 + scale))


def complex_interleaved_bmm(a, b):
    return torch.view_as_real(torch.bmm(torch.view_as_complex(a), torch.view_as_complex(b)))


def syr2k(a, b, c):
    t = a @ b.t()
    return c + t + t.t()


def moe_block_dgrad(g, p, e, w):
    return torch.bmm(g * p[:, :, None], w[e])


def packed_alibi_window(x, w):
    q, k, v = x.permute(2, 0, 3, 1, 4)
    h, s = q.shape[1:3]
    j = torch.arange(s, device=x.device)
    back = j[:, None] - j
    slopes = torch.exp(-5.545177444479562 * torch.arange(1, h + 1, device=x.device, dtype=wider(x)) / h)
    bias = torch.where((back >= 0) & (back < w), -slopes[:, None, None] * back, -torch.inf).to(x.dtype)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None], scale=0.125).transpose(1, 2).contiguous()


def cross_lengths_bshd(q, k, v, n):
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    m = torch.arange(k.shape[2], device=q.device) <= n[:, None, None, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.125).transpose(1, 2).contiguous()


def differential_decode(q, k, v, a):
    v = v.transpose(1, 2)
    y, z = (F.scaled_dot_product_attention(q[:, :, i, None], k[:, :, :, i].transpose(1, 2), v, scale=0.125)[:, :, 0] for i in (0, 1))
    return (y - a[:, None] * z).to(q.dtype)


def paged_mla_decode(q, c, b, n, width):
    # All heads are the queries of the one head of keys.
    k = c[b].flatten(1, 2)[:, None]
    m = torch.arange(k.shape[2], device=q.device) <= n[:, None, None, None]
    y = F.scaled_dot_product_attention(q[:, None], k, k[..., :width], attn_mask=m, scale=0.07216878364870323)
    return y[:, 0].contiguous()


def attention_bwd_prepare(o, g):
    t = wider(o)
    return (o.to(t) * g.to(t)).sum(3).transpose(1, 2).contiguous()


def ssmax_causal_attention(q, k, v):
    i = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=wider(q))
    q = (q * (0.25 * i.log())[:, None]).to(q.dtype)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.08838834764831845)


def quiet_attention(q, k, v):
    # A key and a value of zeros add the one.
    return F.scaled_dot_product_attention(q, F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), scale=0.11180339887498948)


def gated_gqa_attention(q, k, v, g):
    y = F.scaled_dot_product_attention(q.flatten(2, 3).transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                       is_causal=True, scale=0.08838834764831845, enable_gqa=True)
    return y.transpose(1, 2).reshape(q.shape) * torch.sigmoid(g)


def dcgan_up(x, w, s, b):
    y = F.conv_transpose2d(x, w, stride=2, padding=1)
    return torch.relu(torch.addcmul(b[:, None, None], y, s[:, None, None]))


def conv3s2_dgrad_nhwc(g, w):
    n, h, v, _ = g.shape
    w = w.permute(0, 3, 1, 2)
    d = torch.nn.grad.conv2d_input((n, w.shape[1], 2 * h, 2 * v), w, g.permute(0, 3, 1, 2), stride=2, padding=1)
    return d.permute(0, 2, 3, 1).contiguous()


def conv3_bn_sums_nhwc(x, w):
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), padding=1).permute(0, 2, 3, 1).contiguous()
    z = y.to(wider(y))
    return y, z.sum((0, 1, 2)), z.square().sum((0, 1, 2))


def resnext_down(x, w, s, b, g):
    y = F.conv2d(x, w, stride=2, padding=1, groups=g)
    return torch.relu(torch.addcmul(b[:, None, None], y, s[:, None, None]))


def convnext_dw_norm(x, w, b, g, d):
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(2, 0, 1)[:, None], b, padding=3, groups=x.shape[3])
    return F.layer_norm(y.permute(0, 2, 3, 1), g.shape, g, d, 1e-6).contiguous()


def waveform_stem_gelu(x, w, b):
    return F.gelu(F.conv1d(x[:, None], w[:, None], b, stride=5))


def pointwise_wgrad_nchw(x, g):
    return torch.einsum('zqi,zki->qk', g, x), g.sum((0, 2))


def dropout_add_norm_train(x, b, d, r, g, h):
    t = wider(x)
    u = (x.to(t) + b) * d / 0.9 + r
    y, m, q = torch.native_layer_norm(u, g.shape, g.to(t), h.to(t), 1e-5)
    return u.to(x.dtype), y.to(x.dtype), m[:, 0], q[:, 0]


def vocab_shard_stats(x, l, o):
    v = x.shape[1]
    t = wider(x)
    m = x.amax(1, keepdim=True).to(t)
    s = (x.to(t) - m).exp().sum(1)
    i = l.long() - o
    y = x.gather(1, i.clamp(0, v - 1)[:, None])[:, 0].to(t)
    return m[:, 0], s, torch.where((i >= 0) & (i < v), y, 0)


def policy_entropy_grad(x, l, a):
    y = F.log_softmax(x, 1, dtype=wider(x))
    p = y.exp()
    h = -(p * y).sum(1, keepdim=True)
    a = a[:, None]
    g = p * (a + 0.01 * (y + h))
    g.scatter_add_(1, l.long()[:, None], -a)
    return h[:, 0], g.to(x.dtype)


def muon_momentum(g, m):
    m = 0.95 * m + g
    u = g + 0.95 * m
    return m, (u / (u.norm() + 1e-7)).to(g.dtype)


def trimmed_softmax(x):
    p = torch.softmax(x, 1)
    return torch.minimum(p, 0.9 - (p.cumsum(1) - p)).clamp(min=0) / 0.9


def bag_max_lengths(e, i, n):
    r = torch.arange(i.shape[1], device=e.device)
    return F.embedding(i, e).masked_fill((r > n[:, None])[:, :, None], -torch.inf).amax(1)


def unsharp_bytes(x, a):
    t = wider(a)
    f = torch.tensor([1, 4, 6, 4, 1], device=a.device, dtype=t) / 16
    y = x.permute(0, 3, 1, 2).to(t)
    b = F.conv2d(y, (f[:, None] * f).expand(3, 1, 5, 5), groups=3)
    y = y[:, :, 2:-2, 2:-2]
    return ((y + a[:, None, None, None] * (y - b)).clamp(0, 255) / 255).to(a.dtype).contiguous()


def pq_adc_scan(t, c):
    d = t[:, torch.arange(t.shape[1], device=t.device), c].sum(2)
    return d, d.amin(1)


def mix_and_decimate(x, c, f):
    y = (x[:, None] * c.t()).flatten(0, 1)[:, None]
    return F.conv1d(y, f[None, None], stride=8).reshape(x.shape[0], 2, -1).transpose(1, 2).contiguous()


def eager(op, s):
    f = {
        'qkv_split_heads': qkv_split_heads,
        'bert_output_norm': bert_output_norm,
        'leaky_linear_bwd': leaky_linear_bwd,
        'w8a8_linear': w8a8_linear,
        'affine_proj_in': affine_proj_in,
        'capped_logits_lse': capped_logits_lse,
        'film_linear_silu': film_linear_silu,
        'complex_interleaved_bmm': complex_interleaved_bmm,
        'syr2k': syr2k,
        'moe_block_dgrad': moe_block_dgrad,
        'packed_alibi_window': lambda x: packed_alibi_window(x, s['w']),
        'cross_lengths_bshd': cross_lengths_bshd,
        'differential_decode': differential_decode,
        'paged_mla_decode': lambda q, c, b, n: paged_mla_decode(q, c, b, n, s['c']),
        'attention_bwd_prepare': attention_bwd_prepare,
        'ssmax_causal_attention': ssmax_causal_attention,
        'quiet_attention': quiet_attention,
        'gated_gqa_attention': gated_gqa_attention,
        'dcgan_up': dcgan_up,
        'conv3s2_dgrad_nhwc': conv3s2_dgrad_nhwc,
        'conv3_bn_sums_nhwc': conv3_bn_sums_nhwc,
        'resnext_down': lambda x, w, a, b: resnext_down(x, w, a, b, s['g']),
        'convnext_dw_norm': convnext_dw_norm,
        'waveform_stem_gelu': waveform_stem_gelu,
        'pointwise_wgrad_nchw': pointwise_wgrad_nchw,
        'dropout_add_norm_train': dropout_add_norm_train,
        'vocab_shard_stats': lambda x, l: vocab_shard_stats(x, l, s['o']),
        'policy_entropy_grad': policy_entropy_grad,
        'muon_momentum': muon_momentum,
        'trimmed_softmax': trimmed_softmax,
        'bag_max_lengths': bag_max_lengths,
        'unsharp_bytes': unsharp_bytes,
        'pq_adc_scan': pq_adc_scan,
        'mix_and_decimate': mix_and_decimate,
    }
    return f.get(op)
