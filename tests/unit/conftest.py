"""Properties take as long as they take: hypothesis fails an example that is slow, as any may be on a busy machine."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
