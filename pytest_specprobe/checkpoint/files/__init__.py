"""The files of a checkpoint: names, headers, values, digests."""
