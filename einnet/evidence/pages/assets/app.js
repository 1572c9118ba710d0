// The page: views, filters, the inspector, paths and replays. The data is in #data.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const PALETTE = ["#8a8f99", "#2f6fde", "#d9822b", "#2a9d6f", "#b5479b", "#c0392b", "#6a5acd", "#0f94a8", "#8d6e2f", "#5f7f1e", "#e06c9f", "#c9a400"];
const RULES = data.rules.map((r) => r.name); // those that occur on this page have colours of their own, as far as there are so many
const OCCURRING = RULES.filter((r) => data.graphs.some((g) => g.edges.some((e) => e[2] === r)));
const ruleColor = (r) => PALETTE[1 + OCCURRING.indexOf(r) % (PALETTE.length - 1)];
const OUTCOME = ["", "met before", "cut: moves too much"];
const short = (n) => (n >= 1e9 ? `${(n / 1e9).toPrecision(3)} G` : n >= 1e6 ? `${(n / 1e6).toPrecision(3)} M` : n >= 1e3 ? `${(n / 1e3).toPrecision(3)} k` : String(n));
const ms = (t) => (t == null ? "not measured" : `${t.toPrecision(3)} ms`);

const app = { view: "", graph: null, marked: -1, replay: null, step: 0 };
const atlas = new Atlas($("canvas"), (n) => select(n));

const mathHtml = (text, rows = definitions(text), other = null) => `<div class="math" role="math" aria-label="${escapeHtml(text)}">${definitionsHtml(rows, other)}</div>`;
const plural = (n, what) => `${n} ${what}${n === 1 ? "" : "s"}`;
const titleOf = (d) => d.operators.join(" + ") || "generated code alone";

function distinctDerivations(g) { // the first of those that lead to the same operators
  const seen = new Set();
  return g.derivations.map((d, i) => [i, d]).filter(([, d]) => !seen.has(titleOf(d)) && seen.add(titleOf(d)));
}

// ------------------------------------------------------------------------------------------------------------- the model of a graph

function model(g) {
  if (g.model) return g.model;
  const n = g.state.text.length, depth = new Int32Array(n).fill(-1), parent = new Int32Array(n).fill(-1), by = new Array(n).fill(null);
  const edges = g.edges.map(([from, to, rule, parameters, kind, outcome, forced]) => ({ from, to, rule, parameters, kind, outcome, forced }));
  for (const [from, path, to, table] of g.parts) if (from !== to) edges.push({ from, to, part: true, path, table, rule: "", parameters: "", outcome: 0 });
  const out = Array.from({ length: n }, () => []), into = Array.from({ length: n }, () => []);
  edges.forEach((e, i) => { out[e.from].push(i); into[e.to].push(i); });
  let queue = [g.start];
  depth[g.start] = 0;
  for (let next; queue.length; queue = next) {
    next = [];
    for (const s of queue) for (const i of out[s]) {
      const e = edges[i];
      if (depth[e.to] < 0) { depth[e.to] = depth[s] + 1; parent[e.to] = s; by[e.to] = e; next.push(e.to); }
    }
  }
  for (let s = 0; s < n; s++) if (depth[s] < 0) depth[s] = 0;
  const pictures = new Map();
  const written = new Map();
  const rowsOf = (s) => { if (written.size > 2000) written.clear(); if (!written.has(s)) written.set(s, definitions(g.state.text[s]).map(rowRuns)); return written.get(s); };
  const flowOf = (s) => { if (pictures.size > 2000) pictures.clear(); if (!pictures.has(s)) pictures.set(s, flow(g.state.text[s], g.tensors)); return pictures.get(s); };
  const distance = g.state.reached.map((r) => (r.length ? Math.min(...r.map((x) => x[3].length)) : -1));
  const label = g.state.text.map((_, s) => (g.state.cut[s] ? "cut" : g.state.reached[s].length ? `${g.state.reached[s][0][0]} in ${distance[s]}` : by[s] ? by[s].rule || "part" : "start"));
  const cost = g.state.flops.map((f, s) => f + 10 * g.state.moved[s]);
  return (g.model = { g, text: g.state.text, depth: Array.from(depth), parent, by, edges, out, into, flow: flowOf, rows: rowsOf, distance, label, cost, cut: g.state.cut, reached: g.state.reached });
}

