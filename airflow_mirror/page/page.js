// The page of mirrors: a list, one mirror, a tab of runs and tasks, a strip at Home. Plain JavaScript, no build: Airflow's UI
// imports this module, and shows the components that stand in globalThis at its end.
//
// Names are whatever somebody chose. They only ever become React's text nodes: there is no innerHTML here, and no address
// is made of anything but encoded parts. All addresses are relative, as Airflow may be served below a path.

import { Course, Drawings, Heat, Night } from "./drawings.js";
import {
  Actions, Approvals, Arrow, AsOf, Fence, Figures, Finding, Muted, OLD_S, Panel, Phases, Refused, State, Wrong, address, behindBy, bytes, date, fileOf, number, query, refusal, taskOf, time,
  useNow, useTold,
} from "./parts.js";

const { createElement: h, useEffect, useState, Fragment } = globalThis.React;
const { Box, Button, Flex, Heading, Input, SimpleGrid, Spinner, Table, Text, chakra } = globalThis.ChakraUI;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

// --- one mirror --------------------------------------------------------------------------------------------------------

const Names = ({ names, most = 40 }) =>
  h(Muted, { overflowWrap: "anywhere" }, names.slice(0, most).join(", ") + (names.length > most ? ` and ${number(names.length - most)} more` : ""));

function Topics({ topics }) {
  const [wanted, setWanted] = useState("");
  const rows = topics.map((t) => ({ ...t, lag: t.lags ? t.lags.reduce((a, b) => a + b, 0) : null }))
    .filter((t) => t.source.includes(wanted) || t.target.includes(wanted)).sort((a, b) => (b.lag ?? 0) - (a.lag ?? 0));
  return h(Fragment, null,
    h(Input, { size: "sm", maxW: 72, mb: 2, placeholder: "name of a topic", "aria-label": "name of a topic", value: wanted, onChange: (e) => setWanted(e.target.value) }),
    h(Table.Root, { size: "sm" },
      h(Table.Header, null, h(Table.Row, { bg: "transparent" }, ["topic", "offsets", "partitions", "behind", "late", "short"].map((title, n) =>
        h(Table.ColumnHeader, { key: title, textAlign: n > 1 ? "end" : "start" }, title)))),
      h(Table.Body, null, rows.slice(0, 100).map((t) => h(Table.Row, { key: t.source, bg: "transparent" },
        h(Table.Cell, { overflowWrap: "anywhere" }, t.source === t.target ? t.source : `${t.source} → ${t.target}`), h(Table.Cell, null, t.mode),
        [t.partitions, t.lag, t.late.length, t.short.length].map((n, i) => h(Table.Cell, { key: i, textAlign: "end", color: i > 1 && n ? "red.fg" : undefined }, number(n))))))),
    rows.length > 100 && h(Muted, { mt: 2 }, `and ${number(rows.length - 100)} more topics, less far behind`));
}

// Where a group stands in each partition, furthest behind first; asked while it is unfolded.
function Positions({ row, group }) {
  const { data, error } = useTold(`group${query(row)}&${new URLSearchParams({ group })}`);
  if (!data || data.looking) return error ? h(Text, { color: "fg.error" }, error) : h(Muted, null, "Both clusters are being asked …");
  const its = data.group;
  const end = { textAlign: "end", fontVariantNumeric: "tabular-nums" };
  return h(Box, { my: 2 }, [data.error, data.unknown, ...(its?.unseen ?? [])].filter(Boolean).map((line, n) => h(Muted, { key: n, overflowWrap: "anywhere" }, line)),
    its ? h(Fragment, null,
      h(Muted, { role: "status" }, `${number(its.partitions)} partitions${its.lag == null ? "" : `, ${number(its.lag)} offsets behind`}${data.at ? `; asked ${date(data.at)}` : ""}`),
      its.positions.length > 0 && h(Table.Root, { size: "sm" },
        h(Table.Header, null, h(Table.Row, { bg: "transparent" }, ["partition", "on the source", "behind", "on the target"].map((title, n) => h(Table.ColumnHeader, { key: title, ...(n ? end : {}) }, title)))),
        h(Table.Body, null, its.positions.map(([topic, p, here, there, lag]) => h(Table.Row, { key: `${p} ${topic}`, bg: "transparent" },
          h(Table.Cell, { overflowWrap: "anywhere" }, `${topic}-${p}`), [here, lag, there].map((n, i) => h(Table.Cell, { key: i, ...end }, number(n))))))),
      its.left > 0 && h(Muted, { mt: 1 }, `and ${number(its.left)} more partitions, less far behind`))
      : data.error == null && h(Muted, null, "Not asked: only the first 500 groups are."));
}

