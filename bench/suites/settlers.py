"""PyTorch's definitions of the operators of settlers.op, as operators.py's of its own."""
import torch
import torch.nn.functional as F


def wider(x):
    """The type of sums over x: float32, if its own is not wider already."""
    return torch.promote_types(x.dtype, torch.float32)


def sums(i, x, n):
    """What of x goes to each of n places."""
    return x.new_zeros(n, *x.shape[1:]).index_add_(0, i, x)


def sums_apart(i, x, n, copies):
    """As sums, in copies of a table of few places, where updates of one place wait for each other."""
    apart = (torch.arange(i.shape[0], device=i.device, dtype=i.dtype) % copies) * n + i
    return sums(apart, x, n * copies).view(copies, n, *x.shape[1:]).sum(0)


def counts(i, x, n):
    """How many of the numbers i are each of n, in the type of x's sums."""
    return sums(i, torch.ones(i.shape, dtype=wider(x), device=x.device), n)


def few_counts(i, x, n):
    """As counts, for tables that shared memory holds. With bounds that are given, histc asks the device for nothing."""
    return torch.histc(i.to(wider(x)) + 0.5, n, 0, n)


def one_hot(i, n, dtype):
    """As F.one_hot, which looks for the greatest index."""
    return (i[..., None] == torch.arange(n, device=i.device, dtype=i.dtype)).to(dtype)


def weighted_bincount(i, w, b):
    return sums_apart(i, w, b, 16)


def colour_histogram(x):
    n, p = x.shape[:2]
    r, g, b = (x >> 5).unbind(2)
    key = (r << 6 | g << 3 | b) + 512 * torch.arange(n, device=x.device, dtype=x.dtype)[:, None]
    return sums(key.flatten(), torch.ones(n * p, device=x.device), 512 * n).view(n, 8, 8, 8) / p


def group_summary(k, x, g):
    c = x.shape[1]
    s = sums(k, torch.cat((x, torch.ones_like(x[:, :1])), 1), g)
    n = s[:, c].contiguous()
    m = s[:, :c] / n.clamp(min=1)[:, None]
    v = sums(k, (x - m[k]).square(), g) / (n - 1).clamp(min=1)[:, None]
    low = x.new_full((g, c), 1e30).index_reduce_(0, k, x, 'amin')
    high = x.new_full((g, c), -1e30).index_reduce_(0, k, x, 'amax')
    return n, m, v, low, high


def attention_pooling(b, a, v, g):
    m = a.new_full((g,), -1e30).index_reduce_(0, b, a, 'amax')
    e = torch.exp(a - m[b])
    p = e / sums(b, e, g)[b]
    return p, sums(b, p[:, None] * v, g)


def embedding_grad(t, g, v):
    if g.dtype in (torch.float16, torch.bfloat16):  # Sorts the tokens and sums in float32.
        return torch.ops.aten.embedding_dense_backward(g, t, v, 0, False)
    d = sums(t.flatten(), g.flatten(0, 1), v)
    d[0].zero_()
    return d


def embedding_bag_grad(i, w, g, v):
    w = torch.where(i < v, w, 0)
    return sums(i.clamp(max=v - 1).flatten(), (w[..., None] * g[:, None]).flatten(0, 1), v)


def gather_grad(i, g, n):
    return g.new_zeros(g.shape[0], n).scatter_add_(1, i.long(), g)


def gcn_layer(s, t, x, w, b):
    h = x @ w
    r = torch.rsqrt(counts(t, x, x.shape[0]) + 1)
    y = torch.addcmul(b, r.square()[:, None], h)
    return torch.relu(y.index_add_(0, t, (r[s] * r[t])[:, None] * h[s]))


def gat_edges(s, t, x, a, b):
    n = x.shape[0]
    e = F.leaky_relu(a[s] + b[t], 0.2)
    m = e.new_full(a.shape, -torch.inf).index_reduce_(0, t, e, 'amax')
    e = torch.exp(e - m[t])
    z = sums(t, e, n) + 1e-16
    return F.elu(sums(t, e[..., None] * x[s], n) / z[..., None])


def molecule_messages(s, t, x, e):
    return (1.1 * x).index_add_(0, t, torch.relu(x[s] + e))


def moe_balance_loss(x, r):
    t, e = x.shape
    n = few_counts(r.flatten(), x, e)
    p = torch.softmax(x, 1).mean(0)
    return n, (e / r.numel() * (n * p).sum())[None]


def expert_bias_grad(r, g, e):
    one = one_hot(r, e, g.dtype)
    return (one.t() @ g).to(wider(g)), one.sum(0, dtype=wider(g))


