"""What SGLang builds for a drafter, and from which tensors."""
