"""PyTorch's definitions of the operators of rovers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def quantized_bag_sum(c, s, i):
    return (s[i][:, None] @ (c[i] - 128).to(s.dtype))[:, 0]


def silu_mul_group_scale(x):
    a, b = x.to(wider(x)).unbind(1)
    h = F.silu(a) * b
    s = h.abs().amax(2).clamp(min=0.000001) / 448
    return s, (h / s[:, :, None]).to(x.dtype)


def dgrad_rms_norm_bwd(g, w, x, a, r):
    t = (g @ w).to(r.dtype)
    n = x * r[:, None]
    y = t * a
    d = r[:, None] * (y - n * (y * n).mean(1, keepdim=True))
    return d.to(x.dtype), (t * n).sum(0)


def dilated_causal_attention(q, k, v):
    # Residues and heads are one axis of batches: none of the tensors is copied.
    y = F.scaled_dot_product_attention(*(x.flatten(2, 3).transpose(1, 2) for x in (q, k, v)), is_causal=True, scale=0.125)
    return y.transpose(1, 2).reshape(q.shape).contiguous()


def gqa_causal_dq(q, k, v, g, l, d):
    u = q.shape[2:4]
    s = (q.flatten(2, 3) @ k.mT).unflatten(2, u).to(l.dtype)
    w = (g.flatten(2, 3) @ v.mT).unflatten(2, u).to(l.dtype)
    w = (0.08838834764831845 * torch.exp(0.08838834764831845 * s - l[..., None]) * (w - d[..., None])).tril().to(q.dtype)
    return (w.flatten(2, 3) @ k).unflatten(2, u)


def dinov3_rope_attention(x, c, s):
    def turn(y):
        a, b = y[:, 5:].chunk(2, 3)
        return torch.cat((y[:, :5], y[:, 5:] * c[:, None] + torch.cat((-b, a), 3) * s[:, None]), 1).transpose(1, 2)
    q, k, v = x.unbind(2)
    return F.scaled_dot_product_attention(turn(q), turn(k), v.transpose(1, 2), scale=0.125).transpose(1, 2).contiguous()


def relu_causal_attention(q, k, v):
    n = torch.arange(1, q.shape[2] + 1, device=q.device, dtype=wider(q))
    return (torch.relu(0.125 * (q @ k.mT)).tril() @ v / n[:, None]).to(q.dtype)


def gla_chunk_output(q, k, v, b, h):
    a = (q * torch.exp(0.1 * b)).to(q.dtype)
    c = (k * torch.exp(-0.1 * b)).to(q.dtype)
    return 0.08838834764831845 * torch.baddbmm(torch.bmm(a, h), torch.bmm(a, c.mT).tril(), v)


def single_neuron_experts(x, i, g, u, v):
    a = (F.embedding(i, u) @ x[:, :, None])[:, :, 0]
    return ((g * F.gelu(a))[:, None] @ F.embedding(i, v))[:, 0]


def cosine_distill_and_grad(s, t):
    w = wider(s)
    x, y = s.to(w), t.to(w)
    a, b, c = (x * x).sum(1, keepdim=True), (y * y).sum(1, keepdim=True), (x * y).sum(1, keepdim=True)
    r = torch.rsqrt(a * b)
    return (1 - c * r)[:, 0], (r * (c / a * x - y)).to(s.dtype)


def bert_embedding_grads(g, t):
    w = wider(g)
    p = g.sum(0, dtype=w)
    one = (g * t[:, :, None]).sum((0, 1), dtype=w)
    return p, torch.stack((p.sum(0) - one, one))


def gated_int8_linear_residual(a, g, c, s, r):
    return torch.addcmul(r, F.linear(a * torch.sigmoid(g), (c - 128).to(a.dtype)), s)


def lora_grads(x, g, a, b):
    return 2 * ((g @ b).t() @ x), 2 * (g.t() @ F.linear(x, a))


def inception_1x7_7x1(x, w, v, a, b, c, d):
    def affine(y, s, t): return torch.relu(torch.addcmul(t[:, None, None], y, s[:, None, None]))
    y = affine(F.conv2d(x, w[:, :, None], padding=(0, 3)), a, b)
    return affine(F.conv2d(y, v[:, :, :, None], padding=(3, 0)), c, d)


def gem_pooling(x):
    y = x.clamp(min=0.000001).pow(3).mean((2, 3)).pow(1 / 3)
    return F.normalize(y, dim=1)


def table_resize(x, i, a, j, b):
    v = sum(a[:, t, None] * x[:, i[:, t]] for t in range(i.shape[1]))
    return sum(b[:, t] * v[:, :, j[:, t]] for t in range(j.shape[1]))


def mdct_frames(x, w, c):
    n = c.shape[0]
    return (x.unfold(1, 2 * n, n) * w) @ c.t()


def burgers2d_step(u, v):
    def step(f):
        l, r, t, b = f.roll(1, 1), f.roll(-1, 1), f.roll(1, 0), f.roll(-1, 0)
        return (f - 0.05 * u * torch.where(u > 0, f - l, r - f) - 0.05 * v * torch.where(v > 0, f - t, b - f)
                + 0.02 * (l + r + t + b - 4 * f))
    a, b = step(u), step(v)
    return a, b, (a.abs() + b.abs()).amax()[None]


def chebnet_layer(x, j, a, w, b):
    s = (a[:, None] @ x[j])[:, 0]
    p = 2 * (a[:, None] @ s[j])[:, 0] - x
    return torch.relu(torch.addmm(b, torch.cat((x, s, p), 1), w.flatten(0, 1)))


def dipole_fields(x, p):
    d = [x[:, a, None] - x[:, a] for a in range(3)]
    r = 0.05 + d[0] * d[0] + d[1] * d[1] + d[2] * d[2]
    q = 3 * (p[:, 0] * d[0] + p[:, 1] * d[1] + p[:, 2] * d[2]) / r
    # Of itself, a dipole would feel only its own moment.
    k = (torch.rsqrt(r) / r).fill_diagonal_(0)
    return torch.stack([((q * d[a] - p[:, a]) * k).sum(1) for a in range(3)], 1)


def scenario_pnl_tails(r, w):
    p = r @ w
    p = p.to(wider(p))
    v, m = torch.var_mean(p, 0, correction=0)
    return p.amin(0), m, v.sqrt()


def kinship_matrix(g, p):
    m = p.shape[0]
    f = torch.sigmoid(p.to(wider(p)))
    z = ((g - 2 * f) * torch.rsqrt(2 * m * f * (1 - f))).to(p.dtype)
    return z @ z.t()


def kabsch_covariance(x, y):
    a, b = x.mean(1), y.mean(1)
    u, v = x - a[:, None], y - b[:, None]
    return a, b, u.mT @ v, (u * u + v * v).sum((1, 2))


def local_ncc3d(x, y):
    s = F.avg_pool3d(torch.stack((x, y, x * x, y * y, x * y), 1), 5, 1, 2, divisor_override=1)
    a, b, s, t, u = s.unbind(1)
    e = u - a * b / 125
    r = e * e / ((s - a * a / 125) * (t - b * b / 125) + 0.00001)
    return r, r.mean((1, 2, 3))


def middle_peak(x):
    m, p = x.max(1)
    return p.to(wider(x)), (m - x.mean(1, dtype=wider(x))).to(x.dtype)


def rotate_axes_affine(x, s, z):
    return torch.addcmul(z.t()[:, None], x.permute(2, 0, 1), s[:, None, None]).contiguous()


def batched_commutator(a, b):
    c = torch.baddbmm(torch.bmm(a, b), b, a, alpha=-1)
    return c, c.square().sum((1, 2))


def batched_congruence(l, a):
    y = torch.bmm(torch.bmm(l, a), l.mT)
    return y, y.diagonal(dim1=1, dim2=2).sum(1, dtype=wider(y))


def gemver(a, u, v, s, t, y, z):
    b = a + torch.outer(u, v) + torch.outer(s, t)
    x = torch.addmv(z, b.t(), y, alpha=0.5)
    return b, x, b @ x


def tensor_compare(x, y):
    t = wider(x)
    x, y = x.to(t), y.to(t)
    d = x - y
    return d.abs().amax()[None], d.square().sum()[None], y.square().sum()[None], (x * y).sum()[None]


def matmul_column_stats(a, b):
    c = a @ b
    t = wider(c)
    return c, c.sum(0, dtype=t), c.to(t).square().sum(0)


def eager(op, s):
    f = {
        'quantized_bag_sum': quantized_bag_sum,
        'silu_mul_group_scale': silu_mul_group_scale,
        'dgrad_rms_norm_bwd': dgrad_rms_norm_bwd,
        'dilated_causal_attention': dilated_causal_attention,
        'gqa_causal_dq': gqa_causal_dq,
        'dinov3_rope_attention': dinov3_rope_attention,
        'relu_causal_attention': relu_causal_attention,
        'gla_chunk_output': gla_chunk_output,
        'single_neuron_experts': single_neuron_experts,
        'cosine_distill_and_grad': cosine_distill_and_grad,
        'bert_embedding_grads': bert_embedding_grads,
        'mamba_dt_projection': lambda x, w, b: F.softplus(F.linear(x, w, b)),
        'gated_int8_linear_residual': gated_int8_linear_residual,
        'lora_grads': lora_grads,
        'inception_1x7_7x1': inception_1x7_7x1,
        'elu_conv1d_down': lambda x, w, b: F.conv1d(F.pad(F.elu(x), (4, 0)), w, b, stride=4),
        'gem_pooling': gem_pooling,
        'table_resize': table_resize,
        'mdct_frames': mdct_frames,
        'burgers2d_step': burgers2d_step,
        'chebnet_layer': chebnet_layer,
        'dipole_fields': dipole_fields,
        'scenario_pnl_tails': scenario_pnl_tails,
        'kinship_matrix': kinship_matrix,
        'kabsch_covariance': kabsch_covariance,
        'local_ncc3d': local_ncc3d,
        'middle_peak': middle_peak,
        'reverse_cumsum_middle': lambda x: x.flip(1).cumsum(1).flip(1),
        'rotate_axes_affine': rotate_axes_affine,
        'batched_commutator': batched_commutator,
        'batched_congruence': batched_congruence,
        'bicg_products': lambda a, x, y: (a @ x, a.t() @ y),
        'gemver': gemver,
        'tensor_compare': tensor_compare,
        'additive_attention_scores': lambda q, k, v: torch.tanh(q[:, :, None] + k[:, None]) @ v,
        'matmul_column_stats': matmul_column_stats,
    }
    return f.get(op)
