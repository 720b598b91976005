// Draws each chart from its own table, which stays one click away: what is said on hover are the
// table's words. Days are those of UTC, hours the viewer's. uPlot is a global of its own script.
import { axisText, hourText, splitText } from "./words.js";

const HEIGHT = 224;
const FILL = 0.5;
const { uPlot } = globalThis;
const drawn = new Map();
const opened = new Set();

function drawAll() {
  for (const [figure, chart] of drawn) if (!figure.isConnected) release(figure, chart);
  for (const figure of document.querySelectorAll("[data-chart]")) {
    if (!drawn.has(figure) && figure.querySelector("[data-plot]")) draw(figure);
  }
}

function release(figure, { plot, observer }) {
  observer.disconnect();
  plot.destroy();
  drawn.delete(figure);
}

function redrawAll() {
  for (const [figure, chart] of [...drawn]) release(figure, chart);
  drawAll();
}

function draw(figure) {
  const box = figure.querySelector("[data-plot]");
  const table = read(figure);
  const looks = looksOf(figure, table);
  const data = plotted(table, figure.dataset.kind === "stacked");
  const plot = new uPlot(options(figure, box, table, looks), data, box);
  const observer = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT }));
  observer.observe(box);
  drawn.set(figure, { plot, observer });
  if (opened.has(figure.id)) figure.querySelector("details").open = true;
}

// The table's rows as columns: seconds, then the amounts of each series, with the words for both.
function read(figure) {
  const rows = [...figure.querySelectorAll("tbody tr")];
  const times = rows.map((row) => row.querySelector("time"));
  const isHourly = times.some((time) => time.dateTime.includes("T"));
  if (isHourly) tellInOwnZone(figure, times);
  const cells = rows.map((row) => [...row.querySelectorAll("data")]);
  const names = [...figure.querySelectorAll("thead th:not([data-when])")].map((th) => th.textContent);
  return {
    isHourly,
    names,
    seconds: times.map((time) => Date.parse(time.dateTime) / 1000),
    moments: times.map((time) => time.textContent),
    amounts: names.map((_, place) => cells.map((row) => drawable(row[place].value, "logarithmic" in figure.dataset))),
    texts: names.map((_, place) => cells.map((row) => row[place].textContent)),
  };
}

// Zero has no place on a logarithmic axis.
function drawable(value, isLogarithmic) {
  const amount = value === "" ? null : Number(value);
  return isLogarithmic && amount <= 0 ? null : amount;
}

function tellInOwnZone(figure, times) {
  for (const time of times) {
    if (!time.title) time.title = time.textContent;
    time.textContent = hourText(new Date(time.dateTime));
  }
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  figure.querySelector("[data-when]").textContent = `Hour (${zone})`;
}

// Colours come from the tokens, as the legend has them in the scheme of the moment.
function looksOf(figure, { names }) {
  const swatches = [...figure.querySelectorAll(".chart-swatch[data-hue]")];
  const own = getComputedStyle(figure);
  const plot = getComputedStyle(figure.querySelector("[data-plot]"));
  return {
    colours: names.map((_, place) => getComputedStyle(swatches[place]).color),
    ink: own.color,
    text: plot.color,
    grid: plot.borderTopColor,
    font: `12px ${own.fontFamily}`,
    targets: [...figure.querySelectorAll("[data-target]")].map((key) => ({ value: Number(key.dataset.target), name: key.dataset.name })),
  };
}

function plotted({ seconds, amounts }, isStacked) {
  if (!isStacked) return [seconds, ...amounts];
  const sums = seconds.map(() => 0);
  return [seconds, ...amounts.map((series) => series.map((amount, place) => (sums[place] += amount ?? 0)))];
}