function Group({ row, group, partitions }) {
  const [open, setOpen] = useState(false);
  return h(chakra.details, { onToggle: (e) => setOpen(e.currentTarget.open) },
    h(chakra.summary, { cursor: "pointer", fontSize: "sm", overflowWrap: "anywhere" }, group, h(Muted, { as: "span", ml: 2 }, `${number(partitions)} partitions when it was planned`)),
    open && h(Positions, { row, group }));
}

function Groups({ row, plan, most = 40 }) {
  const [wanted, setWanted] = useState("");
  const found = plan.groups.filter(({ group }) => group.includes(wanted));
  const left = found.length - most + (wanted ? 0 : plan.group_count - plan.groups.length);
  return h(Fragment, null,
    h(Flex, { gap: 3, align: "center", mb: 2, wrap: "wrap" }, h(Text, { fontSize: "sm" }, `${number(plan.group_count)} move`),
      plan.groups.length > 10 && h(Input, { size: "sm", maxW: 72, placeholder: "name of a group", "aria-label": "name of a group", value: wanted, onChange: (e) => setWanted(e.target.value) })),
    found.slice(0, most).map((one) => h(Group, { key: one.group, row, ...one })),
    left > 0 && h(Muted, { mt: 2 }, `and ${number(left)} more groups`));
}

// Who reads and writes, asked when somebody wants to know: it is a burden for clusters with many groups.
function Clients({ row }) {
  const [at, setAt] = useState(0); // how often somebody has asked
  const [told, setTold] = useState(null);
  useEffect(() => {
    if (!at) return undefined;
    const over = new AbortController();
    const ask = async () => {
      try {
        const answer = await fetch(address(`clients${query(row)}`), { signal: over.signal, credentials: "same-origin" });
        if (!answer.ok) throw new Error(await refusal(answer));
        const data = await answer.json();
        if (data.looking) setTimeout(() => over.signal.aborted || ask(), 700);
        else setTold(data);
      } catch (e) {
        if (!over.signal.aborted) setTold({ error: e.message });
      }
    };
    setTold(undefined);
    ask();
    return () => over.abort();
  }, [at]);
  const found = told?.clients;
  const opened = found?.opened_ms > 0;
  // A record's time is its client's: only what was seen is now.
  const wrote = ({ writing, last_ms: ms }) => (writing ? "now" : ms < 0 ? "–" : `${time(Math.abs(found.at_ms - ms) / 1000)} ${ms > found.at_ms ? "ahead of the clock here" : "before"}`);
  const committed = (one) => (one.commit_is ? `${one.commit_is === "at" ? "" : `${one.commit_is} `}${date(one.commit_ms / 1000)}` : "not told");
  const table = (titles, rows, cells) => h(Table.Root, { size: "sm", mb: 3 },
    h(Table.Header, null, h(Table.Row, { bg: "transparent" }, titles.map((title) => h(Table.ColumnHeader, { key: title }, title)))),
    h(Table.Body, null, rows.map((one, n) => h(Table.Row, { key: n, bg: one.waiting ? "orange.subtle" : "transparent", verticalAlign: "top" },
      cells(one).map((text, i) => h(Table.Cell, { key: i, overflowWrap: "anywhere" }, text))))));
  const few = (names) => names.slice(0, 5).join(", ") + (names.length > 5 ? ` and ${number(names.length - 5)} more` : "");
  return h(Fragment, null,
    h(Button, { size: "xs", variant: "outline", disabled: told === undefined, onClick: () => setAt(at + 1) }, told === undefined ? "Both clusters are being asked …" : found ? "Ask again" : "Ask who reads and writes"),
    told?.error && h(Text, { color: "fg.error", mt: 2 }, told.error), told?.unknown && h(Muted, { mt: 2 }, told.unknown),
    found && h(Box, { mt: 3 },
      h(Muted, { mb: 2, role: "status" }, `${number(found.readers_count)} groups, ${number(found.writers_count)} producers${opened ? `; ${number(found.waiting)} have not come to the target, ${number(found.newcomers)} producers without a transactional id have` : ""}; asked ${date(found.at_ms / 1000)}`),
      found.readers.length > 0 && table(["wave", "group", "kind", "on the source", "members there", "last commit", "topics", ...(opened ? ["on the target"] : [])], found.readers,
        (one) => [one.wave || "none", one.group, one.kind, one.state, few(one.clients) || "none", committed(one), few(one.topics), ...(opened ? [one.on_target] : [])]),
      found.writers.length > 0 && table(["wave", "producer", "id", "last record, by its time", "topics", ...(opened ? ["on the target"] : [])], found.writers,
        (one) => [one.waves.join(", "), one.name, one.producer_id, wrote(one), few(one.topics), ...(opened ? [one.on_target || "?"] : [])]),
      [...found.unseen, found.untold].map((line, n) => h(Muted, { key: n, fontSize: "xs", overflowWrap: "anywhere" }, `not seen: ${line}`))));
}

