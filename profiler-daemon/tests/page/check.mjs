// The checks of the page in a browser. `main.rs` starts the server and says in the environment where it is.

import "./processes.mjs";
import "./process.mjs";
import "./flame.mjs";
import "./compare.mjs";
import "./speedscope.mjs";
import "./timeline.mjs";
import "./lines.mjs";
import "./measured.mjs";
import "./sessions.mjs";
import "./whole.mjs";
import { env, runAll } from "./browser.mjs";

setTimeout(() => {
  console.log("FAILED  the checks take too long");
  process.exit(1);
}, Number(env.PAGE_PATIENCE_S) * 1000).unref();

await runAll();
