//! The addresses of this host.

use std::net::{IpAddr, UdpSocket};

use winddown_shared::Mutex;

/// The source addresses that this host uses towards the rest of the world, IPv4 before IPv6; at most one of each
/// family. Empty until it has had a route there.
///
/// While it has none, the address that was found last stays. Sends nothing, and does not block.
pub fn host_addresses() -> Vec<IpAddr> {
    static LAST: Mutex<[Option<IpAddr>; 2]> = Mutex::new([None; 2]);
    keep(&mut LAST.lock(), outward_addresses())
}

fn keep(last: &mut [Option<IpAddr>; 2], found: [Option<IpAddr>; 2]) -> Vec<IpAddr> {
    for (last, found) in last.iter_mut().zip(found) {
        *last = found.or(*last);
    }
    last.iter().flatten().copied().collect()
}

/// Whether this host has the address now. Sends nothing, and does not block.
pub fn is_host_address(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The source addresses that the kernel would use for the documentation's example addresses, which are reached through
/// the default route.
fn outward_addresses() -> [Option<IpAddr>; 2] {
    let from = |own: &str, other: &str| {
        let socket = UdpSocket::bind(own).ok()?;
        // For datagrams this only looks up the route.
        socket.connect(other).ok()?;
        let address = socket.local_addr().ok()?.ip();
        (!address.is_unspecified() && !address.is_loopback()).then_some(address)
    };
    [from("0.0.0.0:0", "192.0.2.1:9"), from("[::]:0", "[2001:db8::1]:9")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_comes_late_or_changes_is_found_and_one_that_is_lost_stays() {
        let (old, new) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let other = Some([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into());
        let mut last = [None; 2];
        for (found, addresses) in [
            ([None, None], [None, None]),
            ([None, other], [None, other]),
            ([old, other], [old, other]),
            ([new, None], [new, other]),
            ([None, None], [new, other]),
        ] {
            let addresses: Vec<IpAddr> = addresses.into_iter().flatten().collect();
            assert_eq!(keep(&mut last, found), addresses, "{found:?}");
        }
    }

    #[test]
    fn the_addresses_of_this_host_are_told_from_others() {
        assert!(is_host_address([127, 0, 0, 2].into()));
        assert!(!is_host_address([192, 0, 2, 1].into()), "an example's address");
    }
}
