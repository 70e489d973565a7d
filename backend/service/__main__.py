"""Run the command `grpolab` from a checkout or an image: `python -m backend.service COMMAND`."""

import sys

from backend.service.cli import main

if __name__ == "__main__":
    sys.exit(main())
