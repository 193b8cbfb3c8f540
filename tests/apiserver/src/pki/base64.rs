//! Base64, as used in kubeconfig files and certificate requests.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            if place > chunk.len() {
                text.push('=');
            } else {
                let index = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or_default();
                text.push(char::from(LETTERS[index]));
            }
        }
    }
    text
}

/// Decodes base64, ignoring white space. `None` if it is invalid.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = text.bytes().filter(|b| !b.is_ascii_whitespace() && *b != b'=');
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for letter in letters {
        let value = LETTERS.iter().position(|l| *l == letter)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xff_ffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{decode, encode};

    #[test]
    fn what_is_encoded_comes_back() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xfe\xfd\xfc", "//79/A=="),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).unwrap(), bytes);
        }
        assert_eq!(decode("a-b"), None);
    }
}
