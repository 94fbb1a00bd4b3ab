"""The `audit` command: parse options, call the library once, format the result.

For: people and scripts at a shell; every command is a function here and a call elsewhere.
In: arguments, audit.toml. Out: text on stdout (one JSON document with --json), messages on stderr.
Ends with the codes of `exit_codes`.
Cost: imports lie inside the commands, so that `audit --help` answers in a quarter of a second.
"""
