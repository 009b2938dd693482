"""Jobs in plain processes, without Spark, Java and Airflow: the same drivers, with other hands (`jobs.driver.crew`)."""
