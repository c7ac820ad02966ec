// Draws the levels of a team's page from the outlines in its tables, and opens what a link leads to.
// All texts on the page are strangers': they are only ever set as text, never as markup.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

function element(name, text, className) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function picture(row) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 240 240");
  svg.setAttribute("aria-hidden", "true");
  for (const name of ["stayed", "moved"]) {
    if (!row.dataset[name]) continue;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", row.dataset[name]);
    svg.append(path);
  }
  return svg;
}

function rowsOf(letter) {
  return [...letter.querySelectorAll("table.trials > tbody > tr")];
}

function nameOf(letter, row) {
  return `${letter.dataset.letter} ${row.cells[0].textContent}`;
}

// small pictures in a letter's line, drawn when they come near the window
const drawing = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    drawing.unobserve(target);
    for (const row of rowsOf(target.closest(".letter"))) {
      const frame = element("span", "", row.dataset.level === undefined ? "frame failed" : "frame");
      if (row.dataset.level !== undefined) frame.append(picture(row));
      target.append(frame);
    }
  }
}, { rootMargin: "300px" });

for (const strip of document.querySelectorAll(".strip")) {
  strip.hidden = false;
  drawing.observe(strip);
}

// the larger pictures of a letter that is opened
function fill(letter) {
  const gallery = letter.querySelector(".gallery");
  if (gallery.childElementCount) return;
  for (const row of rowsOf(letter)) {
    const button = element("button");
    const isLevel = row.dataset.level !== undefined;
    const frame = element("span", isLevel ? "" : row.cells[row.cells.length - 1].textContent, isLevel ? "frame" : "frame failed");
    if (isLevel) frame.append(picture(row));
    const caption = element("span", `${nameOf(letter, row)} `, "name");
    caption.append(element("b", row.cells[1].textContent));
    button.type = "button";
    button.append(frame, caption);
    button.addEventListener("click", () => show(letter, row));
    gallery.append(button);
  }
  gallery.hidden = false;
}

for (const letter of document.querySelectorAll(".letter")) {
  letter.addEventListener("toggle", () => { if (letter.open) fill(letter); });
}

// one level large, with all that is known of it
const dialog = document.createElement("dialog");
dialog.setAttribute("aria-labelledby", "level-name");
document.body.append(dialog);
dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

function figure(value) {
  return value === 0 ? "0" : value.toPrecision(3).replace("e-", " × 10^-");
}

function show(letter, row) {
  const rows = rowsOf(letter);
  const place = rows.indexOf(row);
  const heads = [...row.closest("table").tHead.rows[0].cells].map((cell) => cell.textContent);
  const { weight, diversity } = letter.dataset;
  const model = letter.closest(".model");

  const bar = element("div", "", "bar");
  const title = element("h2", `${nameOf(letter, row)}, ${model.querySelector("h3").textContent}`);
  title.id = "level-name";
  bar.append(title);
  for (const [words, step] of [["Previous", -1], ["Next", 1]]) {
    const button = element("button", words);
    button.type = "button";
    button.disabled = !rows[place + step];
    button.addEventListener("click", () => show(letter, rows[place + step]));
    bar.append(button);
  }
  const close = element("button", "Close");
  close.type = "button";
  close.addEventListener("click", () => dialog.close());
  bar.append(close);

  const left = element("div");
  const frame = element("div", "", row.dataset.level === undefined ? "frame failed" : "frame");
  frame.append(row.dataset.level === undefined ? "No level" : picture(row));
  left.append(frame);
  const facts = element("dl");
  const pair = (name, value) => {
    if (!value) return;
    const line = element("div");
    line.append(element("dt", name), element("dd", value));
    facts.append(line);
  };
  heads.slice(1).forEach((head, index) => pair(head, row.cells[index + 1].textContent.trim()));
  pair("probabilities", row.dataset.read);
  left.append(facts);

  const right = element("div");
  if (row.dataset.score) {
    const score = Number(row.dataset.score);
    const trials = Number(model.dataset.trials);
    const letters = Number(model.dataset.letters);
    right.append(
      element("h3", "Arithmetic"),
      element("p", `weight ${weight} × stability ${row.cells[2].textContent} × similarity ${row.cells[3].textContent} = trial score ${figure(score)}`),
      element("p", `× diversity ${diversity} ÷ ${trials} trials ÷ ${letters} letters = ${figure(score * Number(diversity) / trials / letters)} of the prompt score`),
    );
  }
  if (row.dataset.calls) right.append(element("h3", "Calls: block and column"), element("pre", row.dataset.calls));
  const reply = letter.querySelectorAll(".replies pre")[place];
  right.append(element("h3", "Reply"), element("pre", reply.lastChild.textContent.trim()));

  const body = element("div", "", "body");
  body.append(left, right);
  dialog.replaceChildren(bar, body);
  if (!dialog.open) dialog.showModal();
}

// a link opens what it leads to, and all around it
function reveal() {
  let target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const goal = target;
  for (; target; target = target.parentElement) {
    if (target.tagName === "DETAILS") target.open = true;
  }
  if (goal && goal.closest("details")) goal.scrollIntoView();
}

addEventListener("hashchange", reveal);
reveal();
