"""The code that runs inside a job: arguments, session, ranges, and the three jobs."""
