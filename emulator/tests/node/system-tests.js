// The Node client's own system tests, unmodified, against the emulator that PUBSUB_EMULATOR_HOST
// names: `node system-tests.js FOLDER`, where FOLDER has the client's `system-test` and `test`.
//
// They are not in the client's package and import its sources, so they are compiled beside a link
// to what the package has instead.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import typescript from "typescript";

/** A test that takes longer has failed: the slowest takes six seconds. */
const PATIENCE = 60_000;
const FILES = ["system-test/pubsub", "test/testResources"];

const modules = join(dirname(fileURLToPath(import.meta.url)), "node_modules");
const folder = resolve(process.argv[2]);
const build = join(folder, "build");

rmSync(build, { recursive: true, force: true });
const { ModuleKind, ScriptTarget } = typescript;
const compilerOptions = { module: ModuleKind.CommonJS, target: ScriptTarget.ES2020, esModuleInterop: false };
for (const file of FILES) {
  const source = readFileSync(join(folder, `${file}.ts`), "utf8");
  const { outputText } = typescript.transpileModule(source, { compilerOptions });
  mkdirSync(dirname(join(build, file)), { recursive: true });
  writeFileSync(join(build, `${file}.js`), outputText);
}
symlinkSync(join(modules, "@google-cloud/pubsub/build/src"), join(build, "src"));

const mocha = createRequire(import.meta.url).resolve("mocha/bin/mocha.js");
const { status } = spawnSync(
  process.execPath,
  [mocha, join(build, "system-test/pubsub.js"), "--timeout", String(PATIENCE), "--exit", "--no-config"],
  { cwd: folder, stdio: "inherit", env: { ...process.env, NODE_PATH: modules, GOOGLE_CLOUD_PROJECT: "conformance" } },
);
// Its status is the number of tests that failed.
process.exit(status ?? 255);
