//! Faults of calls: refused with a requested status, or slowed down, for any method and transport.
//!
//! It decides; it neither waits nor carries anything out.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tonic::Code;

use super::faults::SeededRng;
use super::{Broker, Faults, Refusal};

/// Defines an enum with the names that configurations use.
macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$item:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
        pub enum $name {
            $($(#[$item])* #[serde(rename = $text)] $variant,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The name in configurations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.as_str())
            }
        }
    };
}

named! {
    /// A method in which faults can be injected.
    #[allow(missing_docs)]
    Method {
        CreateTopic = "CreateTopic",
        UpdateTopic = "UpdateTopic",
        Publish = "Publish",
        GetTopic = "GetTopic",
        ListTopics = "ListTopics",
        ListTopicSubscriptions = "ListTopicSubscriptions",
        ListTopicSnapshots = "ListTopicSnapshots",
        DeleteTopic = "DeleteTopic",
        DetachSubscription = "DetachSubscription",
        CreateSubscription = "CreateSubscription",
        GetSubscription = "GetSubscription",
        UpdateSubscription = "UpdateSubscription",
        ListSubscriptions = "ListSubscriptions",
        DeleteSubscription = "DeleteSubscription",
        ModifyAckDeadline = "ModifyAckDeadline",
        Acknowledge = "Acknowledge",
        Pull = "Pull",
        StreamingPull = "StreamingPull",
        ModifyPushConfig = "ModifyPushConfig",
        GetSnapshot = "GetSnapshot",
        ListSnapshots = "ListSnapshots",
        CreateSnapshot = "CreateSnapshot",
        UpdateSnapshot = "UpdateSnapshot",
        DeleteSnapshot = "DeleteSnapshot",
        Seek = "Seek",
        SetIamPolicy = "SetIamPolicy",
        GetIamPolicy = "GetIamPolicy",
        TestIamPermissions = "TestIamPermissions",
        CreateSchema = "CreateSchema",
        GetSchema = "GetSchema",
        ListSchemas = "ListSchemas",
        ListSchemaRevisions = "ListSchemaRevisions",
        CommitSchema = "CommitSchema",
        RollbackSchema = "RollbackSchema",
        DeleteSchemaRevision = "DeleteSchemaRevision",
        DeleteSchema = "DeleteSchema",
        ValidateSchema = "ValidateSchema",
        ValidateMessage = "ValidateMessage",
    }
}

named! {
    /// A status that a call can be refused with.
    #[allow(missing_docs)]
    FaultCode {
        Cancelled = "CANCELLED",
        Unknown = "UNKNOWN",
        InvalidArgument = "INVALID_ARGUMENT",
        DeadlineExceeded = "DEADLINE_EXCEEDED",
        NotFound = "NOT_FOUND",
        AlreadyExists = "ALREADY_EXISTS",
        PermissionDenied = "PERMISSION_DENIED",
        ResourceExhausted = "RESOURCE_EXHAUSTED",
        FailedPrecondition = "FAILED_PRECONDITION",
        Aborted = "ABORTED",
        OutOfRange = "OUT_OF_RANGE",
        Unimplemented = "UNIMPLEMENTED",
        Internal = "INTERNAL",
        Unavailable = "UNAVAILABLE",
        DataLoss = "DATA_LOSS",
        Unauthenticated = "UNAUTHENTICATED",
    }
}

impl Method {
    /// Finds a method by its name or its full name, `google.pubsub.v1.Publisher/Publish`.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or(name);
        Self::ALL.iter().copied().find(|method| method.as_str() == name)
    }

    /// Whether it leaves everything as it is.
    pub(crate) fn reads_only(self) -> bool {
        ["Get", "List", "Test", "Validate"].iter().any(|verb| self.as_str().starts_with(verb))
    }
}