def voxel_means(i, j, k, f, x, y, z):
    key = (i * y + j) * z + k
    s = sums(key, torch.cat((f, torch.ones_like(f[:, :1])), 1), x * y * z).view(x, y, z, -1)
    n = s[..., -1].contiguous()
    return n, s[..., :-1] / n.clamp(min=1)[..., None]


def pillar_features(p, x, w, b, v):
    h = torch.relu(torch.addmm(b, x, w)).masked_fill_((p == v)[:, None], 0)
    y = h.new_zeros(v, h.shape[1]).index_reduce_(0, p.clamp(max=v - 1), h, 'amax')
    return y.t().contiguous()


def charge_deposit(i, u, q, n):
    right = u * q
    s = sums(torch.cat((i, i + 1)), torch.cat((q - right, right)), n + 1)
    return s - s.mean()


def spline_currents(i, u, v, q, n):
    w = torch.stack((0.5 * (0.5 - u).square(), 0.75 - u.square(), 0.5 * (0.5 + u).square()), 2)
    k = (i[..., None] + torch.arange(-1, 2, device=i.device, dtype=i.dtype)) % n
    key = k[:, 0, :, None] * n + k[:, 1, None]
    w = (q[:, None] * w[:, 0])[..., None] * w[:, 1, None]
    # A plane for each component, so that the particles' updates need no transpose behind them.
    c = torch.stack((w, w * v[:, 0, None, None], w * v[:, 1, None, None]))
    return c.new_zeros(3, n * n).index_add_(1, key.flatten(), c.flatten(1)).view(3, n, n)


def segmentation_iou(x, i):
    c = x.shape[1]
    m = few_counts((i * c + x.argmax(1)).flatten(), x, (c + 1) * c)[:c * c].view(c, c).clone()
    both = m.diagonal()
    return m, both / (m.sum(1) + m.sum(0) - both).clamp(min=1)


def bigram_model(t, v):
    key = (t[:, :-1] * v + t[:, 1:]).flatten()
    c = sums(key, torch.ones(key.shape, device=t.device), v * v).view(v, v)
    return torch.log((c + 0.1) / (c.sum(1, keepdim=True) + 0.1 * v))


def weighted_contingency(i, j, w, a, b):
    t = sums_apart(i * b + j, w.abs(), a * b, 16).view(a, b)
    r = t.sum(1, keepdim=True)
    p = t / r.clamp(min=0.000001)
    return t, p, -(t / r.sum() * torch.log(p.clamp(min=1e-30))).sum()[None]


def target_encoding(k, t, g):
    f = k.shape[1]
    key = k + g * torch.arange(f, device=k.device, dtype=k.dtype)
    s = sums(key.flatten(), t[:, None].expand(-1, f).flatten(), f * g)
    n = few_counts(key.flatten(), t, f * g)
    return (s[key] - t[:, None] + 10 * t.mean()) / (n[key] + 9)


def tfidf(w, v):
    d = w.shape[0]
    # A column more for what pads, left out where the rows are read.
    key = (w + (v + 1) * torch.arange(d, device=w.device, dtype=w.dtype)[:, None]).flatten()
    c = sums(key, torch.ones(key.shape, device=w.device), d * (v + 1)).view(d, v + 1)[:, :v]
    f = c * (torch.log((1 + d) / (1 + (c > 0).sum(0))) + 1)
    return f * torch.rsqrt(f.square().sum(1, keepdim=True) + 1e-12)


def balanced_cross_entropy(x, i):
    c = x.shape[1]
    n = few_counts(i, x, c + 1)[:c]
    w = n.sum() / (c * n.clamp(min=1))
    return w, F.cross_entropy(x, i.long(), w, ignore_index=c)[None]


def per_class_metrics(i, e, c):
    s = sums(i, torch.cat((e, torch.ones_like(e[:, :1])), 1), c)
    n = s[:, -1].contiguous()
    m = s[:, :-1] / n.clamp(min=1)[:, None]
    return n, m, m.mean(0)


def calibration_error(i, x, c, b):
    p = torch.sigmoid(x)
    n, s, g = sums_apart(i, torch.stack((torch.ones_like(p), p, c - p), 1), b, 64).unbind(1)
    return n.contiguous(), s / n.clamp(min=1), (g.abs().sum() / x.shape[0])[None]


def label_propagation(s, t, w, f, first):
    n, w = f.shape[0], w.abs()
    d = sums(t, w, n).clamp(min=0.000001)
    return torch.addcdiv(0.1 * first, sums(t, w[:, None] * f[s], n), d[:, None], value=0.9)


def coo_matmul(r, c, a, b, m):
    return sums(r, a[:, None] * b[c], m)


