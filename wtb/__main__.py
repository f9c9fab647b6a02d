"""`python -m wtb` is `wtb`."""

import os
import sys

try:  # nothing else is imported before, since it would be looked for in the working directory first
    # As `-m` has it: see wtb/core/serialization/user_modules.py.
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):
        del sys.path[0]
except FileNotFoundError:  # the working directory is gone
    pass

from wtb.cli.main import main

main()