impl FaultCode {
    /// The gRPC status code.
    pub const fn code(self) -> Code {
        match self {
            Self::Cancelled => Code::Cancelled,
            Self::Unknown => Code::Unknown,
            Self::InvalidArgument => Code::InvalidArgument,
            Self::DeadlineExceeded => Code::DeadlineExceeded,
            Self::NotFound => Code::NotFound,
            Self::AlreadyExists => Code::AlreadyExists,
            Self::PermissionDenied => Code::PermissionDenied,
            Self::ResourceExhausted => Code::ResourceExhausted,
            Self::FailedPrecondition => Code::FailedPrecondition,
            Self::Aborted => Code::Aborted,
            Self::OutOfRange => Code::OutOfRange,
            Self::Unimplemented => Code::Unimplemented,
            Self::Internal => Code::Internal,
            Self::Unavailable => Code::Unavailable,
            Self::DataLoss => Code::DataLoss,
            Self::Unauthenticated => Code::Unauthenticated,
        }
    }
}

/// A number of calls that are certain to be refused, before any probability applies.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct NextCalls {
    /// How many calls are left to refuse.
    pub times: u32,
    /// The status to refuse them with.
    pub code: FaultCode,
    /// The affected methods; all if empty.
    #[serde(default)]
    pub methods: BTreeSet<Method>,
}

/// The faults of one call.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallFaults {
    /// How much longer it takes.
    pub slow: Duration,
    /// The refusal, if there is one; the call is not carried out then.
    pub refusal: Option<Refusal>,
}

impl Faults {
    /// Adds a refusal of the next `times` calls of these methods (of any, if there are none).
    /// Earlier entries are used up first.
    ///
    /// ```
    /// use wakeq_emulator::{FaultCode, Faults, Method};
    ///
    /// let faults = Faults::default().fail_next(3, FaultCode::Unavailable, [Method::Publish]);
    /// assert_eq!(faults.next[0].times, 3);
    /// ```
    #[must_use]
    pub fn fail_next(
        mut self,
        times: u32,
        code: FaultCode,
        methods: impl IntoIterator<Item = Method>,
    ) -> Self {
        self.next.push(NextCalls { times, code, methods: methods.into_iter().collect() });
        self
    }

    fn draw_faults(&mut self, rng: &mut SeededRng, method: Method) -> CallFaults {
        let concerned = self.methods.is_empty() || self.methods.contains(&method);
        let slow = if concerned { self.slow } else { Duration::ZERO };
        let code = self.use_up_next(method).or_else(|| concerned.then(|| self.draw(rng)).flatten());
        CallFaults { slow, refusal: code.map(injected) }
    }

    fn use_up_next(&mut self, method: Method) -> Option<FaultCode> {
        self.next.retain(|next| next.times > 0);
        let meant = |next: &&mut NextCalls| next.methods.is_empty() || next.methods.contains(&method);
        let next = self.next.iter_mut().find(meant)?;
        next.times -= 1;
        let code = next.code;
        self.next.retain(|next| next.times > 0);
        Some(code)
    }

    fn draw(&self, rng: &mut SeededRng) -> Option<FaultCode> {
        let faults = [
            (self.unavailable, FaultCode::Unavailable),
            (self.not_found, FaultCode::NotFound),
            (self.resource_exhausted, FaultCode::ResourceExhausted),
            (self.deadline_exceeded, FaultCode::DeadlineExceeded),
        ];
        faults.into_iter().find_map(|(probability, code)| rng.random_bool(probability).then_some(code))
    }
}

impl Broker {
    /// Decides the faults of a call. Must be called once per call, as it uses up the counted ones.
    pub fn draw_faults(&mut self, method: Method) -> CallFaults {
        let faults = self.faults.draw_faults(&mut self.call_rng, method);
        self.fault_counts.refused_calls += u64::from(faults.refusal.is_some());
        faults
    }
}

