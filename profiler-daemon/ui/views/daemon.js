// How the daemon itself is: what it cost, what is attached, which settings are in force.

import { get } from "../api.js";
import { el, setChildren } from "../dom.js";
import { bytes, count, exactTime, share, percent, shown, time } from "../format.js";

const INTERVAL_MS = 10_000;

function flat(settings, prefix = "") {
  return Object.entries(settings).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flat(value, `${prefix}${name}.`) : [[`${prefix}${name}`, JSON.stringify(value)]],
  );
}

function table(caption, heads, rows) {
  const cell = (value, index) => el(index === 0 ? "th" : "td", { scope: index === 0 ? "row" : null, class: heads[index][1] ? "n plain" : "" }, value);
  return el("section", { class: "part" }, el("h2", {}, caption),
    el("div", { class: "table", tabindex: "0", role: "region", "aria-label": caption },
      el("table", {}, el("thead", {}, el("tr", {}, ...heads.map(([label, numeric]) => el("th", { scope: "col", class: numeric ? "n" : "" }, label)))),
        el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell)))))));
}

// What a program is attached to, the tick once on every processor: [shown, all of it].
function attachedTo(hooks) {
  if (hooks.length <= 1) return [hooks[0] ?? "–", undefined];
  const ofProcessor = / on processor \d+/;
  const kinds = new Set(hooks.map((hook) => hook.replace(ofProcessor, "")));
  const places = hooks.every((hook) => ofProcessor.test(hook)) ? "processors" : "places";
  return [kinds.size === 1 ? `${[...kinds][0]}, ${count(hooks.length)} ${places}` : `${count(hooks.length)} ${places}`, hooks.join("\n")];
}

export function createDaemonView() {
  const body = el("div", { class: "parts" });
  const links = el("p", { class: "downloads" }, "Also: ",
    ...[["status as JSON", "/api/v1/status"], ["status as text", "/api/v1/status?format=text"], ["what is profiled", "/api/v1/targets"], ["metrics", "/metrics"]]
      .flatMap(([label, href]) => [el("a", { href, target: "_blank", rel: "noreferrer" }, label), " "]));
  return {
    element: el("div", { class: "view" }, el("h1", {}, "Daemon"), body, links),
    title: () => "Daemon",
    intervalMs: () => INTERVAL_MS,
    show: () => false,
    async load(signal) {
      const status = await get("/api/v1/status", {}, signal);
      const cost = status.own_cost;
      const room = status.profile;
      const facts = [
        ...(status.replay ? [["replay of", shown(status.replay.file)], ["saved at", shown(status.replay.saved_at)]] : []),
        ["version", shown(status.version)],
        ["Linux", shown(status.kernel_release)],
        ["up", time(status.uptime_s * 1e9)],
        ["own processor time", `${time(cost.cpu_seconds_total * 1e9)} (${percent(share(cost.cpu_seconds_total, status.uptime_s))} of one processor)`],
        ["own memory", bytes(cost.resident_bytes)],
        ["kernel memory", cost.kernel_map_bytes === null ? "not told by the kernel" : bytes(cost.kernel_map_bytes)],
        ["stacks kept", `${bytes(room.stack_bytes)} of ${bytes(room.stack_max_bytes)}`],
      ];
      const hooks = Map.groupBy(status.attached, ({ program }) => program);
      const costs = new Map(cost.programs.map((program) => [program.program, program]));
      const programs = [...new Set([...hooks.keys(), ...costs.keys()])].map((name) => {
        const { bpf_run_ns: ns = 0, runs = 0 } = costs.get(name) ?? {};
        const [hook, all] = attachedTo((hooks.get(name) ?? []).map((attached) => shown(attached.hook)));
        return [shown(name), el("span", { title: all }, hook), count(runs), el("span", { title: exactTime(ns) }, time(ns)), runs > 0 ? time(ns / runs) : "–"];
      });
      setChildren(body, [
        el("dl", { class: "facts" }, ...facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
        table("Kernel programs", [["program"], ["attached to"], ["runs", true], ["time", true], ["per run", true]], programs),
        Object.keys(cost.memory_bytes).length > 0 ? table("Own memory", [["part"], ["resident", true]], Object.entries(cost.memory_bytes).map(([part, held]) => [shown(part), bytes(held)])) : null,
        Object.keys(room.losses).length > 0 ? table("What the profile counts", [["name"], ["count", true]], Object.entries(room.losses).map(([name, number]) => [shown(name), count(number)])) : null,
        table("Settings in force", [["setting"], ["value"]], flat(status.settings).map(([name, value]) => [shown(name), shown(value)])),
      ]);
      return new Date().toISOString();
    },
  };
}
