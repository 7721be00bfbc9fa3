//! The smallest pieces of a stored row: numbers, strings and runs of bytes.
//! Never trusts a length it reads: no piece allocates more than the bytes that are really there.
//! Called only by the other files of the codec.

use bytes::Bytes;

/// Why bytes are not a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage(pub &'static str);

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }
}

/// Appends an unsigned number, seven bits a byte: most numbers in a row are small.
pub(super) fn put_uint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a signed number; small ones of either sign stay short.
pub(super) fn put_int(out: &mut Vec<u8>, number: i64) {
    put_uint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Appends a time as its distance from an earlier one. Wraps, so that any pair survives the trip.
pub(super) fn put_since(out: &mut Vec<u8>, base: u64, time: u64) {
    put_int(out, time.wrapping_sub(base) as i64);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_uint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn put_str(out: &mut Vec<u8>, text: &str) {
    put_bytes(out, text.as_bytes());
}

/// Walks over stored bytes from the front.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or(Damage("it ends too early"))?;
        self.at += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let taken = self.take(N)?;
        taken.try_into().map_err(|_| Damage("it ends too early"))
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damage> {
        Ok(self.take(1)?[0])
    }

    /// A byte of which only the `known` bits may be set.
    pub(super) fn flags(&mut self, known: u8) -> Result<u8, Damage> {
        let flags = self.byte()?;
        if flags & !known == 0 { Ok(flags) } else { Err(Damage("it has flags that its format does not know")) }
    }

    pub(super) fn uint(&mut self) -> Result<u64, Damage> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Damage("a number is too long"))
    }

    pub(super) fn int(&mut self) -> Result<i64, Damage> {
        let number = self.uint()?;
        Ok(((number >> 1) as i64) ^ -((number & 1) as i64))
    }

    pub(super) fn since(&mut self, base: u64) -> Result<u64, Damage> {
        Ok(base.wrapping_add(self.int()? as u64))
    }

    /// A count of things of which each takes at least one byte, so it can size an allocation.
    pub(super) fn count(&mut self) -> Result<usize, Damage> {
        let count = self.uint()?;
        if count > (self.bytes.len() - self.at) as u64 {
            return Err(Damage("a count is larger than the row"));
        }
        Ok(count as usize)
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Damage> {
        let len = self.count()?;
        self.take(len)
    }

    /// The next run of bytes as a slice that shares the memory of `whole`, which this reader walks over.
    pub(super) fn shared(&mut self, whole: &Bytes) -> Result<Bytes, Damage> {
        Ok(whole.slice_ref(self.bytes()?))
    }

    pub(super) fn str(&mut self) -> Result<&'a str, Damage> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Damage("a text is not UTF-8"))
    }

    pub(super) fn string(&mut self) -> Result<String, Damage> {
        self.str().map(str::to_owned)
    }

    pub(super) fn end(&self) -> Result<(), Damage> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(Damage("it goes on past its end")) }
    }
}
