"""Prove that two clusters hold the same records at the same offsets; `spark-submit verify.py --help` tells how."""

import sys

from airflow_mirror.jobs.driver.verify import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
