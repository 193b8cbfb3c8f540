//! Credentials and permissions of clients.

use std::time::Duration;

use super::ApiServer;
use crate::access::User;
use crate::pki::{Authority, Identity, PkiError};
use crate::signing;

impl ApiServer {
    /// Creates a client certificate for a user (`system:node:n1`) in these groups, valid from now for `lifetime` (whole
    /// seconds).
    ///
    /// # Errors
    /// The certificate could not be created.
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

    /// Creates a bearer token for a user; without `lifetime` it does not expire.
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

    /// Revokes a token: requests with it get 401 from now on.
    pub fn revoke_token(&self, token: &str) {
        self.shared.with(|core| core.access.revoke_token(token));
    }

    /// Revokes every certificate and token of a user: requests with them get 401 from now on.
    pub fn revoke_user(&self, user: &str) {
        self.shared.with(|core| core.access.revoke(user));
    }

    /// Sets whether requests without credentials are accepted as `system:anonymous`. Off by default.
    pub fn allow_anonymous(&self, allowed: bool) {
        self.shared.with(|core| core.access.anonymous_allowed = allowed);
    }

    /// Answers 403 for this verb and resource (`pods/status`), each of which may be `*`.
    pub fn deny(&self, verb: &str, resource: &str) {
        self.shared.with(|core| core.access.deny(verb, resource, "*"));
    }

    /// The same in one namespace; an empty namespace means the cluster scope.
    pub fn deny_in(&self, namespace: &str, verb: &str, resource: &str) {
        self.shared.with(|core| core.access.deny(verb, resource, namespace));
    }

    /// Answers 403 for all but these pairs of verb and resource; `get|list` matches either.
    pub fn allow_only(&self, rules: &[(&str, &str)]) {
        self.shared.with(|core| core.access.allow_only(rules));
    }

    /// Sets whether users `system:node:NAME` in the group `system:nodes` are limited to what the Node authorizer and
    /// the NodeRestriction admission let a node do. By default they may do everything.
    pub fn restrict_nodes(&self, restricted: bool) {
        self.shared.with(|core| core.nodes_restricted = restricted);
    }

    /// Claims to be Kubernetes 1 of this minor version, with all its kinds of objects and with alpha features enabled.
    /// The default is 1.36.
    pub fn serve_version(&self, minor: u32) {
        self.shared.with(|core| core.minor = minor);
    }

    /// Lifts all denials.
    pub fn allow_everything(&self) {
        self.shared.with(|core| core.access.allow_everything());
    }

    /// Replaces the authority and the server certificate for new connections. Certificates that the old authority
    /// signed are no longer accepted.
    ///
    /// # Errors
    /// The certificates could not be created.
    pub fn replace_authority(&self) -> Result<(), PkiError> {
        let clock = self.shared.with(|core| core.clock.clone());
        let authority = Authority::new(clock.now())?;
        self.hall.set_tls(authority.server(&self.names, &clock, &self.protocols)?);
        self.shared.with(|core| core.authority = authority);
        Ok(())
    }

    /// Sets whether certificate requests are approved and signed as soon as they arrive, for at most this long (by
    /// default a day); `None` leaves them waiting for [`sign`](Self::sign).
    pub fn sign_requests(&self, lifetime: Option<Duration>) {
        self.shared.with(|core| core.sign_for = lifetime);
    }

    /// Approves and signs a certificate request. Returns false if it does not exist or cannot be parsed.
    #[must_use]
    pub fn sign(&self, name: &str, lifetime: Duration) -> bool {
        self.shared.with(|core| signing::sign(core, name, lifetime))
    }

    /// Denies a certificate request. Returns false if it does not exist.
    #[must_use]
    pub fn deny_request(&self, name: &str) -> bool {
        self.shared.with(|core| signing::deny(core, name))
    }
}
