// What the page is made of: words, how routes are asked, and the parts that several places show. See page.js.

const { createElement: h, useEffect, useRef, useState, Fragment } = globalThis.React;
const { Badge, Box, Button, Code, Flex, Heading, Input, SimpleGrid, Text, chakra } = globalThis.ChakraUI;
const { Link } = globalThis.ReactRouterDOM;

const POLL_MS = 3000;
const OLD_S = 15; // what was heard longer ago says when: five answers were missed
const TONES = {
  following: "green", "in production": "green", copying: "blue", listening: "gray", planned: "gray", "at rest": "gray", paused: "orange",
  "source fenced": "orange", lost: "red", failed: "red", unreadable: "red",
};
const LEVELS = { block: "red", warn: "orange" };

// --- words -------------------------------------------------------------------------------------------------------------

const number = (n) => (n == null ? "–" : Math.round(n).toLocaleString("en"));
const part = (n, unit) => `${n < 10 ? n.toFixed(1) : Math.round(n)} ${unit}`;
const bytes = (n) =>
  n == null ? "–" : n < 1e3 ? `${n} B` : n < 1e6 ? part(n / 1e3, "KB") : n < 1e9 ? part(n / 1e6, "MB") : part(n / 1e9, "GB");
const time = (s) =>
  s == null ? "–" : s < 1 ? "now" : s < 120 ? `${Math.round(s)} s` : s < 7200 ? `${Math.round(s / 60)} min`
    : s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
