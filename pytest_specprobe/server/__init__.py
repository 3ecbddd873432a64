"""Start, supervise, prove and talk to SGLang servers."""
