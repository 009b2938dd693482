"""report.html: the report for people. One file, no script, no external resources."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_mirror.cutover.fence import fence_text

if TYPE_CHECKING:
    from airflow_mirror.cutover.report import CutoverReport

_OUTCOMES = {
    "cut_over": "Cut over",
    "backed_out": "Backed out: everything was restored",
    "undo_failed": "Backing out failed: see below",
    "running": "Running, or interrupted",
}

_TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Cutover of {{ r.mirror }}</title>
<style>
 body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222 }
 table { border-collapse: collapse; margin: .5em 0 1.5em } th, td { border: 1px solid #ccc; padding: .3em .7em; text-align: left }
 th { background: #f3f3f3 } td.n { text-align: right; font-variant-numeric: tabular-nums }
 .cut_over, .ok { color: #176b2c } .undo_failed, .failed, .bad { color: #a81c1c } .backed_out { color: #8a5a00 }
 h2 { margin-bottom: .2em } small { color: #666 }
</style></head><body>
<h1>Cutover of {{ r.mirror }}</h1>
<p class="{{ r.outcome }}"><strong>{{ outcome }}</strong>{% if r.error %}<br>{{ r.error }}{% endif %}</p>
<table>
 <tr><th>Attempt</th><td>{{ r.attempt }}, begun {{ r.started | when }}</td></tr>
 <tr><th>Plan</th><td>{{ r.plan_hash }}</td></tr>
 {% if r.fence %}
 <tr><th>Nobody could write for</th><td>{% if r.predicted %}predicted {{ "%.1f s" | format(r.predicted.seconds) }}, measured
  {% endif %}{{ "%.1f s" | format(r.fence.seconds) if r.fence.seconds is not none else "still fenced" }}</td></tr>
 <tr><th>Fence</th><td>raised {{ r.fence.requested | when }};
  {% if r.fence.lifted %}lifted {{ r.fence.lifted | when }}{% elif r.fence.kept %}kept{% else %}in place{% endif %}
  <br><small>{% for line in fence %}{{ line }}<br>{% endfor %}</small></td></tr>
 {% endif %}
</table>
<h2>Steps</h2>
<table><tr><th>Step</th><th>Result</th><th>Predicted</th><th>Seconds</th><th>Evidence</th></tr>
{% for s in r.steps %}<tr><td>{{ s.name }}</td><td class="{{ s.status }}">{{ s.status }}</td>
 {% set expected = r.predicted.steps[s.name] if r.predicted else none %}
 <td class="n">{{ "%.2f" | format(expected) if expected is number else "" }}</td>
 <td class="n">{{ "%.2f" | format(s.seconds) }}</td>
 <td>{% if s.name != "fence" %}{% for k, v in s.evidence.items() %}{{ k }}: {{ v }}{{ "; " if not loop.last }}{% endfor %}{% endif %}</td></tr>
{% endfor %}</table>
{% if r.preview %}<h2>Found before the fence</h2>
<table><tr><th>Check</th><th>Verdict</th><th>Of what</th><th>Evidence</th><th>Remedy</th></tr>
{% for f in r.preview.findings %}<tr><td>{{ f.check }}</td>
 <td class="{{ {'pass': 'ok', 'block': 'bad'}[f.level] or 'backed_out' }}">{{ "ok" if f.level == "pass" else f.level }}</td>
 <td>{{ f.object }}</td><td>{{ f.evidence }}</td><td>{{ f.remedy }}</td></tr>
{% endfor %}</table>{% endif %}
{% if r.undone %}<h2>Undone</h2>
<table><tr><th>Step</th><th>What</th><th>Result</th></tr>
{% for u in r.undone %}<tr><td>{{ u.step }}</td><td>{{ u.what }}</td>
 <td class="{{ 'ok' if u.ok else 'bad' }}">{{ "done" if u.ok else u.error }}</td></tr>{% endfor %}</table>{% endif %}
{% if r.groups %}<h2>Consumer groups</h2>
<table><tr><th>Group</th><th>At rest</th><th>Partition</th><th>Source</th><th>Target</th><th>Lag</th><th></th></tr>
{% for g in r.groups %}{% for p in g.positions %}<tr><td>{{ g.group }}</td><td>{{ g.settled }}</td>
 <td>{{ p.topic }}-{{ p.partition }}</td><td class="n">{{ p.source_offset }}</td><td class="n">{{ p.target_offset }}</td>
 <td class="n">{{ p.lag }}</td><td>{{ p.action or "" }} {{ p.note or "" }}</td></tr>{% endfor %}{% endfor %}</table>{% endif %}
{% if r.left_behind %}<h2>Consumer groups that stay</h2>
<p>They have positions in these topics, and the mirror does not select them: {{ r.left_behind | join(", ") }}</p>{% endif %}
{% if r.verification %}<h2>Verification behind the fence</h2>
<table><tr><th>Partition</th><th>Offsets</th><th>Records</th><th>Result</th></tr>
{% for v in r.verification %}<tr><td>{{ v.source_topic }}-{{ v.partition }}</td>
 <td class="n">{{ v.start_offset }} to {{ v.end_offset }}</td><td class="n">{{ v.records }}</td>
 <td class="{{ 'ok' if v.equal else 'bad' }}">{% if v.equal %}equal{% else %}{{ v.first_difference.kind }} at offset {{ v.first_difference.offset }}{% endif %}</td></tr>
{% endfor %}</table>{% endif %}
{% if r.ends %}<h2>Fenced ends of the source</h2>
<table><tr><th>Partition</th><th>End</th></tr>
{% for e in r.ends %}<tr><td>{{ e.topic }}-{{ e.partition }}</td><td class="n">{{ e.end }}</td></tr>{% endfor %}</table>{% endif %}
{% if r.earlier %}<h2>Earlier attempts</h2>
<table><tr><th>Attempt</th><th>Begun</th><th>Last step</th><th>Outcome</th><th>Cause</th></tr>
{% for e in r.earlier %}<tr><td>{{ e.attempt }}</td><td>{{ e.started | when }}</td><td>{{ e.seconds | list | last or "start" }}</td>
 <td>{{ e.outcome }}</td><td>{{ e.error or "" }}</td></tr>{% endfor %}</table>{% endif %}
</body></html>
"""  # noqa: E501  (markup)


def render(report: CutoverReport) -> str:
    """Return the report as one HTML page; every value is escaped."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["when"] = _when
    context: dict[str, Any] = {"r": report, "outcome": _OUTCOMES.get(report.outcome, report.outcome)}
    context["fence"] = fence_text(report.fence.kind, report.fence.intent) if report.fence else []
    return environment.from_string(_TEMPLATE).render(context)


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
