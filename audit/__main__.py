"""`python -m audit`: the command line."""

from audit.cli.main import command_line

command_line()
