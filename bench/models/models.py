"""Whole models in plain torch.nn, with random weights: what is measured is their speed, not what they know.

MODELS has each with the sizes that it is known by, and tiny ones of the same structure for tests.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

# ------------------------------------------------------------------------------------------- convolutional networks


def _conv(ci, co, kernel, stride=1, groups=1):
    return nn.Conv2d(ci, co, kernel, stride, kernel // 2, groups=groups, bias=False)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut (He et al., 2016), the stride in the 3x3 one."""

    def __init__(self, ci, width, stride):
        super().__init__()
        co = 4 * width
        self.conv1, self.norm1 = _conv(ci, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = _conv(width, co, 1), nn.BatchNorm2d(co)
        same = ci == co and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(_conv(ci, co, 1, stride), nn.BatchNorm2d(co))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = F.relu(self.norm2(self.conv2(y)))
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, blocks, width, classes, **_):
        super().__init__()
        self.conv, self.norm = _conv(3, width, 7, 2), nn.BatchNorm2d(width)
        layers, channels = [], width
        for stage, count in enumerate(blocks):
            for block in range(count):
                layers.append(Bottleneck(channels, width << stage, 2 if stage > 0 and block == 0 else 1))
                channels = 4 * (width << stage)
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 3, 2, 1)
        return self.last(torch.flatten(F.adaptive_avg_pool2d(self.layers(x), 1), 1))


class InvertedResidual(nn.Module):
    """A depthwise convolution between an expansion and a projection (Sandler et al., 2018)."""

    def __init__(self, ci, co, stride, expansion):
        super().__init__()
        inner = ci * expansion
        expand = [_conv(ci, inner, 1), nn.BatchNorm2d(inner), nn.ReLU6()] if expansion > 1 else []
        depthwise = [_conv(inner, inner, 3, stride, inner), nn.BatchNorm2d(inner), nn.ReLU6()]
        self.layers = nn.Sequential(*expand, *depthwise, _conv(inner, co, 1), nn.BatchNorm2d(co))
        self.residual = stride == 1 and ci == co

    def forward(self, x):
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self, stages, first, last, classes, **_):
        """`stages`: expansion, channels, blocks and first stride of each."""
        super().__init__()
        layers = [_conv(3, first, 3, 2), nn.BatchNorm2d(first), nn.ReLU6()]
        channels = first
        for expansion, co, count, stride in stages:
            for block in range(count):
                layers.append(InvertedResidual(channels, co, stride if block == 0 else 1, expansion))
                channels = co
        layers += [_conv(channels, last, 1), nn.BatchNorm2d(last), nn.ReLU6()]
        self.layers = nn.Sequential(*layers)
        self.last = nn.Linear(last, classes)

    def forward(self, x):
        return self.last(torch.flatten(F.adaptive_avg_pool2d(self.layers(x), 1), 1))


class UNetBlock(nn.Module):
    """A residual block of a diffusion model's decoder, and the transposed convolution behind it."""

    def __init__(self, channels, groups, **_):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(groups, 2 * channels), nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(groups, channels), nn.Conv2d(channels, channels, 3, padding=1)
        self.shortcut = nn.Conv2d(2 * channels, channels, 1)
        self.up = nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1)

    def forward(self, x, skipped):
        x = torch.cat((x, skipped), 1)
        y = self.conv1(F.silu(self.norm1(x)))
        y = self.conv2(F.silu(self.norm2(y)))
        return self.up(y + self.shortcut(x))


# ------------------------------------------------------------------------------------------------------ transformers


