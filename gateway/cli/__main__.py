"""`python -m gateway.cli` is `lineside`."""

from gateway.cli.entry import main

main()
