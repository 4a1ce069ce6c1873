"""One run in a process of its own: reads a job from stdin, exits 0 when its record is written."""

from __future__ import annotations

import sys

from slabnet.core.errors import SlabnetError, one_line
from slabnet.core.signals import number_of
from slabnet.experiments.engines import Job, perform


def main() -> None:
    """Make the run; one line on stderr for an error."""
    try:
        perform(Job.from_json(sys.stdin.read()), "off")
    except KeyboardInterrupt as stopped:
        sys.exit(128 + number_of(stopped))
    except SlabnetError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:
        print(one_line(f"{type(error).__name__}: {error}", 300), file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
