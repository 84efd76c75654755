//! Plays the stories of `tests/scenarios/*.txt` with the real state machine in a simulated world.
//!
//! `tests/scenarios/README.md` describes their language.

use std::time::Duration;

use wakeq::EventId;
use wakeq::control::RuleKind;
use wakeq::machine::{Cause, HandlerEnd, Removal, State};

use super::world::World;
use super::world::worker::{Line, Progress, Worker, pass};

/// A story being played.
struct Stage {
    world: World,
    workers: Vec<Worker>,
}

/// What a line of a story leads to: the error says why the story failed there.
type Step = Result<(), String>;

/// Plays one story. The error is the trace and the line that did not hold.
fn play(story: &str) -> Step {
    let mut stage = Stage { world: World::new(), workers: Vec::new() };
    stage.world.trace = Some(Vec::new());
    let mut last = "";
    for (number, line) in story.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        last = line;
        stage.world.log(|_| format!("> {line}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let played = stage.act(&words).and_then(|()| stage.check_world());
        played.map_err(|wrong| stage.report(number + 1, line, &wrong))?;
    }
    if last.starts_with("expect ") {
        Ok(())
    } else {
        Err(format!("a story ends with what is expected, not with {last:?}"))
    }
}

impl Stage {
    fn report(&self, number: usize, line: &str, wrong: &str) -> String {
        let trace = self.world.trace.as_deref().unwrap_or_default().join("\n  ");
        format!("line {number}, {line:?}: {wrong}\n  {trace}\n")
    }

    fn check_world(&mut self) -> Step {
        self.world.check_rows();
        self.world.violations.first().map_or(Ok(()), |violation| Err(violation.clone()))
    }

    /// The whole language.
    fn act(&mut self, words: &[&str]) -> Step {
        match words {
            ["worker", name, "knows", handlers @ ..] => {
                let handlers = handlers.iter().map(|handler| (*handler).to_owned());
                self.workers.push(Worker::new(name, handlers));
            }
            [name, "learns", handler] => {
                self.worker(name)?.handlers.insert((*handler).to_owned());
                self.world.register(handler);
            }
            ["emit", label, "on", handler] => self.emit(label, handler, None, "0s", true)?,
            ["emit", label, "on", handler, "in", delay] => self.emit(label, handler, None, delay, true)?,
            ["emit", label, "on", handler, "unpublished"] => self.emit(label, handler, None, "0s", false)?,
            ["emit", label, "on", handler, "about", object] => {
                self.emit(label, handler, Some(object), "0s", true)?;
            }
            ["emit", label, "on", handler, "about", object, "in", delay] => {
                self.emit(label, handler, Some(object), delay, true)?;
            }
            [handler, "halts", "its", "objects"] => drop(self.world.halting.insert((*handler).to_owned())),
            ["skip", object, "for", handler] => self.world.skip(handler, object),
            ["double", label] => {
                let (id, now) = (self.event(label)?, self.world.now);
                self.world.broker.publish(id, now);
            }
            ["lose", label] => {
                let id = self.event(label)?;
                self.world.broker.lose(id);
            }
            [kind @ ("pause" | "block"), handler] => self.world.add_rule(handler, rule(kind)?),
            ["lift", kind, handler] => self.world.lift(handler, rule(kind)?),
            ["resume"] => self.resume(),
            ["probe"] => self.probe(),
            ["wake", "all"] => self.world.wake_all(),
            ["wait", duration] => self.wait(duration)?,
            ["cancel", label] => {
                let id = self.event(label)?;
                same(self.world.cancel_running(id), true)?;
            }
            [name, "takes", label] => self.take(name, label, None)?,
            [name, "takes", label, "until", state] => self.take(name, label, Some(state))?,
            [name, "continues", label] => self.go_on(name, label, None)?,
            [name, "completes", label] => self.end(name, label, HandlerEnd::Completed, None)?,
            [name, "completes", label, "until", state] => {
                self.end(name, label, HandlerEnd::Completed, Some(state))?;
            }
            [name, "stops", label] => self.stop(name, label)?,
            [name, "hears", "gone", "for", label] => self.end(name, label, HandlerEnd::Gone, None)?,
            [name, "fails", label] => self.end(name, label, HandlerEnd::Failed(None), None)?,
            [name, "fails", label, "for", delay] => {
                self.end(name, label, HandlerEnd::Failed(Some(duration(delay)?)), None)?;
            }
            [name, "dies"] => self.with(name, Worker::die)?,
            [name, "shuts", "down"] => self.with(name, Worker::shut_down)?,
            [name, "stalls"] => self.worker(name)?.stalled = true,
            [name, "wakes"] => self.worker(name)?.stalled = false,
            [name, "gets", "no", "answer"] => self.worker(name)?.line = Line::AnswerLost,
            [name, "reaches", "no", "database"] => self.worker(name)?.line = Line::Down,
            ["expect", expected @ ..] => self.expect(expected)?,
            _ => return Err("not a line of the language: see tests/scenarios/README.md".to_owned()),
        }
        Ok(())
    }

    fn expect(&mut self, words: &[&str]) -> Step {
        match words {
            [label, "completed"] => same(self.removal(label)?, Some(Removal::Completed)),
            [label, "cancelled"] => same(self.removal(label)?, Some(Removal::Cancelled)),
            [label, "dead", "of", "retries"] => {
                same(self.removal(label)?, Some(Removal::Dead(Cause::Retries)))
            }
            [label, "dead", "of", "poison"] => same(self.removal(label)?, Some(Removal::Dead(Cause::Poison))),
            [label, "parked"] => {
                let id = self.event(label)?;
                same((self.world.rows.contains_key(&id), self.world.promised_at(id)), (true, None))
            }
            [label, "promised", "in", wait] => {
                let promised_at = self.world.promised_at(self.event(label)?);
                same(promised_at, Some(self.world.now + duration(wait)?))
            }
            [label, "notified", times] => {
                let id = self.event(label)?;
                let messages = self.world.broker.messages.iter();
                same(messages.filter(|message| message.event == id).count(), number(times)?)
            }
            [object, "halted", "for", handler] => {
                let lane = ((*handler).to_owned(), (*object).to_owned());
                same(self.world.halted.contains(&lane), true)
            }
            [label, "waits", "at", name] => {
                let (worker, at) = self.run(name, label)?;
                same(worker.runs[at].wakes_at.is_some(), true)
            }
            [label, "runs", "at", name] => {
                let (worker, at) = self.run(name, label)?;
                same(worker.runs[at].state.name(), "Process")
            }
            [label, "started", times] => {
                let id = self.event(label)?;
                same(self.world.records[&id].starts as usize, number(times)?)
            }
            [label, "ran", "to", "completion", times] => {
                let id = self.event(label)?;
                same(self.world.records[&id].completions as usize, number(times)?)
            }
            [label, "retried", times] => same(self.row(label)?.retries as usize, number(times)?),
            [label, "lost", times] => same(self.row(label)?.losses as usize, number(times)?),
            [label, "claimed", times] => same(i64::from(self.row(label)?.claims), number(times)? as i64),
            [name, "did", edges @ ..] => self.did(name, edges),
            _ => Err("not an expectation: see tests/scenarios/README.md".to_owned()),
        }
    }

    /// Checks the last edges that a worker took.
    fn did(&mut self, name: &str, edges: &[&str]) -> Step {
        let outcomes = &self.worker(name)?.outcomes;
        let last: Vec<&str> =
            outcomes.iter().rev().take(edges.len()).rev().map(|edge| edge.as_str()).collect();
        same(last.as_slice(), edges)
    }

    fn emit(&mut self, label: &str, handler: &str, object: Option<&str>, delay: &str, notify: bool) -> Step {
        let id = self.world.emit(label, handler, object, duration(delay)?);
        if notify {
            self.world.publish_if_due(id);
        }
        Ok(())
    }

    fn resume(&mut self) {
        while !self.world.jobs.is_empty() {
            for id in self.world.resume_page(0) {
                self.world.publish_if_due(id);
            }
        }
    }

    fn probe(&mut self) {
        self.world.remove_cancelled();
        let overdue = self.world.probe();
        self.world.publish(&overdue);
    }

    /// Lets time pass; runs that return from the parking lot continue as far as they can.
    fn wait(&mut self, text: &str) -> Step {
        pass(&mut self.world, &mut self.workers, duration(text)?, |world, workers| {
            for worker in workers {
                for at in (0..worker.runs.len()).rev() {
                    while worker.advance(world, at) == Progress::Continues {}
                }
            }
        });
        Ok(())
    }

    fn take(&mut self, name: &str, label: &str, until: Option<&str>) -> Step {
        let event = self.event(label)?;
        let worker = self.workers.iter_mut().find(|worker| worker.name == name && worker.alive);
        let worker = worker.ok_or_else(|| format!("no worker {name} is alive"))?;
        if !worker.take(&mut self.world, event) {
            return Err(format!("no notification for {label} can be delivered"));
        }
        self.go_on(name, label, until)
    }

    fn go_on(&mut self, name: &str, label: &str, until: Option<&str>) -> Step {
        let (_, at) = self.run(name, label)?;
        self.go_on_at(name, at, until)
    }

    fn go_on_at(&mut self, name: &str, at: usize, until: Option<&str>) -> Step {
        let position = self.workers.iter().position(|worker| worker.name == name).unwrap_or_default();
        let worker = &mut self.workers[position];
        loop {
            if until == Some(worker.runs[at].state.name()) {
                return Ok(());
            }
            if worker.advance(&mut self.world, at) != Progress::Continues {
                return until.map_or(Ok(()), |state| Err(format!("it did not come to {state}")));
            }
        }
    }

    fn end(&mut self, name: &str, label: &str, ran: HandlerEnd, until: Option<&str>) -> Step {
        let event = self.event(label)?;
        let worker = self.workers.iter_mut().find(|worker| worker.name == name);
        let worker = worker.ok_or_else(|| format!("there is no worker {name}"))?;
        let runs =
            |run: &super::world::worker::Run| run.event == event && matches!(run.state, State::Process(_));
        let at = worker.runs.iter().position(runs).ok_or_else(|| format!("{name} does not run {label}"))?;
        worker.end_handler(&mut self.world, at, ran);
        self.go_on_at(name, at, until)
    }

    /// The handler was told that its event is cancelled, and stops.
    fn stop(&mut self, name: &str, label: &str) -> Step {
        let (worker, at) = self.run(name, label)?;
        same(worker.runs[at].is_told, true)?;
        self.end(name, label, HandlerEnd::Cancelled, None)
    }

    fn with(&mut self, name: &str, act: fn(&mut Worker, &mut World)) -> Step {
        let worker = self.workers.iter_mut().find(|worker| worker.name == name);
        act(worker.ok_or_else(|| format!("there is no worker {name}"))?, &mut self.world);
        Ok(())
    }

    fn worker(&mut self, name: &str) -> Result<&mut Worker, String> {
        let found = self.workers.iter_mut().find(|worker| worker.name == name);
        found.ok_or_else(|| format!("there is no worker {name}"))
    }

    /// The newest run of an event at a worker.
    fn run(&mut self, name: &str, label: &str) -> Result<(&mut Worker, usize), String> {
        let event = self.event(label)?;
        let worker = self.worker(name)?;
        let found = worker.runs.iter().rposition(|run| run.event == event);
        found.map(|at| (worker, at)).ok_or_else(|| format!("{name} holds no notification for {label}"))
    }

    fn event(&self, label: &str) -> Result<EventId, String> {
        let mut records = self.world.records.iter();
        let found = records.find(|(_, record)| record.label == label);
        found.map(|(id, _)| *id).ok_or_else(|| format!("there is no event {label}"))
    }

    fn row(&self, label: &str) -> Result<super::world::Row, String> {
        let id = self.event(label)?;
        let row = self.world.rows.get(&id).unwrap_or(&self.world.records[&id].last);
        Ok(row.clone())
    }

    fn removal(&self, label: &str) -> Result<Option<Removal>, String> {
        Ok(self.world.records[&self.event(label)?].removed)
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: T, expected: T) -> Step {
    if found == expected { Ok(()) } else { Err(format!("found {found:?}, expected {expected:?}")) }
}

fn rule(word: &str) -> Result<RuleKind, String> {
    word.parse()
}

/// Parses `3x`, or `never`, `once` and `twice`.
fn number(word: &str) -> Result<usize, String> {
    match word {
        "never" => Ok(0),
        "once" => Ok(1),
        "twice" => Ok(2),
        other => other
            .strip_suffix('x')
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| format!("{other:?} is not a count: use never, once, twice or 3x")),
    }
}

/// Parses `1ms`, `20s`, `5min`, `2h`.
fn duration(word: &str) -> Result<Duration, String> {
    let digits = word.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit_ms = match &word[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("{word:?} is not a duration: use ms, s, min or h")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("{word:?} is not a duration"))?;
    Ok(Duration::from_millis(count * unit_ms))
}

fn stories() -> Vec<(String, String)> {
    let folder = crate::support::repository::root().join("tests/scenarios");
    let mut stories: Vec<(String, String)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .map(|path| (path.file_stem().unwrap().display().to_string(), std::fs::read_to_string(path).unwrap()))
        .collect();
    stories.sort();
    stories
}

// Shows: EV2-58
#[test]
fn every_scenario_ends_as_expected() {
    let stories = stories();
    assert!(stories.len() >= 15, "only {} stories found", stories.len());
    let failed: Vec<String> = stories
        .iter()
        .filter_map(|(name, story)| play(story).err().map(|error| format!("{name}.txt, {error}")))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn a_failing_scenario_is_reported_with_its_trace() {
    let story = "worker anna knows mail\nemit a on mail\nanna takes a\nexpect a completed\n";
    let report = play(story).unwrap_err();
    assert!(report.starts_with("line 4, \"expect a completed\": found None"), "{report}");
    assert!(report.contains("anna a: LockClaim -LockClaimed-> Process"), "{report}");
}

#[test]
fn rejects_unknown_scenario_lines() {
    assert!(play("anna sings\n").unwrap_err().contains("not a line of the language"));
    assert!(play("emit a on mail\n").unwrap_err().contains("ends with what is expected"));
}
