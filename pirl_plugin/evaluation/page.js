// The script of all report pages: the buttons that copy commands, and the map of images.
"use strict";

for (const button of document.querySelectorAll(".command button")) {
  button.addEventListener("click", () => {
    const code = button.parentElement.querySelector("code");
    getSelection().selectAllChildren(code);
    document.execCommand("copy"); // navigator.clipboard does not work in local files
    button.textContent = "Copied";
  });
}

const content = document.getElementById("map-content");
if (content) {
  showMap(JSON.parse(content.textContent), document.getElementById("map"));
}

/**
 * Show a map of images: canvas, panel, legend and search.
 *
 * Images are numbers from 0; -1 is none. Positions are shares of the map's side; places are pixels
 * on the canvas.
 *
 * @param map the content written by image_map.py
 * @param root the map's element
 */
function showMap(map, root) {
  const MARGIN = 28; // pixels around the outermost images
  const MOST_ZOOM = 40;
  const STEP = 1.5; // one click on a zoom button
  const DRAG = 5; // pixels that make a click a drag
  const REACH = 12; // pixels between a pointer and an image that it still hits

  const canvas = root.querySelector("canvas");
  const context = canvas.getContext("2d");
  const tiles = root.querySelector("img");
  const panel = root.querySelector(".panel");
  const search = root.querySelector("input[type=search]");
  const onlyWrong = root.querySelector("[name=wrong]");
  const number = map.names.length;
  const columns = Math.ceil(Math.sqrt(number));
  const all = map.names.map((_, image) => image);
  const lowerNames = map.names.map((name) => name.toLowerCase());
  const isLabeled = map.labels.some((label) => label);
  const colored = isLabeled ? map.labels : map.predicted; // class names; empty: no class
  const classes = [...new Set([...map.labels, ...map.predicted])]
    .filter((label) => label)
    .sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));

  let side = 0; // of the canvas, in CSS pixels
  const view = { zoom: 1, left: 0, top: 0 };
  let current = -1; // below the mouse, or reached by the keyboard
  let selected = -1;
  let sought = "";
  const hiddenClasses = new Set();
  const pointers = new Map(); // those that are down: identifier -> place
  let dragged = false;

  // What is shown, and where

  const isWrong = (image) =>
    map.labels[image] && map.predicted[image] && map.labels[image] !== map.predicted[image];
  const isVisible = (image) =>
    !hiddenClasses.has(colored[image]) && !(onlyWrong?.checked && !isWrong(image));
  const isFound = (image) => lowerNames[image].includes(sought);
  const extent = (numbers) => Math.max(...numbers) - Math.min(...numbers);
  const unit = Math.max(extent(map.x), extent(map.y)) || 1; // 0 if all features are equal
  function shares(numbers) {
    const middle = (Math.max(...numbers) + Math.min(...numbers)) / 2;
    return numbers.map((number) => 0.5 + (number - middle) / unit);
  }
  const positions = { x: shares(map.x), y: shares(map.y) };
  const place = (image) => {
    const width = (side - 2 * MARGIN) * view.zoom;
    return {
      x: MARGIN + positions.x[image] * width - view.left,
      y: MARGIN + positions.y[image] * width - view.top,
    };
  };

  function tileSide() {
    const unzoomed = Math.min(44, Math.max(7, side * Math.sqrt(0.6 / number)));
    return Math.min(Math.max(unzoomed, map.side), unzoomed * view.zoom ** 0.7);
  }

  function colorOf(label) {
    return label ? `hsl(${(210 + 137.5 * classes.indexOf(label)) % 360} 70% 50%)` : "#8b929b";
  }

  // Drawing

  function drawTile(target, image, x, y, size) {
    const left = (image % columns) * map.side;
    const top = Math.floor(image / columns) * map.side;
    target.drawImage(tiles, left, top, map.side, map.side, x - size / 2, y - size / 2, size, size);
  }

  function draw() {
    const ratio = devicePixelRatio;
    const size = tileSide();
    const frame = classes.length > 0 ? Math.max(1, size / 14) : 0;
    const linked = selected >= 0 ? map.nearest[selected].filter(isVisible) : [];
    const front = [...linked, selected, current].filter((image) => image >= 0 && isVisible(image));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, side, side);

    const drawFramed = (image, scale) => {
      const { x, y } = place(image);
      const outer = size * scale + 2 * frame;
      if (x < -outer || y < -outer || x > side + outer || y > side + outer) {
        return;
      }
      if (frame > 0) {
        context.fillStyle = colorOf(colored[image]);
        context.fillRect(x - outer / 2, y - outer / 2, outer, outer);
      }
      drawTile(context, image, x, y, size * scale);
    };

    for (const image of all.filter(isVisible)) {
      context.globalAlpha = isFound(image) ? 1 : 0.12;
      drawFramed(image, 1);
    }
    if (sought) { // found images lie above the others
      context.globalAlpha = 1;
      all.filter((image) => isVisible(image) && isFound(image)).forEach((image) => drawFramed(image, 1.2));
    }
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(root).getPropertyValue("--link");
    context.lineWidth = 2.5;
    for (const image of linked) {
      const from = place(selected);
      const to = place(image);
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.lineTo(to.x, to.y);
      context.stroke();
    }
    for (const image of front) {
      const scale = Math.max(1.3, 26 / size);
      drawFramed(image, scale);
      if (image === selected || image === current) {
        const { x, y } = place(image);
        const outer = size * scale + 2 * frame + 3;
        context.strokeRect(x - outer / 2, y - outer / 2, outer, outer);
      }
    }
  }

  let isDrawing = false;
  function redraw() {
    if (!isDrawing) {
      isDrawing = true;
      requestAnimationFrame(() => {
        isDrawing = false;
        draw();
      });
    }
  }

  function resize() {
    side = canvas.clientWidth;
    canvas.width = canvas.height = Math.round(side * devicePixelRatio);
    draw(); // at once, because a new size clears the canvas
  }

  // The panel: one image, and its nearest images

  function element(name, text = "", className = "") {
    const created = document.createElement(name);
    created.textContent = text;
    created.className = className;
    return created;
  }

  function pictureOf(image) {
    const picture = element("canvas");
    picture.width = picture.height = map.side;
    picture.setAttribute("role", "img");
    picture.setAttribute("aria-label", map.names[image]);
    drawTile(picture.getContext("2d"), image, map.side / 2, map.side / 2, map.side);
    return picture;
  }

  function classesOf(image) {
    const lines = [];
    if (map.labels[image]) {
      lines.push(`class: ${map.labels[image]}`);
    }
    if (map.predicted[image]) {
      lines.push(`predicted: ${map.predicted[image]}, ${map.percent[image]} %`);
    }
    return lines;
  }

  function showPanel() {
    const image = current >= 0 ? current : selected;
    root.classList.toggle("empty", image < 0);
    if (image < 0) {
      panel.replaceChildren(element("p", panel.dataset.empty));
      return;
    }
    const figure = element("figure");
    const caption = element("figcaption");
    caption.append(element("strong", map.names[image]));
    for (const line of classesOf(image)) {
      caption.append(element("div", line, isWrong(image) ? "wrong" : ""));
    }
    figure.append(pictureOf(image), caption);
    const near = element("div", "", "near");
    for (const other of map.nearest[image]) {
      const button = element("button");
      button.type = "button";
      button.append(pictureOf(other), element("span", map.names[other]));
      button.title = [map.names[other], ...classesOf(other)].join("\n");
      button.addEventListener("click", () => select(other));
      near.append(button);
    }
    panel.replaceChildren(figure, element("h3", near.children.length ? "Nearest images" : ""), near);
  }

  function point(image) {
    if (image !== current) {
      current = image;
      showPanel();
      redraw();
    }
  }

  function select(image) {
    selected = image;
    current = -1;
    if (image >= 0) {
      bringIntoView(image);
    }
    showPanel();
    redraw();
  }

  // Moving and zooming

  function moveTo(left, top) {
    const most = (view.zoom - 1) * (side - 2 * MARGIN);
    view.left = Math.min(Math.max(left, 0), most);
    view.top = Math.min(Math.max(top, 0), most);
    canvas.style.touchAction = view.zoom > 1 ? "none" : "pan-y"; // so that a page can be scrolled
    redraw();
  }

  function zoomTo(zoom, x = side / 2, y = side / 2) {
    const previous = view.zoom;
    view.zoom = Math.min(Math.max(zoom, 1), MOST_ZOOM);
    const factor = view.zoom / previous;
    moveTo((view.left + x - MARGIN) * factor - x + MARGIN, (view.top + y - MARGIN) * factor - y + MARGIN);
    return factor !== 1;
  }

  function bringIntoView(image) {
    const { x, y } = place(image);
    const edge = MARGIN;
    const right = Math.max(0, x - side + edge) + Math.min(0, x - edge);
    const down = Math.max(0, y - side + edge) + Math.min(0, y - edge);
    moveTo(view.left + right, view.top + down);
  }

  function placeOf(event) {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  function imageAt({ x, y }) {
    let nearest = -1;
    let least = tileSide() / 2 + REACH;
    for (const image of all.filter(isVisible)) {
      const at = place(image);
      const distance = Math.max(Math.abs(at.x - x), Math.abs(at.y - y));
      if (distance < least) {
        least = distance;
        nearest = image;
      }
    }
    return nearest;
  }

  canvas.addEventListener("wheel", (event) => {
    const { x, y } = placeOf(event);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 30 : 1;
    if (zoomTo(view.zoom * Math.exp((-event.deltaY * lines) / 400), x, y)) {
      event.preventDefault(); // otherwise the page scrolls
    }
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    dragged = pointers.size > 0; // two fingers do not click
    pointers.set(event.pointerId, placeOf(event));
  });

  canvas.addEventListener("pointermove", (event) => {
    const to = placeOf(event);
    const from = pointers.get(event.pointerId);
    if (!from) {
      point(imageAt(to));
      return;
    }
    if (!dragged && Math.hypot(to.x - from.x, to.y - from.y) < DRAG) {
      return;
    }
    dragged = true;
    pointers.set(event.pointerId, to);
    const resting = [...pointers].filter(([identifier]) => identifier !== event.pointerId);
    if (resting.length === 0) {
      moveTo(view.left + from.x - to.x, view.top + from.y - to.y);
    } else { // two fingers
      const [, fixed] = resting[0];
      const stretch = Math.hypot(to.x - fixed.x, to.y - fixed.y) / Math.hypot(from.x - fixed.x, from.y - fixed.y);
      zoomTo(view.zoom * stretch, fixed.x, fixed.y);
    }
  });

  canvas.addEventListener("pointerup", (event) => {
    if (pointers.size === 1 && !dragged) {
      select(imageAt(placeOf(event)));
    }
  });
  for (const type of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(type, (event) => {
      pointers.delete(event.pointerId);
      dragged = dragged && pointers.size > 0;
    });
  }
  canvas.addEventListener("pointerleave", () => point(-1));

  // The keyboard

  function neighborTowards(image, right, down) {
    const from = place(image);
    let best = image;
    let least = Infinity;
    for (const other of all.filter(isVisible)) {
      const to = place(other);
      const along = (to.x - from.x) * right + (to.y - from.y) * down;
      const aside = Math.abs((to.x - from.x) * down) + Math.abs((to.y - from.y) * right);
      const distance = along + 2 * aside;
      if (along > 0 && distance < least) {
        least = distance;
        best = other;
      }
    }
    return best;
  }

  const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const KEYS = {
    "+": () => zoomTo(view.zoom * STEP),
    "=": () => zoomTo(view.zoom * STEP),
    "-": () => zoomTo(view.zoom / STEP),
    "0": () => zoomTo(1),
    "Enter": () => select(current >= 0 ? current : selected),
    " ": () => select(current >= 0 ? current : selected),
    "Escape": () => select(-1),
  };

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const arrow = ARROWS[event.key];
    if (arrow) {
      const from = current >= 0 ? current : selected;
      const to = from >= 0 ? neighborTowards(from, ...arrow) : imageNearCenter();
      if (to >= 0) {
        bringIntoView(to);
        point(to);
      }
    } else if (KEYS[event.key]) {
      KEYS[event.key]();
    } else {
      return;
    }
    event.preventDefault();
  });

  function imageNearCenter() {
    const distance = (image) => Math.hypot(place(image).x - side / 2, place(image).y - side / 2);
    const visible = all.filter(isVisible);
    return visible.reduce((best, image) => (best < 0 || distance(image) < distance(best) ? image : best), -1);
  }

  // Controls

  root.querySelector("[name=in]").addEventListener("click", () => zoomTo(view.zoom * STEP));
  root.querySelector("[name=out]").addEventListener("click", () => zoomTo(view.zoom / STEP));
  root.querySelector("[name=whole]").addEventListener("click", () => zoomTo(1));

  function seek() {
    sought = search.value.trim().toLowerCase();
    const hits = all.filter((image) => isVisible(image) && isFound(image));
    root.querySelector("output").textContent = sought ? `${hits.length} of ${number} found` : "";
    redraw();
    return hits;
  }
  search.addEventListener("input", seek);
  search.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      const hits = seek();
      select(hits[(hits.indexOf(selected) + 1) % hits.length] ?? -1);
    }
  });

  function filter() {
    select(selected >= 0 && isVisible(selected) ? selected : -1);
    seek();
  }
  onlyWrong?.addEventListener("change", filter);

  const legend = root.querySelector(".legend");
  const boxes = [];
  const labels = [...classes, ""].filter((label) => classes.length > 0 && colored.includes(label));
  for (const label of labels) {
    const entry = element("label");
    const box = element("input");
    const swatch = element("i");
    const count = colored.filter((other) => other === label).length;
    box.type = "checkbox";
    box.checked = true;
    swatch.style.background = colorOf(label);
    box.addEventListener("change", () => {
      hiddenClasses[box.checked ? "delete" : "add"](label);
      filter();
    });
    boxes.push(box);
    entry.append(box, swatch, `${label || "no class"} (${count})`);
    legend.append(entry);
  }
  for (const [name, isShown] of [["all", true], ["none", false]]) {
    root.querySelector(`[name=${name}]`)?.addEventListener("click", () => {
      for (const [index, box] of boxes.entries()) {
        box.checked = isShown;
        hiddenClasses[isShown ? "delete" : "add"](labels[index]);
      }
      filter();
    });
  }

  addEventListener("load", () => { // the tiles, too
    new ResizeObserver(resize).observe(canvas);
    showPanel();
    root.dataset.ready = "";
  });
}
