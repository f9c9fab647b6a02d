"""Examples that run as they are: each folder is a workflow, its cases, its scores and a sweep file."""