/// The message names the emulator, so that a log's reader does not look for another cause.
fn injected(code: FaultCode) -> Refusal {
    Refusal::new(code.code(), format!("{code}: an injected fault."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(broker: &mut Broker, method: Method, calls: usize) -> Vec<Option<Code>> {
        (0..calls).map(|_| broker.draw_faults(method).refusal.map(|refusal| refusal.code)).collect()
    }

    fn broker(faults: Faults) -> Broker {
        Broker::new(faults)
    }

    #[test]
    fn fail_next_affects_only_the_given_methods_and_count() {
        let faults = Faults::default()
            .fail_next(2, FaultCode::Unavailable, [Method::Publish])
            .fail_next(1, FaultCode::Aborted, [Method::Publish, Method::Pull])
            .fail_next(0, FaultCode::Internal, []);
        let mut broker = broker(faults);
        assert_eq!(codes(&mut broker, Method::GetTopic, 1), [None]);
        let unavailable = Some(Code::Unavailable);
        assert_eq!(
            codes(&mut broker, Method::Publish, 4),
            [unavailable, unavailable, Some(Code::Aborted), None]
        );
        assert_eq!(codes(&mut broker, Method::Pull, 1), [None], "used up by Publish");
        assert_eq!(broker.fault_counts().refused_calls, 3);
        assert_eq!(broker.faults().next, []);
    }

    #[test]
    fn shows_the_remaining_fail_next_calls() {
        let mut broker = broker(Faults::default().fail_next(3, FaultCode::NotFound, []));
        codes(&mut broker, Method::Seek, 1);
        assert_eq!(broker.faults().next[0].times, 2);
    }

    #[test]
    fn random_faults_hit_only_the_named_methods_and_repeat_with_the_seed() {
        let faults = |seed| Faults {
            seed,
            unavailable: 0.3,
            not_found: 0.3,
            methods: [Method::Publish].into(),
            slow: Duration::from_millis(20),
            ..Faults::default()
        };
        let first = codes(&mut broker(faults(1)), Method::Publish, 1_000);
        assert_eq!(first, codes(&mut broker(faults(1)), Method::Publish, 1_000));
        assert_ne!(first, codes(&mut broker(faults(2)), Method::Publish, 1_000));
        let count = |code| first.iter().filter(|drawn| **drawn == code).count();
        assert!((250..350).contains(&count(Some(Code::Unavailable))), "{}", count(Some(Code::Unavailable)));
        assert!((160..260).contains(&count(Some(Code::NotFound))), "three tenths of what is left");
        assert_eq!(broker(faults(1)).draw_faults(Method::Pull), CallFaults::default());
        assert_eq!(broker(faults(1)).draw_faults(Method::Publish).slow, Duration::from_millis(20));
    }

    #[test]
    fn unaffected_calls_do_not_advance_the_random_faults() {
        let faults = Faults { unavailable: 0.5, methods: [Method::Publish].into(), ..Faults::default() };
        let (mut alone, mut disturbed) = (broker(faults.clone()), broker(faults));
        for call in 0..100 {
            disturbed.draw_faults(Method::Pull);
            assert_eq!(
                alone.draw_faults(Method::Publish),
                disturbed.draw_faults(Method::Publish),
                "call {call}"
            );
        }
    }

    #[test]
    fn methods_are_known_by_both_names() {
        assert_eq!(Method::named("google.pubsub.v1.Publisher/Publish"), Some(Method::Publish));
        assert_eq!(Method::named("StreamingPull"), Some(Method::StreamingPull));
        assert_eq!(Method::named("publish"), None);
    }

    #[test]
    fn rejects_unknown_methods_and_codes_and_lists_the_known_ones() {
        let refusal = |json| serde_json::from_str::<Faults>(json).unwrap_err().to_string();
        let unknown = refusal(r#"{"methods": ["Publsh"]}"#);
        assert!(unknown.contains("unknown variant `Publsh`") && unknown.contains("`Publish`"), "{unknown}");
        let unknown = refusal(r#"{"next": [{"times": 1, "code": "BUSY"}]}"#);
        assert!(unknown.contains("unknown variant `BUSY`") && unknown.contains("`UNAVAILABLE`"), "{unknown}");
    }

    #[test]
    fn knows_every_method_of_the_protocol() {
        let known: BTreeSet<&str> = Method::ALL.iter().map(|method| method.as_str()).collect();
        let routed: BTreeSet<&str> =
            crate::proto::ROUTES.iter().filter_map(|route| route.method.split('/').nth(1)).collect();
        let unrouted: Vec<_> = known.difference(&routed).collect();
        assert_eq!(unrouted, [&"StreamingPull"], "which has no REST form");
        assert_eq!(routed.difference(&known).count(), 0);
    }
}