// What drills have found, and the trend of it.
function Drills({ name, drills }) {
  const seconds = (n) => (n == null ? "–" : `${n.toFixed(2)} s`);
  return h(Box, { mb: 4 }, h(Muted, { mb: 2 }, name),
    h(SimpleGrid, { columns: { base: 1, md: 2 }, gap: 4 },
      h(Drawings, { charts: drills.charts })),
    h(Table.Root, { size: "sm", mt: 2 },
      h(Table.Header, null, h(Table.Row, { bg: "transparent" }, ["drill", "RPO", "RTO", "lost", "read again", "outcome"].map((title) => h(Table.ColumnHeader, { key: title }, title)))),
      h(Table.Body, null, drills.rows.map((one) => h(Table.Row, { key: one.run, bg: "transparent" },
        [[date(one.at)], [seconds(one.rpo_s), "rpo_s"], [seconds(one.rto_s), "rto_s"], [number(one.lost)], [number(one.reread)]].map(([text, key], n) => h(Table.Cell, { key: n, color: one.over.includes(key) ? "red.fg" : undefined, whiteSpace: "nowrap" }, text)),
        h(Table.Cell, { overflowWrap: "anywhere", color: one.missed ? "red.fg" : undefined }, one.outcome))))));
}

function Reports({ row, closely, files, unknown }) {
  const runs = (closely?.runs ?? []).map((run) => ({ path: `${row.mirror}/runs/${run}/report.html`, text: `Cutover ${run}` }));
  const kinds = { "report.html": "Cutover", "drill.html": "Drill" };
  const others = files.map(({ path, at }) => {
    const [name, run] = path.split("/").reverse();
    return { path, at, text: kinds[name] ? `${kinds[name]} ${run}` : `Plan for the night ${name.slice(0, 12)}` };
  });
  const every = [...others, ...runs.filter((one) => !others.some((other) => other.path === one.path))];
  if (unknown) return h(Muted, null, "Not known yet whose they are: a target is still being asked, or does not answer, and may have a mirror of this name.");
  if (!every.length && !closely) return h(Muted, null, "…");
  if (!every.length && closely.error) return h(Muted, null, `Not looked at: ${closely.error}`);
  if (!every.length) return h(Muted, null, "None yet. Plans for the night, cutovers and drills leave one.");
  return every.map((one) => h(Flex, { key: one.path, gap: 3 },
    h(chakra.a, { href: fileOf(one.path), target: "_blank", rel: "noopener", color: "fg.info", overflowWrap: "anywhere" }, one.text), h(Muted, null, date(one.at))));
}