def _heads(x, heads):
    b, s, d = x.shape
    return x.view(b, s, heads, d // heads).transpose(1, 2)


def _merged(x):
    b, h, s, d = x.shape
    return x.transpose(1, 2).reshape(b, s, h * d)


class EncoderLayer(nn.Module):
    """Self-attention and an MLP, each normalised behind its residual (Devlin et al., 2019)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.norm1, self.norm2 = nn.LayerNorm(dim, 1e-12), nn.LayerNorm(dim, 1e-12)

    def forward(self, x):
        q, k, v = (_heads(project(x), self.heads) for project in (self.q, self.k, self.v))
        x = self.norm1(x + self.o(_merged(F.scaled_dot_product_attention(q, k, v))))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers, dim, heads, vocabulary, sequence, **_):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, dim), nn.Embedding(sequence, dim)
        self.norm = nn.LayerNorm(dim, 1e-12)
        self.layers = nn.Sequential(*(EncoderLayer(dim, heads) for _ in range(layers)))
        self.pooler = nn.Linear(dim, dim)
        self.register_buffer("numbers", torch.arange(sequence), persistent=False)

    def forward(self, words):
        x = self.layers(self.norm(self.words(words) + self.places(self.numbers)))
        return x, torch.tanh(self.pooler(x[:, 0]))


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class DecoderLayer(nn.Module):
    """Causal attention with a rotary embedding, and a SwiGLU MLP, normalised before (Touvron et al., 2023)."""

    def __init__(self, dim, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(dim, inner, bias=False), nn.Linear(dim, inner, bias=False)
        self.down = nn.Linear(inner, dim, bias=False)

    def forward(self, x, cos, sin):
        def rotated(t):
            left, right = t.chunk(2, -1)
            return t * cos + torch.cat((-right, left), -1) * sin

        y = self.norm1(x)
        q, k, v = (_heads(project(y), self.heads) for project in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + self.o(_merged(attended))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    def __init__(self, layers, dim, heads, inner, vocabulary, sequence, **_):
        super().__init__()
        self.words = nn.Embedding(vocabulary, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads, inner) for _ in range(layers))
        self.norm, self.last = RMSNorm(dim), nn.Linear(dim, vocabulary, bias=False)
        half = dim // heads // 2
        angles = torch.outer(torch.arange(sequence), 10_000.0 ** (-torch.arange(half) / half))
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, words):
        x = self.words(words)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.last(self.norm(x))


# ---------------------------------------------------------------------------------------------------------- the list


def _images(batch, size, **_):
    return (torch.randn(batch, 3, size, size),)


def _words(batch, vocabulary, sequence, **_):
    return (torch.randint(vocabulary, (batch, sequence)),)


def _maps(batch, channels, size, **_):
    return tuple(torch.randn(batch, channels, size, size) for _ in range(2))


@dataclass(frozen=True)
class Model:
    make: Callable[..., nn.Module]
    inputs: Callable[..., tuple[torch.Tensor, ...]]  # of a batch, in the processor's memory
    sizes: Mapping[str, object]
    tiny: Mapping[str, object]

    def build(self, batch, tiny=False, seed=1):
        """The model, as it is evaluated, and inputs of it; the same ones for the same seed."""
        sizes = {**self.sizes, **(self.tiny if tiny else {})}
        torch.manual_seed(seed)
        model = self.make(**sizes).eval()
        for module in model.modules():
            # Statistics as after training: the identity that they begin as would hide mistakes.
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.2, 0.2)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=1 / math.sqrt(module.embedding_dim))
        return model, self.inputs(batch, **sizes)


# Expansion, channels, blocks, stride: table 2 of the paper.
_MOBILE = [
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
]  # fmt: skip

MODELS = {
    "resnet50": Model(
        ResNet,
        _images,
        {"blocks": (3, 4, 6, 3), "width": 64, "classes": 1000, "size": 224},
        {"blocks": (2, 1), "width": 4, "classes": 6, "size": 16},
    ),
    "mobilenet_v2": Model(
        MobileNetV2,
        _images,
        {"stages": _MOBILE, "first": 32, "last": 1280, "classes": 1000, "size": 224},
        {"stages": [(1, 4, 1, 1), (6, 8, 2, 2)], "first": 4, "last": 16, "classes": 6, "size": 16},
    ),
    "bert_base": Model(
        Bert,
        _words,
        {"layers": 12, "dim": 768, "heads": 12, "vocabulary": 30_522, "sequence": 128},
        {"layers": 2, "dim": 16, "heads": 2, "vocabulary": 32, "sequence": 8},
    ),
    "unet_block": Model(
        UNetBlock,
        _maps,
        {"channels": 320, "groups": 32, "size": 64},
        {"channels": 8, "groups": 4, "size": 8},
    ),
    "decoder": Model(
        Decoder,
        _words,
        {"layers": 12, "dim": 768, "heads": 12, "inner": 2048, "vocabulary": 32_000, "sequence": 128},
        {"layers": 2, "dim": 16, "heads": 2, "inner": 24, "vocabulary": 32, "sequence": 8},
    ),
}