function openGraph(k) {
  const g = (app.graph = data.graphs[k]), m = model(g);
  $("graph").value = k;
  atlas.selected = -1; atlas.path = []; app.marked = -1;
  const fill = (id, first, values) => ($(id).innerHTML = `<option value="">${first}</option>` + values.map((v) => `<option>${escapeHtml(v)}</option>`).join(""));
  fill("rule", "any rule", [...new Set(m.edges.map((e) => e.rule).filter(Boolean))]);
  fill("depth", "any depth", [...new Set(m.depth)].sort((a, b) => a - b).map(String));
  fill("operator", "any operator", ["none reached", ...new Set(m.reached.flatMap((r) => r.map((x) => x[0])))]);
  recolor(); filter(); atlas.show(m); overview();
}

function recolor() {
  if (!app.graph) return;
  const m = model(app.graph), how = $("color").value, entries = [];
  if (how === "rule") {
    atlas.color = (n) => (m.by[n] ? (m.by[n].part ? PALETTE[0] : ruleColor(m.by[n].rule)) : getComputedStyle(document.documentElement).getPropertyValue("--ink"));
    for (const r of new Set(m.by.filter((e) => e && !e.part).map((e) => e.rule))) entries.push([ruleColor(r), r]);
    entries.push([PALETTE[0], "an inner scope, searched for itself"]);
  } else {
    const ramp = ["#173f9e", "#2f6fde", "#6fa3f0", "#e0a458", "#c2571a"], values = how === "cost" ? m.cost.map((c) => Math.log(c + 1)) : m.distance;
    const known = values.filter((v) => v >= 0), lo = known.reduce((a, b) => Math.min(a, b), Infinity), hi = known.reduce((a, b) => Math.max(a, b), -Infinity);
    atlas.color = (n) => (values[n] < 0 ? PALETTE[0] : ramp[Math.min(4, Math.floor(((values[n] - lo) / (hi - lo || 1)) * 5))]);
    entries.push([ramp[0], how === "cost" ? "cheapest" : `${lo} steps to a vendor operator`], [ramp[4], how === "cost" ? "dearest" : `${hi} steps`]);
    if (how === "distance") entries.push([PALETTE[0], "none reached"]);
  }
  $("legend").innerHTML = entries.map(([c, t]) => `<span><i style="background:${c}"></i>${escapeHtml(t)}</span>`).join("")
    + `<span><i class="round"></i>tensor</span><span><i style="background:var(--accent)"></i>sum of products</span><span><i style="background:var(--warn)"></i>reduction</span><span><i class="hollow"></i>copy or function</span>`;
  atlas.draw();
}

function filter() {
  if (!app.graph) return;
  const m = model(app.graph), words = $("search").value.trim().toLowerCase(), rule = $("rule").value, depth = $("depth").value, operator = $("operator").value;
  const exact = /^#(\d+)$/.exec(words), n = m.text.length;
  let count = 0;
  const keep = (s) => {
    if (exact) return s === +exact[1];
    if (depth !== "" && m.depth[s] !== +depth) return false;
    if (rule && !m.into[s].some((i) => m.edges[i].rule === rule)) return false;
    if (operator === "none reached" ? m.reached[s].length : operator && !m.reached[s].some((r) => r[0] === operator)) return false;
    return !words || m.text[s].toLowerCase().includes(words) || (m.by[s] && `${m.by[s].rule} ${m.by[s].parameters}`.toLowerCase().includes(words)) || m.reached[s].some((r) => r[1].toLowerCase().includes(words));
  };
  const dim = new Uint8Array(n);
  app.found = [];
  for (let s = 0; s < n; s++) if (keep(s)) { count++; app.found.push(s); } else dim[s] = 1;
  atlas.dim = count < n ? dim : null;
  $("matches").textContent = count < n ? `${count} of ${n} states` : `${n} states`;
  atlas.draw();
}

