"""Who uses the topics of a mirror: on the old side, and on the new one."""
