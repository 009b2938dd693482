"""The way back after a cutover: a mirror in the other direction, and a cutover of that one."""
