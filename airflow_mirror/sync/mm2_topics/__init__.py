"""What MirrorMaker 2 leaves on a target for Java clients: heartbeats, checkpoints, offset-syncs."""
