"""A disaster-recovery drill on its own topic: write canaries, lose the source, continue on the target, measure.

**RPO** is what the source had acknowledged and the target does not have: in records, and in seconds from the oldest
lost acknowledgement to the disaster (0 if nothing is lost). **RTO** is the time from the disaster until a consumer
group reads at its position on the target and a producer's record is acknowledged there, whichever is later.

The disaster is not a clean stop: the tail is killed while canaries are being written, and the source is not used again.
The steps of a drill pass values to each other as JSON files in the run's directory.
"""
