// What the page draws: partitions on a canvas, and lines and bars whose coordinates come with the data. See page.js.

import { Muted, number } from "./parts.js";

const { createElement: h, useEffect, useRef, useState, Fragment } = globalThis.React;
const { Box, Flex, SimpleGrid, chakra } = globalThis.ChakraUI;

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
    Object.assign(element.dataset, { drawnMs: performance.now() - began, drawnAt: performance.now() });
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

export { Course, Drawings, Heat, Night };
