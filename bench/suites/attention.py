# The operators of attention.op as PyTorch computes them, for versus.py --definitions.
import torch
import torch.nn.functional as F


def attention(q, k, v, **options):
    return F.scaled_dot_product_attention(q[None], k[None], v[None], scale=0.125, **options)[0]


def window_attention(q, k, v, w):
    i = torch.arange(q.shape[1], device=q.device)
    return attention(q, k, v, attn_mask=(i[None] <= i[:, None]) & (i[:, None] - i[None] < w))


def gqa_causal_attention(q, k, v):
    h, g, s, d = q.shape
    y = F.scaled_dot_product_attention(
        q.view(1, h * g, s, d), k[None], v[None], is_causal=True, scale=0.125, enable_gqa=True)
    return y.view(h, g, s, d)


def eager(op, s):
    f = {
        'attention': attention,
        'attention_fp16': attention,
        'causal_attention': lambda q, k, v: attention(q, k, v, is_causal=True),
        'window_attention': lambda q, k, v: window_attention(q, k, v, s['w']),
        'gqa_causal_attention': gqa_causal_attention,
        'bias_attention': lambda q, k, v, b: F.scaled_dot_product_attention(
            q, k, v, attn_mask=b[None], scale=0.125),
    }
    return f.get(op)
