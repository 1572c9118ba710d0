"""Models as people bring them: exported by torch with random weights from torchvision, timm, transformers and from modules of this package."""
