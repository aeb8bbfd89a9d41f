"""PyTorch's definitions of the operators of strangers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def attention_of_heads(q, k, v, scale):
    return F.scaled_dot_product_attention(q, k, v, scale=scale)


def mha_bshd(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attention_of_heads(q, k, v, 0.088388348).transpose(1, 2).contiguous()


def mla_decode(q, p, c, r):
    return attention_of_heads(torch.cat((q, p), 2), torch.cat((c, r), 2), c, 0.072168784)


def retention(q, k, v, g):
    i = torch.arange(q.shape[1], device=q.device)
    d = (i[None] - i[:, None]) * g.abs()[:, None, None] * 0.01
    e = (q @ k.transpose(1, 2)) * torch.exp(d).masked_fill(i[None] > i[:, None], 0)
    return e.to(q.dtype) @ v


def attention_grad_kv(q, k, v, g, l, d):
    p = torch.exp((q @ k.transpose(1, 2)) * 0.125 - l.abs()[..., None] - 8)
    u = g @ v.transpose(1, 2)
    w = p * (u - d[..., None]) * 0.125
    return p.to(q.dtype).transpose(1, 2) @ g, w.to(q.dtype).transpose(1, 2) @ q


def padded_attention(q, k, v, n):
    i = torch.arange(q.shape[2], device=q.device)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(i[None] <= n[:, None])[:, None, None], scale=0.125)


def axial_attention(q, k, v):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attention_of_heads(q, k, v, 0.125).transpose(1, 2).contiguous()


def square_distances(x, y):
    return (x[:, None] - y[None]).square().sum(2)


def gaussian_attention(x, c, v):
    w = torch.exp(square_distances(x, c) * -0.01)
    return (w @ v) / w.sum(1, keepdim=True)


def mmd_sum(x, y):
    return torch.exp(torch.cdist(x, y).square() * -0.01).sum()[None]


def info_nce(a, b):
    s = a @ b.t()
    return (torch.logsumexp(s.float() * 0.05, 1) - (a * b).sum(1) * 0.05).to(a.dtype)


def barlow_twins(a, b):
    a, b = a - a.mean(0), b - b.mean(0)
    return (a.t() @ b) * torch.rsqrt(a.square().sum(0) + 0.001)[:, None] * torch.rsqrt(b.square().sum(0) + 0.001)


def dense_experts(x, w, g):
    return torch.einsum('te,etn->tn', g, x @ w)


def token_shift_linear(x, u, w):
    before = F.pad(x, (0, 0, 1, -1))
    return (x * u + before * (1 - u)) @ w


def long_conv(x, f):
    n = 2 * x.shape[2]
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(f, n), n)[..., :x.shape[2]].contiguous()


def gelu_grad_linear(g, w, x):
    return torch.ops.aten.gelu_backward(g @ w.t(), x)


def power_iteration(w, u):
    t = w.t() @ u
    return w @ (t * torch.rsqrt(t.square().sum() + 1e-6))


def rotate(x):
    h = x.shape[-1] // 2
    return torch.cat((-x[..., h:], x[..., :h]), -1)


def qk_norm_rope(x, g, c, n):
    a = F.rms_norm(x, g.shape, g, 1e-6)
    return a * c[:, None] + rotate(a) * n[:, None]


def bert_embeddings(i, e, p, g, b):
    return F.layer_norm(F.embedding(i, e) + p, g.shape, g, b, 1e-5)


def nhwc_conv(x, w, b=None, stride=1):
    return F.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), b, stride).permute(0, 2, 3, 1)


def depthwise_stride2_nhwc(x, f, b):
    y = F.conv2d(x.permute(0, 3, 1, 2), f.permute(2, 0, 1)[:, None], b, 2, groups=f.shape[2])
    return F.relu6(y).permute(0, 2, 3, 1)


def global_response_norm(x, g, b):
    a = x.square().sum((1, 2), keepdim=True).sqrt()
    return x * (1 + g * a / (a.mean(3, keepdim=True) + 1e-6)) + b


def normalize_image(x, u, v):
    return ((x / 255 - u) * torch.rsqrt(v * v + 0.001)).permute(0, 3, 1, 2).contiguous()


def box_iou(a, b):
    la, ha, lb, hb = a[:, None, :2], a[:, None, 2:].abs(), b[None, :, :2], b[None, :, 2:].abs()
    s = (torch.minimum(la + ha, lb + hb) - torch.maximum(la, lb)).clamp(min=0)
    o = s[..., 0] * s[..., 1]
    return o / (ha.prod(2) + hb.prod(2) - o + 0.001)


def chamfer(p, q):
    d = (p[:, :, None] - q[:, None]).square().sum(3)
    return d.amin(2), d.amin(1)


def total_variation(x):
    y = x[:, :-1, :-1]
    return ((x[:, 1:, :-1] - y).abs() + (x[:, :-1, 1:] - y).abs()).sum((1, 2))


def dice_loss(p, t):
    return 1 - (2 * (p * t).sum(2) + 1) / ((p * p).sum(2) + (t * t).sum(2) + 1)


def harris(x):
    def window(v):
        return F.avg_pool2d(v[None, None], 5, 1, divisor_override=1)[0, 0]
    a = x[1:-1, 2:] - x[1:-1, :-2]
    b = x[2:, 1:-1] - x[:-2, 1:-1]
    p, q, r = window(a * a), window(b * b), window(a * b)
    return p * q - r * r - 0.05 * (p + q).square()


def row_moments(x):
    d = x - x.mean(1, keepdim=True)
    a = d.square().mean(1)
    return d.pow(3).mean(1) / (a * a.sqrt()), d.pow(4).mean(1) / (a * a)


def min_max_scale(x):
    a, b = torch.aminmax(x, dim=0)
    return (x - a) / (b - a + 1e-6)


def adafactor_moments(g):
    q = g.square()
    r, c = q.sum(1), q.sum(0)
    return g * torch.rsqrt(r[:, None] * c / (r.sum() + 1e-6) / g.shape[0] + 1e-6)


def newton_schulz(x, a):
    return (2.0315 * (a @ a) - 4.775 * a) @ x + 3.4445 * x


def gray_scott(u, v):
    def laplace(x):
        return x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] - 4 * x[1:-1, 1:-1]
    a, b = u[1:-1, 1:-1], v[1:-1, 1:-1]
    uvv = a * b * b
    return a + 0.16 * laplace(u) - uvv + 0.035 * (1 - a), b + 0.08 * laplace(v) + uvv - 0.1 * b


def gru_cell(x, h, w, u):
    a, c = (x @ w) * 0.03, (h @ u) * 0.03
    r, z = torch.sigmoid(a[0] + c[0]), torch.sigmoid(a[1] + c[1])
    return (1 - z) * torch.tanh(a[2] + r * c[2]) + z * h


def banded_product(a, b):
    n, taps = a.shape
    return sum(a[:, r, None] * b[r:r + n] for r in range(taps))


def autocorrelation(x, l):
    b, n = x.shape
    return F.conv1d(x[None, :, :-1], x[:, None, :n - l], groups=b)[0]


def framed_energy(x, h, hop):
    f = (x.shape[1] - h.shape[0]) // hop
    return (x.unfold(1, h.shape[0], hop)[:, :f] * h).square().sum(2)


def volume_weights(s):
    d = s.abs()
    return torch.exp(-(torch.cumsum(d, 1) - d)) * (1 - torch.exp(-d))


def eager(op, s):
    f = {
        'mha_bshd': mha_bshd,
        'mla_decode': mla_decode,
        'sigmoid_attention': lambda q, k, v: torch.sigmoid((q @ k.transpose(1, 2)) * 0.125 - 7) @ v,
        'retention': retention,
        'attention_grad_kv': attention_grad_kv,
        'padded_attention': padded_attention,
        'axial_attention': axial_attention,
        'gaussian_attention': gaussian_attention,
        'info_nce': info_nce,
        'mmd_sum': mmd_sum,
        'barlow_twins': barlow_twins,
        'dense_experts': dense_experts,
        'token_shift_linear': token_shift_linear,
        'long_conv': long_conv,
        'relu_squared_mlp': lambda x, w, v: torch.relu(x @ w).square() @ v,
        'gelu_grad_linear': gelu_grad_linear,
        'linear_grads': lambda g, x: (g.sum(0), g.t() @ x),
        'weight_norm_linear': lambda x, v, g: (x @ v.t()) * (g / v.norm(dim=1)),
        'power_iteration': power_iteration,
        'qk_norm_rope': qk_norm_rope,
        'bert_embeddings': bert_embeddings,
        'stem_conv7': lambda x, w, b: torch.relu(nhwc_conv(x, w, b, 2)),
        'pointwise_residual_relu': lambda x, w, b, r: torch.relu(x @ w + b + r),
        'conv3_silu_nhwc': lambda x, w, b: F.silu(nhwc_conv(x, w, b)),
        'up_conv2': lambda x, w, b: F.conv_transpose2d(x, w, b, 2),
        'depthwise_stride2_nhwc': depthwise_stride2_nhwc,
        'global_response_norm': global_response_norm,
        'normalize_image': normalize_image,
        'rgb_to_yuv': lambda x, m: torch.einsum('qk,bkyx->bqyx', m, x),
        'box_iou': box_iou,
        'chamfer': chamfer,
        'total_variation': total_variation,
        'dice_loss': dice_loss,
        'harris': harris,
        'gcn_mean': lambda i, x, r: r + F.embedding_bag(i, x, mode='mean'),
        'edge_scores': lambda a, b, x: (x[a] * x[b]).sum(1),
        'row_moments': row_moments,
        'min_max_scale': min_max_scale,
        'column_argmax': lambda x: torch.argmax(x, 0).to(x.dtype),
        'adafactor_moments': adafactor_moments,
        'clip_by_norm': lambda g: g * torch.clamp(torch.rsqrt(g.square().sum() + 1e-6), max=1),
        'newton_schulz': newton_schulz,
        'gray_scott': gray_scott,
        'stencil27': lambda x, w: F.conv3d(x[None, None], w[None, None])[0, 0],
        'gru_cell': gru_cell,
        'kron_matvec': lambda a, b, x: a @ (x @ b.t()),
        'gemv_transposed': lambda a, x: a.t() @ x,
        'banded_product': banded_product,
        'autocorrelation': lambda x: autocorrelation(x, s['l']),
        'framed_energy': lambda x, h: framed_energy(x, h, s['hop']),
        'talking_heads': lambda x, p: torch.softmax(torch.einsum('gp,bpij->bgij', p, x), 3),
        'volume_weights': volume_weights,
        'nerf_mlp': lambda x, a, b, c: torch.relu(torch.relu(x @ a) @ b) @ c,
    }
    return f.get(op)
