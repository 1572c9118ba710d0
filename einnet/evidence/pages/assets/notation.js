"use strict";
// The notation: text -> tree -> HTML and pictures. A tree keeps where its text stands, so that scopes can be replaced in it.

const TOKEN = /\s+|(?:Σ|sum|max|min)(?=\[)|[A-Za-z_][A-Za-z_0-9.:]*'*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|\/\/|<=|>=|==|./gu;
const REDUCE = new Set(["Σ", "sum", "max", "min"]);

function tokens(text) {
  const found = [];
  for (const m of text.matchAll(TOKEN)) if (m[0].trim()) found.push({ s: m[0], at: m.index });
  return found;
}

// {loops, reduce, sums, body: [item], at, end}; an item is {s} or {base: name | scope, index: [[item]], fill: [item]}.
function parseScope(text) {
  const ts = tokens(text);
  let p = 0;
  const peek = (s) => p < ts.length && ts[p].s === s;
  const end = () => (p ? ts[p - 1].at + ts[p - 1].s.length : 0);

  function iters() {
    const found = [];
    p += 2; // the letter and [
    let words = [];
    for (; !peek("]"); p++) {
      if (peek(",")) { found.push(iter(words)); words = []; } else words.push(ts[p].s);
    }
    if (words.length) found.push(iter(words));
    p++;
    return found;
  }
  function iter(words) { // "h < 9", "- 1 <= h < 9"
    const less = words.lastIndexOf("<"), from = words.indexOf("<=");
    const lo = from < 0 ? 0 : +words.slice(0, from).join("");
    return { name: words[less - 1], lo, hi: +words.slice(less + 1).join("") };
  }
  function index() {
    const found = [];
    let words = [];
    p++;
    for (; !peek("]"); p++) {
      if (peek(",")) { found.push(words); words = []; } else words.push(ts[p].s);
    }
    if (words.length) found.push(words);
    p++;
    return found;
  }
  function read(base) {
    const item = { base, index: index(), fill: "" };
    if (peek("|")) {
      p++;
      if (peek("-")) { item.fill = "-"; p++; }
      if (peek("(")) { while (!peek(")")) item.fill += ts[p++].s; }
      item.fill += ts[p++].s;
    }
    return item;
  }
  function scope() {
    const at = ts[p].at, s = { loops: iters(), reduce: "", sums: [], body: [], at };
    if (p + 1 < ts.length && REDUCE.has(ts[p].s) && ts[p + 1].s === "[") { s.reduce = ts[p].s; s.sums = iters(); }
    while (p < ts.length && !peek("}")) {
      if (peek("{")) {
        p++;
        const inner = scope();
        p++;
        s.body.push(read(inner));
      } else if (/^[A-Za-z_]/.test(ts[p].s) && p + 1 < ts.length && ts[p + 1].s === "[") {
        s.body.push(read(ts[p++].s));
      } else s.body.push({ s: ts[p++].s });
    }
    s.end = end();
    s.text = text.slice(s.at, s.end);
    s.source = text;
    return s;
  }
  return scope();
}

const parsed = new Map();
function parse(text) { // a small cache: the states on the screen
  let tree = parsed.get(text);
  if (!tree) {
    if (parsed.size > 3000) parsed.clear();
    parsed.set(text, (tree = parseScope(text)));
  }
  return tree;
}

const nestedScopes = (s) => s.body.filter((i) => i.base && typeof i.base === "object").map((i) => i.base);

function scopeAt(text, path) {
  let s = parse(text);
  for (const n of path === "" ? [] : String(path).split(".")) s = s && nestedScopes(s)[+n];
  return s;
}

function replaceScope(text, path, by) {
  const s = scopeAt(text, path);
  return s ? text.slice(0, s.at) + by + text.slice(s.end) : text;
}

// ------------------------------------------------------------------------------------------------------------------ HTML

const escapeHtml = (s) => String(s).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const shown = { "*": "\u2009", "-": "−", "<=": "≤", ">=": "≥", "==": "=", "/": "∕", "%": "\u00a0mod\u00a0" };

function nameHtml(name) { // t1' is an italic t, an index 1, a prime
  const m = /^([A-Za-z.:]+)((?:_?\d+)*)('*)$/.exec(name);
  if (!m) return `<span class="up">${escapeHtml(name.replace(/'/g, "′"))}</span>`;
  const letters = m[1].length === 1 ? `<i>${m[1]}</i>` : `<span class="up">${escapeHtml(m[1])}</span>`;
  return letters + (m[2] ? `<sub>${m[2].replace(/^_/, "").replaceAll("_", ",")}</sub>` : "") + "′".repeat(m[3].length);
}

function wordHtml(w, inIndex) {
  if (/^[A-Za-z_]/.test(w)) return nameHtml(w);
  if (w === "*" && inIndex) return "";
  return escapeHtml(shown[w] ?? w);
}

const indexHtml = (words) => floors(words, words.map((w) => wordHtml(w, true))).join("");

function floors(words, parts) { // h//2 is a floor: the operand before // is a name, a number or what stands in parentheses
  for (let n = 0; n < words.length; n++) {
    if (words[n] !== "//") continue;
    let first = n - 1;
    if (words[first] === ")") for (let open = 0; first >= 0; first--) { open += (words[first] === ")") - (words[first] === "("); if (!open) break; }
    parts[first] = "⌊" + parts[first];
    parts[n] = "∕";
    parts[n + 1] += "⌋";
  }
  return parts;
}

function itersHtml(iters) {
  return iters.map((i) => `<span class="it">${i.lo ? `${String(i.lo).replace("-", "−")}≤` : ""}${nameHtml(i.name)}&lt;${i.hi}</span>`).join(" ");
}

const big = (symbol, iters, cls) => `<span class="big ${cls}"><span class="sym">${symbol}</span><span class="under">${itersHtml(iters)}</span></span>`;

// A definition for every distinct scope, innermost first: T1 = L .. Σ .. ; the last is the expression itself. `names` is kept over the steps of
// a derivation; a scope that differs from one of `before` only by what the scopes that it reads became keeps its name, and so does one that takes its place.
function definitions(text, names = new Map(), before = []) {
  const rows = [], seen = new Set();
  const visit = (s, path) => {
    nestedScopes(s).forEach((inner, n) => visit(inner, path === "" ? String(n) : `${path}.${n}`));
    if (!seen.has(s.text)) { seen.add(s.text); rows.push({ scope: s, path, frame: frame(s) }); }
  };
  visit(parse(text), "");
  const free = before.filter((r) => r.path !== "" && !seen.has(r.scope.text));
  for (const r of rows) {
    if (r.path === "") { r.name = "Y"; continue; }
    if (!names.has(r.scope.text)) {
      let twin = free.findIndex((f) => f.frame === r.frame);
      if (twin < 0) twin = free.findIndex((f) => f.path === r.path);
      names.set(r.scope.text, twin < 0 ? new Set(names.values()).size + 1 : names.get(free.splice(twin, 1)[0].scope.text));
    }
    r.name = `T${names.get(r.scope.text)}`;
  }
  const nameOf = new Map(rows.map((r) => [r.scope.text, r.name]));
  for (const r of rows) { r.words = bodyWords(r.scope, nameOf); r.nameOf = nameOf; }
  return rows;
}

function frame(s) { // the scope's own text, without the scopes that it reads
  let text = "", from = s.at;
  const whole = s.source;
  for (const inner of nestedScopes(s)) { text += whole.slice(from, inner.at); from = inner.end; }
  return text + whole.slice(from, s.end);
}

function bodyWords(s, nameOf) { // pieces of HTML, each a unit of comparison
  const words = [];
  if (s.loops.length) words.push(big("L", s.loops, "loops"));
  if (s.reduce) words.push(big(s.reduce === "sum" ? "Σ" : s.reduce, s.sums, "sums"));
  for (const i of s.body) {
    if (!i.base) { words.push(`<span class="op">${wordHtml(i.s)}</span>`); continue; }
    const name = typeof i.base === "string" ? `<span class="tensor">${nameHtml(i.base)}</span>` : `<span class="def">${nameHtml(nameOf.get(i.base.text))}</span>`;
    words.push(name + "<span class=\"br\">[</span>");
    i.index.forEach((e, n) => words.push(indexHtml(e) + (n + 1 < i.index.length ? "<span class=\"br\">, </span>" : "")));
    words.push(`<span class="br">]</span>${i.fill ? `<span class="fill">|${escapeHtml(i.fill)}</span>` : ""}`);
  }
  return words;
}

// A row of definitions as runs of text [what, style] on one line: T₁ = L h w Σ r A[h+r, w]. The styles are those that the map draws.
function rowRuns(r) {
  const s = r.scope, runs = [[nameText(r.name), "def"], [" = ", "plain"]], names = (iters) => iters.map((i) => nameText(i.name)).join(" ");
  if (s.loops.length) runs.push(["L", "sign"], [names(s.loops), "under"]);
  if (s.reduce) runs.push([s.reduce === "sum" ? "Σ" : s.reduce, "sign"], [names(s.sums), "under"]);
  for (const i of s.body) {
    if (!i.base) { runs.push(...letters(/^[A-Za-z_]/.test(i.s) ? nameText(i.s) : (shown[i.s] ?? i.s))); continue; }
    runs.push(typeof i.base === "string" ? [nameText(i.base), "tensor"] : [nameText(r.nameOf.get(i.base.text)), "def"]);
    const index = i.index.map((e) => floors(e, e.map((w) => (/^[A-Za-z_]/.test(w) ? nameText(w) : w === "*" ? "" : (shown[w] ?? w)))).join(""));
    runs.push(...letters(`[${index.join(", ")}]${i.fill ? `|${i.fill}` : ""}`));
  }
  return runs;
}

const letters = (text) => text.match(/[A-Za-z]+|[^A-Za-z]+/g).map((t) => [t, /^[A-Za-z]$/.test(t) ? "letter" : "plain"]);
const nameText = (name) => name.replace(/'/g, "′").replace(/(\d)_(?=\d)/g, "$1,").replace(/_?\d/g, (d) => "₀₁₂₃₄₅₆₇₈₉"[+d.at(-1)]);

// Rows as HTML. `other`: the definitions on the other side of a step; what it has not is marked, in a row that it has almost, word by word.
function definitionsHtml(rows, other = null) {
  const same = (r, q) => r.name === q.name && r.words.join() === q.words.join();
  const gone = other && other.filter((r) => !rows.some((q) => same(r, q)));
  return rows.map((r) => {
    const changed = other && !other.some((q) => same(r, q));
    const twin = changed && (gone.find((g) => g.path === r.path) || gone[0]);
    const marks = twin ? common(r.words, twin.words) : null;
    const body = r.words.map((w, n) => `<span class="${marks && !marks[n] ? "new" : "w"}">${w}</span>`).join("");
    return `<div class="row${changed ? " changed" : ""}"><span class="lhs">${nameHtml(r.name)}</span><span class="eq">=</span><span class="rhs">${body}</span></div>`;
  }).join("");
}

function common(a, b) { // which words of a are in a longest common subsequence with b
  const n = a.length, m = b.length, best = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
  for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const keep = new Array(n).fill(false);
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (a[i] === b[j]) { keep[i] = true; i++; j++; } else if (best[i + 1][j] >= best[i][j + 1]) i++; else j++;
  }
  return keep;
}

// -------------------------------------------------------------------------------------------------------------- data flow

const extent = (iters) => iters.reduce((n, i) => n * (i.hi - i.lo), 1);

// Nodes with a column (operands left, the result right) and a row, and edges between them.
function flow(text, tensors = {}) {
  const nodes = [], known = new Map(), edges = [];
  const add = (key, node) => { known.set(key, nodes.length); nodes.push(node); return nodes.length - 1; };
  const visit = (s) => {
    if (known.has(s.text)) return known.get(s.text);
    const from = [];
    for (const i of s.body) if (i.base) {
      if (typeof i.base === "object") from.push(visit(i.base));
      else from.push(known.has("=" + i.base) ? known.get("=" + i.base) : add("=" + i.base, tensorNode(i.base, tensors[i.base])));
    }
    const factors = s.body.filter((i) => i.base).length;
    const kind = s.reduce ? (factors > 1 ? "product" : "reduce") : s.body.length === 1 && factors === 1 ? "copy" : "map";
    const column = Math.max(-1, ...from.map((f) => nodes[f].column)) + 1;
    const weight = from.length > 0 && from.every((f) => nodes[f].weight);
    const me = add(s.text, { kind, column, weight, size: extent(s.loops), dims: s.loops.map((l) => l.hi - l.lo), sums: s.sums.map((l) => l.hi - l.lo) });
    for (const f of from) if (!edges.some(([a, b]) => a === f && b === me)) edges.push([f, me]);
    return me;
  };
  visit(parse(text));
  const filled = [];
  for (const n of nodes) { n.row = filled[n.column] = (filled[n.column] ?? -1) + 1; }
  const columns = filled.length, rows = Math.max(...filled.map((x) => (x ?? -1) + 1));
  for (const n of nodes) n.y = (n.row + 0.5) / (filled[n.column] + 1);
  return { nodes, edges, columns, rows };
}

function tensorNode(name, t) {
  const dims = t ? t.shape : [];
  return { kind: "tensor", name, column: 0, weight: Boolean(t && t.weight), dims, sums: [], size: dims.reduce((a, b) => a * b, 1) };
}

const LABEL = { product: "Σ ·", reduce: "Σ", copy: "copy", map: "ƒ" };

function flowSvg(text, tensors) {
  const f = flow(text, tensors), w = 128, h = 44, gap = 46, height = Math.max(1, f.rows) * (h + 14), width = f.columns * (w + gap) - gap;
  const x = (n) => n.column * (w + gap), y = (n) => n.y * height - h / 2;
  let out = "";
  for (const [a, b] of f.edges) {
    const p = f.nodes[a], q = f.nodes[b], x1 = x(p) + w, y1 = y(p) + h / 2, x2 = x(q), y2 = y(q) + h / 2, mid = (x1 + x2) / 2;
    out += `<path class="wire" style="stroke-width:${(0.8 + Math.log10(Math.max(p.size, 1)) / 2).toFixed(1)}" d="M${x1} ${y1}C${mid} ${y1} ${mid} ${y2} ${x2} ${y2}"/>`;
  }
  for (const n of f.nodes) {
    const title = n.kind === "tensor" ? n.name : LABEL[n.kind], dims = n.dims.join("×") || "1";
    out += `<g class="fn ${n.kind}${n.weight ? " weight" : ""}" transform="translate(${x(n)} ${y(n)})"><rect width="${w}" height="${h}" rx="${n.kind === "tensor" ? 22 : 6}"/>`
      + `<text x="${w / 2}" y="18">${escapeHtml(title)}${n.sums.length ? ` <tspan class="s">over ${n.sums.join("×")}</tspan>` : ""}</text><text class="dims" x="${w / 2}" y="34"${dims.length > 20 ? ` textLength="${w - 10}" lengthAdjust="spacingAndGlyphs"` : ""}>${dims}</text></g>`;
  }
  return `<svg class="flow" role="img" aria-label="data flow" viewBox="-2 -2 ${width + 4} ${height + 4}" style="max-width:${width + 4}px">${out}</svg>`;
}
