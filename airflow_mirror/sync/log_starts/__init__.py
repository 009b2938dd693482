"""Log starts follow: what the source's retention has deleted goes from the target too, a day later."""