const behindBy = (s) => (s == null ? "–" : s < 0.05 ? "level" : s < 10 ? `${s.toFixed(1)} s` : time(s));
const clock = (s) => `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
const date = (at) => (at == null ? "" : new Date(typeof at === "number" ? at * 1000 : at).toLocaleString());
const toneOf = (row) => (row.refused.length || row.findings.some((f) => f.level === "block") ? "red" : row.error ? "gray" : TONES[row.state] ?? "gray");
const query = (row) => `?${new URLSearchParams({ target: row.target_id, mirror: row.mirror })}`;
const address = (path) => new URL(`mirrors/${path}`, document.baseURI).href;
const fileOf = (path) => address(`files/${path.split("/").map(encodeURIComponent).join("/")}`);

// --- asking ------------------------------------------------------------------------------------------------------------

// Why a route does not answer. 503 says it itself: a target is still being asked, and the next answer may have it.
const refusal = async (answer) => {
  if (answer.status === 401) return "Your session is over: log in again.";
  const said = answer.status === 503 ? (await answer.json().catch(() => ({}))).detail : null;
  return typeof said === "string" ? `${said}; asked again …` : `The API server answers ${answer.status}.`;
};

// What a route says, again and again while somebody looks: `{ data, error, since }`, the first two undefined before there is
// one. `since`: when it answered last by this clock, or was asked first.
function useTold(path) {
  const [told, setTold] = useState({ since: Date.now() / 1000 });
  useEffect(() => {
    const over = new AbortController();
    let timer;
    const ask = async () => {
      let again = POLL_MS;
      if (!document.hidden) {
        try {
          const answer = await fetch(address(path), { signal: over.signal, credentials: "same-origin" });
          if (!answer.ok) throw new Error(await refusal(answer));
          const data = await answer.json();
          again = data.looking || data.closely === null ? 700 : POLL_MS;
          setTold({ data, since: Date.now() / 1000 });
        } catch (e) {
          if (over.signal.aborted) return;
          setTold((before) => ({ ...before, error: e.message }));
        }
      }
      timer = setTimeout(ask, again);
    };
    setTold({ since: Date.now() / 1000 });
    ask();
    return () => (over.abort(), clearTimeout(timer));
  }, [path]);
  return told;
}

function useNow(everyMs = 1000) {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, []);
  return now;
}

// Since when a mirror is shown as it was, if that is a while: its target, or the API server, has said nothing new. Of the
// server's clock only a span is taken. Whoever shows it renders again by `useNow`: a network that is gone says nothing at all.
const AsOf = ({ told: { data, since }, row, ...props }) => {
  const s = Date.now() / 1000 - since + (data.now - row.at);
  return row.at != null && s > OLD_S ? h(Muted, props, `as of ${date(Date.now() / 1000 - s)}`) : null;
};

// --- parts -------------------------------------------------------------------------------------------------------------

const Muted = (props) => h(Text, { color: "fg.muted", fontSize: "sm", ...props });
const Panel = ({ title, children, ...more }) =>
  h(Box, { bg: "bg.panel", borderWidth: 1, borderRadius: "md", p: 4, ...more },
    title && h(Heading, { size: "sm", as: "h3", mb: 3 }, title), children);
const State = ({ row }) =>
  h(Badge, { colorPalette: toneOf(row), variant: "subtle", size: "sm", whiteSpace: "nowrap" },
    row.state === "copying" && row.done != null ? `copying ${Math.floor(row.done * 100)} %` : row.state);
const Arrow = ({ row }) => (row.source ? h(Muted, { as: "span" }, `${row.source} → ${row.target}`) : h(Muted, { as: "span" }, row.target_id));

// Over plain http, as many an Airflow runs inside, a page has no clipboard: what is marked can be copied all the same.
async function toClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = Object.assign(document.createElement("textarea"), { value: text, readOnly: true });
  area.style.cssText = "position: fixed; opacity: 0";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("the browser does not let a page copy");
}

function Copy({ text }) {
  const [told, setTold] = useState("Copy");
  const tell = (words) => (setTold(words), setTimeout(() => setTold("Copy"), 1500));
  const copy = () => toClipboard(text).then(() => tell("Copied"), () => tell("Mark it instead"));
  return h(Button, { size: "2xs", variant: "outline", onClick: copy }, told);
}

// What is wrong, or worth knowing: a coloured edge, the words, and what to do.
function Finding({ level, check, object, evidence, remedy }) {
  const line = [object, evidence].filter(Boolean).join(": ");
  return h(Box, { borderLeftWidth: 3, borderColor: `${LEVELS[level] ?? "gray"}.solid`, pl: 3, py: 1, my: 1 },
    h(Text, { fontSize: "sm", whiteSpace: "pre-wrap", overflowWrap: "anywhere" }, h(chakra.b, { fontWeight: 600 }, `${check} `), line),
    remedy && h(Flex, { gap: 2, align: "center" }, h(Muted, { overflowWrap: "anywhere" }, remedy), h(Copy, { text: remedy })));
}

const ASKED = { // what a field takes that a person fills in
  rate: { maxW: 48, pattern: "[1-9][0-9]*|none|default", placeholder: "20000000, none, default" },
  fence: { maxW: 96, placeholder: "package.module.function" },
};

// What may be done about a mirror: a run of a DAG, started by Airflow's own API. Who may, and who did, is Airflow's to say.
function Start({ dag, conf, text, effect, asks, paused }) {
  const [at, setAt] = useState("idle");
  const [told, setTold] = useState(null);
  const [given, setGiven] = useState("");
  const first = useRef(null);
  useEffect(() => void (at === "asked" && first.current?.focus()), [at]);
  const start = async (e) => {
    e.preventDefault();
    setAt("sent");
    try {
      const answer = await fetch(new URL(`api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, document.baseURI), {
        method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ logical_date: null, conf: asks ? { ...conf, [asks]: given.trim() } : conf }),
      });
      const said = await answer.json().catch(() => ({}));
      if (!answer.ok) throw new Error(`Airflow answers ${answer.status}${typeof said.detail === "string" ? `: ${said.detail}` : ""}`);
      setTold(said.dag_run_id);
      setAt("started");
    } catch (error) {
      setTold(error.message);
      setAt("asked");
    }
  };
  const button = { size: "xs", variant: "outline" };
  if (at === "started") return h(Link, { to: `/dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(told)}` }, h(Text, { fontSize: "sm", color: "fg.info" }, `${dag} runs`));
  if (at === "idle") return h(Button, { ...button, onClick: () => (setTold(null), setAt("asked")) }, `${text} …`);
  return h(chakra.form, { onSubmit: start, onKeyDown: (e) => e.key === "Escape" && setAt("idle"), borderWidth: 1, borderRadius: "md", p: 3, flexBasis: "100%", role: "group", "aria-label": text },
    h(Text, { fontSize: "sm", overflowWrap: "anywhere" }, effect),
    paused && h(Text, { fontSize: "sm", color: "orange.fg" }, `${dag} is turned off: the run begins once somebody turns it on.`),
    h(Flex, { gap: 2, align: "center", mt: 2, wrap: "wrap" },
      asks && h(Input, { ref: first, size: "xs", required: true, ...ASKED[asks], value: given, "aria-label": asks, onChange: (e) => setGiven(e.target.value) }),
      h(Button, { ...button, type: "submit", ref: asks ? undefined : first, disabled: at === "sent" }, text),
      h(Button, { ...button, type: "button", variant: "ghost", onClick: () => setAt("idle") }, "Leave it"),
      h(Muted, { as: "span" }, `starts a run of ${dag}`)),
    told && h(Text, { fontSize: "sm", color: "fg.error", mt: 1, role: "alert" }, told));
}