// --------------------------------------------------------------------------------------------------------------------- inspector

function overview() {
  const g = app.graph, c = g.counts;
  $("inspector").innerHTML = `<h2>The search</h2><p class="meta">${escapeHtml(Object.entries(g.tensors).filter(([n]) => g.expression.includes(`${n}[`)).map(([n, t]) => `${n}: ${t.weight ? "weight " : ""}${t.shape.join("×")}`).join("   "))}</p>
    ${mathHtml(g.expression)}${flowSvg(g.expression, g.tensors)}
    <div class="chips"><span class="chip"><b>${c.states}</b> states</span><span class="chip"><b>${c.duplicates}</b> met again</span><span class="chip"><b>${c.cut}</b> cut</span><span class="chip"><b>${c.converged}</b> times at a vendor operator</span><span class="chip"><b>${g.forms}</b> ways to run it</span><span class="chip">depth ${g.depth}</span><span class="chip">${g.seconds.toPrecision(2)} s</span>${g.stopped && g.asked !== c.states ? `<span class="chip warn">stopped: ${escapeHtml(g.stopped)}</span>` : ""}</div>
    ${g.asked ? `<p class="meta">${g.asked === c.states ? "The optimizer's own search, repeated state by state." : `The optimizer met ${plural(g.asked, "state")} here.`}</p>` : ""}
    <p>Every cell is a state: an expression that equals the one above, or a scope inside such an expression, searched for itself. Select one to read it, or look at the derivations that compute and move least:</p>
    <ul class="links">${distinctDerivations(g).slice(0, 14).map(([i, d]) => `<li><button data-derivation="${i}"><span class="num">${plural(d.steps.length, "step")}</span><span>${escapeHtml(titleOf(d))}, ${short(d.flops)} operations, ${short(d.moved)}B between kernels</span></button></li>`).join("")}</ul>`;
}

function select(n, least = 0) {
  const m = model(app.graph);
  atlas.selected = n;
  if (app.marked >= 0 && app.marked !== n) showPath(app.marked, n);
  else if (app.marked < 0) atlas.path = chain(m, n);
  atlas.center(n, least);
  inspect(n);
}

function edgeItem(m, i, other) {
  const e = m.edges[i], how = e.part ? `${e.table ? `${e.table}, ` : ""}scope ${e.path}` : `${e.rule} ${e.parameters}`;
  return `<li><button data-state="${other}"><span class="num">#${other}</span><span class="${e.outcome ? "again" : ""}">${escapeHtml(how)}${e.forced ? ` (then ${escapeHtml(e.forced)})` : ""}${e.outcome ? ` — ${OUTCOME[e.outcome]}` : ""}</span></button></li>`;
}

function inspect(n) {
  const m = model(app.graph), g = m.g, s = g.state;
  const operators = s.reached[n].map(([table, match, tree, steps], k) => `<li><button data-reach="${k}"><span class="num">${plural(steps.length, "step")}</span><span>${escapeHtml(match)}</span></button></li>`).join("");
  const missed = s.missed[n].map(([table, why]) => `<dt>${table}</dt><dd>${escapeHtml(g.why[why])}</dd>`).join("");
  const refused = s.refused[n].map(([rule, why]) => `<dt>${rule}</dt><dd>${escapeHtml(g.why[why])}</dd>`).join("");
  const list = (title, ids, end) => (ids.length ? `<h3>${title}</h3><ul class="links">${ids.slice(0, 60).map((i) => edgeItem(m, i, m.edges[i][end])).join("")}</ul>${ids.length > 60 ? `<p class="meta">and ${ids.length - 60} more</p>` : ""}` : "");
  const steps = m.out[n].filter((i) => !m.edges[i].part), inner = m.out[n].filter((i) => m.edges[i].part);
  const mark = app.marked === n ? "marked: now select another state" : app.marked >= 0 ? `path from #${app.marked}` : "";
  $("inspector").innerHTML = `<h2>State #${n}</h2>
    <div class="chips"><span class="chip">${m.depth[n]} from the start</span><span class="chip" title="operations"><b>${short(s.flops[n])}</b> operations</span><span class="chip" title="bytes moved"><b>${short(s.moved[n])}B</b> moved</span>
    <span class="chip ${m.distance[n] >= 0 ? "good" : ""}">distance ${m.distance[n] < 0 ? "∞" : m.distance[n]}</span>${s.weight[n] ? '<span class="chip">weights only: computed beforehand</span>' : ""}${s.cut[n] ? '<span class="chip warn">cut: moves too much data</span>' : ""}</div>
    ${mathHtml(s.text[n])}${flowSvg(s.text[n], g.tensors)}
    <div class="controls"><button id="replayHere">▶ replay from the start</button><button id="markHere">${app.marked === n ? "unmark" : "path from here…"}</button><button id="copyHere">copy text</button></div>${mark ? `<p class="meta">${mark}</p>` : ""}
    ${operators ? `<h3>Vendor operators it leads to</h3><ul class="links">${operators}</ul>` : ""}
    ${list("Steps from here", steps, "to")}${list("Its inner scopes, searched for themselves", inner, "to")}${list("How it was reached", m.into[n], "from")}
    ${missed ? `<details><summary>Operators it does not lead to, and what differs</summary><dl class="why">${missed}</dl></details>` : ""}
    ${refused ? `<details><summary>Rules that do not apply, and why</summary><dl class="why">${refused}</dl></details>` : ""}`;
  $("inspector").scrollTop = 0;
}

// ----------------------------------------------------------------------------------------------------------- paths and replays

function chain(m, n) { // edges from the start
  const found = [];
  for (let s = n; m.by[s]; s = m.parent[s]) found.unshift({ ...m.by[s], key: m.edges.indexOf(m.by[s]) });
  return found;
}

function between(m, a, b) { // the shortest way; steps are equations and may be gone backwards, and from a scope to what reads it if nothing else leads there
  return ways(m, a, b, false) ?? ways(m, a, b, true) ?? [];
}

function ways(m, a, b, outwards) {
  const by = new Map([[a, null]]);
  let queue = [a];
  for (let next; queue.length && !by.has(b); queue = next) {
    next = [];
    for (const s of queue) {
      for (const [ids, end, back] of [[m.out[s], "to", false], [m.into[s], "from", true]]) for (const i of ids) {
        const t = m.edges[i][end];
        if (back && m.edges[i].part && !outwards) continue;
        if (!by.has(t)) { by.set(t, { at: s, i, back }); next.push(t); }
      }
    }
  }
  if (!by.has(b)) return null;
  const found = [];
  for (let s = b; by.get(s); s = by.get(s).at) { const { i, back } = by.get(s); found.unshift({ ...m.edges[i], key: i, back }); }
  return found;
}

function showPath(a, b) {
  const m = model(app.graph);
  atlas.path = between(m, a, b);
}

function replayPath(path, title) { // into the steps that a derivation has: the whole expression after each, where one scope changed
  const m = model(app.graph), first = path.length ? (path[0].back ? path[0].to : path[0].from) : atlas.selected;
  const through = path.some((e) => e.back && e.part);
  let whole = m.text[first], at = [];
  const steps = [];
  for (const e of path) {
    const to = e.back ? e.from : e.to, local = m.text[to];
    if (e.part && !e.back) {
      if (e.table) {
        const r = m.reached[e.from].find((x) => x[0] === e.table);
        const after = at.length ? replaceScope(whole, at.join("."), r[2]) : r[2];
        steps.push({ rule: "converge", parameters: `${e.table}: ${r[3].map((x) => x.join(" ")).join("; ")}`, path: at.slice(), before: whole, expression: after });
        whole = after;
      }
      at = [...at, ...e.path.split(".")];
      const inside = replaceScope(whole, at.join("."), local);
      if (inside !== whole) steps.push({ rule: "normalise", parameters: `scope ${e.path}`, path: at.slice(), before: whole, expression: inside });
      whole = inside;
    } else if (through) {
      steps.push({ rule: e.part ? "the state that reads it" : e.rule, parameters: e.parameters, path: [], before: m.text[e.back ? e.to : e.from], expression: local, back: e.back, local: true });
    } else {
      const after = at.length ? replaceScope(whole, at.join("."), local) : local;
      steps.push({ rule: e.rule, parameters: e.parameters + (e.forced ? `   then ${e.forced}` : ""), kind: e.kind, path: at.slice(), before: whole, expression: after, back: e.back });
      whole = after;
    }
  }
  replay({ title, from: m.text[first], steps, operators: [], tensors: app.graph.tensors });
}

function replay(d) {
  const names = new Map();
  let before = d.from;
  const steps = d.steps.map((s) => { const b = s.local ? s.before : before; before = s.expression; return { ...s, whole: b }; });
  app.replay = { ...d, steps, names };
  app.step = Math.min(steps.length, 1);
  let rows = definitions(d.from, names);
  for (const s of steps) {
    if (s.local) rows = definitions(s.whole, names);
    rows = definitions(s.expression, names, rows);
  }
  show("replay");
  showStep(app.step);
}

function stepHtml(r, n) {
  if (!n) return `<h2>Start</h2><div class="side">${mathHtml(r.from, definitions(r.from, r.names))}${flowSvg(r.from, r.tensors)}</div>`;
  const s = r.steps[n - 1], a = definitions(s.whole, r.names), b = definitions(s.expression, r.names), rule = data.rules.find((q) => q.name === s.rule);
  const proof = s.proof ? `<span class="chip ${s.proof.method === "inline" ? "good" : "warn"}">${s.proof.method === "inline" ? "proven" : "tested"}: ${escapeHtml(s.proof.details)}</span>` : "";
  return `<h2>${n}. ${s.back ? "backwards " : ""}by ${escapeHtml(s.rule)} <code>${escapeHtml(s.parameters)}</code></h2>
    <div class="chips">${s.kind ? `<span class="chip">${s.kind}</span>` : ""}${s.bound != null ? `<span class="chip warn">error bound ${s.bound.toPrecision(2)} ε</span>` : ""}${proof}${s.path.length ? `<span class="chip">in scope ${s.path.join(".")}</span>` : ""}</div>
    ${rule ? `<p class="meta">${escapeHtml(rule.equation)}</p>` : ""}
    <div class="sides"><div class="side"><h3>before</h3>${mathHtml(s.whole, a, b)}${flowSvg(s.whole, r.tensors)}</div><div class="side"><h3>after</h3>${mathHtml(s.expression, b, a)}${flowSvg(s.expression, r.tensors)}</div></div>
    ${n === r.steps.length && r.operators.length ? `<p>It holds <b>${escapeHtml(r.operators.join(", "))}</b>; the rest becomes generated code.</p>` : ""}`;
}

function showStep(n) {
  const r = app.replay;
  if (!r) return;
  app.step = Math.max(0, Math.min(r.steps.length, n));
  const all = data.graphs.flatMap((g, k) => g.derivations.map((d, i) => [k, i, d]));
  const choices = [...all.map(([k, i, d]) => `<option value="${k}.${i}"${r.id === `${k}.${i}` ? " selected" : ""}>${escapeHtml(`${data.graphs.length > 1 ? `${data.graphs[k].title.slice(0, 24)}: ` : ""}${titleOf(d)}`)}</option>`)];
  $("steps").innerHTML = `<select id="choose" aria-label="derivation"><option value="">${escapeHtml(r.title)}</option>${choices.join("")}</select>`
    + [["Start", ""], ...r.steps.map((s, i) => [`${i + 1}. ${s.back ? "⟵ " : ""}${s.rule}`, s.parameters])].map(([t, p], i) => `<button class="s" data-step="${i}"${i === app.step ? ' aria-current="true"' : ""}>${escapeHtml(t)}<small>${escapeHtml(p)}</small></button>`).join("");
  $("step").innerHTML = `<div class="one">${stepHtml(r, app.step)}<div class="controls"><button id="back"${app.step ? "" : " disabled"}>← before</button><button id="next"${app.step < r.steps.length ? "" : " disabled"}>next →</button><span class="meta">step ${app.step} of ${r.steps.length}</span></div></div>`;
  $("step").scrollTop = 0;
  $("steps").querySelector('[aria-current="true"]')?.scrollIntoView({ block: "nearest" });
}

function replayDerivation(k, i) {
  const d = data.graphs[k].derivations[i];
  replay({ ...d, id: `${k}.${i}`, title: titleOf(d), tensors: data.graphs[k].tensors });
}

// -------------------------------------------------------------------------------------------------------------------- the page

const VIEWS = [["program", "Program"], ["states", "States"], ["replay", "Derivations"], ["rules", "Rules"]].filter(([id]) => id !== "program" || data.program);

function show(view) {
  app.view = view;
  for (const [id] of VIEWS) $(id).hidden = id !== view;
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.view === view));
  if (view === "states") atlas.resize();
  if (view === "replay" && !app.replay && data.graphs.some((g) => g.derivations.length)) {
    const k = data.graphs.findIndex((g) => g.derivations.length), ds = data.graphs[k].derivations;
    replayDerivation(k, Math.max(0, ds.findIndex((d) => d.steps.length)));
  }
}

