"""Networks of kinds that the model packages do not have, or have only with a download, as torch modules with the blocks of their papers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Conv2dUnit(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.SiLU())


class UNet(nn.Module):
    """Encoder, decoder and skip connections, in two or three dimensions."""

    def __init__(self, dims: int, channels: int, width: int, depth: int) -> None:
        super().__init__()
        conv, norm, pool = ((nn.Conv2d, nn.BatchNorm2d, nn.MaxPool2d), (nn.Conv3d, nn.BatchNorm3d, nn.MaxPool3d))[dims - 2]
        up = (nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 2]

        def block(inputs: int, outputs: int) -> nn.Module:
            layers: list[nn.Module] = []
            for n in (inputs, outputs):
                layers += [conv(n, outputs, 3, padding=1), norm(outputs), nn.ReLU()]
            return nn.Sequential(*layers)

        widths = [width << n for n in range(depth)]
        self.down = nn.ModuleList([block(a, b) for a, b in zip([channels, *widths], widths)])
        self.pool = pool(2)
        self.up = nn.ModuleList([up(b, a, 2, 2) for a, b in pairwise(widths)])
        self.merge = nn.ModuleList([block(2 * a, a) for a in widths[:-1]])
        self.head = conv(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for n, block in enumerate(self.down):
            x = block(x if n == 0 else self.pool(x))
            kept.append(x)
        for n in reversed(range(len(self.up))):
            x = self.merge[n](torch.cat([kept[n], self.up[n](x)], 1))
        return self.head(x)


class Yolo(nn.Module):
    """A one-stage detector: cross-stage partial blocks with SiLU, pyramid pooling, two heads."""

    class Stage(nn.Module):
        def __init__(self, inputs: int, outputs: int, repeats: int) -> None:
            super().__init__()
            self.enter, self.leave = Conv2dUnit(inputs, outputs, 3, 2), Conv2dUnit(outputs * 2, outputs, 1)
            self.blocks = nn.ModuleList([nn.Sequential(Conv2dUnit(outputs, outputs, 1), Conv2dUnit(outputs, outputs)) for _ in range(repeats)])

        def forward(self, x: Tensor) -> Tensor:
            x = start = self.enter(x)
            for block in self.blocks:
                x = x + block(x)
            return self.leave(torch.cat([x, start], 1))

    def __init__(self, width: int = 16, classes: int = 20) -> None:
        super().__init__()
        self.stem = Conv2dUnit(3, width, 3, 2)
        self.stages = nn.ModuleList([self.Stage(width << n, width << n + 1, 1 + n % 2) for n in range(4)])
        wide = width << 4
        self.narrow, self.spread = Conv2dUnit(wide, wide // 2, 1), Conv2dUnit(wide * 2, wide, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.lateral = Conv2dUnit(wide, wide // 2, 1)
        self.merge = Conv2dUnit(wide, wide // 2)
        self.heads = nn.ModuleList([nn.Conv2d(n, 3 * (5 + classes), 1) for n in (wide // 2, wide)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.stem(x)
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        pooled = [self.narrow(x)]
        for _ in range(3):
            pooled.append(self.pool(pooled[-1]))
        deep = self.spread(torch.cat(pooled, 1))
        up = F.interpolate(self.lateral(deep), scale_factor=2.0, mode="nearest")
        fine = self.merge(torch.cat([up, kept[-2]], 1))
        return self.heads[0](fine).sigmoid(), self.heads[1](deep).sigmoid()


class Snake(nn.Module):
    """x + sin(a x)^2 / a, with a learned for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.rand(1, channels, 1) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.sin(self.alpha * x) ** 2 / (self.alpha + 1e-9)


