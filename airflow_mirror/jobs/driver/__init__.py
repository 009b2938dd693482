"""What runs inside a job: arguments, session, ranges, and the three jobs themselves."""
