// The map of all states on a canvas: one band for each depth, a cell for each state. Only what is on the screen is drawn.

const CELL_W = 236, CELL_H = 132, PAD = 18, BAND = 64, ROWS = 3;

class Atlas {
  constructor(canvas, pick) {
    Object.assign(this, { canvas, pick, scale: 1, x: 0, y: 0, selected: -1, hover: -1, path: [], dim: null, color: () => "#888", moved: false });
    this.context = canvas.getContext("2d");
    new ResizeObserver(() => this.resize()).observe(canvas.parentElement);
    canvas.addEventListener("wheel", (e) => { e.preventDefault(); this.zoom(Math.exp(-e.deltaY * (e.ctrlKey ? 0.01 : 0.0016)), e.offsetX, e.offsetY); }, { passive: false });
    canvas.addEventListener("pointerdown", (e) => { this.drag = { x: e.clientX, y: e.clientY, far: false }; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => this.pointerMoved(e));
    canvas.addEventListener("pointerup", (e) => {
      if (this.drag && !this.drag.far) { const n = this.at(e.offsetX, e.offsetY); if (n >= 0) this.pick(n); }
      this.drag = null;
    });
    canvas.addEventListener("pointerleave", () => { this.hover = -1; this.draw(); });
    canvas.addEventListener("dblclick", (e) => this.zoom(2.2, e.offsetX, e.offsetY));
  }

  // depth[n], parent[n] (-1), and for every state its edges [other, edge number] are given; cells of one parent stay together.
  show(model) {
    this.model = model;
    const bands = [];
    model.depth.forEach((d, n) => (bands[d] ??= []).push(n));
    const place = new Int32Array(model.depth.length);
    for (const band of bands) {
      band.sort((a, b) => (place[model.parent[a]] ?? -1) - (place[model.parent[b]] ?? -1) || a - b);
      band.forEach((n, i) => (place[n] = i));
    }
    const aspect = Math.max(0.6, this.canvas.clientWidth / Math.max(this.canvas.clientHeight, 1));
    const size = (c) => [c * (CELL_W + PAD), bands.reduce((h, b) => h + BAND + Math.ceil(b.length / c) * (CELL_H + PAD), 0)];
    let columns = 1, best = Infinity;
    for (let c = 1; c <= Math.max(...bands.map((b) => b.length)); c = Math.ceil(c * 1.1 + 0.5)) {
      const [w, h] = size(c), off = Math.abs(Math.log(w / h / aspect));
      if (off < best) { best = off; columns = c; }
    }
    this.columns = columns;
    [this.width, this.height] = size(columns);
    this.bands = [];
    this.px = new Float32Array(model.depth.length);
    this.py = new Float32Array(model.depth.length);
    let top = 0;
    bands.forEach((band, depth) => {
      const y0 = top + BAND, rows = Math.ceil(band.length / columns);
      band.forEach((n, i) => { this.px[n] = (i % columns) * (CELL_W + PAD); this.py[n] = y0 + Math.floor(i / columns) * (CELL_H + PAD); });
      this.bands.push({ depth, nodes: band, top, y0, rows });
      top = y0 + rows * (CELL_H + PAD);
    });
    this.place = place;
    this.fit();
  }

  resize() {
    const r = this.canvas.parentElement.getBoundingClientRect(), dpr = devicePixelRatio || 1;
    if (!r.width || !r.height) return;
    Object.assign(this.canvas, { width: Math.round(r.width * dpr), height: Math.round(r.height * dpr) });
    this.dpr = dpr;
    if (this.model && !this.moved) this.fit(); else this.draw();
  }

  fit() {
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    this.scale = Math.min((w - 40) / this.width, (h - 40) / this.height, 1.15);
    this.x = (w - this.width * this.scale) / 2;
    this.y = Math.max(8, (h - this.height * this.scale) / 2);
    this.moved = false;
    this.draw();
  }

  zoom(factor, cx = this.canvas.clientWidth / 2, cy = this.canvas.clientHeight / 2) {
    const s = Math.min(4, Math.max(0.004, this.scale * factor)), f = s / this.scale;
    Object.assign(this, { x: cx - (cx - this.x) * f, y: cy - (cy - this.y) * f, scale: s, moved: true });
    this.draw();
  }

  center(n, least = 0) {
    if (least && this.scale < least) this.scale = least;
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    const x = this.x + (this.px[n] + CELL_W / 2) * this.scale, y = this.y + (this.py[n] + CELL_H / 2) * this.scale;
    if (least || x < 0 || y < 0 || x > w || y > h) {
      this.x += w / 2 - x; this.y += h / 2 - y; this.moved = true;
    }
    this.draw();
  }

  pointerMoved(e) {
    if (this.drag) {
      const dx = e.clientX - this.drag.x, dy = e.clientY - this.drag.y;
      if (this.drag.far || Math.hypot(dx, dy) > 4) {
        Object.assign(this, { x: this.x + dx, y: this.y + dy, moved: true });
        this.drag = { x: e.clientX, y: e.clientY, far: true };
        this.draw();
      }
      return;
    }
    const n = this.at(e.offsetX, e.offsetY);
    if (n !== this.hover) { this.hover = n; this.canvas.style.cursor = n >= 0 ? "pointer" : "grab"; this.draw(); }
  }

  at(sx, sy) {
    if (!this.model) return -1;
    const x = (sx - this.x) / this.scale, y = (sy - this.y) / this.scale;
    for (const b of this.bands) {
      const row = Math.floor((y - b.y0) / (CELL_H + PAD)), column = Math.floor(x / (CELL_W + PAD));
      if (row < 0 || row >= b.rows || column < 0 || column >= this.columns) continue;
      return b.nodes[row * this.columns + column] ?? -1;
    }
    return -1;
  }

  draw() { // at most once a frame
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.paint(); });
  }

  paint() {
    if (!this.model) return;
    const c = this.context, { dpr = 1, scale } = this, w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    const css = getComputedStyle(document.documentElement), v = (name) => css.getPropertyValue(name).trim();
    this.ink = { paper: v("--paper"), card: v("--card"), ink: v("--ink"), soft: v("--soft"), line: v("--line"), accent: v("--accent"), warn: v("--warn"), math: v("--math") };
    c.setTransform(dpr, 0, 0, dpr, 0, 0);
    c.clearRect(0, 0, w, h);
    c.setTransform(dpr * scale, 0, 0, dpr * scale, dpr * this.x, dpr * this.y);
    const view = { x0: -this.x / scale, y0: -this.y / scale, x1: (w - this.x) / scale, y1: (h - this.y) / scale };
    this.paintEdges(c, view);
    this.onPath = new Set(this.path.flatMap((e) => [e.from, e.to]));
    let drawn = 0;
    for (const b of this.bands) {
      const first = Math.max(0, Math.floor((view.y0 - b.y0) / (CELL_H + PAD))), last = Math.min(b.rows, Math.ceil((view.y1 - b.y0) / (CELL_H + PAD)));
      for (let r = first; r < last; r++) {
        const left = Math.max(0, Math.floor(view.x0 / (CELL_W + PAD))), right = Math.min(this.columns, Math.ceil(view.x1 / (CELL_W + PAD)));
        for (let k = left; k < right; k++) {
          const n = b.nodes[r * this.columns + k];
          if (n !== undefined) { this.paintCell(c, n); drawn++; }
        }
      }
    }
    this.drawn = drawn;
    this.paintBands(c, w);
  }

  paintBands(c, w) {
    c.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    c.font = "600 11px system-ui, sans-serif";
    c.textBaseline = "alphabetic";
    for (const b of this.bands) {
      const y = this.y + (b.y0 - 12) * this.scale;
      if (y < 0 || y > this.canvas.clientHeight || BAND * this.scale < 13) continue;
      c.fillStyle = this.ink.soft;
      c.textAlign = "left";
      c.fillText(`${b.depth ? `${b.depth} from the start` : "start"}   ${b.nodes.length} state${b.nodes.length > 1 ? "s" : ""}`, Math.max(10, this.x), y);
    }
  }

  paintEdges(c, view) {
    const m = this.model, focus = this.selected, all = m.edges.length <= 900, onPath = new Set(this.path.map((e) => e.key));
    const line = (a, b, color, width, dash) => {
      const x1 = this.px[a] + CELL_W / 2, y1 = this.py[a] + CELL_H / 2, x2 = this.px[b] + CELL_W / 2, y2 = this.py[b] + CELL_H / 2;
      if (Math.max(x1, x2) < view.x0 || Math.min(x1, x2) > view.x1 || Math.max(y1, y2) < view.y0 || Math.min(y1, y2) > view.y1) return;
      const mid = (y1 + y2) / 2;
      c.setLineDash(dash ? [dash / this.scale, dash / this.scale] : []);
      c.strokeStyle = color; c.lineWidth = width / this.scale;
      c.beginPath(); c.moveTo(x1, y1); c.bezierCurveTo(x1, mid, x2, mid, x2, y2); c.stroke();
    };
    const hot = (n) => n >= 0 && (n === focus || n === this.hover);
    m.edges.forEach((e, i) => {
      const near = hot(e.from) || hot(e.to);
      if (onPath.has(i)) return;
      if (near || all) line(e.from, e.to, near ? this.ink.accent : this.ink.line, near ? 1.6 : 1, e.part ? 2 : e.outcome === 0 ? 0 : 5);
    });
    for (const p of this.path) line(p.from, p.to, this.ink.warn, 3.5, p.part ? 3 : 0);
    c.setLineDash([]);
  }

  paintCell(c, n) {
    const m = this.model, x = this.px[n], y = this.py[n], px = CELL_W * this.scale, color = this.color(n), cut = m.cut[n];
    c.globalAlpha = this.dim && this.dim[n] && n !== this.selected && !this.onPath.has(n) ? 0.1 : 1;
    if (px < 26) {
      c.fillStyle = cut ? this.ink.line : color;
      c.fillRect(x, y, CELL_W, CELL_H);
    } else {
      c.beginPath(); c.roundRect(x, y, CELL_W, CELL_H, 9);
      c.fillStyle = this.ink.card; c.fill();
      c.lineWidth = 1; c.strokeStyle = this.ink.line; c.setLineDash(cut ? [6, 5] : []); c.stroke(); c.setLineDash([]);
      c.fillStyle = cut ? this.ink.line : color;
      c.beginPath(); c.roundRect(x, y, 8, CELL_H, [9, 0, 0, 9]); c.fill();
      if (px > 46) this.paintFlow(c, n, x + 20, y + 12, CELL_W - 34, px > 110 ? 40 : CELL_H - 24);
      if (px > 110) this.paintText(c, n, x, y, px);
    }
    if (n === this.selected || n === this.hover) {
      c.lineWidth = (n === this.selected ? 3 : 1.5) / Math.min(1, this.scale * 1.2);
      c.strokeStyle = this.ink.accent;
      c.beginPath(); c.roundRect(x, y, CELL_W, CELL_H, 9); c.stroke();
    }
    if (n !== this.selected && this.onPath.has(n)) {
      c.lineWidth = 2.5 / Math.min(1, this.scale * 1.2);
      c.strokeStyle = this.ink.warn;
      c.beginPath(); c.roundRect(x, y, CELL_W, CELL_H, 9); c.stroke();
    }
    c.globalAlpha = 1;
  }

  paintText(c, n, x, y, px) {
    const m = this.model;
    c.textAlign = "left"; c.textBaseline = "alphabetic";
    c.fillStyle = this.ink.soft; c.font = "600 11px system-ui, sans-serif";
    c.fillText(`#${n}`, x + 18, y + 68);
    c.fillStyle = m.reached[n].length ? this.ink.accent : this.ink.soft;
    c.fillText(m.label[n], x + 60, y + 68);
    c.save();
    c.beginPath(); c.rect(x, y, CELL_W - 6, CELL_H); c.clip();
    const rows = m.rows(n), more = rows.length - ROWS;
    if (more > 0) { c.fillStyle = this.ink.soft; c.fillText(`${more + 1} scopes above`, x + 18, y + 86); }
    (more > 0 ? rows.slice(more + 1) : rows).forEach((runs, k) => this.paintRuns(c, runs, x + 18, y + 87 + 18 * (k + (more > 0 ? 1 : 0))));
    c.restore();
  }

  paintRuns(c, runs, x, y) { // a definition; where each run stands is measured once
    const face = { sign: "15px", under: "9px", tensor: "600 13px", letter: "italic 13px", plain: "13px", def: "italic 13px" };
    for (const run of runs) {
      const [text, style] = run;
      c.font = `${face[style]} ${this.ink.math}`;
      run[2] ??= c.measureText(text).width + (style === "under" ? 5 : style === "sign" ? 1 : 0);
      c.fillStyle = style === "def" ? this.ink.accent : style === "under" ? this.ink.soft : this.ink.ink;
      c.fillText(text, x, style === "under" ? y + 3 : y);
      x += run[2];
    }
  }

  paintFlow(c, n, x, y, w, h) { // operands left, result right: circles for tensors, boxes for scopes
    const f = this.model.flow(n), step = w / f.columns, unit = Math.min(step * 0.5, h / f.rows * 0.66, 26);
    const cx = (k) => x + (f.nodes[k].column + 0.5) * step, cy = (k) => y + f.nodes[k].y * h;
    c.strokeStyle = this.ink.soft; c.lineWidth = 1.2;
    for (const [a, b] of f.edges) { c.beginPath(); c.moveTo(cx(a), cy(a)); c.lineTo(cx(b), cy(b)); c.stroke(); }
    f.nodes.forEach((node, k) => {
      const s = unit * (0.55 + 0.09 * Math.min(5, Math.log10(Math.max(node.size, 1)))) / 1.1;
      c.beginPath();
      if (node.kind === "tensor") c.arc(cx(k), cy(k), s / 2, 0, 7); else c.roundRect(cx(k) - s * 0.7, cy(k) - s / 2, s * 1.4, s, 2);
      c.fillStyle = node.kind === "product" ? this.ink.accent : node.kind === "reduce" ? this.ink.warn : node.weight ? this.ink.line : this.ink.card;
      c.fill(); c.strokeStyle = this.ink.soft; c.stroke();
    });
  }
}
