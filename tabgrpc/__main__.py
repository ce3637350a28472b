"""``python -m tabgrpc``: the command line."""

from tabgrpc.cli.app import main

if __name__ == "__main__":
    raise SystemExit(main())
