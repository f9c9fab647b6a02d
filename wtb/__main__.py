"""`python -m wtb` is `wtb`."""

from wtb.cli.main import main

main()
