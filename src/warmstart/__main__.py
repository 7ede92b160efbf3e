"""``python -m warmstart`` is the command line."""

import sys

if not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # the current folder, in which nothing may shadow another module

from warmstart.cli import main

sys.exit(main())