function options(figure, box, table, looks) {
  const isStacked = figure.dataset.kind === "stacked";
  const isLogarithmic = "logarithmic" in figure.dataset;
  const { unit } = figure.dataset;
  const most = Math.max(0, ...looks.targets.map((target) => target.value));
  const axis = { font: looks.font, stroke: looks.text, grid: { stroke: looks.grid, width: 1 }, ticks: { show: false } };
  const tip = tipIn(box, table, looks);
  return {
    width: box.clientWidth,
    height: HEIGHT,
    padding: [12, 24, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false, setScale: false }, points: { size: 8 } },
    tzDate: (second) => (table.isHourly ? new Date(second * 1000) : uPlot.tzDate(new Date(second * 1000), "Etc/UTC")),
    scales: {
      x: { time: true, range: (_, first, last) => (first === last ? [first - 43200, last + 43200] : [first, last]) },
      y: isLogarithmic
        ? { distr: 3, range: (_, low, high) => decades(low, Math.max(high ?? 1, most)) }
        : { range: (_, low, high) => [Math.min(0, low ?? 0), above(Math.max(high ?? 0, most))] },
    },
    axes: [
      { ...axis, size: 28, space: 72, values: (_, splits, _index, _space, step) => splits.map((second) => splitText(second, step, table.isHourly)) },
      { ...axis, size: (_, values) => 12 + 7 * Math.max(...(values ?? ["00"]).map((text) => (text ?? "").length)), values: (_, splits) => splits.map((amount) => (amount === null ? "" : axisText(amount, unit))) },
    ],
    series: [
      {},
      ...table.names.map((label, place) => ({
        label,
        stroke: looks.colours[place],
        width: 2,
        fill: isStacked ? faded(looks.colours[place]) : undefined,
        points: { size: 5, fill: looks.colours[place], show: isStacked ? false : undefined, filter: lonePoints },
      })),
    ],
    bands: isStacked ? table.names.slice(1).map((_, place) => ({ series: [place + 2, place + 1] })) : [],
    hooks: {
      init: [(plot) => plot.over.append(tip.element)],
      setCursor: [tip.follow],
      draw: [(plot) => targetLines(plot, looks)],
    },
  };
}

// A value without a neighbour has no line: its point is drawn, however dense the days are.
function lonePoints(plot, place, areAllShown) {
  const values = plot.data[place];
  const isLone = (at) => values[at] != null && values[at - 1] == null && values[at + 1] == null;
  return areAllShown ? null : [...values.keys()].filter(isLone);
}

function above(most) {
  if (most <= 0) return 1;
  const step = 10 ** Math.floor(Math.log10(most)) / 4;
  return Math.ceil((most * 1.05) / step) * step;
}

function decades(low, high) {
  const floor = 10 ** Math.floor(Math.log10(Math.max(low ?? 1, 1e-6)));
  const ceiling = 10 ** Math.ceil(Math.log10(Math.max(high, floor)));
  return [floor, ceiling > floor ? ceiling : floor * 10];
}

function faded(colour) {
  return colour.replace("rgb(", "rgba(").replace(")", `, ${FILL})`);
}

function targetLines(plot, looks) {
  const { ctx, bbox } = plot;
  const dots = devicePixelRatio;
  ctx.save();
  ctx.font = looks.font.replace("12px", `${11 * dots}px`);
  ctx.fillStyle = ctx.strokeStyle = looks.ink;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.lineWidth = dots;
  ctx.setLineDash([5 * dots, 4 * dots]);
  for (const { value, name } of looks.targets) {
    const y = Math.round(plot.valToPos(value, "y", true));
    ctx.beginPath();
    ctx.moveTo(bbox.left, y);
    ctx.lineTo(bbox.left + bbox.width, y);
    ctx.stroke();
    ctx.fillText(name, bbox.left + 6 * dots, y - 3 * dots);
  }
  ctx.restore();
}

// What stands under the pointer, in the words of the table.
function tipIn(box, table, looks) {
  const element = document.createElement("div");
  element.className = "chart-tip";
  element.hidden = true;
  return {
    element,
    follow(plot) {
      const { idx, left } = plot.cursor;
      element.hidden = idx === null || idx === undefined || left < 0;
      if (element.hidden) return;
      const lines = table.names.map((name, place) => line(name, table.texts[place][idx], looks.colours[place]));
      // The topmost area first.
      if (box.closest("[data-chart]").dataset.kind === "stacked") lines.reverse();
      element.replaceChildren(heading(table.moments[idx]), ...lines);
      const room = plot.over.clientWidth - element.offsetWidth;
      const beside = left + 14 > room ? left - element.offsetWidth - 14 : left + 14;
      element.style.left = `${Math.max(0, Math.min(beside, room))}px`;
    },
  };
}

function heading(text) {
  const element = document.createElement("p");
  element.className = "chart-tip-when";
  element.textContent = text;
  return element;
}

function line(name, text, colour) {
  const element = document.createElement("p");
  const swatch = document.createElement("span");
  swatch.className = "chart-swatch";
  swatch.style.color = colour;
  const amount = document.createElement("strong");
  amount.textContent = text;
  element.append(swatch, name, amount);
  return element;
}

// A fragment that comes anew shows the tables that were open in the one before.
document.addEventListener("toggle", (event) => {
  const figure = event.target.closest?.("[data-chart]");
  if (figure) opened[event.target.open ? "add" : "delete"](figure.id);
}, true);

drawAll();
document.addEventListener("htmx:load", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
new MutationObserver(redrawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