const Actions = ({ row }) => {
  const others = row.actions.filter((one) => one.key !== "lift"); // that one stands beside its fence
  return others.length > 0 && h(Flex, { gap: 2, wrap: "wrap", mt: 2, role: "group", "aria-label": "what can be done" }, others.map((one) => h(Start, one)));
};

function Fence({ row }) {
  const now = useNow();
  return row.fences.map((fence) => {
    const left = fence.until == null ? null : fence.until - now;
    return h(Box, { key: fence.run, bg: fence.kept ? "bg.subtle" : "orange.subtle", borderRadius: "md", px: 3, py: 2, my: 2, role: "status" },
      h(Flex, { gap: 3, wrap: "wrap", align: "baseline" },
        h(Text, { fontWeight: 600, color: fence.kept ? "fg" : "orange.fg" }, fence.kept ? "By the ledger the source stays fenced" : "Source FENCED"),
        left != null && h(Text, { fontWeight: 600, fontVariantNumeric: "tabular-nums", color: left < 60 ? "red.fg" : "orange.fg" },
          left > 0 ? `${clock(left)} left` : "its time is over: guards lift it"),
        h(Text, { fontSize: "sm" }, `${fence.name || fence.kind} · cutover ${fence.run}, attempt ${fence.attempt}, ${fence.text} · since ${date(fence.since)}`)),
      !fence.kept && row.actions.filter((one) => one.key === "lift").map((one) => h(Box, { key: one.key, mt: 2 }, h(Start, one))),
      left != null && left <= 0 && h(Flex, { gap: 2, align: "center", mt: 1 }, h(Code, { size: "sm" }, row.lift_command), h(Copy, { text: row.lift_command })));
  });
}

// Airflow's own page of a task.
const taskOf = (one, ...more) =>
  `/${["dags", one.dag, "runs", one.run, "tasks", one.task, ...(one.map_index >= 0 ? ["mapped", String(one.map_index)] : []), ...more].map(encodeURIComponent).join("/")}`;

// What waits for a person's answer: Airflow asks it, and its page of the task takes the answer.
const Approvals = ({ row }) => row.approvals.map((one) => {
  const where = taskOf(one, "required_actions");
  return h(Box, { key: where, bg: "blue.subtle", borderRadius: "md", px: 3, py: 2, my: 2, role: "status" },
    h(Flex, { gap: 3, wrap: "wrap", align: "baseline" },
      h(Text, { fontWeight: 600, color: "blue.fg", overflowWrap: "anywhere" }, one.subject),
      h(Link, { to: where }, h(Text, { fontSize: "sm", color: "fg.info" }, "Answer it")),
      h(Muted, { as: "span" }, `${one.dag} waits since ${date(one.since)}`)));
});

