"""`python -m gateway.cli` is `lineside`."""

from gateway.cli import main

main()
