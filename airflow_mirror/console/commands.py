"""All commands: each with its module, and what it is for. Only the module of the one that is called is imported."""

from __future__ import annotations

from collections.abc import Mapping

# In the order in which somebody meets them.
GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "a mirror": {
        "rights": ("rights", "print the ACLs that a mirror's principal needs, each with its reason"),
        "plan": ("plan", "print what a mirror would do, and what blocks it"),
        "copy": ("copies", "copy topics to the end of their logs, in plain processes"),
        "follow": ("copies", "follow topics until SIGTERM, in plain processes"),
        "verify": ("verify", "compare both sides of a mirror"),
        "status": ("status", "all mirrors of a target: their topics, and what their tails say, on any hosts"),
        "configs": ("configs", "show which settings of target topics differ, and what they would become"),
        "translate": ("translate", "show where consumer groups stand on both clusters, and commit that on request"),
        "pause": ("wishes", "let a mirror's copy rest, and stay ready"),
        "resume": ("wishes", "let a paused mirror copy again"),
        "rate": ("wishes", "change how many bytes per second a mirror copies"),
        "split": ("split", "let topics pass from one mirror to another: a wave gets one of its own"),
        "retire": ("retire", "remove what a mirror that is over has left"),
    },
    "a cutover and its way back": {
        "readiness": ("readiness", "what moves together in the night, and what is short of time"),
        "schemas": ("schemas", "compare what the schema ids in a mirror's topics mean on both sides"),
        "move-schemas": ("move_schemas", "give a schema registry what it lacks of another one, with the same ids"),
        "preview": ("preview", "what a cutover would meet now, and how long its fence would last"),
        "cutover": ("cutover", "move producers and consumers to the target"),
        "rollback": ("cutover", "move producers and consumers back to the old source"),
        "lift-fence": ("lift_fence", "let producers write to the source again, after a cutover was killed"),
        "clients": ("clients", "who reads and writes on the source, and who has come to the target"),
        "report": ("report", "what a cutover did or does, as a page or as JSON"),
        "audit-reports": ("audit_reports", "prove that reports of cutovers are unchanged and all there"),
        "swap-fence": ("swap_fence", "let the mirror write to a source that stays fenced for applications"),
        "arm-reverse": ("arm_reverse", "arm the way back of a finished cutover"),
    },
    "disaster recovery": {
        "failover": ("failover", "promote the target of a mirror whose source is gone"),
        "fence-on-return": ("fence_on_return", "stand by to fence a source that returns after a failover"),
        "failback": ("failback", "prepare the way back to a source that returned after a failover"),
        "drills": ("drills", "what the last drills measured, as a list, a page with charts or JSON"),
    },
    "older tools": {
        "run": ("run", "keep a tail running for each flow of a MirrorMaker 2 file"),
        "import-mm2": ("import_mm2", "take over files of MirrorMaker 2: Mirrors and connections"),
        "adopt": ("adopt", "take over a target that MirrorMaker 2 has filled"),
    },
    "this command": {
        "completion": ("completion", "print a script that lets a shell complete commands and options"),
    },
    "the target's memory": {
        "ledger": ("ledger", "what the target's ledger says: whose its topics are, and which are in production"),
    },
}
COMMANDS = {name: row for rows in GROUPS.values() for name, row in rows.items()}
