"""This engine and MirrorMaker 2, side by side: the same two clusters, the same topics, one after the other, in one run.

``python -m benchmarks`` (``make bench``) fills topics, lets each system copy them, several rounds in turn, checks every
run, and prints medians and ratios. ``docs/benchmarks.md`` has the method and the stored results.

    cases     what is copied                      filling   writes the source's topics
    worlds    between which clusters              replay    raw batches from memory: fills, and shows the limit
    segments  a topic as the broker's own files   load      what a tail carries beside its probes
    systems   by whom: ours, MirrorMaker 2        tuning    with which settings MirrorMaker 2 is at its best
    measure   seconds, CPU and memory             window    which part of a run counts
    latency   the tail, record by record          results, table, document, plot: what comes out
"""
