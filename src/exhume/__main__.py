"""``python -m exhume``: the command line."""

from exhume.cli import main

if __name__ == "__main__":
    main()
