"""The service: several datasets for several people, in the app and as an HTTP API on one port.

In: a folder with `datasets.toml`, which says which runs are served and who may see them, and
`people.sqlite` (`audit.service.people`). Out: the lines of the home page, and `/api/v1`, whose
routes stand in one table (`routes`) that checks requests, enforces roles and makes the OpenAPI
document. What a route answers comes from functions that the app, the commands or Python have too.
Plain ASGI: no web framework is imported. `client` reads the API from Python.
"""
