//! A hook as its receiver needs it: with its secrets, and the handler that its events are for.

use crate::event::{
    CanvasId, HandlerAddress, HookKind, HookSecret, Name, OpenError, SealedSecret, SecretKeys,
};
use crate::store::kernel::{Store, StoreError, address};

/// A hook to receive webhooks for.
#[derive(Debug)]
pub struct FoundHook {
    /// How its sender signs.
    pub kind: HookKind,
    /// The handler of its events.
    pub address: HandlerAddress,
    /// Whether the value is a CloudEvent around the body.
    pub enveloped: bool,
    /// The secrets that are accepted: two during a rotation; none if this process can't open them.
    pub secrets: Vec<HookSecret>,
}

struct FoundRow {
    kind: String,
    module: String,
    handler: String,
    modifier: String,
    enveloped: bool,
    secret: Vec<u8>,
    secret_key: Option<String>,
    previous_secret: Option<Vec<u8>>,
    previous_key: Option<String>,
}

impl Store {
    /// The hook of this name, with its secrets.
    pub(crate) async fn hook_to_receive(
        &self,
        canvas: CanvasId,
        name: &Name,
    ) -> Result<Option<FoundHook>, StoreError> {
        let query = sqlx::query_as!(
            FoundRow,
            r#"select kind, module::text as "module!", handler::text as "handler!", modifier::text as "modifier!",
                      enveloped, secret, secret_key, previous_key,
                      case when previous_until > now() then previous_secret end as previous_secret
                 from wakeq.hooks where canvas_id = $1 and name = $2"#,
            canvas.0,
            name.as_str() as _
        );
        let found = self.session().await?.optional("look for a hook", query).await?;
        Ok(found.and_then(|row| row.into_hook(self.secret_keys(), canvas, name)))
    }
}

impl FoundRow {
    /// A row that was not written by wakeq and is not a hook counts as none.
    fn into_hook(self, keys: &SecretKeys, canvas: CanvasId, name: &Name) -> Option<FoundHook> {
        let kind: HookKind = self.kind.parse().ok()?;
        let address = address(canvas.0, &self.module, &self.handler, &self.modifier).ok()?;
        let complain = |unopened: &OpenError| {
            tracing::error!(%canvas, hook = %name, "a secret of this hook can't be used: {unopened}");
        };
        let current = Some((self.secret, self.secret_key));
        let previous = self.previous_secret.map(|bytes| (bytes, self.previous_key));
        let opened = [current, previous].into_iter().flatten().filter_map(|(bytes, key)| {
            let sealed = SealedSecret { key, bytes };
            keys.open_hook((canvas, name, kind), &sealed).inspect_err(complain).ok()
        });
        Some(FoundHook { kind, address, enveloped: self.enveloped, secrets: opened.collect() })
    }
}
