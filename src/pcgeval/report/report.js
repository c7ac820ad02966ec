// Opens a level large and plays it, filters levels and lines, sorts tables, compares teams, finds criteria, and opens
// what a link leads to. All texts on a page are strangers': they are only ever set as text, never as markup.
"use strict";

const DROP = 3; // tenths of a second in which a block falls into its place
const SVG = "http://www.w3.org/2000/svg";
const VIEW = 240; // units along each side of a picture

function element(name, text = "", className = "") {
  const node = document.createElement(name);
  if (text) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function clickable(text, act) {
  const button = element("button", text);
  button.type = "button";
  button.addEventListener("click", act);
  return button;
}

// one level large: a line of a table of trials or, where there is none, the link itself

const dialog = element("dialog");
dialog.setAttribute("aria-labelledby", "level-name");
document.body.append(dialog);
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

function show(item) {
  const bar = element("div", "", "bar");
  bar.append(element("h2", item.dataset.name));
  bar.firstChild.id = "level-name";
  if (item.matches("tr")) {
    const rows = [...item.parentElement.rows].filter((row) => !row.hidden);
    for (const [words, step] of [["Previous", -1], ["Next", 1]]) {
      const other = rows[rows.indexOf(item) + step];
      const button = clickable(words, () => show(other));
      button.disabled = !other;
      bar.append(button);
    }
  }
  bar.append(clickable("Close", () => dialog.close()));
  const body = element("div", "", "body");
  body.append(pictured(item), described(item));
  stop();
  dialog.replaceChildren(bar, body);
  if (!dialog.open) dialog.showModal();
  const player = body.querySelector(".player");
  if (player && !matchMedia("(prefers-reduced-motion: reduce)").matches) player.firstChild.click();
}

function pictured(item) {
  const part = element("div");
  const svg = item.querySelector("svg")?.cloneNode(true);
  const frame = element("div", "", svg ? "frame" : "frame none");
  frame.append(svg ?? "No level");
  svg?.setAttribute("viewBox", `0 0 ${VIEW} ${VIEW}`); // all of it, not in the scale of the tiles
  part.append(frame);
  const ways = item.dataset.motion && waysOf(item.dataset.motion);
  const rings = svg && ringsOf(svg.querySelector("path.stayed"));
  if (ways) {
    const end = Math.max(...ways.map(({ keys }) => keys.at(-1)[0])) + 1; // what breaks last is seen to vanish
    addPlayer(part, frame, end, () => stage(svg, ways));
  } else if (rings?.length) {
    addPlayer(part, frame, DROP * rings.length, () => build(svg, rings));
    part.append(element("p", "The blocks in the order of the calls. None of them moved in the simulation."));
  }
  return part;
}

function described(item) {
  const part = element("div");
  if (!item.matches("tr")) {
    const link = element("a", "This trial on the team's page");
    link.href = item.href;
    part.append(element("p", item.title), link);
    return part;
  }
  const facts = element("dl");
  const heads = item.closest("table").tHead.rows[0].cells;
  for (const cell of [...item.cells].slice(2)) {
    const shown = cell.cloneNode(true);
    shown.querySelector("details")?.remove();
    if (!shown.textContent.trim()) continue;
    const line = element("div");
    line.append(element("dt", heads[cell.cellIndex].textContent), element("dd", shown.textContent.trim()));
    facts.append(line);
  }
  part.append(facts, ...item.querySelector(".more > div").cloneNode(true).children);
  return part;
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a.level");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const row = document.getElementById(link.hash.slice(1));
  if (!row && !link.dataset.name) return; // it lies on another page, which opens it
  event.preventDefault();
  show(row ?? link);
});

// the simulation of a level: blocks move evenly between the key frames of `data-motion`, which Python's `motion` writes

let playing = 0; // the animation frame that comes next
const stop = () => { cancelAnimationFrame(playing); playing = 0; };
dialog.addEventListener("close", stop);

function waysOf(text) {
  return text.split("|").map((part) => {
    const [name, ...numbers] = part.split(",");
    const [width, height, ...values] = numbers.map(Number);
    const keys = [];
    let key = [0, 0, 0, 0];
    for (let at = 0; at < values.length; at += 4) {
      key = key.map((value, axis) => value + values[at + axis]);
      keys.push(key);
    }
    return { kind: name[0], place: Number(name.slice(1)), width, height, keys };
  });
}

