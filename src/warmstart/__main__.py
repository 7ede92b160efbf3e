"""``python -m warmstart`` is the command line."""

import sys

from warmstart.cli import main

sys.exit(main())
