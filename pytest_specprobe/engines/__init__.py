"""What is loaded into an owned SGLang server."""