function rulesHtml() {
  return data.rules.map((r) => `<div class="rule"><h2>${r.name}</h2><p><code>${escapeHtml(r.equation)}</code></p><p class="meta">if ${escapeHtml(r.guard)} · ${r.kind}</p></div>`).join("");
}

function programDerivation(key) { // what runs for a subprogram, as the artifact keeps it
  const c = data.program.find((s) => s.key === key), k = data.graphs.findIndex((g) => g.key === key);
  if (c && c.derivation) replay({ ...c.derivation, title: c.nodes[0].join(", "), tensors: k < 0 ? {} : data.graphs[k].tensors });
}

function click(e) {
  const b = e.target.closest("button");
  if (!b) return;
  const d = b.dataset;
  if (d.view) show(d.view);
  else if (d.state) select(+d.state);
  else if (d.step) showStep(+d.step);
  else if (d.derivation) replayDerivation(data.graphs.indexOf(app.graph), +d.derivation);
  else if (d.replayKey) programDerivation(d.replayKey);
  else if (d.openKey) { openGraph(data.graphs.findIndex((g) => g.key === d.openKey)); show("states"); }
  else if (d.reach) reachReplay(+d.reach);
  else ACTIONS[b.id]?.();
}

function reachReplay(k) { // from the start to the state, then to the operator
  const m = model(app.graph), n = atlas.selected, [table, match, tree, steps] = m.reached[n][k];
  replay({ title: match, from: m.text[n], operators: [match], tensors: app.graph.tensors, steps: [{ rule: "converge", parameters: steps.map((s) => s.join(" ")).join("; ") || "nothing to do", path: [], expression: tree }] });
}

