// A plane of arrows whose points are dragged, or moved by the arrow keys. A point: {name, says, kind, at: [x, y]}.

import { draw, make } from "./elements.js";

const REACH = 1.6; // the plane goes so far to each side
const STEP = 0.05; // of an arrow key; with Shift five times as far
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class Plane {
  // moved(point, byKeyboard) is called when the reader has moved a point.
  constructor(element, describedBy, moved) {
    this.element = element;
    this.describedBy = describedBy;
    this.moved = moved;
    this.arrows = draw("svg", { viewBox: `${-REACH} ${-REACH} ${2 * REACH} ${2 * REACH}`, "aria-hidden": "true" });
    element.replaceChildren(this.arrows);
    this.handles = new Map();
  }

  show(points) {
    for (const [name, handle] of this.handles) {
      if (points.some((point) => point.name === name)) continue;
      handle.remove();
      this.handles.delete(name);
    }
    this.arrows.replaceChildren(
      draw("line", { class: "axis", x1: -REACH, x2: REACH, y1: 0, y2: 0 }), draw("line", { class: "axis", x1: 0, x2: 0, y1: -REACH, y2: REACH }),
      ...points.map(({ kind, at: [x, y] }) => draw("line", { class: kind, x1: 0, y1: 0, x2: x, y2: -y })),
    );
    for (const point of points) this.place(point);
  }

  place(point) {
    const handle = this.handles.get(point.name) ?? this.add(point);
    const [x, y] = point.at;
    handle.point = point;
    handle.style.left = `${(50 * (x + REACH)) / REACH}%`;
    handle.style.top = `${(50 * (REACH - y)) / REACH}%`;
    handle.setAttribute("aria-label", `${point.says}: ${x.toFixed(2)}, ${y.toFixed(2)}`);
  }

  add(point) {
    const handle = make("button", { type: "button", className: `handle ${point.kind}`, textContent: point.name });
    handle.setAttribute("aria-describedby", this.describedBy);
    handle.addEventListener("pointerdown", (event) => handle.setPointerCapture(event.pointerId));
    handle.addEventListener("pointermove", (event) => {
      if (handle.hasPointerCapture(event.pointerId)) this.move(handle.point, this.under(event), false);
    });
    handle.addEventListener("keydown", (event) => {
      const direction = KEYS[event.key];
      if (!direction) return;
      event.preventDefault(); // the page stays where it is
      const step = event.shiftKey ? 5 * STEP : STEP;
      this.move(handle.point, handle.point.at.map((one, i) => one + step * direction[i]), true);
    });
    this.handles.set(point.name, handle);
    this.element.append(handle);
    return handle;
  }

  under(event) {
    const { left, top, width, height } = this.arrows.getBoundingClientRect();
    return [REACH * ((2 * (event.clientX - left)) / width - 1), REACH * (1 - (2 * (event.clientY - top)) / height)];
  }

  move(point, to, byKeyboard) {
    point.at = to.map((one) => Math.round(100 * Math.max(-REACH, Math.min(REACH, one))) / 100);
    this.moved(point, byKeyboard);
  }
}
