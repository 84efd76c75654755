//! Hooks: putting, showing and deleting what other systems may emit by webhooks, and finding the
//! one to receive for.
//!
//! Whether a webhook has the right signature is checked by its receiver.

use super::targets::not_sealed;
use super::{Admin, AdminError, LIST_MAX, checked};
use crate::event::{Actor, CanvasId, HandlerAddress, HookKind, HookSecret, Name};
use crate::store::{FoundHook, HookOutcome, HookRefusal, NewHookRow, RegisteredHook};

/// The answer to a hook without a secret, whose sender makes it.
const NO_SECRET: &str = "a new hook of the kind `stripe` needs the signing secret of the endpoint, which Stripe makes \
                         and shows: give it as `secret`";

/// A hook to be put: what it receives becomes events of one handler.
#[derive(Clone, Debug)]
pub struct NewHook {
    /// How its sender signs.
    pub kind: HookKind,
    /// The handler of its events, and its canvas.
    pub address: HandlerAddress,
    /// Whether the value is a CloudEvent that has the body as its data, and not the body alone.
    pub enveloped: bool,
    /// The secret that its sender signs with.
    pub secret: NewHookSecret,
    /// Whether earlier secrets stop being accepted now, including the one that this replaces.
    pub drops_previous: bool,
}

/// Which secret is accepted from now on. A replaced secret is accepted for another 24 hours.
#[derive(Clone, Debug, Default)]
pub enum NewHookSecret {
    /// The current secret. A new hook gets a generated one, unless its sender makes the secret.
    #[default]
    Keep,
    /// This one.
    Given(HookSecret),
    /// A newly generated one, to be given to the sender.
    Rotate,
}

/// The result of putting a hook.
#[derive(Clone, Debug)]
pub struct PutHookResult {
    /// Whether no hook had this name.
    pub new: bool,
    /// The hook as it is now.
    pub hook: RegisteredHook,
    /// The secret that was generated; it is shown only this once.
    pub secret: Option<HookSecret>,
}

impl Admin {
    /// Creates a hook, or replaces the one of the same name. Its kind stays as it is.
    ///
    /// ```no_run
    /// # async fn example(admin: wakeq::Admin) -> Result<(), Box<dyn std::error::Error>> {
    /// use wakeq::hooks::{HookKind, HookSecret, NewHook, NewHookSecret};
    /// use wakeq::{Actor, CanvasId, HandlerAddress, HandlerScope, Name};
    ///
    /// let scope = HandlerScope::worker(CanvasId::DEFAULT, "payment")?;
    /// let kind = HookKind::Stripe;
    /// let payments = NewHook {
    ///     kind,
    ///     address: HandlerAddress { scope, modifier: Name::no_modifier() },
    ///     enveloped: false,
    ///     secret: NewHookSecret::Given(HookSecret::new(kind, "whsec_of_the_endpoint")?),
    ///     drops_previous: false,
    /// };
    /// admin.put_hook(&"payments".parse()?, &payments, &Actor::user("ada")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn put_hook(
        &self,
        name: &Name,
        new: &NewHook,
        actor: &Actor,
    ) -> Result<PutHookResult, AdminError> {
        checked(actor)?;
        let canvas = new.address.scope.canvas;
        if canvas.is_reserved() {
            return Err(AdminError::Invalid("no canvas has this id"));
        }
        if new.address.scope.module.is_reserved_module() {
            return Err(AdminError::Invalid(
                "only wakeq itself emits events of the modules ANSWER, CANVAS, CRON and QUEUE: choose another module",
            ));
        }
        let secret = new.secret.chosen(new.kind)?;
        let keys = self.store.secret_keys();
        let seal = |secret| keys.seal_hook(canvas, name, secret).map_err(not_sealed);
        let sealed = secret.as_ref().map(seal).transpose()?;
        let (replaces_secret, is_made) = match &new.secret {
            NewHookSecret::Keep => (false, true),
            NewHookSecret::Given(_) => (true, false),
            NewHookSecret::Rotate => (true, true),
        };
        let row = NewHookRow {
            name,
            kind: new.kind,
            address: &new.address,
            enveloped: new.enveloped,
            secret: secret.as_ref().zip(sealed.as_ref()),
            keys,
            replaces_secret,
            drops_previous: new.drops_previous,
            actor,
        };
        let HookOutcome { new, taken, hook } = match self.store.put_hook(&row).await? {
            Ok(outcome) => outcome,
            Err(HookRefusal::OtherKind(kind)) => {
                return Err(AdminError::HookKind { name: name.clone(), kind });
            }
            Err(HookRefusal::NoSecret) => return Err(AdminError::Invalid(NO_SECRET)),
            // The store reports it as an error.
            Err(HookRefusal::Full) => return Err(crate::store::StoreError::Defect.into()),
        };
        Ok(PutHookResult { new, hook, secret: secret.filter(|_| taken && is_made) })
    }

    /// The hook of this name.
    pub async fn hook(&self, canvas: CanvasId, name: &Name) -> Result<RegisteredHook, AdminError> {
        let found = self.store.hooks(canvas, Some(name), None, 1).await?.pop();
        found.ok_or_else(|| AdminError::NoHook(name.clone()))
    }

    /// The hooks of a canvas by name, after the given one: up to `limit`, and up to 1,001, since
    /// one more than a page tells whether another page follows.
    pub async fn hooks(
        &self,
        canvas: CanvasId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RegisteredHook>, AdminError> {
        let limit = i64::from(limit.min(LIST_MAX + 1));
        Ok(self.store.hooks(canvas, None, after, limit).await?)
    }

    /// Deletes a hook. What it has emitted stays.
    pub async fn delete_hook(&self, canvas: CanvasId, name: &Name, actor: &Actor) -> Result<(), AdminError> {
        checked(actor)?;
        if self.store.delete_hook(canvas, name, actor).await? {
            Ok(())
        } else {
            Err(AdminError::NoHook(name.clone()))
        }
    }

    /// The hook of this name with its secrets, to receive a webhook for it.
    #[doc(hidden)]
    pub async fn hook_to_receive(
        &self,
        canvas: CanvasId,
        name: &Name,
    ) -> Result<Option<FoundHook>, AdminError> {
        Ok(self.store.hook_to_receive(canvas, name).await?)
    }
}

impl NewHookSecret {
    /// The secret of a new hook, or the one that replaces another; `None` if there is none to give.
    fn chosen(&self, kind: HookKind) -> Result<Option<HookSecret>, AdminError> {
        match self {
            Self::Given(secret) if secret.kind() != kind => {
                Err(AdminError::Invalid("the secret is for a hook of another kind"))
            }
            Self::Given(secret) => Ok(Some(secret.clone())),
            Self::Rotate if !kind.can_generate() => Err(AdminError::Invalid(
                "Stripe makes the secrets of its endpoints: roll it there, and give the new one as `secret`",
            )),
            Self::Keep if !kind.can_generate() => Ok(None),
            Self::Keep | Self::Rotate => {
                HookSecret::generate(kind).map(Some).map_err(|_| AdminError::NoRandomness)
            }
        }
    }
}
