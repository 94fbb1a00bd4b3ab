"""`python -m dataset_preflight`."""

import sys

from dataset_preflight.cli import main

sys.exit(main())
