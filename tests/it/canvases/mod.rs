//! A second tenant in every test of the API: whatever a canvas asks for with another's ids, keys,
//! cursors and names, the answer is as if the other did not exist, and the other is unaffected.
//!
//! The oracle is a second world. The attacker's requests are made from the OpenAPI document and
//! sent twice: to a queue that it has for itself, and to one with a victim in it. Both must answer
//! alike, and no row of the victim may change. Then the victim sends the same kind of requests
//! about its own things, and must get the answers of a world without the attacker. How long tenants
//! wait for each other is not measured here: `edge::worst` does that.

mod answers;
mod batches;
mod bounds;
mod calls;
mod commands;
mod conditions;
mod counts;
mod fields;
mod functions;
mod limits;
mod mutants;
mod program;
mod proxy;
mod questions;
pub(crate) mod rows;
mod seed;
mod tallies;
mod unseen;
mod upkeep;
mod work;
mod world;

use std::collections::{BTreeMap, BTreeSet};

use wakeq_service::access::Scope;

use answers::{ComparableAnswer, Transcript};
use program::Request;
use seed::{ATTACKER, Tenant, VICTIM, Values};
use world::World;

/// What is wrong, each line beginning with the place.
type Findings = Vec<String>;

/// All scopes together, so that reads come before anything is written, and each by itself.
fn scope_sets() -> Vec<Vec<Scope>> {
    [Scope::ALL.to_vec()].into_iter().chain(Scope::ALL.iter().map(|scope| vec![*scope])).collect()
}

/// The answers in worlds with one tenant each, with which the world of both is compared.
struct SoloTranscripts {
    attacker: Transcript,
    victim: Transcript,
}

/// Which of the requests are sent.
#[derive(Clone, Copy)]
enum Part<'a> {
    All,
    /// The requests with these labels, after those that may change something before them, until the
    /// first finding.
    With(&'a BTreeSet<String>),
}

impl Part<'_> {
    fn has(self, label: &str) -> bool {
        match self {
            Self::All => true,
            Self::With(labels) => labels.contains(label),
        }
    }

    fn of(self, about: &str, mut requests: Vec<Request>) -> Vec<Request> {
        let has = |request: &Request| self.has(&format!("{about} {}", request.label));
        let last = requests.iter().rposition(|request| !request.only_reads() && has(request));
        let end = |last: usize| requests[last..].iter().position(|request| request.is_last_of_operation);
        let last = last.map(|last| last + end(last).unwrap_or_default());
        let mut at = 0..;
        requests.retain(|request| {
            let at = at.next();
            if request.only_reads() { has(request) } else { at <= last }
        });
        requests
    }

    fn goes_on(self, findings: &[String]) -> bool {
        matches!(self, Self::All) || findings.is_empty()
    }
}

/// Sends requests as a tenant with these scopes, until `each` returns false for an answer.
async fn send(
    world: &World,
    (tenant, scopes): (&Tenant, &[Scope]),
    about: &str,
    requests: &[Request],
    mut each: impl AsyncFnMut(&Request, String, ComparableAnswer) -> bool,
) {
    let names: Vec<_> = scopes.iter().map(|scope| scope.as_str()).collect();
    let names = names.join("+");
    for request in requests.iter().filter(|request| request.tells_with(scopes)) {
        // Quota figures cover the last seconds: they are compared only while nothing has been
        // written.
        if ["list_quotas", "show_quota"].contains(&request.operation.as_str()) && *scopes != Scope::ALL {
            continue;
        }
        world.asked(&format!("{about} {}", request.label));
        let answered = world.ask(tenant, scopes, request).await;
        if !each(request, format!("{about} {} [{names}]", request.label), answered).await {
            break;
        }
    }
}

/// The answers to one tenant in a world of its own, in the order of the scopes.
async fn said_alone(
    world: &World,
    tenant: &Tenant,
    about: &str,
    sets: &[Vec<Scope>],
    requests: &[Request],
) -> Transcript {
    let mut said = Transcript::default();
    for scopes in sets {
        send(world, (tenant, scopes), about, requests, async |_, label, answered| {
            said.insert(label, answered);
            true
        })
        .await;
    }
    said
}