class Vocoder(nn.Module):
    """Transposed convolutions up to samples, each followed by dilated residual blocks (HiFi-GAN with leaky relu, DAC's decoder with Snake)."""

    def __init__(self, channels: int, width: int, rates: tuple[int, ...], snake: bool) -> None:
        super().__init__()

        def act(n: int) -> nn.Module:
            return Snake(n) if snake else nn.LeakyReLU(0.1)

        self.enter = nn.Conv1d(channels, width, 7, padding=3)
        self.up, self.blocks = nn.ModuleList(), nn.ModuleList()
        for rate in rates:
            self.up.append(nn.Sequential(act(width), nn.ConvTranspose1d(width, width // 2, 2 * rate, rate, rate // 2 + rate % 2, rate % 2)))
            width //= 2
            self.blocks.append(nn.ModuleList([nn.Sequential(act(width), nn.Conv1d(width, width, 3, padding=d, dilation=d), act(width),
                                                            nn.Conv1d(width, width, 3, padding=1)) for d in (1, 3, 5)]))  # fmt: skip
        self.leave = nn.Sequential(act(width), nn.Conv1d(width, 1, 7, padding=3), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for up, blocks in zip(self.up, self.blocks):
            x = up(x)
            for block in blocks:  # type: ignore[attr-defined]
                x = x + block(x)
        return self.leave(x)


class Vocos(nn.Module):
    """ConvNeXt blocks over frames, then an inverse short-time Fourier transform as a transposed convolution with a fixed basis."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.mix, self.norm = nn.Conv1d(width, width, 7, padding=3, groups=width), nn.LayerNorm(width)
            self.wide, self.narrow = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

        def forward(self, x: Tensor) -> Tensor:
            y = self.norm(self.mix(x).transpose(1, 2))
            return x + self.narrow(F.gelu(self.wide(y))).transpose(1, 2)

    def __init__(self, mels: int = 80, width: int = 192, n: int = 512, hop: int = 128) -> None:
        super().__init__()
        self.enter = nn.Conv1d(mels, width, 7, padding=3)
        self.blocks = nn.ModuleList([self.Block(width) for _ in range(4)])
        self.head, self.hop = nn.Conv1d(width, n + 2, 1), hop
        bins = torch.arange(n // 2 + 1)[:, None] * torch.arange(n)[None, :] * (2 * torch.pi / n)
        basis = torch.cat([torch.cos(bins), -torch.sin(bins)]) * torch.hann_window(n) / n
        self.register_buffer("basis", basis[:, None, :])

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        magnitude, phase = self.head(x).chunk(2, 1)
        scale = magnitude.clamp(max=5.0).exp()
        spectrum = torch.cat([scale * torch.cos(phase), scale * torch.sin(phase)], 1)
        return F.conv_transpose1d(spectrum, self.basis, stride=self.hop)  # type: ignore[arg-type]


class Edsr(nn.Module):
    """Residual 3x3 blocks without normalisation, then pixel shuffle."""

    def __init__(self, width: int = 64, blocks: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(blocks)]
        )
        self.leave = nn.Sequential(nn.Conv2d(width, 4 * width, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = start = self.enter(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        return self.leave(x + start)


class ResBlock(nn.Module):
    """Group norm, SiLU, convolution, twice; with a time embedding where `time` says how wide."""

    def __init__(self, inputs: int, outputs: int, time: int = 0) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.second = nn.Sequential(nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.time = nn.Linear(time, outputs) if time else None

    def forward(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        y = self.first(x)
        if self.time is not None and time is not None:
            y = y + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.second(y)


class SpatialAttention(nn.Module):
    """Attention of all places of an image to all."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, width), heads
        self.qkv, self.leave = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, self.heads, c // self.heads, h * w).transpose(3, 4).unbind(1)
        y = F.scaled_dot_product_attention(q, k, v)
        return x + self.leave(y.transpose(2, 3).reshape(b, c, h, w))


class VaeDecoder(nn.Module):
    """Latents to an image: residual blocks, nearest upsampling and a convolution, three times."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, 4 * width, 3, padding=1)
        self.middle = nn.Sequential(ResBlock(4 * width, 4 * width), SpatialAttention(4 * width, 1))
        widths = (4 * width, 4 * width, 2 * width, width)
        self.blocks = nn.ModuleList([ResBlock(a, b) for a, b in pairwise(widths)])
        self.up = nn.ModuleList([nn.Conv2d(b, b, 3, padding=1) for b in widths[1:]])
        self.leave = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.enter(x))
        for block, up in zip(self.blocks, self.up):
            x = up(F.interpolate(block(x), scale_factor=2.0, mode="nearest"))
        return self.leave(x)


class DiffusionBlock(nn.Module):
    """One level of a denoiser: time embedding, two residual blocks, attention."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.embed = nn.Sequential(nn.Linear(64, 4 * width), nn.SiLU(), nn.Linear(4 * width, 4 * width))
        self.blocks = nn.ModuleList([ResBlock(width, width, 4 * width) for _ in range(2)])
        self.attention = nn.ModuleList([SpatialAttention(width, 4) for _ in range(2)])
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        t, x = self.embed(time), self.enter(x)
        for block, attention in zip(self.blocks, self.attention):
            x = attention(block(x, t))
        return self.leave(x)


class Tcn(nn.Module):
    """Causal dilated convolutions with residual connections."""

    def __init__(self, channels: int = 32, width: int = 64, levels: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv1d(channels if n == 0 else width, width, 3, dilation=1 << n) for n in range(levels)])
        self.head = nn.Conv1d(width, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        for n, layer in enumerate(self.layers):
            y = F.relu(layer(F.pad(x, (2 << n, 0))))
            x = y if n == 0 else x + y
        return self.head(x)


class WaveNet(nn.Module):
    """Gated dilated convolutions with skip connections."""

    def __init__(self, width: int = 48, levels: int = 8) -> None:
        super().__init__()
        self.enter = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList([nn.Conv1d(width, 2 * width, 2, dilation=1 << n) for n in range(levels)])
        self.mixes = nn.ModuleList([nn.Conv1d(width, 2 * width, 1) for _ in range(levels)])
        self.leave = nn.Sequential(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.Conv1d(width, 256, 1))

    def forward(self, x: Tensor) -> Tensor:
        x, total = self.enter(x), None
        for n, (gate, mix) in enumerate(zip(self.gates, self.mixes)):
            a, b = gate(F.pad(x, (1 << n, 0))).chunk(2, 1)
            y, skip = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
            x, total = x + y, skip if total is None else total + skip
        return self.leave(total)


class Tagger(nn.Module):
    """Two bidirectional LSTM layers and a classifier for each place."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, width), nn.Linear(2 * width, 17)
        self.lstm = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0])


class Kan(nn.Module):
    """Layers of learned one-dimensional functions, as sums of Gaussian bumps on a grid."""

    class Layer(nn.Module):
        def __init__(self, inputs: int, outputs: int, grid: int = 8) -> None:
            super().__init__()
            self.register_buffer("grid", torch.linspace(-2, 2, grid))
            self.base, self.bumps = nn.Linear(inputs, outputs), nn.Parameter(torch.randn(outputs, inputs, grid) / (inputs * grid) ** 0.5)

        def forward(self, x: Tensor) -> Tensor:
            basis = torch.exp(-(((x[..., None] - self.grid) * 2) ** 2))
            return self.base(F.silu(x)) + torch.einsum("big,oig->bo", basis, self.bumps)

    def __init__(self, widths: tuple[int, ...] = (64, 128, 128, 10)) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(self.Layer(a, b) for a, b in pairwise(widths)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Pinn(nn.Module):
    """A network of coordinates: Fourier features, then tanh layers."""

    def __init__(self, width: int = 128, layers: int = 5) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(3, width // 2))
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.head = nn.Linear(width, 1)

    def forward(self, points: Tensor) -> Tensor:
        angles = points @ self.frequencies
        x = torch.cat([torch.sin(angles), torch.cos(angles)], -1)
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


class GraphAttention(nn.Module):
    """Graph attention over a dense adjacency: scores of pairs, leaky relu, masked softmax."""

    def __init__(self, features: int = 64, heads: int = 4, width: int = 16, layers: int = 2) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.linear = nn.ModuleList([nn.Linear(features if n == 0 else heads * width, heads * width, bias=False) for n in range(layers)])
        self.source = nn.ParameterList([nn.Parameter(torch.randn(heads, width) / width**0.5) for _ in range(layers)])
        self.target = nn.ParameterList([nn.Parameter(torch.randn(heads, width) / width**0.5) for _ in range(layers)])

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        for linear, source, target in zip(self.linear, self.source, self.target):
            h = linear(x).view(x.shape[0], self.heads, self.width)
            scores = F.leaky_relu((h * source).sum(-1)[:, None] + (h * target).sum(-1)[None, :], 0.2)
            weights = torch.softmax(scores.masked_fill(edges[:, :, None] < 0.5, -1e9), 1)
            x = F.elu(torch.einsum("ijh,jhw->ihw", weights, h).reshape(x.shape[0], -1))
        return x


class SelectiveScan(nn.Module):
    """Mamba's block as written, the recurrence as a loop over time."""

    def __init__(self, width: int = 32, states: int = 8) -> None:
        super().__init__()
        self.enter, self.mix = nn.Linear(width, 4 * width), nn.Conv1d(2 * width, 2 * width, 4, padding=3, groups=2 * width)
        self.parameters_of, self.leave = nn.Linear(2 * width, 2 * width + 2 * states), nn.Linear(2 * width, width)
        self.decay, self.states = nn.Parameter(torch.rand(2 * width, states)), states

    def forward(self, x: Tensor) -> Tensor:
        a, gate = self.enter(x).chunk(2, -1)
        a = F.silu(self.mix(a.transpose(1, 2))[..., : x.shape[1]]).transpose(1, 2)
        step, write, read = self.parameters_of(a).split([a.shape[-1], self.states, self.states], -1)
        step = F.softplus(step)
        state, outputs = torch.zeros(x.shape[0], a.shape[-1], self.states), []
        for t in range(x.shape[1]):
            state = state * torch.exp(-step[:, t, :, None] * self.decay) + (step[:, t] * a[:, t])[:, :, None] * write[:, t, None, :]
            outputs.append((state * read[:, t, None, :]).sum(-1))
        return self.leave(torch.stack(outputs, 1) * F.silu(gate))


MODULES: dict[str, Any] = {}
"""Name -> a function that gives the module and its example inputs."""


def _register(name: str, make: Any, *shapes: tuple[int, ...], tokens: int = 0) -> None:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        if tokens:
            return make(), tuple(torch.randint(0, tokens, shape) for shape in shapes)
        return make(), tuple(torch.randn(shape) for shape in shapes)

    MODULES[name] = build


_register("unet2d", lambda: UNet(2, 3, 16, 4), (1, 3, 128, 128))
_register("unet3d", lambda: UNet(3, 1, 8, 3), (1, 1, 32, 32, 32))
_register("yolo", Yolo, (1, 3, 256, 256))
_register("hifigan", lambda: Vocoder(80, 128, (8, 8, 2, 2), False), (1, 80, 32))
_register("dac_decoder", lambda: Vocoder(64, 128, (8, 4, 2), True), (1, 64, 32))
_register("vocos", Vocos, (1, 80, 64))
_register("edsr", Edsr, (1, 3, 48, 48))
_register("vae_decoder", VaeDecoder, (1, 4, 16, 16))
_register("diffusion_block", DiffusionBlock, (1, 4, 32, 32), (1, 64))
_register("tcn", Tcn, (1, 32, 512))
_register("wavenet", WaveNet, (1, 1, 1024))
_register("lstm_tagger", Tagger, (1, 40), tokens=1000)
_register("kan", Kan, (32, 64))
_register("pinn", Pinn, (1024, 3))
_register("graph_attention", GraphAttention, (96, 64), (96, 96))
_register("mamba_block", SelectiveScan, (1, 24, 32))
