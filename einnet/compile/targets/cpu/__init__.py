"""Programs for this processor: oneDNN and generated code."""
