"""A disaster-recovery drill on a topic of its own: write canaries, lose the source, continue on the target, measure.

**RPO** is what the source had acknowledged and the target does not have: counted in records, and in seconds from the
oldest lost acknowledgement to the disaster (0 when nothing is lost). **RTO** is the time from the disaster until a
consumer group reads at its position on the target and a producer's record is acknowledged there, whichever is later.

The disaster is not a clean stop: the tail is killed while canaries are being written, and the source is not asked again.
Values pass between the steps of a drill as JSON files in the run's directory.
"""
