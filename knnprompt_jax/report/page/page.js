"use strict";
for (const figure of document.querySelectorAll("figure.map")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const map = figure.querySelector(".points");
  const marks = [...map.querySelectorAll(".point")];
  const links = map.querySelector(".links");
  const details = figure.querySelector(".details");
  const help = [...details.childNodes];
  const buttons = [...figure.querySelectorAll(".legend button")];
  const positions = marks.map((mark) => {
    const { e, f } = mark.transform.baseVal.consolidate().matrix;
    return [e, f];
  });
  const REACH = 24; // Screen pixels around a mark.
  let pinned = -1, shown = "-1 -1"; // The mark that was chosen; what stands in the details.

  function make(tag, text, name) {
    const element = document.createElement(tag);
    element.textContent = text;
    element.dir = "auto";
    if (name) element.className = name;
    return element;
  }

  function describe(point) {
    const other = point.other ? ` ${data.other}: ${point.other}.` : "";
    if (!point.prediction) return `Example. Label: ${point.label}.${other}`;
    return `Test row. Label: ${point.label}. Prediction: ${point.prediction}.${other}`;
  }

  function nearest(event) {
    const box = map.getBoundingClientRect();
    const scale = box.width / map.viewBox.baseVal.width;
    let best = -1, closest = REACH;
    positions.forEach(([x, y], index) => {
      if (isHidden(index)) return;
      const far = Math.hypot(box.left + x * scale - event.clientX, box.top + y * scale - event.clientY);
      if (far < closest) [best, closest] = [index, far];
    });
    return best;
  }

  function hover(index) {
    marks.forEach((mark, other) => mark.classList.toggle("near", other === index));
    show(index < 0 ? pinned : index);
  }

  function show(index) {
    const wanted = `${index} ${pinned}`;
    if (wanted === shown) return;
    shown = wanted;
    details.ariaLive = index === pinned ? "polite" : "off";
    details.scrollTop = 0;
    if (index < 0) details.replaceChildren(...help);
    else {
      const point = data.points[index];
      details.replaceChildren(make("p", describe(point)), make("p", point.text || "(empty)"));
      if (index === pinned) details.append(...neighbours(index));
    }
  }

  function neighbours(index) {
    const near = around(index), list = make("ol", "");
    list.append(...near.map(([at, far]) => entry(at, `${Number(far.toPrecision(3))} ${data.unit}`)));
    const title = data.points[index].prediction ? "Nearest examples:" : `Among the nearest examples of ${near.length}:`;
    return [make("p", title), list];
  }

  function around(index) {
    const point = data.points[index];
    if (point.prediction) return point.neighbours;
    return data.points.flatMap((other, at) => other.neighbours.filter(([to]) => to === index).map(([, far]) => [at, far]));
  }

  function entry(index, before) {
    const item = make("li", ""), button = make("button", data.points[index].text || "(empty)");
    button.type = "button";
    button.addEventListener("click", () => choose(index));
    item.append(make("span", before, "distance"), " ", make("b", data.points[index].label), " ", button);
    return item;
  }

  function choose(index) {
    const near = around(index);
    pinned = index;
    marks.forEach((mark, other) => mark.classList.toggle("chosen", other === index));
    const chosen = new Set([index, ...near.map(([at]) => at)]);
    marks.forEach((mark, other) => mark.classList.toggle("kept", chosen.has(other)));
    map.classList.add("dim");
    links.replaceChildren(...near.map(([at]) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
      const ends = { x1: positions[index][0], y1: positions[index][1], x2: positions[at][0], y2: positions[at][1] };
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
      return line;
    }));
    show(index);
    focus(index);
  }

  function clear() {
    map.classList.remove("dim");
    marks.forEach((mark) => mark.classList.remove("chosen", "kept"));
    links.replaceChildren();
    pinned = -1;
    show(-1);
  }

  const isHidden = (index) => marks[index].matches(".filtered:not(.kept)");

  function filter() {
    const pressed = buttons.filter((button) => button.getAttribute("aria-pressed") === "true").map((button) => button.dataset);
    const labels = pressed.flatMap(({ label }) => label ?? []), kinds = pressed.flatMap(({ kind }) => kind ?? []);
    marks.forEach((mark, index) => {
      const hasLabel = !labels.length || labels.includes(data.points[index].label || data.points[index].prediction);
      const hasKind = !kinds.length || kinds.some((kind) => mark.classList.contains(kind));
      mark.classList.toggle("filtered", !(hasLabel && hasKind));
    });
    clear();
    reach(Math.max(0, marks.findIndex((_, index) => !isHidden(index))));
  }

  function reach(index) {
    marks.forEach((mark, other) => mark.setAttribute("tabindex", other === index ? 0 : -1));
  }

  function focus(index) {
    reach(index);
    marks[index].setAttribute("aria-label", `${describe(data.points[index])} ${data.points[index].text}`);
    marks[index].focus({ preventScroll: true });
  }

  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function step(from, [dx, dy]) {
    let best = from, least = Infinity;
    positions.forEach(([x, y], index) => {
      const along = (x - positions[from][0]) * dx + (y - positions[from][1]) * dy;
      const aside = Math.abs((x - positions[from][0]) * dy + (y - positions[from][1]) * dx);
      if (index !== from && !isHidden(index) && along > 0 && along + 2 * aside < least) [best, least] = [index, along + 2 * aside];
    });
    return best;
  }

  map.addEventListener("pointermove", (event) => hover(nearest(event)));
  map.addEventListener("pointerleave", () => hover(-1));
  map.addEventListener("click", (event) => {
    const index = nearest(event);
    if (index < 0) clear();
    else choose(index);
  });
  map.addEventListener("focusin", (event) => hover(marks.indexOf(event.target)));
  map.addEventListener("focusout", (event) => {
    if (!details.contains(event.relatedTarget)) hover(-1);
  });
  map.addEventListener("keydown", (event) => {
    const index = marks.indexOf(event.target);
    if (event.key in directions) focus(step(index, directions[event.key]));
    else if (event.key === "Enter" || event.key === " ") choose(index);
    else if (event.key === "Escape") clear();
    else return;
    event.preventDefault();
  });
  buttons.forEach((button) => button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") !== "true");
    filter();
  }));
}
