#!/usr/bin/env node
// Starts the emulator, whose binary is in a package for this platform alone. npm installs that one
// as an optional dependency.
"use strict";

const { spawn } = require("node:child_process");

const platform = `${process.platform}-${process.arch}`;
const suffix = process.platform === "win32" ? ".exe" : "";

function binary() {
  const name = `wakeq-emulator-${platform}`;
  try {
    return require.resolve(`${name}/bin/pubsub-emulator${suffix}`);
  } catch {
    console.error(
      `pubsub-emulator: the package ${name} is not installed. It comes with wakeq-emulator, unless optional ` +
        "dependencies are left out, or there is no binary for this platform.",
    );
    process.exit(1);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });

// Whoever ends this process means the emulator. On Windows, the console tells that itself, and a
// signal from here would end it before it has closed anything.
const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
for (const signal of signals) {
  process.on(signal, () => process.platform === "win32" || child.kill(signal));
}

child.on("error", (error) => {
  console.error(`pubsub-emulator: ${error.message}`);
  process.exitCode = 1;
});

child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exitCode = code;
    return;
  }
  for (const handled of signals) {
    process.removeAllListeners(handled);
  }
  process.kill(process.pid, signal);
});
