"""What a schema registry holds, and how another one gets what it lacks of it, with the same ids."""
