"""Read a checkpoint's headers and small tensors, without torch."""
