//! Structures in Thrift's compact protocol, in which Parquet has its footer and the headers of its pages: passed, to find
//! out whether the Parquet crate can be let at them.
//!
//! What that crate knows by its number it reads as the type that the format gives it, without looking at the type that
//! the bytes say; the two have to agree here ([`Shape`]), or what is passed wouldn't be what it reads. And it counts
//! through a list that it doesn't know, even where the elements take no bytes: some billions of nothing, again and again.
//! Here each element has a byte at least.

/// The fields that the format knows of a structure: the number, the type, and the shape of what is in it.
pub(super) struct Shape(pub &'static [(i16, u8, &'static Shape)]);

/// What has no fields that matter.
pub(super) const ANY: Shape = Shape(&[]);

pub(super) const BOOL: u8 = 1;
pub(super) const I8: u8 = 3;
pub(super) const I16: u8 = 4;
pub(super) const I32: u8 = 5;
pub(super) const I64: u8 = 6;
pub(super) const DOUBLE: u8 = 7;
pub(super) const BINARY: u8 = 8;
pub(super) const LIST: u8 = 9;
const SET: u8 = 10;
pub(super) const STRUCT: u8 = 12;

/// Passes a structure and returns what comes after it; `None` where it is broken. `see` is told of each structure as it
/// begins, and then of its fields of 32 bits, by number.
pub(super) fn pass<'a>(
    bytes: &'a [u8],
    shape: &Shape,
    mut see: impl FnMut(&Shape, Option<(i16, i64)>),
) -> Option<&'a [u8]> {
    let mut thrift = Thrift { rest: bytes, see: &mut see };
    thrift.structure(shape, 0)?;
    Some(thrift.rest)
}

/// Structures and lists within each other. The format has less than ten.
const MOST_DEPTH: usize = 32;

/// Is told of a structure as it begins, and of each of its fields of 32 bits: its number and value.
type See<'s> = dyn FnMut(&Shape, Option<(i16, i64)>) + 's;

struct Thrift<'a, 's> {
    /// What has not been passed.
    rest: &'a [u8],
    see: &'s mut See<'s>,
}

/// `None` is that it is broken.
impl Thrift<'_, '_> {
    fn structure(&mut self, shape: &Shape, depth: usize) -> Option<()> {
        if depth > MOST_DEPTH {
            return None;
        }
        (self.see)(shape, None);
        let mut number = 0_i16;
        loop {
            let header = self.byte()?;
            // A boolean's value is in its type.
            let kind = match header & 0x0f {
                0 => return Some(()),
                2 => BOOL,
                kind => kind,
            };
            number = match header >> 4 {
                0 => i16::try_from(self.signed()?).ok()?,
                delta => number.checked_add(i16::from(delta))?,
            };
            let known = shape.0.iter().find(|field| field.0 == number);
            if known.is_some_and(|known| known.1 != kind) {
                return None;
            }
            if kind == I32 {
                let value = self.signed()?;
                (self.see)(shape, Some((number, value)));
            } else {
                self.value(kind, known.map_or(&ANY, |known| known.2), depth)?;
            }
        }
    }

    fn value(&mut self, kind: u8, shape: &Shape, depth: usize) -> Option<()> {
        match kind {
            BOOL => Some(()),
            I8 => self.skip(1),
            I16 | I32 | I64 => self.unsigned().map(drop),
            DOUBLE => self.skip(8),
            BINARY => {
                let length = self.unsigned()?;
                self.skip(length)
            }
            LIST | SET => self.list(shape, depth + 1),
            STRUCT => self.structure(shape, depth + 1),
            _ => None,
        }
    }

    fn list(&mut self, shape: &Shape, depth: usize) -> Option<()> {
        if depth > MOST_DEPTH {
            return None;
        }
        let header = self.byte()?;
        let kind = header & 0x0f;
        let length = match header >> 4 {
            15 => usize::try_from(self.unsigned()?).ok()?,
            length => usize::from(length),
        };
        // There are no lists of booleans, of which readers differ in what bytes they take.
        if length > self.rest.len() || length > 0 && kind <= 2 {
            return None;
        }
        (0..length).try_for_each(|_| self.value(kind, shape, depth))
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn unsigned(&mut self) -> Option<u64> {
        varint(&mut self.rest)
    }

    /// The sign is the lowest bit.
    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

/// Takes a number of seven bits a byte, the lowest first.
pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    static OUTER: Shape = Shape(&[(1, I32, &ANY), (2, LIST, &INNER), (3, BOOL, &ANY)]);
    static INNER: Shape = Shape(&[(5, I32, &ANY)]);

    type Field = Option<(i16, i64)>;

    fn seen(bytes: &[u8]) -> Option<(usize, Vec<Field>)> {
        let mut seen = Vec::new();
        let rest = pass(bytes, &OUTER, |_, field| seen.push(field))?;
        Some((rest.len(), seen))
    }

    #[test]
    fn a_structure_is_passed_and_its_fields_are_told() {
        // 1: -3; 2: two structures, one with 5: 1 and an unknown double; 3: false; 20, in full: a text.
        let bytes = [
            &[0x15, 5, 0x19, 0x2c, 0x55, 2, 0x17],
            [9; 8].as_slice(),
            &[0, 0, 0x12, 0x08, 40, 2],
            b"hi",
            &[0, 77, 77],
        ];
        let told = vec![None, Some((1, -3)), None, Some((5, 1)), None];
        assert_eq!(seen(&bytes.concat()), Some((2, told)));
    }

    #[test]
    fn what_the_bytes_do_not_hold_is_refused() {
        let many = [0xff, 0xff, 0xff, 0xff, 0x07];
        for bytes in [
            vec![],
            vec![0x15],
            vec![0x15, 0x80],
            // Another type than the format has.
            vec![0x16, 5, 0],
            // An unknown list of billions of booleans, or of anything; one of a few booleans.
            [&[0xf9, 0xf1], many.as_slice(), &[0]].concat(),
            [&[0xf9, 0xfc], many.as_slice(), &[0]].concat(),
            vec![0xf9, 0x21, 1, 1, 0],
            // A text that is longer than what is left, a number that doesn't end, a map.
            vec![0xf8, 9, 0],
            [&[0x15], [0x80; 11].as_slice(), &[0, 0]].concat(),
            vec![0xfb, 0, 0],
            // Structures, or lists, within each other without end.
            vec![0xfc; 100_000],
            [&[0xf9], [0x19; 100_000].as_slice()].concat(),
        ] {
            assert_eq!(seen(&bytes), None, "{:?}", &bytes[..bytes.len().min(20)]);
        }
    }
}
