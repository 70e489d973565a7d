"""`python -m backend.service COMMAND`: the command `grpolab`, from a checkout or an image."""

import sys

from backend.service.cli import main

if __name__ == "__main__":
    sys.exit(main())
