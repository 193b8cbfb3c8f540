//! The addresses of this host.

use std::net::{IpAddr, UdpSocket};
use std::sync::OnceLock;

/// The source addresses that this host uses towards the rest of the world, IPv4 before IPv6; at most one of each
/// family. Empty while it has no route there.
///
/// Once found, they stay the same until the agent exits. Sends nothing, and does not block.
pub fn host_addresses() -> Vec<IpAddr> {
    static FOUND: OnceLock<Vec<IpAddr>> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return found.clone();
    }
    let found = outward_addresses();
    if found.is_empty() { found } else { FOUND.get_or_init(|| found).clone() }
}

/// Whether this host has the address now. Sends nothing, and does not block.
pub fn is_host_address(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The source addresses that the kernel would use for the documentation's example addresses, which are reached through
/// the default route.
fn outward_addresses() -> Vec<IpAddr> {
    let from = |own: &str, other: &str| {
        let socket = UdpSocket::bind(own).ok()?;
        // For datagrams this only looks up the route.
        socket.connect(other).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified() && !address.is_loopback()).then_some(address)
    };
    let both = [from("0.0.0.0:0", "192.0.2.1:9"), from("[::]:0", "[2001:db8::1]:9")];
    both.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_this_host_are_told_from_others() {
        assert!(is_host_address([127, 0, 0, 2].into()));
        assert!(!is_host_address([192, 0, 2, 1].into()), "an example's address");
    }
}
