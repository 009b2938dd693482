"""What must survive the loss of everything but the target cluster: topics of its own on the target."""
