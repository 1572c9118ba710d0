"""Export the zoo: ONNX models with random weights, without any download.

    pip install -e '.[zoo]'
    python -m benchmarks.zoo.export -o build/zoo [NAME ...]

Each model is what its package builds without weights, in inference mode, exported by torch's exporter at a fixed size and batch 1. Beside the models,
`export.json` tells versions, sizes, and what could not be exported and why.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

Builder = Callable[[], tuple[Any, tuple[Any, ...]]]
PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnx", "onnxscript")

TORCHVISION = {
    "mobilenet_v3_small": 224, "efficientnet_b0": 224, "convnext_tiny": 224, "regnet_y_400mf": 224, "shufflenet_v2_x1_0": 224, "squeezenet1_1": 224,
    "densenet121": 224, "inception_v3": 299, "googlenet": 224, "resnet18": 224, "resnet50": 224, "mnasnet1_0": 224, "swin_t": 224, "vgg11": 224,
}  # fmt: skip
"""Classifiers of torchvision and the image's size."""

TIMM = {
    "repvgg_a0": 224, "mobilevit_xs": 256, "coat_lite_mini": 224, "mixer_s16_224": 224, "vit_tiny_patch16_224": 224, "ghostnet_100": 224,
    "poolformer_s12": 224, "hrnet_w18_small": 224,
}  # fmt: skip


def classifier(package: str, name: str, size: int) -> Builder:
    """A classifier of images, without weights."""

    def build() -> tuple[Any, tuple[Any, ...]]:
        import torch

        if package == "timm":
            import timm

            module = timm.create_model(name, pretrained=False)
        else:
            import torchvision

            extra = {"init_weights": True} if name in ("inception_v3", "googlenet") else {}
            module = torchvision.models.get_model(name, weights=None, **extra)
        return module, (torch.randn(1, 3, size, size),)

    return build


def segmentation() -> tuple[Any, tuple[Any, ...]]:
    """DeepLab v3 on MobileNet v3: only its main output."""
    import torch
    import torchvision

    class Main(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21)

        def forward(self, x: Any) -> Any:
            return self.net(x)["out"]

    return Main(), (torch.randn(1, 3, 128, 128),)


def detector() -> tuple[Any, tuple[Any, ...]]:
    """SSD lite with its non-maximum suppression: boxes, scores, labels of one image."""
    import torch
    import torchvision

    class One(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21)

        def forward(self, x: Any) -> Any:
            found = self.net([x])[0]
            return found["boxes"], found["scores"], found["labels"]

    return One(), (torch.rand(3, 320, 320),)


def text_model(kind: str, tokens: int = 64, **config: Any) -> Builder:
    """A model of transformers over token numbers and a mask: its last hidden state."""

    def build() -> tuple[Any, tuple[Any, ...]]:
        import torch
        import transformers

        class States(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                made = getattr(transformers, f"{kind}Config")(vocab_size=2000, attn_implementation="sdpa", **config)
                self.net = getattr(transformers, f"{kind}Model")(made)

            def forward(self, ids: Any, mask: Any) -> Any:
                cached = {"use_cache": False} if kind in ("GPT2", "Llama") else {}
                return self.net(input_ids=ids, attention_mask=mask, **cached).last_hidden_state

        return States(), (torch.randint(0, 2000, (1, tokens)), torch.ones(1, tokens, dtype=torch.int64))

    return build


def encoder(kind: str, shape: tuple[int, ...], part: str | None, **config: Any) -> Builder:
    """A model of transformers over sound: its last hidden state."""

    def build() -> tuple[Any, tuple[Any, ...]]:
        import torch
        import transformers

        class States(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                net = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))
                self.net = getattr(net, part) if part else net

            def forward(self, x: Any) -> Any:
                return self.net(x).last_hidden_state

        return States(), (torch.randn(shape),)

    return build


