"""Administration of a cluster: a facade over our own connections, and the values it returns."""
