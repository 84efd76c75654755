//! A second tenant in every test of the API: whatever one canvas asks for with the other's ids, keys, cursors and names, it is
//! answered as if the other were not there, and the other is as it would be without it.
//!
//! The oracle is a second world. The attacker's requests are made from the OpenAPI document and sent twice: to a queue
//! that it has for itself, and to one with a victim in it. Both have to answer alike, and no row of the victim may have changed.
//! Then the victim sends the same kind of requests about its own, and has to be answered as in a world without the attacker.
//! Waiting for each other is not measured here: `edge::worst` has figures of that.

mod answers;
mod calls;
mod commands;
mod fields;
mod mutants;
mod program;
mod proxy;
mod rows;
mod seed;
mod work;
mod world;

use std::collections::BTreeMap;

use wakeq::access::Scope;

use answers::{Answered, Transcript};
use program::Request;
use seed::{ATTACKER, Tenant, VICTIM, Values};
use world::World;

/// What was found to be wrong, each in a line that begins with where.
type Findings = Vec<String>;

/// All scopes together, so that reads come before anything is written, and each by itself.
fn scope_sets() -> Vec<Vec<Scope>> {
    [Scope::ALL.to_vec()].into_iter().chain(Scope::ALL.iter().map(|scope| vec![*scope])).collect()
}

/// The worlds that the one with both tenants is compared with: each has one of them.
struct Alone {
    attacker: Transcript,
    victim: Transcript,
}

/// Sends requests as a tenant that holds these scopes; after those that may have changed something, `after` looks around.
async fn send(
    world: &World,
    tenant: &Tenant,
    scopes: &[Scope],
    requests: &[Request],
    mut after: impl AsyncFnMut(&Request, &Answered),
) -> Transcript {
    let mut transcript = Transcript::default();
    for request in requests {
        let answered = world.ask(tenant, scopes, request).await;
        after(request, &answered).await;
        transcript.insert(request.label.clone(), answered);
    }
    transcript
}

/// What is said to one tenant in a world of its own, in the order of the scopes.
async fn said_alone(world: &World, tenant: &Tenant, sets: &[Vec<Scope>], requests: &[Request]) -> Transcript {
    let mut said = Transcript::default();
    for scopes in sets {
        said.extend(prefixed(scopes, send(world, tenant, scopes, requests, async |_, _| ()).await));
    }
    said
}

fn prefixed(scopes: &[Scope], transcript: Transcript) -> impl Iterator<Item = (String, Answered)> {
    let scopes: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    let scopes = scopes.join("+");
    transcript.into_iter().map(move |(label, answered)| (format!("{label} [{scopes}]"), answered))
}

/// The whole of it in a world with both: what is wrong there, compared with the worlds of each alone.
async fn attack(
    world: &World,
    [attacker, victim]: [&Values; 2],
    sets: &[Vec<Scope>],
    alone: &Alone,
) -> Findings {
    let mut findings = Findings::new();
    let requests = program::attacks(&world.document, &world.operations, attacker, victim);
    let pool = &world.service.stage.pool;
    let before = rows::of(pool, VICTIM.canvas).await;
    let mut secrets = rows::secrets(&before, victim);
    let platform = rows::platform(pool, &mut findings).await;
    let mut last = before.clone();
    for scopes in sets {
        let said = send(world, &ATTACKER, scopes, &requests, async |request, answered| {
            // What it has sent, it may see again.
            request.forget_what_it_says(&mut secrets);
            findings.extend(answered.revealed(request, &secrets));
            if request.is_last_of_operation {
                let now = rows::of(pool, VICTIM.canvas).await;
                findings.extend(rows::differences(&request.operation, &last, &now));
                last = now;
            }
        })
        .await;
        for (label, answered) in prefixed(scopes, said) {
            findings.extend(answered.difference(&label, alone.attacker.get(&label)));
        }
    }
    findings.extend(rows::differences("everything", &platform, &rows::platform(pool, &mut Vec::new()).await));
    findings
}

/// The victim's own requests, after the attack.
async fn goes_on(world: &World, victim: &Values, alone: &Transcript) -> Findings {
    let requests = program::own(&world.document, &world.operations, victim);
    let all = [Scope::ALL.to_vec()];
    let said = said_alone(world, &VICTIM, &all, &requests).await;
    said.into_iter()
        .flat_map(|(label, answered)| answered.difference(&format!("own {label}"), alone.get(&label)))
        .collect()
}

/// A world that the attacker has for itself. It is begun before the victim has anything: what is there is older than the
/// victim's cursors in every world.
struct Lonely {
    world: World,
    own: Values,
}

impl Lonely {
    async fn begin() -> Self {
        let world = World::start(None).await;
        let own = world.seed(&ATTACKER).await;
        Self { world, own }
    }

    /// What each tenant is told when it is alone. The attacker uses the ids that the victim has elsewhere.
    async fn said(self, sets: &[Vec<Scope>], victim: &Values, sequences: &BTreeMap<String, i64>) -> Alone {
        let Self { world, own } = self;
        world.advance(sequences).await;
        let requests = program::attacks(&world.document, &world.operations, &own, victim);
        let attacker = said_alone(&world, &ATTACKER, sets, &requests).await;
        world.service.stop().await;
        let world = World::start(None).await;
        let own = world.seed(&VICTIM).await;
        let requests = program::own(&world.document, &world.operations, &own);
        let victim = said_alone(&world, &VICTIM, &[Scope::ALL.to_vec()], &requests).await;
        world.service.stop().await;
        Alone { attacker, victim }
    }
}

#[tokio::test]
async fn nothing_crosses_canvases_over_http() {
    let sets = scope_sets();
    let lonely = Lonely::begin().await;
    let world = World::start(None).await;
    let attacker = world.seed(&ATTACKER).await;
    let victim = world.seed(&VICTIM).await;
    let alone = lonely.said(&sets, &victim, &world.sequences().await).await;
    let mut findings = attack(&world, [&attacker, &victim], &sets, &alone).await;
    findings.extend(goes_on(&world, &victim, &alone.victim).await);
    findings.extend(work::goes_on(&world).await);
    println!(
        "{} operations, {} requests of an attacker, {} of a victim",
        world.operations.len(),
        alone.attacker.len(),
        alone.victim.len()
    );
    world.service.stop().await;
    pass(&findings);
}

/// Fails with all that was found.
fn pass(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
