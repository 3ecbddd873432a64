"""A report as text, Markdown, HTML and plots: each from the report alone."""