/** Return x, y and angle of a block after so many tenths of a second. */
function placeAt(keys, time) {
  const next = keys.findIndex((key) => key[0] > time);
  if (next < 1) return keys.at(next < 0 ? -1 : 0).slice(1);
  const [before, after] = [keys[next - 1], keys[next]];
  const part = (time - before[0]) / (after[0] - before[0]);
  return before.slice(1).map((value, axis) => value + part * (after[axis + 1] - value));
}

/** Return the outlines of the blocks that a path draws. */
const ringsOf = (path) => path?.getAttribute("d").match(/[^z]+z/g) ?? [];

/** Put the blocks that stayed into a picture one by one, and return a function that shows a moment. */
function build(svg, rings) {
  const path = svg.querySelector("path.stayed");
  const blocks = rings.map(() => path.cloneNode());
  rings.forEach((ring, place) => blocks[place].setAttribute("d", ring));
  path.replaceWith(...blocks);
  return (time) => blocks.forEach((block, place) => {
    const height = Math.max(0, place + 1 - time / DROP);
    block.setAttribute("transform", `translate(0 ${-VIEW * height})`);
  });
}

/** Put the moving blocks into a picture, in place of their outlines, and return a function that shows a moment. */
function stage(svg, ways) {
  for (const [kind, name] of [["s", "stayed"], ["m", "moved"]]) {
    const path = svg.querySelector(`path.${name}`);
    const moving = new Set(ways.filter((way) => way.kind === kind).map((way) => way.place));
    path?.setAttribute("d", ringsOf(path).filter((_, place) => !moving.has(place)).join(""));
  }
  const blocks = ways.map(({ kind, width, height }) => {
    const block = document.createElementNS(SVG, "path");
    block.setAttribute("class", kind === "s" ? "stayed" : "moved");
    block.setAttribute("d", `M${-width / 2} ${-height / 2}h${width}v${height}h${-width}z`);
    svg.append(block);
    return block;
  });
  const [[left, right], [top, bottom]] = [1, 2].map((axis) => {
    const reach = ways.flatMap(({ width, keys }) => keys.flatMap((key) => [key[axis] - width / 2, key[axis] + width / 2]));
    // what flies farther than one picture to each side leaves the view
    return [Math.max(-VIEW, Math.min(0, ...reach)), Math.min(2 * VIEW, Math.max(VIEW, ...reach))];
  });
  const side = Math.max(right - left, bottom - top);
  svg.setAttribute("viewBox", `${(left + right - side) / 2} ${(top + bottom - side) / 2} ${side} ${side}`);
  return (time) => ways.forEach(({ kind, keys }, index) => {
    const [x, y, angle] = placeAt(keys, time);
    blocks[index].setAttribute("transform", `translate(${x} ${y}) rotate(${angle})`);
    blocks[index].setAttribute("visibility", kind === "b" && time > keys.at(-1)[0] ? "hidden" : "visible");
  });
}

/** Add a player that ends after so many tenths of a second; `prepare` returns the function that shows a moment. */
function addPlayer(part, frame, end, prepare) {
  const time = element("input");
  Object.assign(time, { type: "range", min: 0, max: end, value: end });
  time.setAttribute("aria-label", "Time of the simulation");
  const words = element("output", `${(end / 10).toFixed(1)} s`);
  let draw = null;
  let moment = end;
  const showMoment = (tenths) => {
    draw ??= prepare();
    draw(tenths);
    time.value = moment = tenths;
    words.textContent = `${(tenths / 10).toFixed(1)} of ${(end / 10).toFixed(1)} s`;
  };
  const turn = (plays) => {
    stop();
    button.textContent = plays ? "Pause" : "Play";
    if (!plays) return;
    if (moment >= end) moment = 0;
    let begun = null;
    const step = (now) => {
      begun ??= now - 100 * moment;
      showMoment(Math.min(end, (now - begun) / 100));
      if (moment < end) playing = requestAnimationFrame(step);
      else turn(false);
    };
    playing = requestAnimationFrame(step);
  };
  const button = clickable("Play", () => turn(!playing));
  frame.addEventListener("click", () => button.click());
  time.addEventListener("input", () => { turn(false); showMoment(Number(time.value)); });
  const player = element("div", "", "player");
  player.append(button, time, words);
  part.append(player);
}

// what a reader chose stands in the address: the place of what it filters, `?`, and the values

function addressed() {
  const [place, values] = location.hash.slice(1).split("?");
  return { place, values: values === undefined ? null : new URLSearchParams(values) };
}

/** Write values to the address, without those that are empty. */
function keep(place, values) {
  const chosen = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  history.replaceState(null, "", `#${place}${chosen.size ? `?${chosen}` : ""}`);
}