// What is wrong; that nothing is, only where both clusters were looked at.
function Checks({ row, closely }) {
  const checks = closely?.checks?.length ? closely.checks : row.findings;
  return h(Fragment, null, checks.map((one, n) => h(Finding, { key: n, ...one })),
    !closely ? !checks.length && h(Muted, null, "…")
      : !closely.checked ? h(Muted, { overflowWrap: "anywhere" }, `Not looked at: ${closely.error ?? closely.unknown}`)
        : !checks.length && h(Muted, null, "Nothing is wrong."));
}

function One({ target, mirror }) {
  const told = useTold(`one?${new URLSearchParams({ target, mirror })}`);
  const { data, error } = told;
  useNow(5000);
  if (!data) return error ? h(Text, { color: "fg.error" }, error) : h(Spinner, { size: "sm" });
  const { row, phases, closely, files, course } = data;
  const plan = closely?.plan;
  const follows = Object.entries(row.follows);
  return h(Flex, { direction: "column", gap: 4 },
    h(Box, null,
      h(Flex, { gap: 3, align: "center", wrap: "wrap" }, h(Heading, { size: "lg", as: "h1", overflowWrap: "anywhere" }, row.mirror), h(State, { row }), h(Arrow, { row }),
        row.dag && h(Link, { to: `/dags/${encodeURIComponent(row.dag)}` }, h(Text, { color: "fg.info", fontSize: "sm" }, row.dag))),
      error && h(Text, { color: "fg.error" }, error), h(AsOf, { told, row }), h(Actions, { row }), h(Fence, { row }), h(Approvals, { row }), h(Refused, { row }), h(Figures, { row, closely }), h(Phases, { phases, at: row.phase })),
    closely?.error && h(Text, { color: "fg.error" }, closely.error), closely?.unknown && h(Muted, null, closely.unknown),
    h(Panel, { title: "Partitions" }, closely?.topics?.some((t) => t.lags) ? h(Heat, { topics: closely.topics }) : h(Muted, null, closely ? "The source was not asked." : "Both clusters are being asked: ten seconds …")),
    (row.lag != null || course.length > 0) && h(Panel, { title: "Behind, and rate" }, h(Course, { course })),
    closely?.night && h(Panel, { title: "The night" }, h(Night, { night: closely.night })),
    h(Panel, { title: "Checks" }, h(Checks, { row, closely })),
    h(Panel, { title: "Topics" }, h(Topics, { topics: closely?.topics ?? [] })),
    h(Panel, { title: "Groups" }, plan?.group_count ? h(Groups, { row, plan }) : h(Muted, null, plan ? "The plan has none." : "…")),
    h(Panel, { title: "Clients" }, h(Clients, { row })),
    Object.keys(closely?.drills ?? {}).length > 0 && h(Panel, { title: "Drills" }, Object.entries(closely.drills).map(([name, drills]) => h(Drills, { key: name, name, drills }))),
    h(SimpleGrid, { columns: { base: 1, md: 2 }, gap: 4 },
      h(Panel, { title: "Plan" }, plan
        ? h(Fragment, null, h(Muted, null, `${plan.hash.slice(0, 12)}, made ${date(plan.created_at)}`), plan.findings.map((one, n) => h(Finding, { key: n, ...one })),
          plan.amendments.map((one) => h(Box, { key: one.number, mt: 2 }, h(Text, { fontSize: "sm" }, `Amendment ${one.number}, ${date(one.at)}`), h(Names, { names: one.topics }))))
        : h(Muted, null, "…")),
      h(Panel, { title: "Reports" }, h(Reports, { row, closely, files, unknown: data.files_unknown })),
      h(Panel, { title: "What follows beside the data" }, follows.length ? follows.map(([kind, one]) =>
        h(Box, { key: kind, mb: 2 }, h(Text, { fontSize: "sm", color: one.error ? "fg.error" : undefined }, `${kind}: ${one.error ?? (one.said.length ? `${number(one.said.length)} to know` : "level")}`), one.said.slice(0, 20).map((line, n) => h(Muted, { key: n, pl: 3, overflowWrap: "anywhere" }, line))))
        : h(Muted, null, "No tail says anything.")),
      plan?.left_out.length > 0 && h(Panel, { title: "Left out: they come from the target" }, h(Names, { names: plan.left_out }))));
}

