"""KernelBench (github.com/ScalingIntelligence/KernelBench), on the processor."""
