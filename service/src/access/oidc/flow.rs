//! A sign-in on its way: what a browser keeps of it, and what the provider is told. Pure: time and
//! secrets are arguments. Nothing of it is stored, so that any process can go on with it.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::access::key::NoRandomness;
use crate::access::session::{NONCE_BYTES, Purpose, Signer};

/// How long somebody may take to sign in at the provider, in seconds.
pub(crate) const SIGN_IN_S: u64 = 600;

/// A sign-in that was begun in a browser.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::access) struct Flow {
    /// What its state, nonce and proof are derived from, under the deployment's secret.
    pub(in crate::access) seed: [u8; NONCE_BYTES],
    /// When it ends, in seconds since 1970.
    pub(in crate::access) ends_at_s: u64,
    /// Where to go on afterwards.
    pub(in crate::access) next: String,
}

impl Flow {
    pub(in crate::access) fn begin(next: &str, ends_at_s: u64) -> Result<Self, NoRandomness> {
        let mut seed = [0; NONCE_BYTES];
        aws_lc_rs::rand::fill(&mut seed).map_err(|_| NoRandomness)?;
        Ok(Self { seed, ends_at_s, next: next.to_owned() })
    }

    /// What the browser keeps.
    pub(in crate::access) fn sealed(&self, signer: &Signer) -> String {
        let body = [&self.seed[..], &self.ends_at_s.to_be_bytes(), self.next.as_bytes()].concat();
        signer.sealed(Purpose::Flow, &body)
    }

    /// What a browser has kept, if it was begun here. It may have ended since.
    pub(in crate::access) fn opened(signer: &Signer, kept: &str) -> Option<Self> {
        let body = signer.opened(Purpose::Flow, kept)?;
        let (seed, rest) = body.split_first_chunk::<NONCE_BYTES>()?;
        let (end, next) = rest.split_first_chunk::<8>()?;
        let next = String::from_utf8(next.to_vec()).ok()?;
        Some(Self { seed: *seed, ends_at_s: u64::from_be_bytes(*end), next })
    }

    /// By which the provider's answer is known to belong to it.
    pub(super) fn state(&self, signer: &Signer) -> String {
        signer.derived(Purpose::FlowState, &self.seed)
    }

    pub(super) fn has_state(&self, signer: &Signer, state: &str) -> bool {
        verify_slices_are_equal(self.state(signer).as_bytes(), state.as_bytes()).is_ok()
    }

    /// By which the ID token is known to belong to it.
    pub(super) fn nonce(&self, signer: &Signer) -> String {
        signer.derived(Purpose::FlowNonce, &self.seed)
    }

    /// By which the provider knows that its code comes from us (PKCE). No browser learns it.
    pub(super) fn verifier(&self, signer: &Signer) -> String {
        signer.derived(Purpose::FlowProof, &self.seed)
    }

    /// What the provider is told of that at the beginning.
    pub(super) fn challenge(&self, signer: &Signer) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier(signer).as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_keeps_a_flow_that_it_can_neither_read_out_nor_change() {
        let signer = Signer::new(b"of this deployment");
        let flow = Flow::begin("/canvases/x/events?state=ready", 1_700_000_000).unwrap();
        let kept = flow.sealed(&signer);
        assert_eq!(Flow::opened(&signer, &kept), Some(flow));
        assert_eq!(Flow::opened(&Signer::new(b"of another"), &kept), None);
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&kept).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Flow::opened(&signer, &BASE64_URL_SAFE_NO_PAD.encode(changed)), None, "bit {bit}");
        }
        for nonsense in ["", "x", &kept[4..], &kept[..kept.len() - 4]] {
            assert_eq!(Flow::opened(&signer, nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn what_the_provider_is_told_differs_and_belongs_to_one_flow() {
        let signer = Signer::new(b"of this deployment");
        let (one, two) = (Flow::begin("", 1).unwrap(), Flow::begin("", 1).unwrap());
        let told = |flow: &Flow| {
            [flow.state(&signer), flow.nonce(&signer), flow.verifier(&signer), flow.challenge(&signer)]
        };
        let all = [told(&one), told(&two)].concat();
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
        assert!(all.iter().all(|text| text.len() == 43), "as RFC 7636 allows verifiers from 43 characters");
        assert!(one.has_state(&signer, &one.state(&signer)) && !one.has_state(&signer, &two.state(&signer)));
        assert!(!one.has_state(&signer, "") && !one.has_state(&Signer::new(b"x"), &one.state(&signer)));
    }
}