const ACTIONS = {
  replayHere: () => { const n = atlas.selected, m = model(app.graph); app.marked >= 0 && app.marked !== n ? replayPath(between(m, app.marked, n), `#${app.marked} to #${n}`) : replayPath(chain(m, n), `the way to state #${n}`); },
  markHere: () => { app.marked = app.marked === atlas.selected ? -1 : atlas.selected; inspect(atlas.selected); },
  copyHere: () => navigator.clipboard?.writeText(model(app.graph).text[atlas.selected]),
  back: () => showStep(app.step - 1), next: () => showStep(app.step + 1),
  in: () => atlas.zoom(1.4), out: () => atlas.zoom(1 / 1.4), fit: () => atlas.fit(),
  help: () => $("keys").showModal(), print: () => window.print(),
  theme: () => { const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; root.dataset.theme = dark ? "light" : "dark"; if (app.graph) recolor(); },
};

function moveSelection(key) {
  const m = model(app.graph), n = atlas.selected;
  if (n < 0) return select(app.graph.start);
  const band = atlas.bands[m.depth[n]].nodes, i = atlas.place[n];
  const child = m.out[n].map((e) => m.edges[e].to).find((t) => m.parent[t] === n);
  const to = key === "ArrowLeft" ? band[i - 1] : key === "ArrowRight" ? band[i + 1] : key === "ArrowUp" ? m.parent[n] : child;
  if (to !== undefined && to >= 0) select(to);
}

