"""The router's side towards clients: HTTP/1.1 from the socket to a request, and its answer back.

Knows nothing of turns. `app` says what a request is answered with.
"""
