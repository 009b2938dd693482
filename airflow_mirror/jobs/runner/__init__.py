"""Starting, finding and stopping a job from another process."""
