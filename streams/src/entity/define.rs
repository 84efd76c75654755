//! The definition of a type of entities: a state, the events that change it, and two functions
//! without side effects.

use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use wakeq::{Event, EventError};

/// Maximum number of characters that are kept of a reason.
const REASON_MAX: usize = 1000;

/// A type of entities.
///
/// Both functions are synchronous and get nothing but their arguments, so a stored event can be
/// applied again at any time with the same outcome: they must not use a clock, randomness or
/// anything from outside.
///
/// For an effect outside, such as a payment, `apply` emits an event, whose handler sends the
/// outcome back as another event of the entity.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use wakeq_streams::{Applied, Entity, Rejection};
///
/// struct Account;
///
/// #[derive(Clone, Default, Serialize, Deserialize)]
/// struct Balance {
///     cents: i64,
/// }
///
/// #[derive(Serialize, Deserialize)]
/// #[serde(rename_all = "snake_case")]
/// enum Change {
///     Deposit { cents: u32 },
///     Withdraw { cents: u32 },
/// }
///
/// impl Entity for Account {
///     const TYPE: &'static str = "account";
///     type State = Balance;
///     type Event = Change;
///
///     fn validate(balance: &Balance, change: &Change) -> Result<(), Rejection> {
///         match change {
///             Change::Withdraw { cents } if i64::from(*cents) > balance.cents => {
///                 Err(Rejection::new(format!("there are only {} cents", balance.cents)))
///             }
///             Change::Withdraw { .. } | Change::Deposit { .. } => Ok(()),
///         }
///     }
///
///     fn apply(balance: Balance, change: &Change) -> Applied<Balance> {
///         let cents = match change {
///             Change::Deposit { cents } => balance.cents + i64::from(*cents),
///             Change::Withdraw { cents } => balance.cents - i64::from(*cents),
///         };
///         Applied::new(Balance { cents }).result(&cents)
///     }
/// }
/// ```
pub trait Entity: Send + Sync + 'static {
    /// The type's name: see [`EntityType`](crate::EntityType).
    const TYPE: &'static str;
    /// Has to be incremented when the meaning of the state changes, or what `apply` does with an
    /// event. Snapshots with another number are not used: their states are rebuilt from all events.
    const SHAPE: u32 = 1;
    /// The state of an entity. A new entity has the default.
    type State: Default + Clone + Serialize + DeserializeOwned + Send + 'static;
    /// The events: an enum in the default representation of `serde`, so that its variants are the
    /// names of the events, and their contents the payloads.
    type Event: DeserializeOwned;

    /// Whether the event may happen now. It must be quick: events of other entities wait for it.
    fn validate(state: &Self::State, event: &Self::Event) -> Result<(), Rejection>;

    /// The state after the event, which was valid. It must be quick as well.
    fn apply(state: Self::State, event: &Self::Event) -> Applied<Self::State>;
}

/// Why an event may not happen. The sender receives the reason; nothing is stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejection {
    reason: String,
}

impl Rejection {
    /// A rejection for this reason, of which the first 1,000 characters are kept.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { reason: stored_text(&reason.to_string()) }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// A text as Postgres can store it: cut off at the limit, and without NUL.
pub(super) fn stored_text(text: &str) -> String {
    text.chars().filter(|character| *character != '\0').take(REASON_MAX).collect()
}

/// The outcome of applying an event: the new state, the result for the sender, and events that
/// follow.
#[derive(Debug)]
pub struct Applied<S> {
    pub(super) state: S,
    pub(super) result: Option<String>,
    pub(super) follow_ups: Vec<FollowUp>,
    pub(super) fault: Option<String>,
}

/// An event that is emitted because of another.
#[derive(Clone, Debug)]
pub(super) enum FollowUp {
    /// Emitted as it is.
    Emit(Event),
    /// Emitted with its value inside a question.
    Ask(Event),
}

impl FollowUp {
    pub(super) fn event(&self) -> &Event {
        match self {
            Self::Emit(event) | Self::Ask(event) => event,
        }
    }
}

impl<S> Applied<S> {
    /// Only a new state.
    pub fn new(state: S) -> Self {
        Self { state, result: None, follow_ups: Vec::new(), fault: None }
    }

    /// The state.
    pub fn state(&self) -> &S {
        &self.state
    }

    /// Sets the result for the sender. A value without a JSON form makes the event fail.
    pub fn result(mut self, result: &(impl Serialize + ?Sized)) -> Self {
        match serde_json::to_string(result) {
            Ok(result) => self.result = Some(result),
            Err(error) => self.fault = Some(format!("its result is not JSON: {error}")),
        }
        self
    }

    /// Emits an event in the transaction that stores this one. An event that can't be made makes
    /// this one fail.
    pub fn emit(self, event: Result<Event, EventError>) -> Self {
        self.follow(event.map(FollowUp::Emit))
    }

    /// The same for an event whose handler should answer: it gets the question, and the entity to
    /// answer, from [`Asked::asked`](crate::Asked::asked).
    pub fn ask(self, event: Result<Event, EventError>) -> Self {
        self.follow(event.map(FollowUp::Ask))
    }

    fn follow(mut self, follow_up: Result<FollowUp, EventError>) -> Self {
        match follow_up {
            Ok(follow_up) => self.follow_ups.push(follow_up),
            Err(error) => {
                self.fault = Some(format!("an event that follows from it can't be emitted: {error}"))
            }
        }
        self
    }
}