function keydown(e) {
  if ($("keys").open || e.ctrlKey || e.metaKey || e.altKey) return;
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName);
  if (e.key === "Escape") { document.activeElement?.blur(); $("search").value = ""; app.marked = -1; atlas.path = []; atlas.selected = -1; if (app.graph) { filter(); overview(); } return; }
  if (typing) { if (e.key === "Enter" && document.activeElement.id === "search" && app.found?.length) select(app.found[0], 0.6); return; }
  const number = +e.key;
  if (number >= 1 && number <= VIEWS.length) return show(VIEWS[number - 1][0]);
  if (e.key === "/") { e.preventDefault(); show("states"); return $("search").focus(); }
  if (e.key === "?") return ACTIONS.help();
  if (e.key === "d") return ACTIONS.theme();
  if (app.view === "replay" && (e.key === "ArrowLeft" || e.key === "ArrowRight")) return showStep(app.step + (e.key === "ArrowRight" ? 1 : -1));
  if (app.view !== "states" || !app.graph) return;
  if (e.key.startsWith("Arrow")) { e.preventDefault(); return moveSelection(e.key); }
  if (e.key === "Enter" && atlas.selected >= 0 && document.activeElement?.tagName !== "BUTTON") return ACTIONS.replayHere();
  const keys = { m: "markHere", "+": "in", "=": "in", "-": "out", 0: "fit" };
  if (keys[e.key] && (e.key !== "m" || atlas.selected >= 0)) ACTIONS[keys[e.key]]();
}