/// The whole attack in a world with both tenants; returns what differs from the worlds of each
/// alone.
async fn attack(
    world: &World,
    [attacker, victim]: [&Values; 2],
    sets: &[Vec<Scope>],
    alone: &SoloTranscripts,
    part: Part<'_>,
) -> Findings {
    let mut findings = Findings::new();
    let requests = program::attacks(&world.document, &world.operations, attacker, victim);
    let requests = part.of("attack", requests);
    let pool = &world.service.stage.pool;
    let before = rows::of(pool, VICTIM.canvas).await;
    let mut secrets = rows::secrets(&before, victim);
    let platform = rows::platform(pool, &mut findings).await;
    let mut last = before.clone();
    for scopes in sets {
        send(world, (&ATTACKER, scopes), "attack", &requests, async |request, label, answered| {
            // A tenant may see again what it has sent.
            request.forget_what_it_says(&mut secrets);
            findings.extend(answered.revealed(request, &secrets));
            findings.extend(answered.difference(&label, alone.attacker.get(&label)));
            if request.is_last_of_operation {
                let now = rows::of(pool, VICTIM.canvas).await;
                findings.extend(rows::differences(&request.operation, &last, &now));
                last = now;
            }
            part.goes_on(&findings)
        })
        .await;
    }
    findings.extend(rows::differences("the last ones", &last, &rows::of(pool, VICTIM.canvas).await));
    findings.extend(rows::crossed(pool).await);
    findings.extend(rows::differences("everything", &platform, &rows::platform(pool, &mut Vec::new()).await));
    findings
}

/// The victim's own requests, after the attack.
async fn goes_on(world: &World, victim: &Values, alone: &Transcript, part: Part<'_>) -> Findings {
    let mut findings = Findings::new();
    let requests = part.of("own", program::own(&world.document, &world.operations, victim));
    send(world, (&VICTIM, &Scope::ALL), "own", &requests, async |_, label, answered| {
        findings.extend(answered.difference(&label, alone.get(&label)));
        part.goes_on(&findings)
    })
    .await;
    let stage = &world.service.stage;
    findings.extend(rows::crossed(&stage.pool).await);
    findings.extend(rows::lines_of_others(&stage.admin, &stage.pool, VICTIM.canvas).await);
    findings
}

/// A world with one tenant. The attacker's is created before the victim has anything: in every
/// world its rows are older than the victim's cursors.
struct SingleTenantWorld {
    world: World,
    own: Values,
}

impl SingleTenantWorld {
    async fn begin(tenant: &Tenant) -> Self {
        let world = World::start().await;
        let own = world.seed(tenant).await;
        Self { world, own }
    }

    /// The answers to the attacker when it uses ids that the victim has in another world.
    async fn attack(
        self,
        sets: &[Vec<Scope>],
        victim: &Values,
        sequences: &BTreeMap<String, i64>,
    ) -> Transcript {
        let Self { world, own } = self;
        world.advance(sequences).await;
        let requests = program::attacks(&world.document, &world.operations, &own, victim);
        let said = said_alone(&world, &ATTACKER, "attack", sets, &requests).await;
        world.service.stop().await;
        said
    }

    /// The answers to the victim about its own things.
    async fn goes_on(self) -> Transcript {
        let Self { world, own } = self;
        let requests = program::own(&world.document, &world.operations, &own);
        let said = said_alone(&world, &VICTIM, "own", &[Scope::ALL.to_vec()], &requests).await;
        world.service.stop().await;
        said
    }
}

#[tokio::test]
#[ignore = "long: `cargo xtask long` runs it"]
async fn nothing_crosses_canvases_over_http() {
    nothing_crosses(&[Scope::ALL.to_vec()]).await;
}

/// The same with one scope at a time.
#[tokio::test]
#[ignore = "five times as many requests: `cargo xtask tenants` runs it"]
async fn nothing_crosses_canvases_over_http_with_one_scope_alone() {
    nothing_crosses(&Scope::ALL.map(|scope| vec![scope])).await;
}

async fn nothing_crosses(sets: &[Vec<Scope>]) {
    let solo = SingleTenantWorld::begin(&ATTACKER).await;
    let world = World::start().await;
    let attacker = world.seed(&ATTACKER).await;
    let victim = world.seed(&VICTIM).await;
    let alone = SoloTranscripts {
        attacker: solo.attack(sets, &victim, &world.sequences().await).await,
        victim: SingleTenantWorld::begin(&VICTIM).await.goes_on().await,
    };
    let mut findings = attack(&world, [&attacker, &victim], sets, &alone, Part::All).await;
    findings.extend(goes_on(&world, &victim, &alone.victim, Part::All).await);
    findings.extend(work::goes_on(&world).await);
    findings.extend(tallies::goes_on(&world).await);
    println!(
        "{} operations, {} requests of an attacker, {} of a victim",
        world.operations.len(),
        alone.attacker.len(),
        alone.victim.len()
    );
    world.service.stop().await;
    pass(&findings);
}

/// Fails with all findings.
fn pass(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
