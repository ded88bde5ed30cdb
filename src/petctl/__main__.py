"""`python -m petctl` is the command `petctl`."""

from petctl.cli.main import main

if __name__ == "__main__":
    main()