const choosers = new Map(); // by place, the function that chooses what the values in the address say

// fields to search and choose, above what they filter

function labelled(words, control) {
  const label = element("label", words);
  label.append(control);
  return label;
}

/** Return a list of the different values with their numbers, below a first entry for all of them. */
function choice(words, values) {
  const numbers = new Map();
  for (const value of values) if (value) numbers.set(value, (numbers.get(value) ?? 0) + 1);
  const select = element("select");
  const options = [...numbers].sort().map(([name, number]) => new Option(`${name} (${number})`, name));
  select.append(new Option(words, ""), ...options);
  return select;
}

/**
 * Add fields that hide the items which do not match: one for text if it has a label, and a list for each of `choices`,
 * its label, the words for all, and the values of an item. While a reader searches, each of `parts` with a match opens.
 */
function addFinder({ before, items, noun, label = "", choices = [], parts = [], buttons = [] }) {
  const input = element("input");
  input.type = "search";
  const place = before.parentElement.closest("section[id]").id;
  const lists = choices.map(([name, words, valuesOf]) => ({ name, valuesOf, list: choice(words, items.flatMap(valuesOf)) }));
  const controlsOf = { find: input, ...Object.fromEntries(lists.map(({ name, list }) => [name.toLowerCase(), list])) };
  const count = element("p");
  count.setAttribute("role", "status");
  const hiddenAtFirst = new Set(items.filter((item) => item.hidden));
  const find = () => {
    const wanted = input.value.trim().toLowerCase();
    const chosen = lists.filter(({ list }) => list.value);
    const seeks = Boolean(wanted || chosen.length);
    for (const item of items) {
      const matches = item.textContent.toLowerCase().includes(wanted)
        && chosen.every(({ list, valuesOf }) => valuesOf(item).includes(list.value));
      item.hidden = seeks ? !matches : hiddenAtFirst.has(item);
    }
    for (const part of parts) {
      part.hidden = seeks && !items.some((item) => !item.hidden && part.contains(item));
      if (seeks) part.open = !part.hidden;
    }
    count.textContent = seeks ? `${items.filter((item) => !item.hidden).length} of ${items.length} ${noun}` : "";
  };
  const fields = lists.filter(({ list }) => list.options.length > 2).map(({ name, list }) => labelled(name, list));
  const controls = element("div", "", "find");
  controls.setAttribute("role", "search");
  controls.setAttribute("aria-label", `Find ${noun}${place.includes(":") ? ` of ${place.split(":")[0]}` : ""}`);
  controls.append(...(label ? [labelled(label, input)] : []), ...fields, ...buttons, count);
  controls.addEventListener("input", () => {
    find();
    keep(place, Object.fromEntries(Object.entries(controlsOf).map(([name, control]) => [name, control.value])));
  });
  choosers.set(place, (values) => {
    for (const [name, control] of Object.entries(controlsOf)) control.value = values.get(name) ?? "";
    find();
  });
  before.before(controls);
}

const all = (selector, node = document) => [...node.querySelectorAll(selector)];

for (const list of all("#levels > .levels")) {
  addFinder({
    before: list,
    items: [...list.children],
    noun: "levels",
    choices: [
      ["Letter", "all letters", (item) => [item.dataset.letter]],
      ["Team", "best of all teams", (item) => [item.dataset.team]],
    ],
  });
}

for (const section of all(".team-levels")) {
  addFinder({
    before: section.querySelector(".model, .wide"),
    items: all("tr.trial", section),
    noun: "trials",
    label: "Find in trials and replies",
    parts: all("details:has(.trials)", section),
  });
}

for (const section of all(".grades:has(.leaf)")) { // by their words, what they are and their category
  const parts = all(".node", section);
  const turn = (isOpen) => parts.forEach((node) => { node.open = isOpen; });
  addFinder({
    before: section.querySelector(".node, .leaf"),
    items: all(".leaf", section),
    noun: "leaves",
    label: "Find in criteria and reasons",
    choices: [
      ["Leaves", "all leaves", (leaf) => leaf.dataset.kinds.split("|")],
      ["Category", "all categories", (leaf) => [leaf.dataset.category]],
    ],
    parts,
    buttons: parts.length ? [clickable("Open all", () => turn(true)), clickable("Close all", () => turn(false))] : [],
  });
}

// sorting a table by a column

/** Return the number in a cell, `<0.01` below 0.01; no number is below all others. */
function numberIn(text) {
  const number = parseFloat(text.replace(/[<,]/g, ""));
  return Number.isNaN(number) ? -Infinity : number - (text.startsWith("<") ? 1e-9 : 0);
}