// --- the list ----------------------------------------------------------------------------------------------------------

const newerOf = ({ newer, newer_count: n }) => `${number(n)} record${n === 1 ? "" : "s"} written by a newer version of airflow-mirror${newer.length ? `: ${newer.join(", ")}` : ""}`;

function Rows({ told, mirrors, targets = [], most }) {
  useNow(5000);
  const end = { textAlign: "end", fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" };
  return h(Table.Root, { size: "sm" },
    h(Table.Header, null, h(Table.Row, { bg: "transparent" }, ["mirror", "state", "behind", "in time", "rate", "done in", "headroom", "topics"].map((title, n) => h(Table.ColumnHeader, { key: n, ...(n > 1 ? end : {}) }, title)))),
    h(Table.Body, null,
      mirrors.map((row) => h(Table.Row, { key: `${row.target_id} ${row.mirror}`, bg: "transparent", verticalAlign: "top" },
        h(Table.Cell, { w: "48%" },
          h(Flex, { gap: 3, align: "baseline", wrap: "wrap" }, h(Link, { to: `/plugin/mirrors${query(row)}` }, h(Text, { fontWeight: 600, color: "fg.info", overflowWrap: "anywhere" }, row.mirror)), h(Arrow, { row })),
          h(Wrong, { row, most })),
        h(Table.Cell, null, h(State, { row }), h(AsOf, { told, row, fontSize: "xs" })),
        [number(row.lag), behindBy(row.lag_s), row.bytes_per_s == null ? "–" : `${bytes(row.bytes_per_s)}/s`, time(row.eta_s), time(row.headroom_s), number(row.topics)].map((text, n) => h(Table.Cell, { key: n, ...end }, text)))),
      targets.filter((one) => one.error || one.newer_count).map((one) => h(Table.Row, { key: one.target_id, bg: "bg.subtle", color: "fg.muted" },
        h(Table.Cell, { colSpan: 8 }, h(chakra.b, { fontWeight: 600 }, `${one.target_id} `), one.error ?? newerOf(one))))));
}

function Mirrors() {
  const [where] = useSearchParams();
  const [target, mirror] = [where.get("target"), where.get("mirror")];
  return h(Box, { p: 4, h: "100%", overflowY: "auto" }, target && mirror
    ? h(Fragment, null, h(Link, { to: "/plugin/mirrors" }, h(Text, { color: "fg.info", fontSize: "sm", mb: 2 }, "← Mirrors")), h(One, { key: `${target} ${mirror}`, target, mirror }))
    : h(List));
}

function List() {
  const told = useTold("list");
  const { data, error } = told;
  const [wanted, setWanted] = useState("");
  if (!data) return error ? h(Text, { color: "fg.error" }, error) : h(Spinner, { size: "sm" });
  const shown = data.mirrors.filter((row) => [row.mirror, row.source, row.target, row.target_id, row.state].some((one) => one?.includes(wanted)));
  shown.sort((a, b) => b.needs_person - a.needs_person);
  const wrong = data.mirrors.filter((row) => row.needs_person).length;
  return h(Fragment, null,
    h(Flex, { justify: "space-between", align: "center", mb: 4, gap: 4, wrap: "wrap" },
      h(Flex, { gap: 3, align: "baseline" }, h(Heading, { size: "lg", as: "h1" }, "Mirrors"),
        h(Muted, null, `${number(data.mirrors.length)}${wrong ? `, ${number(wrong)} of them need${wrong === 1 ? "s" : ""} a person` : ""}${error ? `; ${error}` : ""}`)),
      h(Input, { size: "sm", maxW: 72, placeholder: "mirror, cluster or state", "aria-label": "mirror, cluster or state", value: wanted, onChange: (e) => setWanted(e.target.value) })),
    h(FirstPlans, { plans: data.first_plans.filter((row) => [row.mirror, row.source, row.target].some((one) => one.includes(wanted))) }),
    data.mirrors.length || data.targets.length ? h(Rows, { told, mirrors: shown, targets: data.targets })
      : h(Muted, null, data.looking ? "Targets are being asked …" : "No mirror that you may see. One appears once PlanMirrorOperator has planned it, and its copy has begun, on a target that has a connection here."));
}

// Mirrors that no ledger knows yet: their first plan was refused, and nothing was written anywhere.
const FirstPlans = ({ plans }) => plans.map((row) => h(Panel, { key: `${row.dag} ${row.target} ${row.mirror}`, mb: 4 },
  h(Flex, { gap: 3, align: "center", wrap: "wrap" }, h(Text, { fontWeight: 600, overflowWrap: "anywhere" }, row.mirror), h(Arrow, { row }), h(Muted, null, "not begun"),
    h(Link, { to: taskOf(row) }, h(Text, { color: "fg.info", fontSize: "sm" }, "Its task"))),
  h(Refused, { row, most: 3 })));

// --- in other places ---------------------------------------------------------------------------------------------------

function Mirror({ dagId }) {
  const told = useTold("list");
  const { data, error } = told;
  useNow(5000);
  if (!data) return error ? h(Muted, { p: 4 }, error) : h(Spinner, { size: "sm", m: 4 });
  const mine = data.mirrors.filter((row) => row.dag === dagId).sort((a, b) => b.needs_person - a.needs_person);
  const plans = data.first_plans.filter((row) => row.dag === dagId);
  const wrong = error && h(Text, { color: "fg.error" }, error);
  if (!mine.length && !plans.length) return h(Box, { p: 4 }, wrong, h(Muted, null, "No mirror of this DAG. One is shown here once PlanMirrorOperator of this DAG has planned it, and its copy has begun."));
  return h(Flex, { direction: "column", gap: 4, p: 4 }, wrong, h(FirstPlans, { plans }), mine.map((row) => h(Panel, { key: `${row.target_id} ${row.mirror}` },
    h(Flex, { gap: 3, align: "center", wrap: "wrap" }, h(Link, { to: `/plugin/mirrors${query(row)}` }, h(Heading, { size: "md", color: "fg.info" }, row.mirror)), h(State, { row }), h(Arrow, { row })),
    row.error && h(Muted, { overflowWrap: "anywhere" }, `As it was last seen: ${row.error}`), h(AsOf, { told, row }),
    h(Figures, { row }), h(Phases, { phases: data.phases, at: row.phase }), h(Wrong, { row }))));
}

function MirrorsAtHome() {
  const told = useTold("list");
  const { data, error, since } = told;
  const now = useNow(5000);
  const wrong = data?.mirrors.filter((row) => row.needs_person) ?? [];
  const isUnknown = error && now - since > OLD_S; // without a strip nobody is needed: an answer that is missed is none yet
  if (!wrong.length && !isUnknown) return null;
  const title = wrong.length === 0 ? "Mirrors" : wrong.length === 1 ? "A mirror needs a person" : `${wrong.length} mirrors need a person`;
  return h(Panel, { title, my: 4 }, error && h(Text, { color: "fg.error" }, error), wrong.length > 0 && h(Rows, { told, mirrors: wrong, most: 0 }));
}

Object.assign(globalThis, { Mirrors, Mirror, MirrorsAtHome });
