"""Administration of a cluster: a facade over our own connections, and the values that it returns."""