function sort(table, column) {
  const heads = table.tHead.rows[0].cells;
  const before = heads[column].getAttribute("aria-sort");
  const isDown = before === "ascending" || (!before && column > 1); // names and ranks begin with the first
  for (const head of heads) head.removeAttribute("aria-sort");
  heads[column].setAttribute("aria-sort", isDown ? "descending" : "ascending");
  const textOf = (row) => row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows].sort((one, other) => {
    const [first, second] = [textOf(one), textOf(other)];
    const order = numberIn(first) - numberIn(second) || first.localeCompare(second, "en", { numeric: true }); // two texts: NaN
    return isDown ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const table of all("table.sortable")) {
  for (const head of table.tHead.rows[0].cells) {
    const place = head.cellIndex;
    for (const row of table.rows) row.cells[place]?.setAttribute("data-label", head.textContent); // for narrow screens
    head.replaceChildren(clickable(head.textContent, () => sort(table, place)));
  }
}

// two lines of the ranking beside each other

const wordsOf = (cell) => cell.textContent.trim().replace(/\s+/g, " ");

/** Return by how much the number that begins a text is above that of another. */
function difference(text, other) {
  const above = numberIn(text) - numberIn(other);
  if (!Number.isFinite(above)) return "";
  const digits = Math.max(...[text, other].map((words) => /^[^ ]*\.(\d+)/.exec(words)?.[1].length ?? 0));
  return `${above > 0 ? "+" : ""}${above.toFixed(digits)}`;
}

function compared(table, rows) {
  const figures = element("table", "", "standing");
  const line = (name, ...values) => {
    const row = element("tr");
    const head = element("th", name);
    head.scope = "row";
    row.append(head, ...values.map((value) => element("td", value, "number")));
    return row;
  };
  const names = rows.map((row) => row.querySelector("th a").textContent);
  const head = line("figure", ...names, "difference");
  head.replaceChildren(...[...head.cells].map(({ textContent }) => element("th", textContent)));
  figures.createTHead().append(head);
  const body = figures.createTBody();
  [...table.tHead.rows[0].cells].slice(2).forEach((cell, place) => {
    const [one, other] = rows.map((row) => wordsOf(row.cells[place + 2]));
    body.append(line(cell.textContent, one, other, difference(one, other)));
  });
  const letters = document.querySelector("#letters .wide").cloneNode(true);
  letters.setAttribute("aria-label", "Compared letter by letter");
  for (const row of all("tr[data-team]", letters)) {
    if (!rows.some(({ dataset }) => dataset.team === row.dataset.team)) row.remove();
  }
  return [element("h3", names.join(" and ")), figures, letters];
}

for (const table of all("table.ranking")) {
  const rows = all("tr[data-team]", table);
  const panel = element("div", "", "compared");
  panel.setAttribute("aria-live", "polite");
  table.closest(".wide").after(panel);
  let chosen = []; // at most two, in the order of the clicks
  const compare = (teams) => {
    chosen = teams;
    boxes.forEach((box, place) => { box.checked = chosen.includes(rows[place]); });
    panel.replaceChildren(...(chosen.length === 2 ? compared(table, chosen) : []));
  };
  const boxes = rows.map((row) => {
    const box = element("input");
    box.type = "checkbox";
    box.setAttribute("aria-label", `compare ${row.querySelector("th a").textContent}`);
    box.addEventListener("change", () => {
      const others = chosen.filter((other) => other !== row);
      compare(box.checked ? [...others.slice(-1), row] : others);
      keep("ranking", { compare: chosen.map(({ dataset }) => dataset.team).join(",") });
    });
    const label = labelled("", box);
    label.append("compare");
    const head = row.querySelector("th");
    head.insertBefore(label, head.querySelector("small"));
    return box;
  });
  choosers.set("ranking", (values) => {
    const names = new Set((values.get("compare") ?? "").split(","));
    compare([...names].flatMap((name) => rows.filter(({ dataset }) => dataset.team === name)).slice(0, 2));
  });
}

// a link opens what it leads to, and all around it

function reveal() {
  const { place, values } = addressed();
  if (values) choosers.get(place)?.(values);
  const goal = document.getElementById(place); // ids need no encoding
  if (!goal) return;
  for (let part = goal; part; part = part.parentElement) {
    if (part.tagName === "DETAILS") part.open = true;
  }
  if (values || goal.closest("details")) goal.scrollIntoView();
  if (goal.matches("tr.trial")) show(goal);
}

addEventListener("hashchange", reveal);
reveal();