function start() {
  $("title").textContent = data.title;
  $("tabs").innerHTML = VIEWS.map(([id, name]) => `<button role="tab" data-view="${id}">${name}</button>`).join("");
  $("graph").innerHTML = data.graphs.map((g, k) => `<option value="${k}">${escapeHtml(g.title.slice(0, 60))}</option>`).join("");
  $("graph").hidden = data.graphs.length < 2;
  $("rules").innerHTML = rulesHtml();
  for (const b of $("program").querySelectorAll("button[data-open-key]")) if (!data.graphs.some((g) => g.key === b.dataset.openKey)) b.remove();
  for (const b of $("program").querySelectorAll("button[data-replay-key]")) if (!data.program?.some((c) => c.key === b.dataset.replayKey)) b.remove();
  document.addEventListener("click", click);
  document.addEventListener("keydown", keydown);
  $("graph").addEventListener("change", () => openGraph(+$("graph").value));
  for (const id of ["rule", "depth", "operator"]) $(id).addEventListener("change", filter);
  $("search").addEventListener("input", filter);
  $("color").addEventListener("change", recolor);
  document.addEventListener("change", (e) => { if (e.target.id === "choose" && e.target.value) replayDerivation(...e.target.value.split(".").map(Number)); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.graph && recolor());
  window.addEventListener("beforeprint", () => { if (app.replay) { const r = app.replay, div = document.createElement("div"); div.className = "all"; div.innerHTML = r.steps.map((_, i) => stepHtml(r, i + 1)).join(""); $("step").append(div); } });
  window.addEventListener("afterprint", () => document.querySelectorAll(".all").forEach((x) => x.remove()));
  show(VIEWS[0][0] === "program" ? "program" : "states");
  if (data.graphs.length) openGraph(0);
  if (data.replay !== undefined) replayDerivation(0, data.replay);
  document.documentElement.dataset.ready = "1";
}

start();
