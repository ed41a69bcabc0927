"""Entry point of `python -m oncelog.cli`, the same as the `oncelog` command."""

from __future__ import annotations

from oncelog.cli import main

if __name__ == "__main__":
    main()
