"""Follow topics of one Kafka cluster on another until SIGTERM; `spark-submit streaming_tail.py --help` tells how."""

import sys

from airflow_mirror.jobs.driver.tail import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
