"""Taking over a target that another tool has filled: its copies are matched with the source, and become ours."""
