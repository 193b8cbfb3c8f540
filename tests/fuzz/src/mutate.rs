//! Changes input at random, and the same way each time.

/// Pieces that mean something to one reader or another.
const PIECES: [&[u8]; 44] = [
    b"",
    b" ",
    b"\n",
    b"\t",
    b"\0",
    b"\xff",
    b"0",
    b"-1",
    b"+1",
    b"9223372036854775808",
    b"18446744073709551616",
    b"99999999999999999999999999999999999999999",
    b"1e999",
    b"nan",
    b"infinity",
    b".",
    b"..",
    b"../",
    b"/",
    b"\\040",
    b"%",
    b"%00",
    b":",
    b": ",
    b"- ",
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"'",
    b"&a ",
    b"*a",
    b"<<: ",
    b"null",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b"</script>",
    b"]]>",
    b"\r\n\r\n",
    b"max",
    b"kB",
    b"s",
    b"\x80\x80\x80\x80\x10",
];

/// A source of mutations; the same seed gives the same ones.
#[derive(Clone, Debug)]
pub(crate) struct Mutator {
    state: u64,
}

impl Mutator {
    /// One that begins at `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// `input` with one to four changes, and at most `longest` bytes. `other` gives pieces.
    pub(crate) fn mutate(&mut self, input: &[u8], other: &[u8], longest: usize) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, other);
        }
        bytes.truncate(longest);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        match self.below(6) {
            0 => {
                let bit = self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
            1 => {
                let value = self.byte();
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            2 => bytes.truncate(at),
            3 => {
                let end = (at + self.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            4 => {
                let end = (at + self.below(8)).min(bytes.len());
                let piece = PIECES[self.below(PIECES.len())];
                bytes.splice(at..end, piece.iter().copied());
            }
            _ => {
                let from = self.below(other.len() + 1);
                let to = (from + self.below(64)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
        }
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
