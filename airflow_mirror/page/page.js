// The page of mirrors: a list, one mirror, a tab of runs and tasks, a strip at Home. Plain JavaScript, no build: Airflow's UI
// imports this module, and shows the components that stand in globalThis at its end.
//
// Names are whatever somebody chose. They only ever become React's text nodes: there is no innerHTML here, and no address
// is made of anything but encoded parts. All addresses are relative, as Airflow may be served below a path.

const { createElement: h, useEffect, useRef, useState, Fragment } = globalThis.React;
const { Badge, Box, Button, Code, Flex, Heading, Input, SimpleGrid, Spinner, Table, Text, chakra } = globalThis.ChakraUI;
const { Link, useSearchParams } = globalThis.ReactRouterDOM;

const POLL_MS = 3000;
const TONES = {
  following: "green", "in production": "green", copying: "blue", listening: "gray", planned: "gray", paused: "orange",
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
const toneOf = (row) => (row.findings.some((f) => f.level === "block") ? "red" : TONES[row.state] ?? "gray");
const query = (row) => `?${new URLSearchParams({ target: row.target_id, mirror: row.mirror })}`;
const address = (path) => new URL(`mirrors/${path}`, document.baseURI).href;
const fileOf = (path) => address(`files/${path.split("/").map(encodeURIComponent).join("/")}`);

// --- asking ------------------------------------------------------------------------------------------------------------

// What a route says, again and again while somebody looks: `{ data, error }`, each undefined before there is one.
function useTold(path) {
  const [told, setTold] = useState({});
  useEffect(() => {
    const over = new AbortController();
    let timer;
    const ask = async () => {
      let again = POLL_MS;
      if (!document.hidden) {
        try {
          const answer = await fetch(address(path), { signal: over.signal, credentials: "same-origin" });
          if (!answer.ok) throw new Error(answer.status === 401 ? "Your session is over: log in again." : `The API server answers ${answer.status}.`);
          const data = await answer.json();
          again = data.looking || data.closely === null ? 700 : POLL_MS;
          setTold({ data });
        } catch (e) {
          if (over.signal.aborted) return;
          setTold((before) => ({ ...before, error: e.message }));
        }
      }
      timer = setTimeout(ask, again);
    };
    setTold({});
    ask();
    return () => (over.abort(), clearTimeout(timer));
  }, [path]);
  return told;
}

function useNow() {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), 1000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

// --- parts -------------------------------------------------------------------------------------------------------------

const Muted = (props) => h(Text, { color: "fg.muted", fontSize: "sm", ...props });
const Panel = ({ title, children, ...more }) =>
  h(Box, { bg: "bg.panel", borderWidth: 1, borderRadius: "md", p: 4, ...more },
    title && h(Heading, { size: "sm", as: "h3", mb: 3 }, title), children);
const State = ({ row }) =>
  h(Badge, { colorPalette: toneOf(row), variant: "subtle", size: "sm", whiteSpace: "nowrap" },
    row.state === "copying" && row.done != null ? `copying ${Math.floor(row.done * 100)} %` : row.state);
const Arrow = ({ row }) => (row.source ? h(Muted, { as: "span" }, `${row.source} → ${row.target}`) : h(Muted, { as: "span" }, row.target_id));

function Copy({ text }) {
  const [done, setDone] = useState(false);
  if (!navigator.clipboard) return null; // only on https, and on this host: the text can be marked all the same
  const copy = () => navigator.clipboard.writeText(text).then(() => (setDone(true), setTimeout(() => setDone(false), 1500)));
  return h(Button, { size: "2xs", variant: "outline", onClick: copy }, done ? "Copied" : "Copy");
}

// What is wrong, or worth knowing: a coloured edge, the words, and what to do.
function Finding({ level, check, object, evidence, remedy }) {
  const line = [object, evidence].filter(Boolean).join(": ");
  return h(Box, { borderLeftWidth: 3, borderColor: `${LEVELS[level] ?? "gray"}.solid`, pl: 3, py: 1, my: 1 },
    h(Text, { fontSize: "sm", whiteSpace: "pre-wrap", overflowWrap: "anywhere" }, h(chakra.b, { fontWeight: 600 }, `${check} `), line),
    remedy && h(Flex, { gap: 2, align: "center" }, h(Muted, { overflowWrap: "anywhere" }, remedy), h(Copy, { text: remedy })));
}

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
      asks && h(Input, { ref: first, size: "xs", maxW: 48, required: true, pattern: "[1-9][0-9]*|none|default", value: given, placeholder: "20000000, none, default", "aria-label": asks, onChange: (e) => setGiven(e.target.value) }),
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
        h(Text, { fontWeight: 600, color: fence.kept ? "fg" : "orange.fg" }, fence.kept ? "Source stays fenced" : "Source FENCED"),
        left != null && h(Text, { fontWeight: 600, fontVariantNumeric: "tabular-nums", color: left < 60 ? "red.fg" : "orange.fg" },
          left > 0 ? `${clock(left)} left` : "its time is over: guards lift it"),
        h(Text, { fontSize: "sm" }, `${fence.name || fence.kind} · cutover ${fence.run}, attempt ${fence.attempt}, ${fence.text} · since ${date(fence.since)}`)),
      !fence.kept && row.actions.filter((one) => one.key === "lift").map((one) => h(Box, { key: one.key, mt: 2 }, h(Start, one))),
      left != null && left <= 0 && h(Flex, { gap: 2, align: "center", mt: 1 }, h(Code, { size: "sm" }, row.lift_command), h(Copy, { text: row.lift_command })));
  });
}