def builders() -> dict[str, Builder]:
    """Every model by name."""
    found: dict[str, Builder] = {name: classifier("torchvision", name, size) for name, size in TORCHVISION.items()}
    found |= {name: classifier("timm", name, size) for name, size in TIMM.items()}
    found |= {"deeplabv3_mobilenet": segmentation, "ssdlite_nms": detector}
    small = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 1024}
    found["bert"] = text_model("Bert", **small)
    found["minilm"] = text_model("Bert", hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    found["distilbert"] = text_model("DistilBert", dim=256, n_layers=4, n_heads=4, hidden_dim=1024)
    found["gpt2"] = text_model("GPT2", n_embd=256, n_layer=2, n_head=4)
    found["llama_gqa"] = text_model("Llama", num_key_value_heads=2, **{**small, "num_hidden_layers": 2})
    sizes = {"d_model": 128, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 512, "decoder_layers": 1}
    sizes["decoder_attention_heads"] = 4
    found["whisper_encoder"] = encoder("Whisper", (1, 80, 400), "encoder", max_source_positions=200, num_mel_bins=80, **sizes)
    found["wav2vec2"] = encoder("Wav2Vec2", (1, 8000), None, conv_dim=[64] * 7, **small)

    def module(name: str) -> Builder:
        def build() -> tuple[Any, tuple[Any, ...]]:
            from benchmarks.zoo.modules import MODULES

            made: tuple[Any, tuple[Any, ...]] = MODULES[name]()
            return made

        return build

    return found | {name: module(name) for name in OWN}


OWN = (
    "unet2d", "unet3d", "yolo", "hifigan", "dac_decoder", "vocos", "edsr", "vae_decoder", "diffusion_block", "tcn", "wavenet", "lstm_tagger", "kan",
    "pinn", "graph_attention", "mamba_block",
)  # fmt: skip
"""Modules of this package."""


def export(build: Builder, path: Path, seed: int) -> None:
    """Write one model, self-contained, and beside it the inputs that it was traced with: token numbers, masks and images as it takes them."""
    import onnx
    import torch

    torch.manual_seed(seed)
    module, given = build()
    module.eval()
    draw_zeros(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(module, given, dynamo=True, verbose=False, optimize=True)
            assert program is not None
            onnx.save(program.model_proto, path)
        except torch.onnx.errors.OnnxExporterError:  # sizes that depend on data: the older exporter traces them
            torch.onnx.export(module, given, str(path), dynamo=False, opset_version=17)
    model = onnx.load(path, load_external_data=False)
    names = [i.name for i in model.graph.input]
    np.savez(path.with_suffix(".npz"), **{name: value.numpy() for name, value in zip(names, given, strict=True)})


def draw_zeros(module: Any) -> None:
    """Draw weights that an initialisation leaves 0, as at the ends of branches: of a trained model no branch can be left out. Biases stay."""
    import torch

    with torch.no_grad():
        for name, value in module.named_parameters():
            if name.endswith("weight") and not value.any():
                value.normal_(std=0.02)


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def main(arguments: list[str] | None = None) -> int:
    """The command; exit code 1 where a model could not be exported."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.zoo.export", description="Export the zoo with random weights.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=Path("build/zoo"), help="folder (default: build/zoo)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    options = parser.parse_args(arguments)
    every = builders()
    if unknown := [n for n in options.names if n not in every]:
        parser.error(f"no model {unknown[0]!r}; there are {', '.join(every)}")
    options.output.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {"versions": {name: installed(name) for name in PACKAGES}, "seed": options.seed, "models": {}}
    for name in options.names or every:
        started = time.monotonic()
        try:
            export(every[name], options.output / f"{name}.onnx", options.seed)
            told["models"][name] = {"exported": True, "bytes": (options.output / f"{name}.onnx").stat().st_size}
        except Exception as error:  # an exporter fails in ways of its own; the others go on
            said = (str(error).strip().splitlines() or [""])[0]
            told["models"][name] = {"exported": False, "why": f"{type(error).__name__}: {said}"}
        print(f"{name}: {told['models'][name]} ({time.monotonic() - started:.0f} s)", flush=True)
    (options.output / "export.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(m["exported"] for m in told["models"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
