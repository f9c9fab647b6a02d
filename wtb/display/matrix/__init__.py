"""The matrix as a table, CSV, HTML, Markdown and SVG."""
