"""The report of a sweep: a page, Markdown, JUnit."""
