"""PyTorch's definitions of the operators of drifters.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def quickgelu_linear(x, w, b):
    u = F.linear(x, w, b)
    return u * torch.sigmoid(1.702 * u)


def normalized_wgrad_bias(x, g, m, r):
    h = ((x - m[:, None]) * r[:, None]).to(x.dtype)
    return g.t() @ h, g.sum(0, dtype=wider(g))


def gathered_rows_residual(x, i, w, s, r):
    v = x.shape[0]
    h = x[i.clamp(max=v - 1)] * (i < v)[:, None]
    return torch.addcmul(r, h @ w, s)


def relu6_transposed_matmul(a, w, b):
    return F.relu6(torch.baddbmm(b[:, None], w.expand(a.shape[0], -1, -1), a.mT))


def grouped_silu_linear(x, w, b):
    return F.silu(torch.baddbmm(b[:, None], x.transpose(0, 1), w)).transpose(0, 1).contiguous()


def prefix_lengths_attention(q, k, v, n):
    j = torch.arange(q.shape[2], device=q.device)
    m = (j <= j[:, None]) | (j < n[:, None, None, None])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=m, scale=0.125)


def streaming_window_attention(q, k, v, w):
    j = torch.arange(q.shape[2], device=q.device)
    i = j[:, None]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=(j <= i) & ((j > i - w) | (j < 4)), scale=0.08838834764831845)


def mqa_draft_decode(q, k, v, n):
    # All heads' drafts are the queries of the one head of keys.
    t, h = q.shape[1:3]
    i = torch.arange(t, device=q.device).repeat_interleave(h)
    m = torch.arange(k.shape[1], device=q.device) <= n[:, None, None, None] + i[:, None]
    y = F.scaled_dot_product_attention(q.flatten(1, 2)[:, None], k[:, None], v[:, None], attn_mask=m, scale=0.08838834764831845)
    return y.reshape(q.shape)


def attention_dv(q, k, g, l):
    p = torch.exp(0.125 * (q @ k.mT) - l[..., None]).to(q.dtype)
    return p.mT @ g


def dilated_conv1d_nlc_residual(x, w, b, e):
    y = F.conv1d(x.mT, w.mT, b, padding=e, dilation=e)
    return (x + torch.relu(y).mT).contiguous()


def conv3s2_relu6_nhwc(x, w, s, b):
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2), stride=2, padding=1)
    return F.relu6(torch.addcmul(b, y.permute(0, 2, 3, 1), s)).contiguous()


def depthwise5_swish_nhwc(x, w, b):
    y = F.conv2d(x.permute(0, 3, 1, 2), w.permute(2, 0, 1)[:, None], b, padding=2, groups=x.shape[3])
    return F.silu(y).permute(0, 2, 3, 1).contiguous()


def gemma_norm_dx_dw(g, x, a):
    t = wider(x)
    g, y = g.to(t), x.to(t)
    r = torch.rsqrt(y.square().mean(1, keepdim=True) + 0.000001)
    n, u = y * r, g * (1 + a.to(t))
    return (r * (u - n * (u * n).mean(1, keepdim=True))).to(x.dtype), (g * n).sum(0)


def smoothed_loss_and_grad_ignored(x, l):
    n = x.shape[1]
    l = l.long()
    y = F.log_softmax(x, 1, dtype=wider(x))
    loss = F.nll_loss(y, l, ignore_index=n, reduction='none') * 0.9 - torch.where(l < n, 0.1 * y.mean(1), 0)
    g = y.exp() - 0.1 / n
    g.scatter_add_(1, l.clamp(max=n - 1)[:, None], g.new_full((1, 1), -0.9).expand(x.shape[0], 1))
    return loss, torch.where((l < n)[:, None], g, 0).to(x.dtype)


def softmax_middle_entropy(x):
    l = F.log_softmax(2 * x, 1)
    p = l.exp()
    return p, -(p * l).sum(1)


def mutual_nearest(x, y):
    d = torch.addmm(y.square().sum(1), x, y.t(), alpha=-2) + x.square().sum(1, keepdim=True)
    return d.argmin(1).to(x.dtype), d.argmin(0).to(x.dtype)


def standardize_two_axes(x):
    v, m = torch.var_mean(x, (1, 3), correction=0, keepdim=True)
    return v[:, 0, :, 0].contiguous(), (x - m) * torch.rsqrt(v + 0.00001)


def running_max_mean(x):
    return x.cummax(1).values, x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)


def rmsprop_centered_step(w, g, v, a, b, rate):
    v = 0.99 * v + 0.01 * g * g
    a = 0.99 * a + 0.01 * g
    b = 0.9 * b + g / ((v - a * a).clamp(min=0).sqrt() + 0.01)
    return v, a, b, w - rate * b


def bilinear2x_nhwc(x):
    return F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode='bilinear', align_corners=False).permute(0, 2, 3, 1).contiguous()


def rgb_to_ycbcr420(x):
    r, g, b = x.unbind(3)
    y = 0.299 * r + 0.587 * g + 0.114 * b
    r, g, b = F.avg_pool2d(x.permute(0, 3, 1, 2), 2).unbind(1)
    return y, torch.stack((0.5 - 0.168736 * r - 0.331264 * g + 0.5 * b, 0.5 + 0.5 * r - 0.418688 * g - 0.081312 * b), 3)


def weighted_bag_grads(e, i, w, g):
    dw = (F.embedding(i, e) @ g[:, :, None])[:, :, 0]
    return dw, torch.zeros_like(e).index_add_(0, i.flatten(), (w[:, :, None] * g[:, None]).flatten(0, 1))


def gated_chunk_scan(x, g):
    c = F.logsigmoid(g).cumsum(2)
    e = c.exp()
    return e * (x * torch.exp(-c)).cumsum(2), e[:, :, -1].contiguous()


def conj_filter_power(x, w):
    y = torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(w).conj())
    return y, y.square().sum((0, 2))


def eager(op, s):
    f = {
        'quickgelu_linear': quickgelu_linear,
        'smoothed_scaled_matmul': lambda a, c, b, s, d: (((a * c) @ b) * s[:, None] * d).to(a.dtype),
        'normalized_wgrad_bias': normalized_wgrad_bias,
        'gathered_rows_residual': gathered_rows_residual,
        'class_log_probs': lambda x, w, b: F.log_softmax(F.linear(x, w, b), 1),
        'relu6_transposed_matmul': relu6_transposed_matmul,
        'sigmoid_products_dropout': lambda x, u, v, d: torch.sigmoid(F.linear(x, u)) * F.linear(x, v) * d / 0.9,
        'skinny_tanh_matmul': lambda a, w, b: torch.tanh(torch.addmm(b, a, w)),
        'grouped_silu_linear': grouped_silu_linear,
        'prefix_lengths_attention': prefix_lengths_attention,
        'streaming_window_attention': lambda q, k, v: streaming_window_attention(q, k, v, s['w']),
        'mqa_draft_decode': mqa_draft_decode,
        'attention_dv': attention_dv,
        'dilated_conv1d_nlc_residual': lambda x, w, b: dilated_conv1d_nlc_residual(x, w, b, s['e']),
        'conv3s2_relu6_nhwc': conv3s2_relu6_nhwc,
        'depthwise5_swish_nhwc': depthwise5_swish_nhwc,
        'gemma_norm_dx_dw': gemma_norm_dx_dw,
        'smoothed_loss_and_grad_ignored': smoothed_loss_and_grad_ignored,
        'batched_tn_axpy': lambda a, b, c: torch.baddbmm(c, a.mT, b, alpha=0.5),
        'softmax_middle_entropy': softmax_middle_entropy,
        'mutual_nearest': mutual_nearest,
        'standardize_two_axes': standardize_two_axes,
        'running_max_mean': running_max_mean,
        'rmsprop_centered_step': rmsprop_centered_step,
        'bilinear2x_nhwc': bilinear2x_nhwc,
        'rgb_to_ycbcr420': rgb_to_ycbcr420,
        'weighted_bag_grads': weighted_bag_grads,
        'gated_chunk_scan': gated_chunk_scan,
        'neighbour_max_linear': lambda x, j, w, b: torch.relu(F.linear(x[j].amax(1), w, b)),
        'conj_filter_power': conj_filter_power,
    }
    return f.get(op)
