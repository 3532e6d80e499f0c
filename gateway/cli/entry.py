"""Entry point of `lineside`."""

import signal


def main() -> None:
    """Run the command line. Ctrl-C before a command has begun ends the process without a traceback, as it would a C program."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from gateway.cli.root import main as run

    run()