// What waits for a person's answer: Airflow asks it, and its page of the task takes the answer.
const Approvals = ({ row }) => row.approvals.map((one) => {
  const parts = ["dags", one.dag, "runs", one.run, "tasks", one.task, ...(one.map_index >= 0 ? ["mapped", String(one.map_index)] : []), "required_actions"];
  return h(Box, { key: parts.join(" "), bg: "blue.subtle", borderRadius: "md", px: 3, py: 2, my: 2, role: "status" },
    h(Flex, { gap: 3, wrap: "wrap", align: "baseline" },
      h(Text, { fontWeight: 600, color: "blue.fg", overflowWrap: "anywhere" }, one.subject),
      h(Link, { to: `/${parts.map(encodeURIComponent).join("/")}` }, h(Text, { fontSize: "sm", color: "fg.info" }, "Answer it")),
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

// What keeps a mirror from its work, and the first of what is worth knowing: its own page has the rest.
function Wrong({ row, most = 2 }) {
  const blocks = row.findings.filter((one) => one.level === "block");
  const others = row.findings.filter((one) => one.level !== "block");
  const left = others.length - most;
  return h(Fragment, null, h(Fence, { row }), h(Approvals, { row }), [...blocks, ...others.slice(0, most)].map((one, n) => h(Finding, { key: n, ...one })),
    most > 0 && left > 0 && h(Muted, { pl: 3 }, `and ${number(left)} more to know`));
}

// --- the heat map: one canvas, however many partitions -----------------------------------------------------------------

function Heat({ topics }) {
  const canvas = useRef(null);
  const layout = useRef({ side: 1, columns: 1 });
  const [at, setAt] = useState(null);
  const [dark, setDark] = useState(0); // grows with each change of colours
  const cells = topics.flatMap((t) => (t.lags ?? []).map((lag, p) => ({ t, p, lag })));
  useEffect(() => {
    const watch = new MutationObserver(() => setDark((n) => n + 1));
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
    const size = new ResizeObserver(() => setDark((n) => n + 1));
    size.observe(canvas.current.parentElement);
    return () => (watch.disconnect(), size.disconnect());
  }, []);
  useEffect(() => {
    const began = performance.now();
    const element = canvas.current;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--chakra-colors-${name}`).trim() || "#888";
    const width = element.parentElement.clientWidth;
    const side = Math.max(4, Math.min(16, Math.floor(Math.sqrt((width * 260) / Math.max(1, cells.length)))));
    const columns = Math.max(1, Math.floor(width / side));
    const scale = globalThis.devicePixelRatio || 1;
    const height = Math.ceil(cells.length / columns) * side;
    layout.current = { side, columns };
    Object.assign(element, { width: width * scale, height: height * scale });
    Object.assign(element.style, { width: `${width}px`, height: `${height}px` });
    const paint = element.getContext("2d");
    paint.scale(scale, scale);
    const most = Math.log10(1 + cells.reduce((top, one) => Math.max(top, one.lag), 9));
    const [level, behind, bad, edge] = ["green-muted", "blue-solid", "red-solid", "fg"].map(colour);
    const wrong = new Set(topics.flatMap((t) => [...t.late, ...t.short].map((p) => `${p} ${t.source}`)));
    cells.forEach((one, n) => {
      const [x, y] = [(n % columns) * side, Math.floor(n / columns) * side];
      const isBad = wrong.has(`${one.p} ${one.t.source}`);
      paint.globalAlpha = isBad || !one.lag ? 1 : 0.2 + (0.8 * Math.log10(1 + one.lag)) / most;
      paint.fillStyle = isBad ? bad : one.lag ? behind : level;
      paint.fillRect(x, y, side - 1, side - 1);
    });
    paint.globalAlpha = 1;
    if (at != null) {
      paint.strokeStyle = edge;
      paint.lineWidth = 2;
      paint.strokeRect((at % columns) * side, Math.floor(at / columns) * side, side - 1, side - 1);
    }
    element.dataset.drawnMs = String(performance.now() - began);
  }, [topics, dark, at]);
  const move = (e) => {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: layout.current.columns, ArrowUp: -layout.current.columns };
    if (!(e.key in steps)) return;
    e.preventDefault();
    setAt((n) => Math.max(0, Math.min(cells.length - 1, n == null ? 0 : n + steps[e.key])));
  };
  const point = (e) => {
    const { side, columns } = layout.current;
    const box = canvas.current.getBoundingClientRect();
    const n = Math.floor((e.clientY - box.top) / side) * columns + Math.min(columns - 1, Math.floor((e.clientX - box.left) / side));
    setAt(n >= 0 && n < cells.length ? n : null);
  };
  const one = at == null ? null : cells[at];
  const said = one
    ? `${one.t.source}-${one.p}: ${one.lag ? `${number(one.lag)} offsets behind` : "level"}${one.t.late.includes(one.p) ? ", too far behind" : ""}${one.t.short.includes(one.p) ? ", the source may delete what was not copied" : ""}`
    : `${number(cells.length)} partitions, ${number(cells.filter((c) => c.lag).length)} behind; point at one, or move with the arrows`;
  return h(Box, null,
    h(chakra.canvas, { ref: canvas, tabIndex: 0, role: "img", "aria-label": said, onKeyDown: move, onMouseMove: point, onMouseLeave: () => setAt(null), display: "block" }),
    h(Flex, { justify: "space-between", gap: 4, mt: 2, wrap: "wrap" }, h(Muted, { "aria-live": "polite", overflowWrap: "anywhere" }, said),
      h(Flex, { gap: 3 }, [["green.muted", "level"], ["blue.solid", "behind"], ["red.solid", "too far, or short of retention"]].map(([bg, word]) =>
        h(Flex, { key: word, gap: 1, align: "center" }, h(Box, { w: 2.5, h: 2.5, bg }), h(Muted, { fontSize: "xs" }, word))))));
}

// A drawing of a report (airflow_mirror/common/chart.py), in this page's colours.
const hue = (name) => `var(--chakra-colors-${name})`;
const PAINT = {
  shade: { fill: hue("orange-solid"), opacity: 0.12 }, grid: { stroke: hue("border") }, area: { fill: hue("blue-solid"), opacity: 0.2 },
  line: { fill: "none", stroke: hue("blue-solid") }, limit: { stroke: hue("red-solid"), strokeDasharray: "3 3" },
  done: { fill: hue("green-solid") }, running: { fill: hue("blue-solid") }, failed: { fill: hue("red-solid") }, bar: { fill: hue("gray-solid") },
  dot: { fill: hue("blue-solid") }, bad: { fill: hue("red-solid") },
};
function Drawing({ chart }) {
  const drawn = ({ tag, text, at: { class: kind = "", "text-anchor": textAnchor, ...at } }, key) =>
    tag === "text"
      ? h(tag, { key, ...at, textAnchor, fontSize: 11, fill: hue("fg-muted") }, text)
      : h(tag, { key, ...at, ...Object.assign({}, ...`${tag === "circle" ? "dot" : ""} ${kind}`.split(" ").map((one) => PAINT[one])) },
        text && h("title", null, text));
  return h("svg", { viewBox: `0 0 ${chart.width} ${chart.height}`, width: "100%", style: { maxWidth: "58rem" }, role: "img", "aria-label": `${chart.title}: ${chart.text}` },
    chart.marks.map(drawn));
}

const Drawings = ({ charts }) =>
  charts.map((chart) => h(Box, { key: chart.title, mt: 2 }, h(Muted, { fontSize: "xs" }, chart.title), h(Drawing, { chart })));

// A mirror's lag and rate, as this API server has seen them while somebody looked.
function Course({ course }) {
  if (!course.length) return h(Muted, null, "Drawn while somebody looks: in half a minute there is a line.");
  return h(SimpleGrid, { columns: { base: 1, md: 2 }, gap: 4 },
    course.map((chart) => h(Box, { key: chart.title }, h(Muted, { fontSize: "xs" }, `${chart.title}: ${chart.text}`), h(Drawing, { chart }))));
}

// The fence of the last cutover, as its report draws it.
function Night({ night }) {
  return h(Fragment, null,
    h(Muted, { mb: 2 }, `${night.run}: ${night.outcome.replace("_", " ")}${night.seconds == null ? "" : `; nobody could write for ${night.seconds.toFixed(1)} s`}${night.max_fence_s ? `; at most ${night.max_fence_s} s are allowed` : ""}`),
    h(Drawings, { charts: night.charts }));
}

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
        if (!answer.ok) throw new Error(`The API server answers ${answer.status}.`);
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

function Reports({ row, closely, files }) {
  const runs = (closely?.runs ?? []).map((run) => ({ path: `${row.mirror}/runs/${run}/report.html`, text: `Cutover ${run}` }));
  const kinds = { "report.html": "Cutover", "drill.html": "Drill" };
  const others = files.map(({ path, at }) => {
    const [name, run] = path.split("/").reverse();
    return { path, at, text: kinds[name] ? `${kinds[name]} ${run}` : `Plan for the night ${name.slice(0, 12)}` };
  });
  const every = [...others, ...runs.filter((one) => !others.some((other) => other.path === one.path))];
  if (!every.length) return h(Muted, null, "None yet. Plans for the night, cutovers and drills leave one.");
  return every.map((one) => h(Flex, { key: one.path, gap: 3 },
    h(chakra.a, { href: fileOf(one.path), target: "_blank", rel: "noopener", color: "fg.info", overflowWrap: "anywhere" }, one.text), h(Muted, null, date(one.at))));
}

function One({ target, mirror }) {
  const { data, error } = useTold(`one?${new URLSearchParams({ target, mirror })}`);
  if (!data) return error ? h(Text, { color: "fg.error" }, error) : h(Spinner, { size: "sm" });
  const { row, phases, closely, files, course } = data;
  const plan = closely?.plan;
  const follows = Object.entries(row.follows);
  const checks = closely?.checks?.length ? closely.checks : row.findings;
  return h(Flex, { direction: "column", gap: 4 },
    h(Box, null,
      h(Flex, { gap: 3, align: "center", wrap: "wrap" }, h(Heading, { size: "lg", as: "h1", overflowWrap: "anywhere" }, row.mirror), h(State, { row }), h(Arrow, { row }),
        row.dag && h(Link, { to: `/dags/${encodeURIComponent(row.dag)}` }, h(Text, { color: "fg.info", fontSize: "sm" }, row.dag))),
      error && h(Text, { color: "fg.error" }, error), h(Actions, { row }), h(Fence, { row }), h(Approvals, { row }), h(Figures, { row, closely }), h(Phases, { phases, at: row.phase })),
    closely?.error && h(Text, { color: "fg.error" }, closely.error), closely?.unknown && h(Muted, null, closely.unknown),
    h(Panel, { title: "Partitions" }, closely?.topics?.some((t) => t.lags) ? h(Heat, { topics: closely.topics }) : h(Muted, null, closely ? "The source was not asked." : "Both clusters are being asked: ten seconds …")),
    (row.lag != null || course.length > 0) && h(Panel, { title: "Behind, and rate" }, h(Course, { course })),
    closely?.night && h(Panel, { title: "The night" }, h(Night, { night: closely.night })),
    h(Panel, { title: "Checks" }, checks.length ? checks.map((one, n) => h(Finding, { key: n, ...one })) : h(Muted, null, closely ? "Nothing is wrong." : "…")),
    h(Panel, { title: "Topics" }, h(Topics, { topics: closely?.topics ?? [] })),
    h(Panel, { title: "Clients" }, h(Clients, { row })),
    Object.keys(closely?.drills ?? {}).length > 0 && h(Panel, { title: "Drills" }, Object.entries(closely.drills).map(([name, drills]) => h(Drills, { key: name, name, drills }))),
    h(SimpleGrid, { columns: { base: 1, md: 2 }, gap: 4 },
      h(Panel, { title: "Plan" }, plan
        ? h(Fragment, null, h(Muted, null, `${plan.hash.slice(0, 12)}, made ${date(plan.created_at)}`), plan.findings.map((one, n) => h(Finding, { key: n, ...one })),
          plan.amendments.map((one) => h(Box, { key: one.number, mt: 2 }, h(Text, { fontSize: "sm" }, `Amendment ${one.number}, ${date(one.at)}`), h(Names, { names: one.topics }))))
        : h(Muted, null, "…")),
      h(Panel, { title: "Reports" }, h(Reports, { row, closely, files })),
      h(Panel, { title: "Groups" }, plan?.group_count ? h(Fragment, null, h(Text, { fontSize: "sm" }, `${number(plan.group_count)} move`), h(Names, { names: plan.groups })) : h(Muted, null, "The plan has none.")),
      h(Panel, { title: "What follows beside the data" }, follows.length ? follows.map(([kind, one]) =>
        h(Box, { key: kind, mb: 2 }, h(Text, { fontSize: "sm", color: one.error ? "fg.error" : undefined }, `${kind}: ${one.error ?? (one.said.length ? `${number(one.said.length)} to know` : "level")}`), one.said.slice(0, 20).map((line, n) => h(Muted, { key: n, pl: 3, overflowWrap: "anywhere" }, line))))
        : h(Muted, null, "No tail says anything.")),
      plan?.left_out.length > 0 && h(Panel, { title: "Left out: they come from the target" }, h(Names, { names: plan.left_out }))));
}

// --- the list ----------------------------------------------------------------------------------------------------------

function Rows({ mirrors, targets = [], most }) {
  const end = { textAlign: "end", fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" };
  return h(Table.Root, { size: "sm" },
    h(Table.Header, null, h(Table.Row, { bg: "transparent" }, ["mirror", "state", "behind", "in time", "rate", "done in", "headroom", "topics"].map((title, n) => h(Table.ColumnHeader, { key: n, ...(n > 1 ? end : {}) }, title)))),
    h(Table.Body, null,
      mirrors.map((row) => h(Table.Row, { key: `${row.target_id} ${row.mirror}`, bg: "transparent", verticalAlign: "top" },
        h(Table.Cell, { w: "48%" },
          h(Flex, { gap: 3, align: "baseline", wrap: "wrap" }, h(Link, { to: `/plugin/mirrors${query(row)}` }, h(Text, { fontWeight: 600, color: "fg.info", overflowWrap: "anywhere" }, row.mirror)), h(Arrow, { row })),
          h(Wrong, { row, most })),
        h(Table.Cell, null, h(State, { row })),
        [number(row.lag), behindBy(row.lag_s), row.bytes_per_s == null ? "–" : `${bytes(row.bytes_per_s)}/s`, time(row.eta_s), time(row.headroom_s), number(row.topics)].map((text, n) => h(Table.Cell, { key: n, ...end }, text)))),
      targets.filter((one) => one.error || one.newer?.length).map((one) => h(Table.Row, { key: one.target_id, bg: "bg.subtle", color: "fg.muted" },
        h(Table.Cell, { colSpan: 8 }, h(chakra.b, { fontWeight: 600 }, `${one.target_id} `), one.error ?? `written by a newer version of airflow-mirror: ${one.newer.join(", ")}`)))));
}

function Mirrors() {
  const [where] = useSearchParams();
  const [target, mirror] = [where.get("target"), where.get("mirror")];
  return h(Box, { p: 4, h: "100%", overflowY: "auto" }, target && mirror
    ? h(Fragment, null, h(Link, { to: "/plugin/mirrors" }, h(Text, { color: "fg.info", fontSize: "sm", mb: 2 }, "← Mirrors")), h(One, { key: `${target} ${mirror}`, target, mirror }))
    : h(List));
}

function List() {
  const { data, error } = useTold("list");
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
    data.mirrors.length || data.targets.length ? h(Rows, { mirrors: shown, targets: data.targets })
      : h(Muted, null, data.looking ? "Targets are being asked …" : "No mirror that you may see. One appears once PlanMirrorOperator has planned it, and its copy has begun, on a target that has a connection here."));
}

// --- in other places ---------------------------------------------------------------------------------------------------

function Mirror({ dagId }) {
  const { data, error } = useTold("list");
  if (!data) return error ? h(Muted, { p: 4 }, error) : h(Spinner, { size: "sm", m: 4 });
  const mine = data.mirrors.filter((row) => row.dag === dagId).sort((a, b) => b.needs_person - a.needs_person);
  if (!mine.length) return h(Muted, { p: 4 }, "No mirror of this DAG. One is shown here once PlanMirrorOperator of this DAG has planned it, and its copy has begun.");
  return h(Flex, { direction: "column", gap: 4, p: 4 }, mine.map((row) => h(Panel, { key: `${row.target_id} ${row.mirror}` },
    h(Flex, { gap: 3, align: "center", wrap: "wrap" }, h(Link, { to: `/plugin/mirrors${query(row)}` }, h(Heading, { size: "md", color: "fg.info" }, row.mirror)), h(State, { row }), h(Arrow, { row })),
    h(Figures, { row }), h(Phases, { phases: data.phases, at: row.phase }), h(Wrong, { row }))));
}

function MirrorsAtHome() {
  const { data } = useTold("list");
  const wrong = data?.mirrors.filter((row) => row.needs_person) ?? [];
  if (!wrong.length) return null;
  return h(Panel, { title: wrong.length === 1 ? "A mirror needs a person" : `${wrong.length} mirrors need a person`, my: 4 }, h(Rows, { mirrors: wrong, most: 0 }));
}

Object.assign(globalThis, { Mirrors, Mirror, MirrorsAtHome });
