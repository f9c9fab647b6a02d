"""`python -m wtb` is `wtb`."""

import os
import sys
from contextlib import suppress

with suppress(FileNotFoundError):  # if the working directory is gone
    if sys.path[:1] in ([""], [os.getcwd()]):  # as `-m` has it: see wtb/core/serialization/user_modules.py
        del sys.path[0]

from wtb.cli.main import main

main()
