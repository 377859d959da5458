"""The page and the API: sockets, requests, who may see what, and what is at which address."""
