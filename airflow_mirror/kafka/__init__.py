"""A cluster from outside: an admin facade over our own connections, and the values it returns."""
