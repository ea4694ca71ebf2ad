"""Who calls the service: roles, bearer tokens kept as hashes, and JSON Web Tokens."""