function Phases({ phases, at }) {
  return h(Flex, { gap: 1, role: "list", "aria-label": "phases" }, phases.map((phase, n) =>
    h(Box, { key: phase, flex: 1, role: "listitem", "aria-current": n === at ? "step" : undefined },
      h(Box, { h: 1.5, borderRadius: "full", bg: n < at || at === phases.length - 1 ? "green.solid" : n === at ? "blue.solid" : "bg.emphasized" }),
      h(Text, { fontSize: "xs", mt: 1, color: n === at ? "fg" : "fg.muted", fontWeight: n === at ? 600 : 400 }, phase))));
}

const Figure = ({ name, value, hint, tone }) =>
  h(Box, null, h(Muted, { fontSize: "xs" }, name),
    h(Text, { fontSize: "xl", fontWeight: 600, fontVariantNumeric: "tabular-nums", color: tone }, value), hint && h(Muted, { fontSize: "xs" }, hint));

function Figures({ row, closely }) {
  const count = (key) => closely?.topics?.reduce((sum, topic) => sum + topic[key].length, 0);
  const [late, short] = [count("late"), count("short")];
  const known = closely?.topics?.some((topic) => topic.lags);
  return h(SimpleGrid, { columns: { base: 2, md: 5, xl: 9 }, gap: 4, my: 4 },
    h(Figure, { name: "behind", value: number(row.lag), hint: row.held ? `and ${number(row.held)} in open transactions` : row.lag == null ? null : "offsets" }),
    h(Figure, { name: "in time", value: behindBy(row.lag_s), hint: row.lag_s > 0.05 ? "what is missing is no older" : null }),
    h(Figure, { name: "rate", value: row.bytes_per_s == null ? "–" : `${bytes(row.bytes_per_s)}/s`, hint: row.records_per_s == null ? null : `${number(row.records_per_s)} records/s` }),
    h(Figure, { name: "done in", value: time(row.eta_s) }),
    h(Figure, { name: "headroom", value: time(row.headroom_s), hint: row.headroom_s == null ? null : "until the source deletes what is next" }),
    h(Figure, { name: "topics", value: number(row.topics), hint: row.in_production ? `${number(row.in_production)} in production` : null }),
    known && h(Figure, { name: "too far behind", value: number(late), hint: "partitions", tone: late ? "red.fg" : undefined }),
    known && h(Figure, { name: "short of retention", value: number(short), hint: "partitions", tone: short ? "red.fg" : undefined }),
    row.host && h(Figure, { name: "copied on", value: row.host }));
}

// What refused the last plan, preview or cutover: each says what to do.
const Refused = ({ row, most = 20 }) => row.refused.map((one) =>
  h(Box, { key: one.kind, my: 2, role: "status" },
    h(Text, { fontSize: "sm", overflowWrap: "anywhere" }, h(chakra.b, { fontWeight: 600, color: "red.fg" }, `Its ${one.kind} was refused `), `${date(one.at)}, ${one.by}`),
    one.findings.slice(0, most).map((its, n) => h(Finding, { key: n, ...its })),
    one.left + one.findings.length > most && h(Muted, { pl: 3 }, `and ${number(one.left + Math.max(0, one.findings.length - most))} more in the task's log`)));

// What keeps a mirror from its work, and the first of what is worth knowing: its own page has the rest.
function Wrong({ row, most = 2 }) {
  const blocks = row.findings.filter((one) => one.level === "block");
  const others = row.findings.filter((one) => one.level !== "block");
  const left = others.length - most;
  return h(Fragment, null, h(Fence, { row }), h(Approvals, { row }), h(Refused, { row, most: 3 }), [...blocks, ...others.slice(0, most)].map((one, n) => h(Finding, { key: n, ...one })),
    most > 0 && left > 0 && h(Muted, { pl: 3 }, `and ${number(left)} more to know`));
}

export {
  Actions, Approvals, Arrow, AsOf, Fence, Figures, Finding, Muted, OLD_S, Panel, Phases, Refused, State, Wrong, address, behindBy, bytes, date, fileOf, number, query, refusal, taskOf, time,
  useNow, useTold,
};
