"""Starting, finding and stopping a job, from outside of it."""
