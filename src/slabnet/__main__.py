"""`python -m slabnet`."""

from slabnet.cli import run

if __name__ == "__main__":
    run()