def kmeans_update(x, i, c):
    k = c.shape[0]
    n = few_counts(i, x, k)
    m = torch.where(n[:, None] > 0, sums(i, x, k) / n.clamp(min=1)[:, None], c)
    return n, m, (x - c[i]).square().sum()[None]


def codebook_update(x, i, n, m):
    k = n.shape[0]
    c = few_counts(i, x, k)
    u = 0.99 * n.abs() + 0.01 * c
    v = 0.99 * m + 0.01 * sums(i, x, k)
    t = u.sum()
    p = c / x.shape[0]
    used = torch.exp(-(p * torch.log(p + 1e-10)).sum())[None]
    return u, v, v / ((u + 0.00001) / (t + 0.00001 * k) * t)[:, None], used


def bellman_ford_step(d, s, t, w):
    y = d.index_reduce(0, t, d[s] + w.abs(), 'amin')
    return y, (y < d).sum(dtype=d.dtype)[None]


def noisy_or(i, x, g):
    # A sum of logarithms: there is an instruction for sums in memory, and none for products.
    return -torch.expm1(sums(i, torch.log1p(-0.1 * torch.sigmoid(x)), g))


def nearest_point(p, z, v):
    n = z.shape[0]
    m = z.new_full((v + 1,), 1e30).index_reduce_(0, p, z, 'amin')
    r = torch.arange(n, device=z.device, dtype=torch.int32)
    k = r.new_full((v + 1,), n).scatter_reduce_(0, p.long(), torch.where(z == m[p], r, n), 'amin')[:v]
    m = m[:v]
    return torch.where(k < n, k, 0).to(z.dtype), torch.where(m < 1e30, m, 0)


def prototype_logits(x, i, q, w):
    one = one_hot(i, w, x.dtype).transpose(1, 2)
    p = one @ x / one.sum(2, keepdim=True).clamp(min=1)
    lengths = q.square().sum(2, keepdim=True) + p.square().sum(2)[:, None]
    return torch.baddbmm(lengths, q, p.transpose(1, 2), beta=-1, alpha=2)


def pair_forces(x, i, j):
    d = x[j] - x[i]
    w = torch.exp(-0.5 * d.square().sum(1))
    f = w[:, None] * d
    return sums(j, f, x.shape[0]).index_add_(0, i, f, alpha=-1), w.sum()[None]


def eager(op, s):
    f = {
        'weighted_bincount': lambda i, w: weighted_bincount(i, w, s['b']),
        'colour_histogram': colour_histogram,
        'group_summary': lambda k, x: group_summary(k, x, s['g']),
        'attention_pooling': lambda b, a, v: attention_pooling(b, a, v, s['g']),
        'embedding_grad': lambda t, g: embedding_grad(t, g, s['v']),
        'embedding_bag_grad': lambda i, w, g: embedding_bag_grad(i, w, g, s['v']),
        'gather_grad': lambda i, g: gather_grad(i, g, s['n']),
        'gcn_layer': gcn_layer,
        'gat_edges': gat_edges,
        'molecule_messages': molecule_messages,
        'moe_balance_loss': moe_balance_loss,
        'expert_bias_grad': lambda r, g: expert_bias_grad(r, g, s['e']),
        'voxel_means': lambda i, j, k, f: voxel_means(i, j, k, f, s['x'], s['y'], s['z']),
        'pillar_features': lambda p, x, w, b: pillar_features(p, x, w, b, s['v']),
        'charge_deposit': lambda i, u, q: charge_deposit(i, u, q, s['n']),
        'spline_currents': lambda i, u, v, q: spline_currents(i, u, v, q, s['n']),
        'segmentation_iou': segmentation_iou,
        'bigram_model': lambda t: bigram_model(t, s['v']),
        'weighted_contingency': lambda i, j, w: weighted_contingency(i, j, w, s['a'], s['b']),
        'target_encoding': lambda k, t: target_encoding(k, t, s['g']),
        'tfidf': lambda w: tfidf(w, s['v']),
        'balanced_cross_entropy': balanced_cross_entropy,
        'per_class_metrics': lambda i, e: per_class_metrics(i, e, s['c']),
        'calibration_error': lambda i, x, c: calibration_error(i, x, c, s['b']),
        'label_propagation': label_propagation,
        'coo_matmul': lambda r, c, a, b: coo_matmul(r, c, a, b, s['m']),
        'kmeans_update': kmeans_update,
        'codebook_update': codebook_update,
        'bellman_ford_step': bellman_ford_step,
        'noisy_or': lambda i, x: noisy_or(i, x, s['g']),
        'nearest_point': lambda p, z: nearest_point(p, z, s['v']),
        'prototype_logits': lambda x, i, q: prototype_logits(x, i, q, s['w']),
        'pair_forces': pair_forces,
    }
    return f.get(op)
