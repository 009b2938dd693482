"""What a copy costs as it grows: ``python -m benchmarks.growth``. A model is fitted to what is measured.

``points`` says what is measured, ``copying`` is one task of a copy, ``measuring`` runs them, ``model`` fits and predicts,
``page`` makes the tables and the plot of docs/benchmarks.md.
"""
