//! `cargo xtask compose`: runs the lines of docs/container.md with a real engine, from `docker
//! compose up`, which builds the images, to an event that the Python target handles; then takes
//! everything down and up again.
//!
//! Unless asked to, it pulls no image from a registry: a second Compose file names bases made here
//! of what is installed. It must never leave a container, a volume or an engine of its own behind.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use wakeq_testbed::{Guard, Launch};

use crate::docker::{Engine, Network, builder, postgres, runtime, said};
use crate::image::IMAGE;
use crate::{root, succeed};

const PAGE: &str = "docs/container.md";
const HEADING: &str = "## Try it with Compose";

/// Bash: the lines of the page, of which the last one, `@SERVER@`, keeps running; then what they do
/// not show.
const SCRIPT: &str = r#"
set -euo pipefail
printed=$(mktemp)
finish() {
    local status=$?
    [ $status = 0 ] || docker compose logs || true
    kill $(jobs -p) 2>/dev/null || true
    rm "$printed"
    exit $status
}
trap finish EXIT
within() {
    for _ in $(seq "$1"); do
        if "${@:2}" >/dev/null 2>&1; then return; fi
        sleep 1
    done
    "${@:2}" || { echo "failed for $1 s: ${*:2}" >&2; exit 1; }
}
# `up` would use the images of an earlier run.
docker compose build
echo "built after $SECONDS s"
@LINES@
echo "up, with one event, after $SECONDS s"
@SERVER@ >"$printed" &
within 30 grep --quiet '^greet "Ada"$' "$printed"
echo "the target printed $(cat "$printed") after $SECONDS s"

api --fail-with-body "$API/events" -d '{"name": "later"}'
docker compose down
docker compose up --detach
is_there() { api --fail-with-body "$API/events?name=later" | grep '"name":"later"'; }
within 30 is_there
echo "the next start has the waiting event, after $SECONDS s"
"#;

/// Runs the lines; with `registry` on the images that the files name.
pub(crate) fn run(registry: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let engine = Engine::find_or_start(Network::Bridges).await?;
        println!("{engine}");
        let tried = try_page(&engine, registry).await;
        engine.end().await?;
        tried
    })
}

async fn try_page(engine: &Engine, registry: bool) -> Result<()> {
    said(engine.client().args(["compose", "version"]))
        .context("Compose 2.24 or newer is needed: install docker-compose-plugin (Debian: docker-compose)")?;
    let script = script(&fs::read_to_string(root().join(PAGE))?)?;
    let mut files = vec![root().join("compose.yaml")];
    if !registry {
        files.push(second_file(engine)?);
    }
    let project = format!("wakeq-test-{}", std::process::id());
    let mut down = vec!["compose".to_owned(), format!("--project-name={project}")];
    down.extend(files.iter().map(|file| format!("--file={}", file.display())));
    down.extend(["down", "--volumes", "--timeout", "30"].map(str::to_owned));
    let down: Vec<_> = down.iter().map(String::as_str).collect();
    let if_killed = engine.at_end(&down)?;
    let guard = Guard::new(None)?;
    let bash = Launch::new("bash").arguments(["-c", &script]).current_folder(root());
    let bash = bash
        .environment("COMPOSE_FILE", std::env::join_paths(files)?)
        .environment("COMPOSE_PROJECT_NAME", project)
        // For the target: no folders of compiled Python in the checkout.
        .environment("PYTHONDONTWRITEBYTECODE", "1")
        .on_line(|line| println!("{line}"));
    let bash = match engine.host() {
        Some((name, value)) => bash.environment(name, value),
        None => bash,
    };
    let status = guard.start(bash)?.ended().await;
    let removed = succeed(engine.client().args(&down));
    drop(if_killed);
    ensure!(status.success(), "the lines of the page failed ({status})");
    removed
}

/// Fills the page's lines into the script.
fn script(page: &str) -> Result<String> {
    let section = page.split_once(HEADING).with_context(|| format!("{PAGE} lacks {HEADING:?}"))?.1;
    let section = section.split("\n## ").next().unwrap_or_default();
    let blocks = section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let lines = blocks.collect::<String>();
    let (lines, server) = lines.trim_end().rsplit_once('\n').context("the page has no lines")?;
    ensure!(server.ends_with("target.py"), "the last line of {HEADING:?} does not start the target");
    Ok(SCRIPT.replace("@LINES@", lines).replace("@SERVER@", server))
}

/// Writes the Compose file that names images made here.
fn second_file(engine: &Engine) -> Result<PathBuf> {
    let (builder, runtime, postgres) = (builder(engine)?, runtime(engine)?, postgres(engine)?);
    let build = format!("{{ network: host, args: {{ BUILDER: \"{builder}\", RUNTIME: \"{runtime}\" }} }}");
    let mut text = format!("services:\n  postgres: {{ image: \"{postgres}\" }}\n");
    for service in ["pubsub", "wakeq", "migrate", "topics"] {
        let image = if service == "pubsub" { "wakeq-test-pubsub:built" } else { IMAGE };
        text += &format!("  {service}: {{ image: \"{image}\", build: {build} }}\n");
    }
    let file = root().join("target/compose.yaml");
    fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
    fs::write(&file, text)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_lines() {
        let script = script(&fs::read_to_string(root().join(PAGE)).unwrap()).unwrap();
        assert!(script.contains("\ndocker compose up --detach\nuntil curl "));
        assert!(!script.contains("@LINES@") && !script.contains("@SERVER@"));
    }
}
