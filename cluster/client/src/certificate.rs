//! What this agent needs to know about a certificate, its own or a client's.
//!
//! Reads the validity period and the subject from the DER of an X.509 certificate. It verifies
//! nothing: TLS does that.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

#[cfg(test)]
mod tests;

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const VERSION: u8 = 0xa0;
/// OID 2.5.4.3.
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// OID 2.5.4.10.
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];

/// The subject and the validity period of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// The start of the validity period.
    pub not_before: Timestamp,
    /// The end of the validity period.
    pub not_after: Timestamp,
    /// The subject's common name, which is the user; `system:node:<name>` for a node.
    pub common_name: Option<String>,
    /// The subject's organizations, which are the user's groups.
    pub organizations: Vec<String>,
}

/// A position in DER data.
struct Reader<'a>(&'a [u8]);

// === impl CertificateFacts ===

impl CertificateFacts {
    /// Parses a certificate. `None` if it is not one.
    pub(super) fn of_der(der: &[u8]) -> Option<Self> {
        let mut certificate = Reader(Reader(der).expect(SEQUENCE)?);
        let mut body = Reader(certificate.expect(SEQUENCE)?);
        body.skip_if(VERSION);
        body.expect(INTEGER)?;
        body.expect(SEQUENCE)?;
        body.expect(SEQUENCE)?;
        let mut validity = Reader(body.expect(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = body.expect(SEQUENCE)?;
        Some(Self {
            not_before,
            not_after,
            // If there are several, TLS libraries use the last one.
            common_name: attributes(Reader(subject), &COMMON_NAME).pop(),
            organizations: attributes(Reader(subject), &ORGANIZATION),
        })
    }

    /// Parses the first certificate of a PEM text.
    pub(super) fn of_pem(text: &[u8]) -> Option<Self> {
        let sections = pem::parse_many(text).ok()?;
        let first = sections.iter().find(|section| section.tag() == "CERTIFICATE")?;
        Self::of_der(first.contents())
    }

    /// The time when `share` (0 to 1) of the lifetime is over. Signers backdate certificates, so
    /// the lifetime begins when it was `made`, if that is known.
    pub(super) fn after_share(&self, share: f64, made: Option<Timestamp>) -> Timestamp {
        let begin = made.map_or(self.not_before, |made| made.max(self.not_before));
        let lifetime = self.not_after.duration_since(begin);
        let waited = lifetime.mul_f64(share.clamp(0.0, 1.0));
        begin.checked_add(waited).unwrap_or(self.not_after)
    }
}

// === impl Reader ===

impl<'a> Reader<'a> {
    /// Reads the next element: its tag and contents.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(short), rest),
            long => {
                let octets = usize::from(long & 0x7f);
                if octets == 0 || octets > 4 {
                    return None;
                }
                let (octets, rest) = rest.split_at_checked(octets)?;
                let length =
                    octets.iter().fold(0_usize, |sum, &octet| sum << 8 | usize::from(octet));
                (length, rest)
            }
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }

    fn skip_if(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            self.next();
        }
    }

    fn time(&mut self) -> Option<Timestamp> {
        let (tag, text) = self.next()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let (year, rest) = text.split_at_checked(2)?;
                let year: i16 = year.parse().ok()?;
                // RFC 5280: two digits mean 1950 to 2049.
                (if year < 50 { 2000 + year } else { 1900 + year }, rest)
            }
            GENERALIZED_TIME => {
                let (year, rest) = text.split_at_checked(4)?;
                (year.parse().ok()?, rest)
            }
            _ => return None,
        };
        let two = |at: usize| rest.get(at..at + 2).and_then(|digits| digits.parse::<i8>().ok());
        let (month, day, hour, minute, second) = (two(0)?, two(2)?, two(4)?, two(6)?, two(8)?);
        let at = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
        Some(at.to_zoned(TimeZone::UTC).ok()?.timestamp())
    }
}

/// The values of a subject's attributes of one kind.
fn attributes(mut subject: Reader<'_>, kind: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    while let Some(set) = subject.expect(SET) {
        let mut attributes = Reader(set);
        while let Some(attribute) = attributes.expect(SEQUENCE) {
            let mut attribute = Reader(attribute);
            if attribute.expect(OBJECT_ID) == Some(kind) {
                let text = attribute.next().map(|(_, text)| text.to_vec());
                found.extend(text.and_then(|text| String::from_utf8(text).ok()));
            }
        }
    }
    found
}
