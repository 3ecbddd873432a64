"""The GPUs of this machine: who holds them, what a server takes of them."""
