"""`python -m slabnet`."""

from slabnet.cli.app import run

if __name__ == "__main__":
    run()
