//! Who may come in, with what, and what they may do.

use std::time::Duration;

use super::ApiServer;
use crate::access::User;
use crate::pki::{Authority, Identity, PkiError};
use crate::signing;

impl ApiServer {
    /// A client certificate for a user (`system:node:n1`) in these groups, valid from now for
    /// `lifetime` (whole seconds).
    ///
    /// # Errors
    /// The certificate could not be made.
    pub fn new_identity(
        &self,
        user: &str,
        groups: &[&str],
        lifetime: Duration,
    ) -> Result<Identity, PkiError> {
        let user = User::new(user, groups);
        self.shared.with(|core| {
            let identity = core.authority.client(&user, core.clock.now(), lifetime)?;
            core.access.know_certificate(identity.der.clone(), user);
            Ok(identity)
        })
    }

    /// A bearer token for a user; `None`: it does not expire.
    #[must_use]
    pub fn new_token(&self, user: &str, groups: &[&str], lifetime: Option<Duration>) -> String {
        self.shared.with(|core| {
            let until = lifetime.map(|lifetime| {
                let now = core.clock.now();
                now.checked_add(lifetime).unwrap_or(now)
            });
            core.access.new_token(User::new(user, groups), until)
        })
    }

    /// Makes a token worthless: 401 from now on.
    pub fn revoke_token(&self, token: &str) {
        self.shared.with(|core| core.access.revoke_token(token));
    }

    /// Makes every certificate and token of a user worthless: 401 from now on.
    pub fn revoke_user(&self, user: &str) {
        self.shared.with(|core| core.access.revoke(user));
    }

    /// Requests without valid credentials are let in as `system:anonymous` (at first they are not).
    pub fn allow_anonymous(&self, allowed: bool) {
        self.shared.with(|core| core.access.anonymous_allowed = allowed);
    }

    /// 403 for this verb and resource (`pods/status`), each of which may be `*`.
    pub fn deny(&self, verb: &str, resource: &str) {
        self.shared.with(|core| core.access.deny(verb, resource, "*"));
    }

    /// The same in one namespace; empty is the scope of the whole cluster.
    pub fn deny_in(&self, namespace: &str, verb: &str, resource: &str) {
        self.shared.with(|core| core.access.deny(verb, resource, namespace));
    }

    /// 403 for all but these pairs of verb and resource; `get|list` is either.
    pub fn allow_only(&self, rules: &[(&str, &str)]) {
        self.shared.with(|core| core.access.allow_only(rules));
    }

    /// Holds users `system:node:NAME` in the group `system:nodes` to what the Node authorizer and
    /// the NodeRestriction admission let a node do (at first they may do everything).
    pub fn restrict_nodes(&self, restricted: bool) {
        self.shared.with(|core| core.nodes_restricted = restricted);
    }

    /// Claims to be Kubernetes 1 of this minor version, with every kind of object that it has and the alpha features on
    /// (at first 1.36).
    pub fn serve_version(&self, minor: u32) {
        self.shared.with(|core| core.minor = minor);
    }

    /// Takes back what was denied.
    pub fn allow_everything(&self) {
        self.shared.with(|core| core.access.allow_everything());
    }

    /// A new authority and a new server certificate, for connections from now on. Certificates that
    /// the old authority signed are no longer taken.
    ///
    /// # Errors
    /// The certificates could not be made.
    pub fn replace_authority(&self) -> Result<(), PkiError> {
        let clock = self.shared.with(|core| core.clock.clone());
        let authority = Authority::new(clock.now())?;
        self.hall.set_tls(authority.server(&self.names, &clock, &self.protocols)?);
        self.shared.with(|core| core.authority = authority);
        Ok(())
    }

    /// Certificate requests are approved and signed as soon as they come, for at most this long (at
    /// first a day); `None` leaves them waiting for [`sign`](Self::sign).
    pub fn sign_requests(&self, lifetime: Option<Duration>) {
        self.shared.with(|core| core.sign_for = lifetime);
    }

    /// Approves and signs one certificate request. `false`: there is none of that name, or it cannot
    /// be read.
    #[must_use]
    pub fn sign(&self, name: &str, lifetime: Duration) -> bool {
        self.shared.with(|core| signing::sign(core, name, lifetime))
    }

    /// Denies one certificate request. `false`: there is none of that name.
    #[must_use]
    pub fn deny_request(&self, name: &str) -> bool {
        self.shared.with(|core| signing::deny(core, name))
    }
}
