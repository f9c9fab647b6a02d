"""Executions as files that can be carried elsewhere: `wtb export` and `wtb import`.

An archive is a zip. `execution.json` says what it is, `history/*.jsonl` hold the rows of its history, `values/` and
`files/` what these refer to, each under its SHA-256.
"""
