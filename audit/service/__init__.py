"""The service: several datasets for several people, in the app and as an HTTP API on one port.

In: a folder with `datasets.toml` and `people.sqlite`. Out: the home page, and `/api/v1` (`routes`).
Plain ASGI: no web framework is imported. `client` reads the API from Python.
"""
