"""Copy topics from one Kafka cluster to another; `spark-submit bulk_copy.py --help` tells how."""

import sys

from airflow_mirror.jobs.driver.bulk import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
