//! The keys, values and receipts that all contestants write, so that each writes the same number of bytes.
//! Never repeats a key within a run: the numbering is a bijection, and each measurement uses a new salt.
//! Called by the drivers, `library` and `scale`.

/// Hex digits of a key.
pub const KEY_LEN: usize = 32;

/// The receipt of every sealed fence: 40 bytes of JSON.
pub const RECEIPT: &str = r#"{"order":"ord_01J8ZQ4T","status":"done"}"#;

/// The effect id of every seal.
pub const EFFECT_ID: &str = "ord_01J8ZQ4T";

/// Turns a number into a key of scattered hex digits.
#[derive(Clone, Copy, Debug)]
pub struct Numbering {
    salt: u64,
}

impl Numbering {
    /// A numbering; numberings with different salts share no key.
    pub fn new(salt: u64) -> Numbering {
        Numbering { salt }
    }

    /// Writes key number `n` over the `KEY_LEN` bytes of `to`.
    pub fn write(self, n: u64, to: &mut [u8]) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let halves = [scatter(n), scatter(self.salt)];
        let bytes = halves.iter().flat_map(|half| half.to_be_bytes());
        for (pair, byte) in to.chunks_exact_mut(2).zip(bytes) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
    }
}

/// splitmix64: a bijection, so distinct numbers stay distinct while their order is lost.
pub fn scatter(n: u64) -> u64 {
    let mut z = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The first number of a connection's own space of 2^40 keys.
pub fn first_of(connection: usize) -> u64 {
    (connection as u64) << 40
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipts_are_forty_bytes() {
        assert_eq!(RECEIPT.len(), 40);
    }

    #[test]
    fn keys_do_not_repeat() {
        let mut seen = std::collections::HashSet::new();
        for n in 0..10_000 {
            let mut key = [0; KEY_LEN];
            Numbering::new(7).write(n, &mut key);
            assert!(seen.insert(key));
        }
    }
}
